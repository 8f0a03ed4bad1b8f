"""`sink.verify: Footers`: a data file whose rows are not as many as its seal says is not committed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from checkpoint_protocol import reasons
from checkpoint_protocol.manifest.sink import Sink
from tests.controller.harness import World
from tests.support.writes import SCHEMA

ONE_ROW = pa.table({"id": [1], "text": ["x"]}, schema=SCHEMA)


def data_files(world: World) -> list[Path]:
    """Those that are staged, on this disk."""
    return sorted(
        path
        for kind in ("*.parquet", "*.lance")
        for path in world.place.folder.rglob(kind)
        if "input" not in path.parts and path.is_file()
    )


def replace_all(world: World) -> None:
    """Put files of one row in the place of those that are staged; those of Parquet keep their sizes."""
    for path in data_files(world):
        size_bytes = path.stat().st_size
        schema = pq.read_schema(path) if path.suffix == ".parquet" else None
        path.unlink()
        if schema is not None:
            pq.write_table(ONE_ROW.cast(schema), path)
            data = path.read_bytes()
            path.write_bytes(data[:4] + b"\0" * (size_bytes - len(data)) + data[4:])
        else:
            with LanceFileWriter(str(path), SCHEMA) as writer:
                writer.write_batch(ONE_ROW)


@pytest.mark.parametrize("verify", ["Footers", "SampledFooters"])
def test_a_file_with_other_rows_than_its_seal_says_stops_the_write_and_is_named(world: World, source: Path, verify: str) -> None:
    world.kubelet.after_all = lambda: replace_all(world)
    world.apply(source, sink={**world.place.sink(), "verify": verify})

    world.until_stalled()

    assert world.status.reason == reasons.STAGED_RESULT_REFUSED
    assert "has 1 row by its footer" in (world.status.message or "")
    assert world.place.rows() == []


def put_other_columns(world: World) -> None:
    """Put files in the place of those that are staged, with as many rows, and text where the table has numbers."""
    for path in data_files(world):
        if path.suffix == ".parquet":
            rows, schema = pq.read_metadata(path).num_rows, pq.read_schema(path)
            other = schema.set(0, schema.field(0).with_type(pa.string()))
            pq.write_table(pa.table([["x"] * rows] * 2, schema=other), path)
        else:
            rows = LanceFileReader(str(path)).num_rows()
            other = SCHEMA.set(0, SCHEMA.field(0).with_type(pa.string()))
            path.unlink()
            with LanceFileWriter(str(path), other) as writer:
                writer.write_batch(pa.table([["x"] * rows] * 2, schema=other))


def test_a_file_with_other_columns_than_its_table_stops_the_write_and_is_named(world: World, source: Path) -> None:
    world.kubelet.after_all = lambda: put_other_columns(world)
    world.apply(source)

    world.until_stalled()

    assert world.status.reason == reasons.STAGED_RESULT_REFUSED
    assert re.search(r"the staged file .+ has other columns than (the table )?it was staged for", world.status.message or "")
    assert world.place.rows() == []


@pytest.mark.parametrize("verify", ["Footers", "SampledFooters"])
def test_files_that_are_as_their_seals_say_are_committed(world: World, source: Path, verify: str) -> None:
    world.apply(source, sink={**world.place.sink(), "verify": verify})

    world.until_committed()

    assert len(world.place.rows()) == 200


@pytest.mark.parametrize("said", [{}, {"verify": "Seals"}, {"verify": "SampledFooters"}], ids=["nothing", "less", "samples"])
def test_by_default_no_write_of_a_cluster_commits_a_file_with_other_rows_than_its_seal_says(
    world: World, source: Path, said: dict[str, str]
) -> None:
    world.kubelet.after_all = lambda: replace_all(world)
    world.apply(source, sink={**world.place.sink(), **said})

    world.until_stalled()

    assert world.status.reason == reasons.STAGED_RESULT_REFUSED
    assert world.place.rows() == []


def test_whoever_installed_the_operator_may_go_by_the_seals(world: World, source: Path) -> None:
    """And a wrong count is committed, as the values say."""
    world = World(world.place, config=world.config.model_copy(update={"verify": "Seals"}))
    world.kubelet.after_all = lambda: replace_all(world)
    world.apply(source)

    world.until(lambda: world.is_true("Committed") or world.is_true("Stalled"))

    # A file of Lance has another size then.
    is_parquet = world.place.sink().keys() == {"iceberg"}
    assert world.is_true("Committed") == is_parquet


def test_a_manifest_may_ask_for_more_than_the_least() -> None:
    asked = Sink.model_validate({"lance": {"uri": "s3://bucket/rows.lance"}, "verify": "Footers"})

    assert asked.verified_at_least("SampledFooters").verify == "Footers"
    assert Sink.model_validate({"none": {}}).verified_at_least("Footers").verify == "Seals"


def test_a_file_that_cannot_be_read_stops_the_write(world: World, source: Path) -> None:
    def spoil() -> None:
        for path in data_files(world):
            path.write_bytes(b"x" * path.stat().st_size)

    world.kubelet.after_all = spoil
    sections: dict[str, Any] = {"sink": {**world.place.sink(), "verify": "Footers"}}
    world.apply(source, **sections)

    world.until_stalled()

    assert world.status.reason == reasons.STAGED_RESULT_REFUSED
    assert world.place.rows() == []
