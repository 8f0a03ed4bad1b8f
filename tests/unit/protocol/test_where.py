"""The row filter: what is understood, what it takes, and that it means what pyiceberg and Lance mean by it."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.expressions.parser import parse as parse_by_pyiceberg
from pyiceberg.expressions.visitors import rewrite_not

from checkpoint_formats.iceberg.plan import to_pyiceberg
from checkpoint_formats.rows.where import Filter
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.where import AllOf, AnyOf, BeginsWith, Compare, IsIn, IsNan, IsNull, columns_of, parse_where
from tests.support.conditions import COLUMNS, conditions

UTC = datetime.UTC
AT = datetime.datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)
NOON = AT.replace(microsecond=0, tzinfo=None)
MOST = "9" * 38


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("a = 1", Compare("a", "=", 1)),
        ("a==1", Compare("a", "=", 1)),
        ("a <> -1", Compare("a", "!=", -1)),
        ("1.50 > a", Compare("a", "<", Decimal("1.50"))),
        ("NOT a >= TRUE", Compare("a", "<", True)),
        ("a = 'it''s'", Compare("a", "=", "it's")),
        ("\"größe m\" != ''", Compare("größe m", "!=", "")),
        ("a is null", IsNull("a")),
        ("not a is not null", IsNull("a")),
        ("not a is nan", IsNan("a", negated=True)),
        ("a in (1)", IsIn("a", (1,))),
        ("not a not in ('x', 'y')", IsIn("a", ("x", "y"))),
        ("a like 'x%'", BeginsWith("a", "x")),
        ("a not like 'x%'", BeginsWith("a", "x", negated=True)),
        ("a between 1 and 2", AllOf((Compare("a", ">=", 1), Compare("a", "<=", 2)))),
        ("not a between 1 and 2", AnyOf((Compare("a", "<", 1), Compare("a", ">", 2)))),
        ("a=1 and b=2 or c=3", AnyOf((AllOf((Compare("a", "=", 1), Compare("b", "=", 2))), Compare("c", "=", 3)))),
        ("not (a=1 or b=2)", AllOf((Compare("a", "!=", 1), Compare("b", "!=", 2)))),
        ("((a = 1))", Compare("a", "=", 1)),
    ],
)
def test_what_is_understood(text: str, condition: object) -> None:
    assert parse_where(text) == condition


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the name of a column"),
        ("a", "at the end (character 2): one of =, !="),
        ("a = ", "a literal is expected"),
        ("a = b", "at 'b' (character 5): a literal is expected"),
        ("a = 1 b = 2", "at 'b = 2' (character 7): 'and', 'or' or the end"),
        ("(a = 1", "')' is expected"),
        ("a in ()", "a literal is expected"),
        ("a in (1, 'x')", "at \"'x')\" (character 10): a list has literals of one kind"),
        ("a like 'x%y'", "a beginning is expected"),
        ("a like '%x%'", "a beginning is expected"),
        ("a is 5", "null or nan"),
        ("a.b = 1", "no word, number, text or sign"),
        ("a = 1x", "no word, number, text or sign"),
        ("a = 'x", "no word, number, text or sign"),
        ("größe = 1", "no word, number, text or sign"),
        ("(" * 60 + "a = 1" + ")" * 60, "nested deeper"),
    ],
)
def test_what_is_not_understood_is_told_with_its_place(text: str, says: str) -> None:
    with pytest.raises(NeedsChange) as refused:
        parse_where(text)

    assert refused.value.reason == reasons.MANIFEST_INVALID
    assert refused.value.message.startswith("spec.source.where: ")
    assert says in refused.value.message


@given(conditions())
def test_pyiceberg_reads_the_same_text_as_the_same_condition(text: str) -> None:
    ours = to_pyiceberg(parse_where(text), COLUMNS)

    # Where pyiceberg keeps the literal as it is written, ours has the column's type: compared as both are printed.
    assert _shape(ours) == _shape(rewrite_not(parse_by_pyiceberg(text)))


def _shape(expression: Any) -> Any:
    """Return an expression as nested tuples without literals, with joins flat: a between is two comparisons, and so on."""
    parts = [getattr(expression, name) for name in ("left", "right") if hasattr(expression, name)]
    if parts:
        kind = type(expression).__name__
        flat = [part for inner in parts for part in (_shape(inner)[1:] if _shape(inner)[0] == kind else (_shape(inner),))]
        return (kind, *flat)
    return (type(expression).__name__, str(getattr(getattr(expression, "term", None), "name", "")))


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (pa.int64(), "a = 1.5", "without a point"),
        (pa.int64(), "a = '1'", "without quotes"),
        (pa.int64(), "a = true", "cannot be compared"),
        (pa.int8(), "a in (1, 128)", "128 is no int8"),
        (pa.uint16(), "a > -1", "-1 is no uint16"),
        (pa.string(), "a = 1", "in single quotes"),
        (pa.bool_(), "a = 1", "true or false"),
        (pa.decimal128(5, 2), "a = 1.234", "1.234 is no decimal128(5, 2)"),
        (pa.decimal128(5, 2), "a < 1000", "1000 is no decimal128(5, 2)"),
        (pa.date32(), "a = '2026-02-30'", "2026-01-31"),
        (pa.date32(), "a = 20260131", "ISO 8601"),
        (pa.timestamp("us"), "a = '2026-01-31T00:00:00Z'", "without a zone"),
        (pa.timestamp("us", "UTC"), "a = '2026-01-31T00:00:00'", "with a zone"),
        (pa.timestamp("ns"), "a < '3000-01-01T00:00:00'", "nanoseconds"),
        (pa.timestamp("ns"), "a = '2026-01-31T12:00:00.123456789'", "finer than a microsecond"),
        (pa.timestamp("us", "UTC"), "a in ('2026-01-31T12:00:00.1234567Z')", "finer than a microsecond"),
        (pa.timestamp("us", "UTC"), "a < '9999-12-31T23:59:59-05:00'", "before or after all"),
        (pa.timestamp("us", "UTC"), "a > '0001-01-01T00:00:00+05:00'", "before or after all"),
        (pa.float32(), f"a <= 1{'0' * 39}", "is no float, which"),
        (pa.float64(), f"a = 1{'0' * 309}", "is no double, which"),
        (pa.float64(), f"a > -1{'0' * 309}.5", "is no double, which"),
        (pa.decimal128(38, 0), f"a = 1{'0' * 38}", "is no decimal128(38, 0)"),
        (pa.decimal128(38, 18), f"a = 0.{'0' * 18}1", "is no decimal128(38, 18)"),
        (pa.string(), "a is nan", "nan is for float"),
        (pa.int64(), "a like '1%'", "like is for strings"),
        (pa.list_(pa.int64()), "a = 1", "only be asked for NULL"),
        (pa.int64(), "b = 1", "there is no column 'b' (there are a)"),
    ],
)
def test_a_literal_that_does_not_fit_is_refused_and_not_bent(kind: pa.DataType, text: str, says: str) -> None:
    with pytest.raises(NeedsChange) as refused:
        Filter(parse_where(text), pa.schema([("a", kind)]))

    assert says in refused.value.message


NAN = float("nan")


@pytest.mark.parametrize(
    ("text", "kind", "values", "taken"),
    [
        ("a != 2", pa.int64(), [1, 2, None], [1]),
        ("not a = 2", pa.int64(), [1, 2, None], [1]),
        ("a not in (2, 3)", pa.int32(), [1, 2, None], [1]),
        ("a in (2, 3) or a is null", pa.int32(), [1, 2, None], [2, None]),
        ("a < 2 or a >= 2", pa.float64(), [1.0, None, NAN], [1.0]),
        ("not a < 2", pa.float64(), [1.0, 2.0, None, NAN], [2.0]),
        ("a in (0)", pa.float64(), [-0.0, 0.0, 1.0], [0.0, 0.0]),
        ("a <= 0.1", pa.float32(), [0.1, 0.2], [pytest.approx(0.1)]),
        ("a is not nan", pa.float32(), [0.5, None, NAN], [0.5]),
        ("a >= 1.50", pa.decimal128(10, 2), [Decimal("1.49"), Decimal("1.50"), None], [Decimal("1.50")]),
        ("a > 10000000000", pa.decimal128(38, 18), [Decimal(10**10), Decimal(10**10) + 1], [Decimal(10**10) + 1]),
        (f"a = {MOST}", pa.decimal128(38, 0), [Decimal(MOST), Decimal(1)], [Decimal(MOST)]),
        (f"a > -{MOST}", pa.decimal128(38, 0), [Decimal(f"-{MOST}"), Decimal(1)], [Decimal(1)]),
        ("a in (1.5, 2.0)", pa.decimal64(10, 2), [Decimal("1.50"), Decimal(2), Decimal(3), None], [Decimal("1.50"), Decimal(2)]),
        ("a not in (1.5, 2.0)", pa.decimal32(5, 2), [Decimal("1.50"), Decimal(3), None], [Decimal(3)]),
        ("a = '2026-01-31T12:00:00.0000000'", pa.timestamp("us"), [NOON], [NOON]),
        ("a > '2026-01-30'", pa.date32(), [datetime.date(2026, 1, 30), datetime.date(2026, 1, 31)], [datetime.date(2026, 1, 31)]),
        ("a = '2026-01-31T13:00:00.000005+01:00'", pa.timestamp("us", "UTC"), [AT, None], [AT]),
        ("a in ('2026-01-31T12:00:00.5')", pa.timestamp("s"), [NOON], []),
        ("a < '2026-01-31T12:00:00.5'", pa.timestamp("s"), [NOON], [NOON]),
        ("a like 'ä%'", pa.string(), ["äb", "b", None, ""], ["äb"]),
        ("not a like ''' %' and a = 'b'", pa.string(), ["b", "' b"], ["b"]),
        ("a = true", pa.bool_(), [True, False, None], [True]),
        ("a is null", pa.list_(pa.int8()), [[1], None], [None]),
    ],
)  # fmt: skip
def test_the_rows_that_are_taken(text: str, kind: pa.DataType, values: list[Any], taken: list[Any]) -> None:
    batch = pa.record_batch([pa.array(values, kind)], names=["a"])

    rows = Filter(parse_where(text), batch.schema).take(batch)

    assert batch.take(rows).column(0).to_pylist() == taken


@given(st.data())
def test_a_row_group_that_is_passed_over_has_no_row_that_is_taken(data: st.DataObject) -> None:
    text = data.draw(conditions())
    rows = data.draw(st.lists(st.fixed_dictionaries(_VALUES), min_size=1, max_size=6))
    table = pa.Table.from_pylist(rows, schema=COLUMNS)
    written = io.BytesIO()
    pq.write_table(table, written, row_group_size=2)
    filter = Filter(parse_where(text), COLUMNS)

    parquet = pq.ParquetFile(written)
    names = {name: name for name in COLUMNS.names}
    for number in range(parquet.num_row_groups):
        if not filter.may_take(parquet.metadata.row_group(number), names):
            group = parquet.read_row_group(number).combine_chunks().to_batches()[0]
            assert len(filter.take(group)) == 0, group.to_pylist()


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.none() | st.integers(-3, 3),
    "f": st.none() | st.sampled_from([NAN, -1.5, -0.0, 0.0, 0.1, 2.0]),
    "d": st.none() | st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("1.25")]),
    "s": st.none() | st.sampled_from(["", "a", "ab", "b", "ä"]),
    "day": st.none() | st.sampled_from([datetime.date(2026, 1, 30), datetime.date(2026, 1, 31)]),
    "moment": st.none() | st.sampled_from([AT, AT.replace(year=1969)]),
    "flag": st.none() | st.booleans(),
}


def test_statistics_let_row_groups_be_passed_over() -> None:
    table = pa.table({"i": list(range(100)), "s": [f"{n:03}" for n in range(100)]})
    written = io.BytesIO()
    pq.write_table(table, written, row_group_size=10)
    metadata = pq.ParquetFile(written).metadata

    def kept(text: str) -> list[int]:
        filter = Filter(parse_where(text), table.schema)
        return [n for n in range(10) if filter.may_take(metadata.row_group(n), {"i": "i", "s": "s"})]

    assert kept("i >= 35 and i < 50") == [3, 4]
    assert kept("s in ('001', '095')") == [0, 9]
    assert kept("i is null") == []
    assert kept("i > 98 or s < '010'") == [0, 9]


FAR = 1 << 58


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a = '2026-01-31'", pa.array([-1_000_000_000, 0], pa.int32()).cast(pa.date32())),
        ("a > '2026-01-31T12:00:00+00:00'", pa.array([0, FAR]).cast(pa.timestamp("us", "UTC"))),
        ("a in ('2026-01-31T12:00:00')", pa.array([-FAR, FAR]).cast(pa.timestamp("us"))),
        ("a = 'b'", pa.array([b"a", b"\xff"]).view(pa.string())),
    ],
    ids=["date", "zone", "time", "text"],
)
def test_statistics_that_are_no_values_of_python_let_a_row_group_be_read(text: str, values: pa.Array) -> None:
    """A year beyond 9999, or a text that is no UTF-8: Arrow reads such a column, and so do we."""
    table = pa.table({"a": values})
    written = io.BytesIO()
    pq.write_table(table, written)
    group = pq.ParquetFile(written).metadata.row_group(0)
    filter = Filter(parse_where(text), table.schema)

    assert group.column(0).statistics.has_min_max
    assert filter.may_take(group, {"a": "a"})
    assert len(filter.take(table.to_batches()[0])) == (1 if ">" in text else 0)


def test_the_columns_that_a_condition_looks_at() -> None:
    assert columns_of(parse_where("b = 1 and (a is null or b > 2)")) == ("b", "a")
