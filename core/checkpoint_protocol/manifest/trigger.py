"""The part of a manifest that says when the next epoch begins."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from checkpoint_protocol.manifest.quantities import Duration, Size
from checkpoint_protocol.manifest.rules import Rule, exactly_one_of, is_given
from checkpoint_protocol.manifest.sections import Section

#: Five fields, as cron has them; what each may hold the schedule itself says once it is read.
CRON_PATTERN: Final = r"^[0-9A-Za-z*?/,#-]+( [0-9A-Za-z*?/,#-]+){4}$"
TIME_ZONE_PATTERN: Final = r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}$"
_SAYS_HOW_MUCH: Final = Rule(f"{is_given('files')} || {is_given('bytes')}", "files, bytes or both are expected")


class AtMost(Section):
    """The most new files that one epoch takes. The remaining files start the next epoch at once."""

    files: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(default=None, description="The most files of one epoch.")
    bytes: Size | None = Field(
        default=None,
        gt=0,
        description="The most bytes that the files of one epoch have together. A larger file is an epoch of its own.",
    )

    rules: ClassVar = (_SAYS_HOW_MUCH,)


class AtLeast(Section):
    """How much must be new before an epoch starts. If both files and bytes are given, reaching one of them is enough."""

    files: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(default=None, description="The least number of new files.")
    bytes: Size | None = Field(default=None, gt=0, description="The least number of bytes that the new files have together.")
    or_after: Duration | None = Field(
        default=None, gt=0, description="The epoch also starts when the oldest new file has waited for this long."
    )

    rules: ClassVar = (_SAYS_HOW_MUCH,)


class Trigger(Section):
    """When the write looks for new input, which the next epoch takes. Set exactly one of every and cron."""

    every: Duration | None = Field(
        default=None,
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

    rules: ClassVar = (
        exactly_one_of("every", "cron"),
        Rule(f"!{is_given('every')} || duration(self.every) >= duration('1s')", "1s or more is expected", "every"),
        Rule(f"!{is_given('timeZone')} || {is_given('cron')}", "timeZone goes with cron; leave it out", "timeZone"),
    )
