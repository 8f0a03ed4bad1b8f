"""Footers of Parquet files: read as pyarrow reads them, and in less time where they are like the one before."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from checkpoint_formats.files.parquet.footers import Footer, Footers
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.rows.parquet_rows import INT96_UNIT, row_group_starts
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.storage import StorageSettings
from tests.support.effort import examples

SCHEMAS = (
    pa.schema([("n", pa.int64())]),
    pa.schema([("n", pa.int32())]),
    pa.schema([("n", pa.int64()), ("s", pa.list_(pa.struct([("x", pa.string())])))]),
    # These two differ only in what stands behind the row groups.
    pa.schema([("n", pa.timestamp("us", "UTC"))]),
    pa.schema([("n", pa.timestamp("us", "Europe/Berlin"))]),
    pa.schema([("n", pa.dictionary(pa.int32(), pa.string()))]),
    pa.schema([("n", pa.string())]),
)
#: With each of these, Arrow's schema and the metadata of users stand elsewhere, or not at all.
METADATA = (None, {"a": "b"}, {"a": "b", "c": "d" * 200})


def parquet(schema: pa.Schema, rows: int, group: int = 1_000_000, store_schema: bool = True, **options: Any) -> bytes:
    data = io.BytesIO()
    table = pa.Table.from_batches([pa.RecordBatch.from_pylist([{} for _ in range(rows)], schema)])
    pq.write_table(table, data, row_group_size=group, store_schema=store_schema, **options)
    return data.getvalue()


files_of_one_source = st.lists(
    st.builds(
        lambda number, metadata, rows, group, store: parquet(
            SCHEMAS[number].with_metadata(METADATA[metadata]), rows, group, store
        ),
        st.integers(0, len(SCHEMAS) - 1),
        st.integers(0, len(METADATA) - 1),
        st.integers(0, 300),
        st.sampled_from([100, 1_000]),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


def expected(data: bytes) -> Footer:
    parquet_file = pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit=INT96_UNIT)
    return Footer(parquet_file.metadata.num_rows, row_group_starts(parquet_file.metadata), parquet_file.schema_arrow)


@dataclass
class CountedFiles(SourceFiles):
    """Counts what is read, and the files that pyarrow opens."""

    reads: list[tuple[int, int]] = field(default_factory=list)
    opened: int = 0

    def __post_init__(self) -> None:
        super().__init__(StorageSettings())

    def read_range(self, path: str, start: int, end: int) -> bytes:
        self.reads.append((start, end))
        return super().read_range(path, start, end)

    def open_arrow(self, path: str) -> pa.NativeFile:
        self.opened += 1
        return super().open_arrow(path)


def read_all(folder: Path, contents: Sequence[bytes], files: CountedFiles | None = None) -> list[Footer]:
    files = files or CountedFiles()
    for number, data in enumerate(contents):
        (folder / f"{number:03d}.parquet").write_bytes(data)
    footers = Footers(files)
    return [footers.read(file) for file in files.expand([str(folder)])]


@settings(deadline=None, max_examples=examples(200))
@given(contents=files_of_one_source)
@example(contents=[parquet(SCHEMAS[3], 5), parquet(SCHEMAS[4], 5), parquet(SCHEMAS[3], 7)])
@example(contents=[parquet(SCHEMAS[6], 5), parquet(SCHEMAS[5], 5)])
@example(contents=[parquet(SCHEMAS[0], 5), parquet(SCHEMAS[0], 0), parquet(SCHEMAS[0], 300, 100), parquet(SCHEMAS[0], 300)])
def test_footers_are_read_as_pyarrow_reads_them_whatever_was_read_before(contents: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert read_all(Path(folder), contents) == [expected(data) for data in contents]


def test_a_footer_like_one_before_it_is_read_at_once_and_its_schema_is_the_same_object(tmp_path: Path) -> None:
    files = CountedFiles()
    kinds = [SCHEMAS[0], SCHEMAS[2], SCHEMAS[4]]

    found = read_all(tmp_path, [parquet(kinds[number % 3], 1 + number) for number in range(30)], files)

    assert [footer.rows for footer in found] == list(range(1, 31))
    assert len({id(footer.schema) for footer in found}) == 3
    assert len(files.reads) == 30, "one request for each"
    assert files.opened == 0


def test_of_a_large_file_only_the_end_is_read_and_of_a_large_footer_all(tmp_path: Path) -> None:
    files = CountedFiles()
    data = io.BytesIO()
    pq.write_table(pa.table({"n": range(20_000)}), data, compression="none", use_dictionary=False)
    large = data.getvalue()
    wide = parquet(pa.schema([(f"column-{number}", pa.int64()) for number in range(2_000)]), 3)

    found = read_all(tmp_path, [large, large, wide, large], files)

    assert found == [expected(data) for data in (large, large, wide, large)]
    assert len(files.reads) == 5, "the large footer takes two"
    first, second, _, _, last = (end - start for start, end in files.reads)
    assert first == last == 64 << 10
    assert second < 4 << 10
    assert files.opened == 0


@pytest.mark.parametrize(
    "end",
    [
        b"\xff\xff\xff\xffPAR1",
        b"\x00\x00\x00\x00PAR1",
        b"\x15" * 40 + b"\x28\x00\x00\x00PAR1",
        b"\x1c" * 3_000 + (3_000).to_bytes(4, "little") + b"PAR1",  # structs in structs
        b"PARE",
        b"",
    ],
)
def test_what_is_no_footer_is_refused_by_the_name_of_its_file(tmp_path: Path, end: bytes) -> None:
    with pytest.raises(NeedsChange) as refused:
        read_all(tmp_path, [parquet(SCHEMAS[0], 3), b"PAR1" + b"x" * 100 + end])

    assert refused.value.reason == reasons.SOURCE_UNREADABLE
    assert "001.parquet: it cannot be read as Parquet" in refused.value.message
