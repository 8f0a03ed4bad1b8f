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
    """The most new files that one epoch takes. The remaining files start the next epoch at once."""

    files: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(default=None, description="The most files of one epoch.")
    bytes: Size | None = Field(
        default=None,
        gt=0,
        description="The most bytes that the files of one epoch have together. A larger file is an epoch of its own.",
    )

    @model_validator(mode="after")
    def _says_how_much(self) -> AtMost:
        if self.files is None and self.bytes is None:
            raise ValueError("files, bytes or both are expected")
        return self


class AtLeast(Section):
    """How much must be new before an epoch starts. If both files and bytes are given, reaching one of them is enough."""

    files: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(default=None, description="The least number of new files.")
    bytes: Size | None = Field(default=None, gt=0, description="The least number of bytes that the new files have together.")
    or_after: Duration | None = Field(
        default=None, gt=0, description="The epoch also starts when the oldest new file has waited for this long."
    )

    @model_validator(mode="after")
    def _says_how_much(self) -> AtLeast:
        if self.files is None and self.bytes is None:
            raise ValueError("files, bytes or both are expected")
        return self


class Trigger(Section):
    """When the write looks for new input, which the next epoch takes. Set exactly one of every and cron."""

    every: Duration | None = Field(
        default=None,
        ge=1,
        description="The interval between looks, counted from the start of the previous epoch. If an epoch takes longer, the "
        "next one starts as soon as it ends.",
    )
    cron: Annotated[str, Field(pattern=CRON_PATTERN, max_length=128)] | None = Field(
        default=None,
        description="The times of the looks, as the five fields of cron: minute, hour, day of month, month, day of week, "
        "e.g. 0 3 * * *",
    )
    time_zone: Annotated[str, Field(pattern=TIME_ZONE_PATTERN, max_length=64)] | None = Field(
        default=None, description="The time zone of cron, e.g. Europe/Berlin. Default: UTC."
    )
    at_most: AtMost | None = None
    at_least: AtLeast | None = None
    keep_driver: Duration | None = Field(
        default=None,
        gt=0,
        description="How long the driver and its executors wait after each epoch, so that the next epoch can use them.",
    )

    @model_validator(mode="after")
    def _has_one_schedule(self) -> Trigger:
        if (self.every is None) == (self.cron is None):
            raise ValueError("exactly one of every and cron is expected")
        if self.time_zone is not None and self.cron is None:
            raise ValueError("timeZone goes with cron; leave it out")
        return self
