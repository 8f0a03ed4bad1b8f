"""NULL where a table has required fields below it: the value is NULL, and nothing is required of what is not there."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_protocol import reasons
from checkpoint_work.steps.values.below_null import requires_values
from checkpoint_work.steps.values.schema_cast import ValueMismatch, fit
from tests.support.effort import examples

_PLAIN: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.large_string(): st.text(max_size=3),
    pa.bool_(): st.booleans(),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.decimal128(38, 38): st.decimals(-0, 0, places=38),
}


def _field(name: str, kind: pa.DataType, nullable: bool) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        st.builds(lambda kind, may: pa.struct([_field("x", kind, may), _field("y", pa.int64(), True)]), inner, st.booleans()),
        st.builds(lambda kind, may: pa.list_(_field("item", kind, may)), inner, st.booleans()),
        st.builds(lambda kind, may: pa.large_list(_field("item", kind, may)), inner, st.booleans()),
        st.builds(lambda kind, may: pa.map_(pa.int64(), _field("value", kind, may)), inner, st.booleans()),
    )


KINDS = st.recursive(st.sampled_from(list(_PLAIN)), _nested, max_leaves=4)


def values_of(kind: pa.DataType, nullable: bool = True) -> st.SearchStrategy[Any]:
    """Return values of a type, with NULL wherever it may be."""
    if pa.types.is_struct(kind):
        made: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {field.name: values_of(field.type, field.nullable) for field in kind}
        )
    elif pa.types.is_map(kind):
        items = values_of(kind.item_type, kind.item_field.nullable)
        made = st.dictionaries(st.integers(0, 3), items, max_size=2).map(lambda found: list(found.items()))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = st.lists(values_of(kind.value_type, kind.value_field.nullable), max_size=2)
    else:
        made = _PLAIN[kind]
    return st.none() | made if nullable else made


def optional(kind: pa.DataType) -> pa.DataType:
    """Return the type as steps give it: nothing in it is required."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, optional(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, optional(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(optional(kind.value_type))
    return kind


def through_parquet(batch: pa.RecordBatch) -> list[Any]:
    stream = io.BytesIO()
    with pq.ParquetWriter(stream, batch.schema) as writer:
        writer.write_table(pa.Table.from_batches([batch]))
    values: list[Any] = pq.read_table(io.BytesIO(stream.getvalue())).column(0).to_pylist()
    return values


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_null_at_every_depth_is_written_whatever_is_required_below_it(data: st.DataObject) -> None:
    kind = data.draw(KINDS)
    values = data.draw(st.lists(values_of(kind), max_size=5))
    start = data.draw(st.integers(0, len(values)))
    wanted = pa.schema([pa.field("v", kind)])

    for given_kind in (optional(kind), kind):
        batch = pa.RecordBatch.from_arrays([pa.array(values, given_kind)], ["v"]).slice(start)
        fitted = fit(batch, wanted)

        fitted.validate(full=True)
        assert fitted.schema == wanted
        assert fitted.to_pylist() == batch.to_pylist()
        assert through_parquet(fitted) == batch.column(0).to_pylist()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.struct([_field("x", pa.int64(), False)]), {"x": None}),
        (pa.struct([_field("s", pa.struct([_field("x", pa.int64(), False)]), True)]), {"s": {"x": None}}),
        (pa.list_(_field("x", pa.int64(), False)), [None]),
        (pa.list_(_field("x", pa.int64(), False), 1), [None]),
        (pa.map_(pa.string(), _field("x", pa.int64(), False)), [("k", None)]),
        (pa.map_(pa.string(), _field("v", pa.struct([_field("x", pa.int64(), False)]), True)), [("k", {"x": None})]),
    ],
    ids=str,
)
@pytest.mark.parametrize("says_so", [True, False])
def test_null_in_a_required_part_of_what_is_there_is_refused_by_name(kind: pa.DataType, value: Any, says_so: bool) -> None:
    """Also where the batch itself says that there is none."""
    given_array = pa.array([value], kind if says_so and not pa.types.is_struct(kind) else optional(kind))

    with pytest.raises(ValueMismatch, match="NULL in 'x', which is required") as refused:
        fit(pa.RecordBatch.from_arrays([given_array], ["v"]), pa.schema([pa.field("v", kind)]))

    assert refused.value.reason == reasons.OUTPUT_SCHEMA_WRONG


@pytest.mark.parametrize(
    "kind",
    [
        *(
            pa.int8(),
            pa.uint64(),
            pa.float16(),
            pa.float32(),
            pa.bool_(),
            pa.date32(),
            pa.date64(),
            pa.time32("s"),
            pa.time64("ns"),
        ),
        *(pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.decimal128(38, 38), pa.decimal256(50, 3), pa.decimal32(5, 2)),
        *(pa.string(), pa.large_string(), pa.large_binary(), pa.binary(7), pa.uuid()),
        *(pa.list_(pa.int8()), pa.map_(pa.string(), pa.int8()), pa.list_(pa.int8(), 3), pa.struct([("x", pa.int8())])),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
def test_a_required_field_of_every_type_may_lie_below_null(kind: pa.DataType) -> None:
    wanted = pa.schema([pa.field("v", pa.struct([_field("x", kind, False)]))])
    assert requires_values(wanted.field("v").type)

    fitted = fit(pa.RecordBatch.from_arrays([pa.nulls(2, pa.struct([("x", kind)]))], ["v"]), wanted)

    fitted.validate(full=True)
    assert fitted.to_pylist() == [{"v": None}, {"v": None}]
    assert fitted.column(0).field(0).null_count == 0


def test_null_of_no_type_becomes_a_struct_that_is_null() -> None:
    wanted = pa.schema([pa.field("v", pa.struct([_field("x", pa.int64(), False)]))])

    assert through_parquet(fit(pa.record_batch({"v": pa.nulls(2)}), wanted)) == [None, None]
