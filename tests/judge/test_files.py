"""A task reads what somebody wrote: random columns of Parquet, CSV and JSON lines, cut anywhere. Planted errors are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from checkpoint_formats.files.csv import inferred_columns, nulls
from checkpoint_formats.files.json import objects
from checkpoint_formats.files.parquet import reader as parquet_reader
from checkpoint_formats.rows import parquet_rows, plain_types
from tests.judge.files import WAYS, csv, json_lines, judge, parquet
from tests.judge.steps import Red
from tests.support.slow import slow_except

_BLOCK = 200
#: How many files may be read before a planted error is found.
_MOST = 2_000

Plant = Callable[[Any, str, Any], None]


@pytest.mark.parametrize("first", slow_except(range(0, 10_000, _BLOCK), *range(0, 800, _BLOCK)))
def test_a_file_is_read_as_it_was_written_or_refused_by_name(first: int) -> None:
    verdicts = Counter[str]()

    for seed in range(first, first + _BLOCK):
        judge(seed, verdicts)

    for way in ("parquet", "parquet_of_duckdb", "json_lines", "csv"):
        assert verdicts[f"{way}: equal"] > _BLOCK / 10


def _times_have_milliseconds(plant: Plant) -> None:
    real = plain_types.as_plain

    def as_plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        columns = [
            pc.floor_temporal(column, unit="millisecond") if pa.types.is_timestamp(column.type) else column
            for column in real(batch, schema).columns
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    plant(parquet_reader, "as_plain", as_plain)


def _a_row_group_is_read_twice(plant: Plant) -> None:
    real = parquet_rows.row_batches

    def row_batches(parquet: Any, start: int, end: int, *rest: Any) -> Iterator[tuple[pa.RecordBatch | None, int, int]]:
        for batch, begin, stop in real(parquet, start, end, *rest):
            yield None if batch is None else batch.take(pa.array([0] * batch.num_rows)), begin, stop

    plant(parquet_reader, "row_batches", row_batches)


def _large_numbers_of_json_are_rounded(plant: Plant) -> None:
    plant(objects, "has_large_doubles", lambda column: False)


def _texts_of_numbers_lose_their_zeros(plant: Plant) -> None:
    plant(inferred_columns, "is_held", lambda text, kind: True)


def _a_text_beside_numbers_counts_as_held(plant: Plant) -> None:
    plant(inferred_columns, "_unsure", lambda texts, values, kind: texts.slice(0, 0))


def _null_values_with_an_escape_are_texts(plant: Plant) -> None:
    plant(nulls.NullMarks, "__bool__", lambda self: False)


_PLANTED = {
    _times_have_milliseconds: parquet,
    _a_row_group_is_read_twice: parquet,
    _large_numbers_of_json_are_rounded: json_lines,
    _texts_of_numbers_lose_their_zeros: csv,
    _a_text_beside_numbers_counts_as_held: csv,
    _null_values_with_an_escape_are_texts: csv,
}


@pytest.mark.parametrize(("planted", "way"), [pytest.param(*each, id=each[0].__name__[1:]) for each in _PLANTED.items()])
def test_the_judge_finds(planted: Callable[[Plant], None], way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch.setattr)

    with pytest.raises(Red):
        _judge(range(WAYS.index(way), _MOST, len(WAYS)))


def _judge(seeds: Iterable[int]) -> None:
    for seed in seeds:
        judge(seed, Counter[str]())
