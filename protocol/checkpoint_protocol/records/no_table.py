"""What records say of a sink that is no table."""

from __future__ import annotations

from typing import Literal

from checkpoint_protocol.records.base import Part
from checkpoint_protocol.records.output_places import Output


class NoTarget(Part):
    """No table."""

    format: Literal["none"] = "none"

    @property
    def title(self) -> str:
        return "(no table)"

    @property
    def identity(self) -> str:
        return ""

    @property
    def outputs(self) -> tuple[Output, ...]:
        return ()
