"""Row counts by footers: which files are looked at, what is refused, and that a hostile footer costs nothing."""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_commit.footers import Footers, columns_of, parquet_rows
from checkpoint_commit.lance.files.footers import LanceFooters
from checkpoint_commit.staged_files import Tails
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sink import Sink, Verify
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store.memory import Pool


def looked_at(verify: Verify, count: int, wrong: int | None = None) -> list[str]:
    """Take so many files of seven rows; return those whose footers were read."""
    seen: list[str] = []

    def count_rows(path: str, _: Sequence[int]) -> int:
        seen.append(path)
        return 6 if path == f"file-{wrong}" else 7

    footers = Footers(verify, count_rows, lambda below: below - 1)
    for number in range(count):
        footers.add(f"file-{number}", 7)
    footers.finish()
    return sorted(seen)


def identified(name: str, type_: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, type_, metadata={"PARQUET:field_id": str(field_id)})


def empty(schema: pa.Schema) -> bytes:
    made = io.BytesIO()
    pq.write_table(schema.empty_table(), made)
    return made.getvalue()


def parquet(rows: int, columns: int = 1) -> bytes:
    made = io.BytesIO()
    pq.write_table(pa.table({f"column-{number}": list(range(rows)) for number in range(columns)}), made)
    return made.getvalue()


def rows_of(data: bytes, asked: list[int] | None = None) -> int:
    def tail(most_bytes: int) -> bytes:
        if asked is not None:
            asked.append(most_bytes)
        return data[-most_bytes:]

    return parquet_rows("s3://lake/a.parquet", tail)


def test_by_default_no_footer_is_read() -> None:
    assert looked_at("Seals", 500, wrong=3) == []


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201, 450])
def test_every_footer_is_read_where_all_are_asked_for(count: int) -> None:
    assert len(looked_at("Footers", count)) == count


@pytest.mark.parametrize(("count", "read"), [(0, 0), (1, 1), (19, 1), (20, 1), (21, 2), (400, 20)])
def test_one_of_twenty_is_read_where_they_are_sampled_and_one_at_least(count: int, read: int) -> None:
    assert len(looked_at("SampledFooters", count)) == read


@pytest.mark.parametrize("wrong", [0, 199, 200, 204])
def test_a_file_whose_footer_says_otherwise_is_named_with_both_counts(wrong: int) -> None:
    with pytest.raises(NeedsChange, match=rf"file-{wrong} has 6 rows by its footer, and its seal says 7") as refused:
        looked_at("Footers", 205, wrong=wrong)
    assert refused.value.reason == reasons.STAGED_RESULT_REFUSED


def test_the_rows_of_a_parquet_file_are_in_the_first_request() -> None:
    asked: list[int] = []
    assert rows_of(parquet(1234), asked) == 1234
    assert asked == [64 << 10]


def test_a_footer_that_is_larger_is_asked_for_as_a_whole() -> None:
    asked: list[int] = []
    wide = parquet(3, columns=1500)
    assert rows_of(wide, asked) == 3
    assert len(asked) == 2


@pytest.mark.parametrize(
    "data",
    [b"", b"PAR1", parquet(3)[:-1], b"\xff\xff\xff\x7fPAR1", b"x" * 100 + (90).to_bytes(4, "little") + b"PAR1"],
    ids=["empty", "only magic", "cut off", "a footer of 2 GiB", "no thrift"],
)
def test_what_has_no_footer_is_refused_and_little_of_it_is_read(data: bytes) -> None:
    asked: list[int] = []
    with pytest.raises(NeedsChange, match=r"s3://lake/a\.parquet is no Parquet file"):
        rows_of(data, asked)
    assert max(asked) == 64 << 10


@pytest.mark.parametrize(
    "written",
    [
        pa.schema([identified("id", pa.string(), 1)]),
        pa.schema([identified("id", pa.int64(), 2)]),
        pa.schema([identified("id", pa.int64(), 1), identified("more", pa.int64(), 2)]),
        pa.schema([pa.field("id", pa.int64())]),
    ],
    ids=["another type", "another field id", "one more column", "no field ids"],
)
def test_a_parquet_file_with_other_columns_than_the_table_is_refused(written: pa.Schema) -> None:
    data, columns = empty(written), columns_of(pa.schema([identified("id", pa.int64(), 1)]))

    with pytest.raises(NeedsChange, match=r"a\.parquet has other columns than the table it was staged for"):
        parquet_rows("s3://lake/a.parquet", lambda most_bytes: data[-most_bytes:], (columns,))


def test_a_parquet_file_may_be_of_any_schema_that_an_attempt_has_staged_for() -> None:
    old, new = pa.schema([identified("id", pa.int64(), 1)]), pa.schema([identified("id", pa.string(), 1)])

    assert parquet_rows("a", lambda most_bytes: empty(old)[-most_bytes:], (columns_of(new), columns_of(old))) == 0


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def footer(columns: int = 1, rows: int = 1, program: int = 0, groups: bytes = b"\x19\x0c") -> bytes:
    """A footer as small as can be for so many columns without a name, with the name of a program of so many bytes.

    `groups`: the list of row groups, which is empty.
    """
    root, column = b"\x48\x01r\x15" + varint(2 * columns) + b"\x00", b"\x15\x00\x25\x00\x18\x00\x00"
    schema = b"\x19\xfc" + varint(columns + 1) + root + column * columns
    thrift = b"\x15\x02" + schema + b"\x16" + varint(2 * rows) + groups + b"\x28" + varint(program) + b"p" * program + b"\x00"
    return thrift + len(thrift).to_bytes(4, "little") + b"PAR1"


