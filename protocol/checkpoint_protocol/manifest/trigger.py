"""The part of a manifest that says when the next epoch begins."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, model_validator

from checkpoint_protocol.manifest.quantities import Duration, Size
from checkpoint_protocol.manifest.sections import Section

#: Five fields, as cron has them; what each may hold the schedule itself says once it is read.
CRON_PATTERN: Final = r"^[0-9A-Za-z*?/,#-]+( [0-9A-Za-z*?/,#-]+){4}$"
TIME_ZONE_PATTERN: Final = r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}$"


class AtMost(Section):
    """How much one epoch takes. What is left begins the next one at once. A larger file is an epoch of its own."""

    files: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(default=None, description="So many new files.")
    bytes: Size | None = Field(default=None, gt=0, description="New files of so many bytes together.")

    @model_validator(mode="after")
    def _says_how_much(self) -> AtMost:
        if self.files is None and self.bytes is None:
            raise ValueError("files, bytes or both are expected")
        return self


class AtLeast(Section):
    """How much must be new for an epoch to begin: one of files and bytes suffices."""

    files: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(default=None, description="So many new files.")
    bytes: Size | None = Field(default=None, gt=0, description="New files of so many bytes together.")
    or_after: Duration | None = Field(default=None, gt=0, description="Or less, once the oldest has been there for so long.")

    @model_validator(mode="after")
    def _says_how_much(self) -> AtLeast:
        if self.files is None and self.bytes is None:
            raise ValueError("files, bytes or both are expected")
        return self


class Trigger(Section):
    """When the write looks for new input, which the next epoch takes. Exactly one of every and cron."""

    every: Duration | None = Field(
        default=None,
        ge=1,
        description="Counted from the beginning of the epoch before; one that takes longer is followed at once.",
    )
    cron: Annotated[str, Field(pattern=CRON_PATTERN, max_length=128)] | None = Field(
        default=None, description="Minute, hour, day of month, month, day of week, as cron has them: 0 3 * * *"
    )
    time_zone: Annotated[str, Field(pattern=TIME_ZONE_PATTERN, max_length=64)] | None = Field(
        default=None, description="Of cron, as Europe/Berlin. By default UTC."
    )
    at_most: AtMost | None = None
    at_least: AtLeast | None = None
    keep_driver: Duration | None = Field(
        default=None,
        gt=0,
        description="The driver and its executors wait for so long for the next epoch, instead of starting anew.",
    )

    @model_validator(mode="after")
    def _has_one_schedule(self) -> Trigger:
        if (self.every is None) == (self.cron is None):
            raise ValueError("exactly one of every and cron is expected")
        if self.time_zone is not None and self.cron is None:
            raise ValueError("timeZone goes with cron; leave it out")
        return self
