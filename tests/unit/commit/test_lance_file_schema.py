"""The columns of a staged file of Lance, compared with the dataset: by the file's own schema, of which anything may be said."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.file import LanceFileWriter

from checkpoint_commit.footers import Footers
from checkpoint_commit.lance.added.staged import only_columns, take_packed
from checkpoint_commit.lance.files.file_schema import FileField, fields_in, fields_of_target
from checkpoint_commit.lance.files.footers import LanceFooters
from checkpoint_commit.staged_files import Tails
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.lance_schema import fields_of
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import LanceColumnFile, LanceDataFile, LanceTarget
from checkpoint_protocol.records.formats.operations import AddColumns
from checkpoint_protocol.store.memory import Pool

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("dropped", pa.int64()),
        pa.field("text", pa.string(), metadata={"about": "a text"}),
        pa.field("pair", pa.struct([("a", pa.int32()), ("list", pa.list_(pa.float32()))])),
        pa.field("packed", pa.struct([("a", pa.int32()), ("b", pa.int32())]), metadata={"packed": "true"}),
        pa.field("vector", pa.list_(pa.float32(), 4)),
        pa.field("word", pa.dictionary(pa.int32(), pa.string())),
        pa.field("time", pa.timestamp("us", "UTC")),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("image", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
        pa.field("uuid", pa.uuid()),
        pa.field("document", pa.json_()),
        pa.field("points", pa.list_(pa.struct([("x", pa.int8())]))),
    ]
)
MAP: Final = pa.field("map", pa.map_(pa.string(), pa.int32()))


def dataset_of(folder: Path, schema: pa.Schema, version: str | None = None) -> Any:
    uri = str(folder / "rows.lance")
    return lance.write_dataset(schema.empty_table(), uri, schema=schema, data_storage_version=version)


def target_of(dataset: Any) -> LanceTarget:
    return LanceTarget(
        uri=dataset.uri,
        identity="0" * 32,
        at_version=dataset.version,
        fields=fields_of(dataset),
        arrow_schema=encode_schema(dataset.schema),
        storage_version=dataset.data_storage_version,
    )


def staged(dataset: Any, schema: pa.Schema) -> Any:
    """Stage one row of NULLs, or of zeros, with these columns; return what Lance says of the file."""
    columns = [pa.nulls(1, field.type) if field.nullable else pa.array([0], field.type) for field in schema]
    (fragment,) = lance.fragment.write_fragments(pa.table(columns, schema=schema), dataset, mode="append")
    (file,) = fragment.files
    return file


def footers_of(dataset: Any, *targets: LanceTarget) -> LanceFooters:
    footers = LanceFooters(dataset.uri, Settings(), Tails(Settings()), Pool(256 << 20))
    footers.expect(targets or [target_of(dataset)])
    return footers


def put(dataset: Any, schema: pa.Schema, rows: int = 1, name: str = "other.lance") -> Path:
    """Put a file into the dataset's folder that Lance has made, with whatever columns."""
    path = Path(dataset.uri, "data", name)
    with LanceFileWriter(str(path), schema) as writer:
        writer.write_batch(pa.table([pa.nulls(rows, field.type) for field in schema], schema=schema))
    return path


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_the_columns_of_what_lance_stages_are_those_of_the_dataset(tmp_path: Path, version: str) -> None:
    schema = SCHEMA.append(MAP) if version == "2.2" else SCHEMA
    if version != "2.1":  # no NULL in a struct of the first, no such blobs in the last
        schema = pa.schema([each for each in schema if each.name not in ("pair", "packed", "image")])
    dataset_of(tmp_path, schema, version).drop_columns(["dropped"])
    dataset = lance.dataset(str(tmp_path / "rows.lance"))

    file = staged(dataset, dataset.schema)

    assert footers_of(dataset).count_rows(file.path, file.fields) == 1


def test_the_columns_of_a_file_for_some_of_them_come_in_the_order_of_the_write(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, SCHEMA.remove(0))  # a row may be without the others
    names = ("points", "pair", "text")
    footers = footers_of(dataset, only_columns(target_of(dataset), names))

    file = staged(dataset, pa.schema([SCHEMA.field(name) for name in names]))
    other = staged(dataset, pa.schema([SCHEMA.field(name) for name in reversed(names)]))

    assert footers.count_rows(file.path, file.fields) == 1
    with pytest.raises(NeedsChange, match="has other columns than it was staged for"):
        footers.count_rows(other.path, file.fields)


