"""Where pyarrow's own look at Python values is not enough: what it would lose without a word, and what it does not find."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from checkpoint_spark.steps.values.times import has_nanoseconds, holds_times, in_nanoseconds, refuse_mixed_times


def with_whole_times(values: Iterable[Any], found: pa.Array, name: str = "") -> pa.Array:
    """Return what pyarrow made of the values with times as they are; ValueError where times of several kinds are mixed."""
    refuse_mixed_times(values, found.type, name)
    if holds_times(found.type) and any(map(has_nanoseconds, values)):
        return pa.array(values, type=in_nanoseconds(found.type))  # inferred, they are cut off
    return found


def holds_a_map(kind: pa.DataType) -> bool:
    """Whether a map is among the values, at any depth: a dict or pairs, of which pyarrow would make something else."""
    return pa.types.is_map(kind) or any(holds_a_map(kind.field(number).type) for number in range(kind.num_fields))