class Room(Pool):
    """Remembers what was asked for."""

    def __init__(self) -> None:
        super().__init__(256 << 20)
        self.asked: list[int] = []

    def take(self, size_bytes: int) -> int:
        self.asked.append(size_bytes)
        return super().take(size_bytes)


def test_a_footer_that_would_be_gigabytes_in_memory_is_not_made_into_objects() -> None:
    assert rows_of(footer(columns=3, rows=5)) == 5, "the same, of fewer columns"

    with pytest.raises(NeedsChange, match=r"would take [0-9,]+ bytes of memory, .* so that it cannot be checked"):
        rows_of(footer(columns=900_000))


def test_a_large_footer_is_read_as_a_whole() -> None:
    assert rows_of(footer(rows=1_234, program=15 << 20)) == 1_234
    assert rows_of(footer(rows=7, program=1)) == 7


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (footer(columns=3, program=2 << 20), "has other columns than the table it was staged for"),
        (footer(program=2 << 20, groups=b"\x19\x3c\x3c\x3c\x3c"), "is no Parquet file"),
        (footer(program=2 << 20, groups=b"\x19\x1c\x00"), "is no Parquet file"),
    ],
    ids=["other columns", "what follows the number of rows is no thrift", "a row group without columns"],
)
def test_what_a_large_footer_says_is_checked_as_in_a_small_one(data: bytes, told: str) -> None:
    """Committed unread, it would break the table for everybody who reads it."""
    columns = columns_of(pa.schema([identified("id", pa.int64(), 1)]))

    with pytest.raises(NeedsChange, match=told):
        parquet_rows("s3://lake/a.parquet", lambda most_bytes: data[-most_bytes:], (columns,))


@pytest.mark.parametrize(
    "data", [footer(), parquet(3, columns=1_500), footer(program=2 << 20), footer(columns=900_000), b"x" * 9]
)
def test_footers_share_a_room_and_give_it_back(data: bytes) -> None:
    room = Room()
    with contextlib.suppress(NeedsChange):
        parquet_rows("s3://lake/a.parquet", lambda most_bytes: data[-most_bytes:], room=room)

    length = int.from_bytes(data[-8:-4], "little") + 8
    if not data.endswith(b"PAR1"):
        assert room.asked == []
    elif length <= 1 << 20:
        assert room.asked == [length * 170]
    else:
        assert room.asked[0] == length, "while its objects are counted"
        assert all(length < asked <= room.most_bytes for asked in room.asked[1:])
    assert room.taken == 0


def lance_file(folder: Path) -> tuple[str, Path]:
    dataset = lance.write_dataset(pa.table({"a": list(range(1_000)), "b": ["x"] * 1_000}), str(folder / "d.lance"))
    (path,) = Path(dataset.uri, "data").iterdir()
    return str(folder / "d.lance"), path


def test_the_rows_of_a_file_of_lance_are_read_in_a_room(tmp_path: Path) -> None:
    uri, path = lance_file(tmp_path)
    room = Room()

    assert LanceFooters(uri, Settings(), Tails(Settings()), room).count_rows(path.name, (0, 1)) == 1_000

    (asked,) = room.asked
    assert 0 < asked <= path.stat().st_size * 170
    assert room.taken == 0


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (0, 0, "bytes of metadata"),  # of the columns: as long as the file
        (8, 0, "bytes of metadata"),
        (0, 1 << 60, "no data file of Lance"),
        (16, 0, "bytes of metadata"),
        (16, 1 << 60, "no data file of Lance"),
        (24, 0, "no data file of Lance"),
        (36, 0, "no data file of Lance"),
        (-16, 1 << 40, "bytes of metadata"),  # the schema
    ],
)
def test_a_file_of_lance_whose_metadata_are_as_large_as_it_says_is_not_opened(
    tmp_path: Path, place: int, value: int, told: str
) -> None:
    uri, path = lance_file(tmp_path)
    data = bytearray(path.read_bytes())
    end = len(data) - 40
    if place < 0:
        struct.pack_into("<Q", data, end - 8, value)
    else:
        struct.pack_into("<I" if place >= 24 else "<Q", data, end + place, value)
    rows = b""
    if place in (0, 8) and not value:
        rows = bytes(8 << 20)
        struct.pack_into("<Q", data, end + 16, struct.unpack_from("<Q", data, end + 16)[0] + len(rows))
    path.write_bytes(rows + data)
    room = Room()

    with pytest.raises(NeedsChange, match=told) as refused:
        LanceFooters(uri, Settings(), Tails(Settings()), room).count_rows(path.name, (0, 1))

    assert refused.value.reason == reasons.STAGED_RESULT_REFUSED
    assert room.asked == []


def test_how_a_commit_is_verified_is_no_part_of_what_a_write_is() -> None:
    def sink(**fields: object) -> Sink:
        return Sink.model_validate({"lance": {"uri": "s3://lake/a.lance"}, **fields})

    assert sink(verify="Footers").identity == sink().identity


def test_without_a_table_there_is_nothing_to_verify() -> None:
    with pytest.raises(ValueError, match="there are no files"):
        Sink.model_validate({"none": {}, "verify": "Footers"})