@pytest.mark.parametrize(
    "written",
    [
        pa.schema([("id", pa.string()), ("text", pa.string())]),
        pa.schema([("id", pa.int64()), ("words", pa.string())]),
        pa.schema([("text", pa.string()), ("id", pa.int64())]),
        pa.schema([("id", pa.int64())]),
        pa.schema([("id", pa.int64()), ("text", pa.string()), ("more", pa.int8())]),
    ],
    ids=["another type", "another name", "another order", "one less", "one more"],
)
def test_a_file_of_lance_with_other_columns_than_the_dataset_is_refused_by_name(tmp_path: Path, written: pa.Schema) -> None:
    dataset = dataset_of(tmp_path, pa.schema([("id", pa.int64()), ("text", pa.string())]))
    path = put(dataset, written)

    with pytest.raises(NeedsChange, match=r"data/other\.lance has other columns than it was staged for") as refused:
        footers_of(dataset).count_rows(path.name, (0, 1))

    assert refused.value.reason == reasons.STAGED_RESULT_REFUSED


def test_a_file_of_lance_may_be_for_any_schema_that_an_attempt_has_staged_for(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, pa.schema([("id", pa.int64())]))
    old = target_of(dataset)
    dataset.add_columns(pa.schema([("text", pa.string())]))
    path = put(dataset, pa.schema([("id", pa.int64())]))

    assert footers_of(dataset, target_of(dataset), old).count_rows(path.name, (0,)) == 1
    with pytest.raises(NeedsChange, match="has other columns than it was staged for"):
        footers_of(dataset, target_of(dataset), old).count_rows(path.name, (0, 1))


def test_a_file_of_lance_with_fewer_columns_than_its_seal_says_is_refused(tmp_path: Path) -> None:
    """Its schema names the columns of the dataset, and some of them are not there."""
    dataset = dataset_of(tmp_path, pa.schema([("id", pa.int64()), ("text", pa.string())]))
    path = put(dataset, pa.schema([("id", pa.int64()), ("text", pa.string())]))
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, len(data) - 12, 1)
    path.write_bytes(data)

    with pytest.raises(NeedsChange, match=r"has 1 columns by its footer, and its seal says 2"):
        footers_of(dataset).count_rows(path.name, (0, 1))


def test_the_columns_of_a_file_whose_schema_lies_far_from_its_end_are_compared(tmp_path: Path) -> None:
    schema = pa.schema([(f"column_{number}", pa.int64()) for number in range(1_500)])
    dataset = dataset_of(tmp_path, schema)

    file = staged(dataset, schema)
    other = put(dataset, pa.schema([field.with_type(pa.float64()) for field in schema]))

    assert footers_of(dataset).count_rows(file.path, file.fields) == 1
    with pytest.raises(NeedsChange, match="has other columns than it was staged for"):
        footers_of(dataset).count_rows(other.name, file.fields)


@pytest.mark.parametrize(
    ("fields", "indices", "told"),
    [
        ((1, 0), (1, 0), "its columns are not numbered one after the other: 1, 0"),
        ((0, 1), (0, 7), "its columns are not numbered one after the other: 0, 7"),
        ((1,), (0,), "it has the fields 1 in file format 2.1"),
        ((0, 1), (0, 1), "it has the fields 0, 1 in file format 2.1"),
    ],
    ids=["another order", "a column that is not there", "one less", "the order of the dataset"],
)
def test_a_file_for_added_columns_has_all_of_them_and_numbers_them_as_it_has_them(
    tmp_path: Path, fields: tuple[int, ...], indices: tuple[int, ...], told: str
) -> None:
    dataset = dataset_of(tmp_path, pa.schema([("id", pa.int64()), ("text", pa.string())]))
    columns = ("text", "id")
    data_file = LanceDataFile(
        path="a.lance", size_bytes=1, fields=fields, column_indices=indices, major_version=2, minor_version=1
    )

    taken = take_packed(
        dataset.uri,
        AddColumns(columns=columns, only="All"),
        [only_columns(target_of(dataset), columns)],
        [LanceColumnFile(fragment=0, file=data_file, rows=1, beside=())],
        Footers("Seals", lambda path, fields: 1, lambda below: 0),
    )

    assert taken.incompatibility is not None
    assert told in taken.incompatibility.message
    assert not taken.files


@given(spoiled=st.binary(max_size=120), at=st.integers(0, 400))
def test_whatever_stands_where_the_schema_is_to_be_is_columns_or_no_schema(spoiled: bytes, at: int) -> None:
    target = LanceTarget(uri="a", identity="0" * 32, at_version=1, fields=(), arrow_schema=EMPTY, storage_version="2.1")
    assert fields_of_target(target) == ()
    whole = b"\x0a\x0f\x0a\x0d\x12\x02id\x1a\x00\x2a\x05int64"
    data = whole[:at] + spoiled + whole[at:]
    try:
        found = list(fields_in(data))
    except (ValueError, IndexError):
        return
    assert all(isinstance(each, FileField) for each in found)


EMPTY: Final = encode_schema(pa.schema([]))
