"""Extension types of Arrow in sources: their values are read as what they mean, or the column is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_formats.lance.reader import LanceReader, find_fragments
from checkpoint_formats.port import Described
from checkpoint_formats.rows.plain_types import as_plain, plain_schema
from checkpoint_formats.rows.selecting import Selection
from checkpoint_formats.rows.uniting import unite
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.source import LanceSource
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.rows.positions import Range
from tests.support.reading import chunks_of, open_reader, rows_of

EVERYTHING = Selection()
UUID_BYTES = bytes(range(16))


def described(dataset: str) -> tuple[Described, LanceReader]:
    found, pinned = find_fragments(LanceSource(uri=dataset), None, StorageSettings(), (), "Fail")
    return found, LanceReader(pinned, StorageSettings())


def read(dataset: str, selection: Selection = EVERYTHING) -> list[dict[str, Any]]:
    found, reader = described(dataset)
    (file,) = found.files
    return rows_of(chunks_of(reader, file, Range(file=0, start=0, end=file.end), unite([found], selection)))


def test_blobs_of_a_lance_dataset_are_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "beside").write_bytes(b"in a file of its own")
    schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("data")])
    values = [b"abc", None, b"", bytes(100_000), f"file://{tmp_path}/beside"]
    rows = pa.table({"id": list(range(5)), "data": lance.blob_array(values)}, schema=schema)
    lance.write_dataset(rows, f"{tmp_path}/t", data_storage_version="2.2", allow_external_blob_outside_bases=True)

    assert [row["data"] for row in read(f"{tmp_path}/t")] == [b"abc", None, b"", bytes(100_000), b"in a file of its own"]


def test_blobs_of_an_older_lance_dataset_are_their_bytes(tmp_path: Path) -> None:
    field = pa.field("data", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    rows = pa.table([pa.array([b"abc", None, b""], pa.large_binary())], schema=pa.schema([field]))
    lance.write_dataset(rows, f"{tmp_path}/t", data_storage_version="2.1")

    assert [row["data"] for row in read(f"{tmp_path}/t")] == [b"abc", None, b""]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array([UUID_BYTES, None], pa.uuid()), [UUID_BYTES, None]),
        (pa.array(['{"a": 1}', None], pa.json_()), ['{"a": 1}', None]),
        (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8())), [True, False, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)
def test_values_of_known_extension_types_are_those_of_a_plain_type(column: pa.Array, values: list[Any], tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_arrays([column], ["v"])
    path = f"{tmp_path}/a.parquet"
    pq.write_table(pa.Table.from_batches([batch]), path)
    reader = open_reader("parquet")
    (file,), schema = reader.describe([path])

    assert as_plain(batch, plain_schema(batch.schema)).column(0).to_pylist() == values
    assert [row["v"] for row in rows_of(chunks_of(reader, file, Range(file=0, start=0, end=file.end), schema))] == values


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.opaque(pa.binary(), "a", "b"), "arrow.opaque"),
        (pa.fixed_shape_tensor(pa.float32(), [2, 2]), "arrow.fixed_shape_tensor"),
        (pa.struct([("x", pa.list_(pa.opaque(pa.binary(), "a", "b")))]), "arrow.opaque"),
    ],
    ids=str,
)
def test_a_column_of_an_unknown_extension_type_is_refused_by_name_unless_it_is_left_out(kind: pa.DataType, name: str) -> None:
    schema = plain_schema(pa.schema([("id", pa.int64()), ("v", kind)]))
    source = Described((), schema, "source file /in/a.parquet", ("id", "v"))

    with pytest.raises(NeedsChange) as refused:
        unite([source], EVERYTHING)

    assert refused.value.reason == reasons.SOURCE_UNREADABLE
    for part in (name, "'v'", "/in/a.parquet", "source.columns"):
        assert part in refused.value.message
    assert unite([source], Selection(columns=("id",))).names == ["id"]
