"""The judge finds an error that is planted in a conversion: each of these changes values without a word."""

import datetime
import types
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from checkpoint_formats.lance import stager as lance_stager
from checkpoint_formats.rows import nested
from checkpoint_work.steps import batch_steps, row_steps
from checkpoint_work.steps.values import arrow_rows, below_null, python_values, schema_cast
from checkpoint_work.steps.values.python_values import as_arrow
from tests.judge.steps import Red, judge

Plant = Callable[[Any, str, Any], None]
#: How many cases may pass before an error is found.
_MOST = 3_000
_BLOCK = 50


class _Compute(types.SimpleNamespace):
    """Arrow's functions, but for the given ones."""

    def __getattr__(self: Any, name: Any) -> Any:
        return getattr(pc, name)


def _everything_fits(plant: Plant) -> None:
    plant(schema_cast, "_fits", lambda given, wanted: True)


def _casts_are_not_safe(plant: Plant) -> None:
    plant(schema_cast, "_fits", lambda given, wanted: True)
    plant(schema_cast, "pc", _Compute(cast=lambda array, kind, safe=True: pc.cast(array, kind, safe=False)))


def _large_floats_are_infinite(plant: Plant) -> None:
    plant(schema_cast, "pc", _Compute(is_inf=lambda array: pc.equal(array, array).fill_null(False)))


def _a_field_is_found_by_a_path(plant: Plant) -> None:
    real = nested.number_of
    plant(schema_cast, "number_of", lambda structs, name: real(structs, name.lstrip(".")))


def _a_null_list_is_empty(plant: Plant) -> None:
    plant(schema_cast, "with_values", lambda lists, *rest: nested.with_values(_not_null(lists), *rest))


def _a_null_map_is_empty(plant: Plant) -> None:
    plant(schema_cast, "with_entries", lambda maps, *rest: nested.with_entries(_not_null(maps), *rest))


def _not_null(array: Any) -> Any:
    return below_null._part(pa.field("", array.type, nullable=False), array)


def _a_null_struct_has_null_fields(plant: Plant) -> None:
    plant(schema_cast, "with_fields", lambda structs, *rest: nested.with_fields(_not_null(structs), *rest))


def _null_below_a_struct_is_a_value(plant: Plant) -> None:
    part = below_null._part
    plant(below_null, "_part", lambda field, values: part(field.with_nullable(False), values))


def _null_may_be_where_it_is_required(plant: Plant) -> None:
    plant(schema_cast, "null_where_required", lambda array: None)


def _values_of_all_kinds_go_together(plant: Plant) -> None:
    plant(python_values, "_family", lambda kind: "values")


def _times_are_what_pyarrow_makes_of_them(plant: Plant) -> None:
    plant(python_values, "_times", lambda values, path: pa.array(values))


def _zones_are_dropped(plant: Plant) -> None:
    real = python_values._times

    def times(values: Any, path: Any) -> Any:
        moments = [value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else value for value in values]
        made = real(moments, path)
        is_zoned = any(getattr(value, "tzinfo", None) is not None for value in values)
        return made.cast(pa.timestamp(made.type.unit, "UTC")) if is_zoned and pa.types.is_timestamp(made.type) else made

    plant(python_values, "_times", times)


def _large_integers_are_floats(plant: Plant) -> None:
    plant(
        python_values, "_large_integers", lambda values, hint, path: pa.array([None if v is None else float(v) for v in values])
    )


def _decimals_have_28_digits(plant: Plant) -> None:
    real = python_values._decimals
    plant(
        python_values,
        "_decimals",
        lambda values, path: real(
            [+value if isinstance(value, Decimal) and value.is_finite() else value for value in values], path
        ),
    )


def _an_unknown_field_is_dropped(plant: Plant) -> None:
    real = python_values._structs

    def structs(values: Any, hint: Any, path: Any) -> Any:
        if hint is not None and pa.types.is_struct(hint):
            known = {field.name for field in hint}
            values = [value and {name: part for name, part in value.items() if name in known} for value in values]
        return real(values, hint, path)

    plant(python_values, "_structs", structs)


def _an_empty_list_is_null(plant: Plant) -> None:
    real = python_values._lists
    plant(
        python_values,
        "_lists",
        lambda values, *rest: real([None if value is None or not len(value) else value for value in values], *rest),
    )


def _a_map_loses_an_entry_of_none(plant: Plant) -> None:
    real = python_values._maps

    def maps(values: Any, hint: Any, path: Any) -> Any:
        kept = [
            {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value
            for value in values
        ]
        return real(kept, hint, path)

    plant(python_values, "_maps", maps)


def _bytes_end_at_a_zero(plant: Plant) -> None:
    real = python_values._plain

    def plain(values: Any, *rest: Any) -> Any:
        return real(
            [value.split(b"\0")[0] if isinstance(value, bytes) and len(value) != 16 else value for value in values], *rest
        )

    plant(python_values, "_plain", plain)


def _floats_are_singles(plant: Plant) -> None:
    real = python_values._plain

    def plain(values: Any, *rest: Any) -> Any:
        with np.errstate(over="ignore"):
            return real([float(np.float32(value)) if type(value) is float else value for value in values], *rest)

    plant(python_values, "_plain", plain)


def _a_row_is_not_copied(plant: Plant) -> None:
    plant(row_steps, "row_of", lambda value: value if isinstance(value, dict) else None)


def _pandas_sees_all_nested_values(plant: Plant) -> None:
    plant(batch_steps, "_is_changed", lambda column: False)


def _integers_beside_null_are_floats_in_pandas(plant: Plant) -> None:
    plant(batch_steps, "batch_as_frame", lambda batch: batch.to_pandas())


def _booleans_become_texts(plant: Plant) -> None:
    plant(arrow_rows, "as_arrow", lambda values, hint: as_arrow(_shown_as_text(values), hint))


def _shown_as_text(values: Any) -> Any:
    return [str(value) if isinstance(value, bool) else value for value in values]


def _texts_have_16_characters_at_most(plant: Plant) -> None:
    plant(arrow_rows, "as_arrow", lambda values, hint: as_arrow([v[:16] if isinstance(v, str) else v for v in values], hint))


def _minus_zero_is_zero(plant: Plant) -> None:
    plant(arrow_rows, "as_arrow", lambda values, hint: as_arrow([v + 0.0 if type(v) is float else v for v in values], hint))


def _lance_gets_memory_as_it_lies(plant: Plant) -> None:
    plant(lance_stager, "aligned", lambda batch: batch)


_PLANTED = [
    thing for name, thing in list(globals().items()) if name.startswith("_") and getattr(thing, "__code__", None) is not None
]
_PLANTED = [thing for thing in _PLANTED if thing.__code__.co_varnames[:1] == ("plant",)]


@pytest.mark.parametrize("planted", [pytest.param(planted, id=planted.__name__[1:]) for planted in _PLANTED])
def test_the_judge_finds(planted: Any, monkeypatch: Any) -> None:
    planted(monkeypatch.setattr)

    with pytest.raises(Red):
        _judge(reads=planted is _lance_gets_memory_as_it_lies)


def _judge(*, reads: bool) -> None:
    for first in range(0, _MOST, _BLOCK):
        judge(first, _BLOCK, Counter[str](), reads=reads)
