"""Columns of inferred types: quick checks of whole columns say the same as the rules say of each text."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from checkpoint_formats.files.csv.inferred_columns import _NAMES, InferredColumns
from checkpoint_protocol.rows.text_types import TextColumn, is_held
from tests.support.effort import examples

_TIMES = r"2024-0[1-3]-[0-3][0-9]([T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?(Z|\+00|\+02:00)?)?"
_few = st.one_of(
    st.integers(-(1 << 64), 1 << 64).map(str),
    st.sampled_from([10**digits + more for digits in range(20) for more in (-1, 0, 1)]).map(str),
    st.floats(allow_nan=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.from_regex(r"[+-]?[0-9]{1,20}\.?[0-9]{0,20}(?:[eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(["true", "False", "1", "0", "-0", "0xffffffff", "0xffffffffffffffff", " 1", "nan", "Infinity", "", "x"]),
    st.dates().map(str),
    st.datetimes().map(str),
    st.datetimes().map(lambda at: at.isoformat("T", "minutes")),
    st.datetimes(timezones=st.just(datetime.UTC)).map(str),
    st.from_regex(_TIMES, fullmatch=True),
)


def read(texts: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    schema = pa.schema([("n", kind)])
    columns = InferredColumns(schema, given=())
    assert columns.parsed.types == [pa.string()]
    return columns.read([pa.array(texts, pa.string())]).column(0)


@settings(deadline=None, max_examples=examples(300))
@example(texts=["2262-01-01"], nulls=0)
@example(texts=["1677-12-31 10:00"], nulls=1)
@given(texts=st.lists(_few, max_size=4), nulls=st.integers(0, 2))
def test_a_column_is_read_exactly_where_each_of_its_texts_is_held(texts: list[str], nulls: int) -> None:
    for kind, name in _NAMES.items():
        given = [*texts, *[None] * nulls]
        if all(is_held(text, name) for text in texts):
            assert read(given, kind).null_count == nulls
        else:
            with pytest.raises(pa.ArrowInvalid, match="column 'n'"):
                read(given, kind)


@settings(deadline=None, max_examples=examples(300))
@given(texts=st.lists(_few, min_size=1, max_size=4))
def test_what_is_inferred_can_be_read(texts: list[str]) -> None:
    column = TextColumn()
    column.add(texts)
    kinds: dict[str, Any] = {name: kind for kind, name in _NAMES.items()} | {"string": pa.string()}
    kind = kinds[column.infer().type]
    values = read(texts, kind).to_pylist() if kind != pa.string() else texts
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        assert [str(value) for value in values] == texts


def test_a_slice_of_a_column_is_judged_by_its_own_texts() -> None:
    columns = InferredColumns(pa.schema([("n", pa.int64())]), given=())
    texts = pa.array(["x", "12", None, "-5", "007"])
    assert columns.read([texts.slice(1, 3)]).column(0).to_pylist() == [12, None, -5]


def test_columns_of_given_types_and_of_types_that_are_never_inferred_are_parsed_as_such() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.time64("us")), ("c", pa.string()), ("d", pa.int64())])
    assert InferredColumns(schema, given={"a"}).parsed.types == [pa.int64(), pa.time64("us"), pa.string(), pa.string()]
