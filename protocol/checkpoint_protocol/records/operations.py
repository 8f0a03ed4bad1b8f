"""The operation: what a commit does to the table."""

from __future__ import annotations

from typing import Literal, assert_never

from checkpoint_protocol.records.base import Part
from checkpoint_protocol.sink import Sink


class Append(Part):
    """Add the rows of an epoch to the table, and leave what is there as it is."""

    kind: Literal["Append"] = "Append"


#: What a commit does to the table. Whoever acts on one matches it, up to `assert_never`: a further one belongs into this union,
#: with `kind` for a discriminator, and says there what its commit has to know, e.g. the version of the table that it replaces.
Operation = Append


def operation_of(sink: Sink) -> Operation:
    """Return the operation that a manifest asks for. The one place that reads `sink.mode`."""
    match sink.mode:
        case "Append":
            return Append()
        case other:
            assert_never(other)
