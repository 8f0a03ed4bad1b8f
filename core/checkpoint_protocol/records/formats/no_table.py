"""What records say of a sink that is no table."""

from __future__ import annotations

from typing import ClassVar, Literal

from checkpoint_protocol.records.base import Output, Part


class NoTarget(Part):
    """No table."""

    staged_by: ClassVar[str] = "checkpoint_formats.none"

    format: Literal["none"] = "none"

    @property
    def title(self) -> str:
        return "(no table)"

    @property
    def identity(self) -> str:
        return ""

    @property
    def base(self) -> None:
        return None

    @property
    def outputs(self) -> tuple[Output, ...]:
        return ()

    @property
    def target_file_size_bytes(self) -> int | None:
        """What the table says of the size of data files: nothing."""
        return None
