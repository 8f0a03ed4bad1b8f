"""Rows that come together by their keys, in buckets and groups: whatever the values, and in little memory."""

from __future__ import annotations

import datetime as dt
import math
import tempfile
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_formats.stage_results.group_keys import codes_of, hashes_of, refuse_keys
from checkpoint_formats.stage_results.groups import GroupReader, PiecesOfFile
from checkpoint_formats.stage_results.stager import StageResultStager
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import Grouping, StageTarget
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from tests.support.effort import examples

SCHEMA = pa.schema([("a", pa.string()), ("x", pa.float64()), ("n", pa.int64()), ("fill", pa.binary())])
BUCKETS = 5


def key_of(row: dict[str, Any]) -> tuple[Any, Any]:
    """What makes two rows meet, by the rules of SQL's GROUP BY."""
    x = row["x"]
    return row["a"], "nan" if x is not None and math.isnan(x) else x


def staged_and_read(
    batches: Iterator[pa.RecordBatch], folder: str, by: tuple[str, ...], most_bytes: int
) -> list[list[pa.RecordBatch]]:
    """Put rows into buckets by two tasks of an attempt, and return the groups of each bucket."""
    grouping = Grouping(by=by, buckets=BUCKETS if by else 1)
    target = StageTarget(folder=folder, arrow_schema=encode_schema(SCHEMA), shuffles=grouping)
    given_batches = list(batches)
    pieces: dict[str, list[PiecesOfFile]] = {}
    rows: Counter[str] = Counter()
    for task in range(2):
        for file in StageResultStager(target, f"1-{task}", 1 << 20, StorageSettings()).stage(iter(given_batches[task::2])):
            for number, (bucket, count) in enumerate(zip(file.buckets, file.batches, strict=True)):
                path = f"{folder}/bucket-{bucket}"
                pieces.setdefault(path, []).append(PiecesOfFile(f"{folder}/{file.name}", (number,)))
                rows[path] += count
    reader = GroupReader(grouping, pieces, StorageSettings(), most_bytes)
    found = []
    for path, count in rows.items():
        bucket_file = SourceFile(path=path, etag="", size_bytes=1, unit="rows", end=count)
        assert {reader.align(bucket_file, position, 3) for position in range(1, count)} <= {count}
        chunks = list(reader.read(bucket_file, Range(file=0, start=0, end=count), SCHEMA, BatchSizing(60.0)))
        assert [chunk.start for chunk in chunks] == [0, *(chunk.end for chunk in chunks[:-1])]
        found.append([chunk.batch for chunk in chunks])
    return found


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([None, "", "a", "b\x00", "ä"]), st.sampled_from([None, 0.0, -0.0, 1.5, math.nan, math.inf, -math.nan])
        ),
        max_size=60,
    ),
    size=st.integers(1, 20),
    most_bytes=st.sampled_from([1, 3_000, 1 << 20]),
    fill=st.sampled_from([b"", b"f" * 500]),
)
def test_all_rows_of_a_key_are_one_group_and_each_row_is_in_one(
    rows: list[tuple[str | None, float | None]], size: int, most_bytes: int, fill: bytes
) -> None:
    given_rows = [{"a": a, "x": x, "n": number, "fill": fill} for number, (a, x) in enumerate(rows)]
    batches = (pa.RecordBatch.from_pylist(given_rows[at : at + size], SCHEMA) for at in range(0, len(rows), size))
    with tempfile.TemporaryDirectory() as folder:
        groups = [group.to_pylist() for bucket in staged_and_read(batches, folder, ("a", "x"), most_bytes) for group in bucket]
    assert sorted(row["n"] for group in groups for row in group) == list(range(len(rows)))
    assert all(len({key_of(row) for row in group}) == 1 for group in groups)
    assert len(groups) == len({key_of(row) for row in given_rows}), "a key's rows are in several groups"


def test_without_keys_all_rows_are_one_group(tmp_path: Path) -> None:
    batches = (pa.RecordBatch.from_pylist([{"a": "x", "n": number}], SCHEMA) for number in range(7))
    ((group,),) = staged_and_read(batches, str(tmp_path), (), 1)
    assert sorted(group.column("n").to_pylist()) == list(range(7))


def test_hashes_of_keys_stay_as_they_are() -> None:
    """Stores hold rows by them: with another hash, rows of a key that come after an upgrade would lie in another bucket."""
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "text": (pa.string(), ["a", None]),
        "large": (pa.large_string(), ["a", ""]),
        "bytes": (pa.binary(3), [b"abc", None]),
        "int": (pa.int16(), [-5, None]),
        "unsigned": (pa.uint64(), [2**64 - 1, None]),
        "float": (pa.float64(), [1.5, math.nan]),
        "half": (pa.float16(), [np.float16(1.5), None]),
        "bool": (pa.bool_(), [True, None]),
        "day": (pa.date32(), [dt.date(2026, 11, 25), None]),
        "time": (pa.time32("s"), [dt.time(1, 2, 3), None]),
        "at": (pa.timestamp("us", "UTC"), [dt.datetime(2026, 11, 25, tzinfo=dt.UTC), None]),
        "took": (pa.duration("ms"), [dt.timedelta(seconds=1), None]),
        "price": (pa.decimal128(9, 2), [Decimal("1.50"), None]),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind) for kind, values in columns.values()], schema=schema)
    refuse_keys(schema, schema.names)
    assert {name: f"{hashes_of(batch, [name])[0]:016x}"[:8] for name in schema.names} == {
        "text": "931cddc3",
        "large": "931cddc3",
        "bytes": "82393d04",
        "int": "cd99887b",
        "unsigned": "4bffd802",
        "float": "f16c3869",
        "half": "f16c3869",
        "bool": "7ab40e09",
        "day": "1f005b62",
        "time": "45e2d61f",
        "at": "8b42a100",
        "took": "1f57513b",
        "price": "47f0d672",
    }
    assert hashes_of(batch, ["float"])[0] == hashes_of(batch, ["half"])[0]
    assert f"{hashes_of(batch, schema.names)[0]:016x}" == "a9791f6994063078"
    assert codes_of(batch, schema.names).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("by", "text"),
    [("b", "names the column 'b', which the rows do not have .they have a, tags."), ("tags", "of type list<.*>, by which rows")],
)
def test_columns_that_are_no_keys_are_refused_with_the_way_out(by: str, text: str) -> None:
    schema = pa.schema([("a", pa.string()), ("tags", pa.list_(pa.string()))])
    with pytest.raises(NeedsChange, match=text):
        refuse_keys(schema, [by])
    refuse_keys(schema, ["a"])
    refuse_keys(schema.append(pa.field("b", pa.int8())), ["b"])


def test_a_part_of_a_bucket_is_never_read(tmp_path: Path) -> None:
    reader = GroupReader(Grouping(by=("a",), buckets=2), {}, StorageSettings())
    file = SourceFile(path=f"{tmp_path}/bucket-0001", etag="", size_bytes=1, unit="rows", end=5)
    with pytest.raises(Corrupt, match="are no whole bucket"):
        list(reader.read(file, Range(file=0, start=2, end=5), SCHEMA, BatchSizing(60.0)))
    with pytest.raises(Corrupt, match="has 0 rows, and 5 by the seals of its stage"):
        list(reader.read(file, Range(file=0, start=0, end=5), SCHEMA, BatchSizing(60.0)))
