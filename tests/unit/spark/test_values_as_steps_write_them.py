"""What a row step or a pandas step gives is committed as it is, at every depth, or refused; no value becomes another one."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.values.schema_cast import fit_array

GIVEN: list[Any] = []
NAIVE = datetime.datetime(2026, 1, 1, 5)  # noqa: DTZ001 - as a column without a zone has it
ZONED = datetime.datetime(2026, 1, 1, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=9)))
LARGE = 2**64 - 1


def by_row(row: dict[str, Any]) -> dict[str, Any]:
    return {"v": GIVEN[row["id"]]}


def by_pandas(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"v": pd.Series([GIVEN[number] for number in frame["id"]], dtype=object)})


_seen: dict[str, int] = {}


def by_view(row: dict[str, Any]) -> dict[str, Any]:
    """Give views of one dict, which the next row changes."""
    _seen.clear()
    _seen.update({"a": row["id"], "b": row["id"] + 1})
    return {"values": _seen.values(), "keys": _seen.keys(), "inside": [{"items": _seen.values()}]}


def made_of(values: list[Any], kind: pa.DataType | None, call: str = "by_row", output: dict[str, str] | None = None) -> pa.Array:
    GIVEN[:] = values
    step = Step.model_validate(
        {"call": f"{__name__}:{call}", "input": "pandas" if call == "by_pandas" else "row", "output": output}
    )
    ids = pa.record_batch({"id": pa.array(range(len(values)), pa.int32())})
    (batch,) = Pipeline([step]).apply(ids, Place("/in/a", "rows", 0), None if kind is None else pa.schema([("v", kind)]))
    return batch.column(0)


def _map(items: pa.DataType) -> pa.DataType:
    return pa.map_(pa.string(), items)


ROUTES = pytest.mark.parametrize("call", ["by_row", "by_pandas"])
#: One name for the depth, and how a type and a value lie in it.
DEPTHS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "alone": (lambda kind: kind, lambda value: value),
    "in a map": (_map, lambda value: {"a": value}),
    "in pairs": (_map, lambda value: [("a", value)]),
    "in a list of maps": (lambda kind: pa.list_(_map(kind)), lambda value: [{"a": value}]),
    "beside a map": (
        lambda kind: pa.struct([("m", _map(pa.int64())), ("x", kind)]),
        lambda value: {"m": {"a": 1}, "x": value},
    ),
    "beside a uint64": (lambda kind: pa.struct([("u", pa.uint64()), ("x", kind)]), lambda value: {"u": LARGE, "x": value}),
    "in a list": (pa.list_, lambda value: [value]),
}
AT_EVERY_DEPTH = pytest.mark.parametrize("depth", list(DEPTHS))


@ROUTES
@AT_EVERY_DEPTH
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, pa.int64()),
        (1e300, pa.float32()),
        (ZONED, pa.timestamp("us")),
        (NAIVE, pa.timestamp("us", "UTC")),
        (NAIVE, pa.date32()),
        (2**53 + 1, pa.float64()),
        (Decimal("0.123"), pa.decimal128(9, 2)),
        (True, pa.int64()),
        ("1", pa.int64()),
        (b"a", pa.string()),
        ({"known": 1, "surplus": 2}, pa.struct([("known", pa.int64())])),
        (datetime.time(1, tzinfo=datetime.UTC), pa.time64("us")),
        (pd.Timestamp("2026-01-01T00:00:00.000000001"), pa.timestamp("us")),
        (pd.Timedelta(1, "ns"), pa.duration("us")),
        (2**64, pa.uint64()),
        (-1, pa.uint64()),
    ],
    ids=lambda part: str(part)[:40],
)
def test_a_value_that_the_type_does_not_hold_is_refused(value: Any, kind: Any, depth: Any, call: Any) -> None:
    type_at, value_at = DEPTHS[depth]

    with pytest.raises(NeedsChange):
        made_of([value_at(value)], type_at(kind), call)


@ROUTES
@AT_EVERY_DEPTH
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**63, pa.uint64()),
        (LARGE, pa.uint64()),
        (2**63, pa.decimal128(38, 0)),
        (10**38 - 1, pa.decimal128(38, 0)),
        (-(2**63) - 1, pa.decimal128(38, 0)),
        (np.uint64(LARGE), pa.uint64()),
        (7, pa.float64()),
        (-0.0, pa.float64()),
        (datetime.date(9999, 12, 31), pa.date32()),
    ],
    ids=lambda part: str(part)[:40],
)
def test_a_value_that_the_type_holds_is_committed_as_it_is(value: Any, kind: Any, depth: Any, call: Any) -> None:
    type_at, value_at = DEPTHS[depth]

    (found,) = made_of([value_at(value)], type_at(kind), call)

    assert _inner(found.as_py(), depth) == value


def _inner(value: Any, depth: str) -> Any:
    match depth:
        case "in a map" | "in pairs":
            return value[0][1]
        case "in a list of maps":
            return value[0][0][1]
        case "beside a map" | "beside a uint64":
            return value["x"]
        case "in a list":
            return value[0]
    return value


def test_views_of_a_dict_that_a_step_fills_again_are_what_each_row_gave() -> None:
    step = Step.model_validate({"call": f"{__name__}:by_view", "input": "row"})

    (batch,) = Pipeline([step]).apply(pa.record_batch({"id": pa.array([1, 2, 3], pa.int32())}), Place("/in/a", "rows", 0), None)

    assert batch.to_pylist() == [{"values": [n, n + 1], "keys": ["a", "b"], "inside": [{"items": [n, n + 1]}]} for n in (1, 2, 3)]


@ROUTES
def test_an_integer_beyond_64_bits_is_refused_with_the_type_to_declare_which_then_holds_it(call: str) -> None:
    with pytest.raises(NeedsChange, match=r"declare decimal\(38, 0\)"):
        made_of([2**64], None, call)

    (found,) = made_of([2**64], None, call, output={"v": "decimal(38, 0)"})

    assert found.as_py() == 2**64


@AT_EVERY_DEPTH
@pytest.mark.parametrize(
    ("value", "kind", "said", "instead"),
    [
        (pd.NaT, pa.timestamp("us"), "pandas.NaT is no value; give None", None),
        (pd.NA, pa.int64(), "pandas.NA is no value; give None", None),
        (Decimal("NaN"), pa.decimal128(9, 2), "is no decimal number; give None", None),
        (Decimal("Infinity"), pa.decimal128(9, 2), "is no decimal number; give None", None),
        (datetime.time(1, tzinfo=datetime.UTC), pa.time64("us"), "give it without one", datetime.time(1)),
    ],
    ids=str,
)
def test_what_is_no_value_of_a_column_is_refused_with_what_to_give_which_then_is_committed(
    value: Any, kind: pa.DataType, said: str, instead: Any, depth: str
) -> None:
    type_at, value_at = DEPTHS[depth]

    with pytest.raises(NeedsChange, match=said):
        made_of([value_at(value)], type_at(kind))

    (found,) = made_of([value_at(instead)], type_at(kind))

    assert _inner(found.as_py(), depth) == instead


@ROUTES
@AT_EVERY_DEPTH
def test_an_integer_beside_floats_that_a_float32_does_not_hold_is_refused_and_a_float_is_rounded(call: str, depth: str) -> None:
    type_at, value_at = DEPTHS[depth]

    with pytest.raises(NeedsChange, match="give a float if it may be rounded"):
        made_of([value_at(0.5), value_at(2**24 + 1)], type_at(pa.float32()), call)

    found = made_of([value_at(0.5), value_at(2.0**24 + 1)], type_at(pa.float32()), call)

    assert [_inner(value, depth) for value in found.to_pylist()] == [0.5, 2.0**24]


@pytest.mark.parametrize(
    "values",
    [
        [datetime.date(2026, 1, 1), NAIVE],
        ["a", b"b"],
        [datetime.time(1), Decimal(1)],
        [{datetime.date(2026, 1, 1), NAIVE}, None],
        [[1, "a"], None],
        [True, 1],
    ],
    ids=["dates and times", "text and bytes", "a time of day and a decimal", "in a set", "in a list", "a truth and an integer"],
)
def test_values_of_several_kinds_in_one_new_column_are_refused(values: Any) -> None:
    with pytest.raises(NeedsChange):
        made_of(values, None)


def test_a_field_with_a_name_that_looks_like_a_path_is_not_another_field() -> None:
    names = ["a", ".a", "a.b", "[0]"]
    value = {name: number for number, name in enumerate(names)}
    given, wanted = (pa.struct([(name, kind) for name in names]) for kind in (pa.int32(), pa.int64()))

    assert made_of([value], wanted)[0].as_py() == value
    assert fit_array(pa.array([value], given), wanted)[0].as_py() == value


def test_nanoseconds_are_kept_where_the_table_has_them() -> None:
    stamp, span = pd.Timestamp("2026-01-01T00:00:00.000000001"), pd.Timedelta(1, "ns")

    assert made_of([stamp], pa.timestamp("ns"))[0].value == stamp.value
    assert made_of([span], pa.duration("ns"))[0].value == 1


def test_a_required_uuid_below_null_in_every_row_is_no_fault() -> None:
    item = pa.field("element", pa.struct([pa.field("u", pa.uuid(), nullable=False)]))
    kind = pa.struct([("l", pa.list_(item)), ("m", pa.map_(pa.string(), item.type))])

    found = made_of([None, {"l": None, "m": None}, {"l": [], "m": {}}, {"l": [None], "m": {"a": None}}], kind)

    assert found.to_pylist() == [
        None,
        {"l": None, "m": None},
        {"l": [], "m": []},
        {"l": [None], "m": [("a", None)]},
    ]


def test_required_uuids_in_a_map_below_a_null_struct_are_in_the_type_that_the_writer_is_told() -> None:
    items = pa.field("value", pa.uuid(), nullable=False)
    kind = pa.struct([pa.field("m", pa.map_(pa.string(), items), nullable=False)])

    found = made_of([{"m": {"a": uuid.UUID(int=7)}}, None], kind)

    assert not found.field(0).type.item_field.nullable  # to Arrow, the types are equal also if it is
    assert found.to_pylist() == [{"m": [("a", uuid.UUID(int=7))]}, None]
