"""Which types unite, and that the united one holds each value as it was."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_formats.port import Described
from checkpoint_formats.rows.plain_types import as_plain
from checkpoint_formats.rows.selecting import Selection
from checkpoint_formats.rows.uniting import UnitedColumns, unite, united_type
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

UNITED = [
    (pa.null(), pa.string(), pa.string()),
    (pa.null(), pa.list_(pa.int8()), pa.list_(pa.int8())),
    (pa.int8(), pa.int64(), pa.int64()),
    (pa.uint8(), pa.uint32(), pa.uint32()),
    (pa.uint32(), pa.int64(), pa.int64()),
    (pa.float32(), pa.float64(), pa.float64()),
    (pa.int32(), pa.float64(), pa.float64()),
    (pa.int16(), pa.float32(), pa.float64()),
    (pa.decimal128(10, 2), pa.decimal128(5, 4), pa.decimal128(12, 4)),
    (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
    (pa.timestamp("ms", "UTC"), pa.timestamp("s", "UTC"), pa.timestamp("ms", "UTC")),
]
APART = [
    (pa.int64(), pa.float64()),
    (pa.uint64(), pa.int64()),
    (pa.int32(), pa.uint32()),
    (pa.int64(), pa.string()),
    (pa.bool_(), pa.int8()),
    (pa.decimal128(38, 0), pa.decimal128(38, 10)),
    (pa.timestamp("us"), pa.timestamp("ns")),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.date32(), pa.timestamp("us")),
    (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int16())])),
]


@pytest.mark.parametrize(("one", "other", "united"), UNITED, ids=str)
def test_a_type_that_holds_the_values_of_both_is_found_in_either_order(
    one: pa.DataType, other: pa.DataType, united: pa.DataType
) -> None:
    assert united_type(one, other) == united == united_type(other, one)
    assert united_type(united, one) == united


@pytest.mark.parametrize(("one", "other"), APART, ids=str)
def test_types_of_which_none_holds_the_values_of_both_are_told_apart(one: pa.DataType, other: pa.DataType) -> None:
    assert united_type(one, other) is None
    assert united_type(other, one) is None


@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)), st.sampled_from([pa.int64(), pa.float64()]))
def test_whole_numbers_stay_what_they_are(values: list[int | None], other: pa.DataType) -> None:
    kind = united_type(pa.int32(), other)
    assert kind is not None

    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.int32())], ["n"])

    assert as_plain(batch, pa.schema([("n", kind)])).column(0).to_pylist() == values


def described(place: str, **types: pa.DataType) -> Described:
    return Described((), pa.schema(list(types.items())), place, tuple(types))


def test_the_members_of_a_union_are_united_in_the_order_that_is_asked_for() -> None:
    files, table = described("source file a.csv", n=pa.int64(), text=pa.string()), described("source table t", n=pa.int32())

    assert unite([files, table], Selection()) == pa.schema([("n", pa.int64()), ("text", pa.string())])
    assert unite([table, files], Selection(("text", "n"))).names == ["text", "n"]


def test_a_column_that_no_member_of_a_union_has_is_named_with_those_that_there_are() -> None:
    with pytest.raises(NeedsChange, match=r"none of the sources has a column 'x' \(they have n, text\)") as refused:
        unite([described("a", n=pa.int64()), described("b", n=pa.int64(), text=pa.string())], Selection(("n", "x")))

    assert refused.value.reason == reasons.MANIFEST_INVALID


def test_members_that_cannot_be_united_are_both_named() -> None:
    columns = UnitedColumns()
    columns.add("source file a.csv", pa.schema([("n", pa.int64())]))
    columns.add("source table t", pa.schema([("n", pa.int8())]))

    with pytest.raises(NeedsChange, match=r"source dataset d has string in the column 'n', and source file a\.csv has int64"):
        columns.add("source dataset d", pa.schema([("n", pa.string())]))


SPELLED = "Spark takes names that differ by case only for one"


@pytest.mark.parametrize("names", [("id",), ("x", "id"), ("x", "iD")])
@pytest.mark.parametrize("others", [(), ("x",)])
def test_columns_that_differ_by_case_only_are_refused_with_both_files(names: tuple[str, ...], others: tuple[str, ...]) -> None:
    columns = UnitedColumns()
    columns.add("source file a.parquet", pa.schema([(name, pa.int64()) for name in ("ID", *others)]))

    with pytest.raises(NeedsChange) as refused:
        columns.add("source file b.parquet", pa.schema([(name, pa.int64()) for name in names]))

    assert (
        f"source file b.parquet has a column {names[-1]!r}, and source file a.parquet has 'ID': {SPELLED}"
        in refused.value.message
    )


def test_the_members_of_a_union_are_refused_too_and_a_choice_of_columns_helps() -> None:
    members = [described("a", ID=pa.int64(), n=pa.int64()), described("b", id=pa.int64(), n=pa.int64())]
    with pytest.raises(NeedsChange, match=SPELLED):
        unite(members, Selection())

    chosen = [described("a", ID=pa.int64(), n=pa.int64()), described("b", n=pa.int64())]
    assert unite(chosen, Selection(("ID", "n"))).names == ["ID", "n"]


def test_a_file_that_has_both_spellings_is_read() -> None:
    columns = UnitedColumns()
    both = pa.schema([("ID", pa.int64()), ("id", pa.int64())])
    for place, schema in (("a", both), ("b", pa.schema([("id", pa.int64())])), ("c", both)):
        columns.add(place, schema)

    assert columns.schema == both
