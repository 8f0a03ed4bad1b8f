"""A source that leads into what the write itself puts somewhere is refused; one beside it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_protocol.places.outputs import (
    checkpoint_output,
    find_file_in,
    find_path_into,
    is_one_place,
)
from checkpoint_protocol.records import Output, lance_output
from tests.support.records import ICEBERG


def iceberg_output(data_location: str) -> Output:
    (output,) = ICEBERG.model_copy(update={"data_location": data_location}).outputs
    return output


TABLE = iceberg_output("/data/wh/db/rows/data")
DATASET = lance_output("s3://b/out/rows.lance")
STORE = checkpoint_output("/data/checkpoints")
HIDDEN = checkpoint_output("file:///data/_checkpoints")


@pytest.mark.parametrize(
    ("path", "meets"),
    [
        ("/data", "the data of the sink's table"),
        ("/data/", "the data of the sink's table"),
        ("file:///data//wh/", "the data of the sink's table"),
        ("/", "the data of the sink's table"),
        ("/data/wh/db/rows/data", "the data of the sink's table"),
        ("/data/wh/db/rows/data/cw-1/1.parquet", "the data of the sink's table"),
        ("/data/wh/db/rows/data/*.parquet", "the data of the sink's table"),
        ("/data/*", "the data of the sink's table"),
        ("/data/**/*.parquet", "the data of the sink's table"),
        ("/data/wh/db/*/data/*.parquet", "the data of the sink's table"),
        ("/data/wh/db/*/data/*/*.parquet", "the data of the sink's table"),
        ("/data/**/*.json", "the checkpoint store"),
        ("/data/check*", "the checkpoint store"),
        ("/data/checkpoints/in", "the checkpoint store"),
        ("s3://b", "the sink's dataset"),
        ("s3://b/out/", "the sink's dataset"),
        ("s3a://b/out/*", "the sink's dataset"),
        ("s3a://b/out/rows.lance/data", "the sink's dataset"),
        ("/data/*.parquet", None),
        ("/data/in", None),
        ("/data/wh/db/rows/dat", None),
        ("/data/wh/db/rows/data2/*", None),
        ("/data/wh/db/other", None),
        ("/data/**/in-*.csv", None),
        ("/data/in/**", None),
        ("/data/check", None),
        ("s3://b/out/*.parquet", None),
        ("s3://b/ou", None),
        ("s3://c/out", None),
        ("gs://b/out", None),
    ],
)
def test_a_path_that_may_find_what_the_write_puts_somewhere(path: str, meets: str | None) -> None:
    found = find_path_into([TABLE, DATASET, STORE, HIDDEN], [path])
    assert (found[1].title if found else None) == meets


def test_a_folder_passes_over_an_output_under_a_hidden_name(tmp_path: Path) -> None:
    hidden = checkpoint_output(f"{tmp_path}/_checkpoints")
    assert find_path_into([hidden], [str(tmp_path), f"{tmp_path}/*", f"{tmp_path}/**"]) is None
    assert find_path_into([hidden], [f"{tmp_path}/_*"]) is not None


def test_a_link_to_an_output_leads_into_it(tmp_path: Path) -> None:
    (tmp_path / "rows.lance" / "data").mkdir(parents=True)
    (tmp_path / "rows.lance" / "data" / "x.parquet").touch()
    (tmp_path / "in").symlink_to(tmp_path / "rows.lance" / "data")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "y.parquet").touch()
    (tmp_path / "other" / "x.parquet").symlink_to(tmp_path / "rows.lance" / "data" / "x.parquet")
    output = lance_output(f"file://{tmp_path}/rows.lance")

    assert find_path_into([output], [f"{tmp_path}/in"]) is not None
    assert find_path_into([output], [f"{tmp_path}/other"]) is None  # what is in it no path says
    assert find_file_in([output], [f"{tmp_path}/other/y.parquet"]) is None
    for name in ("in", "other"):
        assert find_file_in([output], [f"{tmp_path}/other/y.parquet", f"{tmp_path}/{name}/x.parquet"]) == (
            f"{tmp_path}/{name}/x.parquet",
            output,
        )


def test_an_object_of_the_dataset_is_found_in_it() -> None:
    assert find_file_in([DATASET], ["s3://b/out/rows.lance2", "s3a://b/out/rows.lance/data/x"]) is not None
    assert find_file_in([DATASET], ["s3://b/out/rows.lance2", "s3://c/out/rows.lance/data/x"]) is None


def test_a_place_of_which_no_source_can_be_is_met_by_none() -> None:
    assert find_path_into([iceberg_output("hdfs://host/wh/data")], ["/wh", "s3://wh/data", "hdfs://host/wh"]) is None


def test_two_spellings_of_a_place(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "rows")
    assert is_one_place(f"{tmp_path}/link/", f"file:///{tmp_path}//rows")
    assert is_one_place("s3a://b/x", "s3://b/x/")
    assert not is_one_place("s3://b/x", "s3://b/y")
    assert not is_one_place("memory://a", "memory://b")
