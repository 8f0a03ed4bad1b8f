"""When the next epoch of a write with a trigger begins. Pure: the time is given, and no safety rests on it.

Two operators may look at different times, and see different news: the epoch is begun by whose launch record is put first.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.trigger import AtLeast, Trigger


@dataclass(frozen=True, slots=True)
class News:
    """What a source has that no epoch has taken: files, fragments or snapshots, their bytes, and when the oldest was made.

    `counted`: it was counted. Of what cannot be looked at it is not known whether there is anything.
    """

    files: int = 0
    size_bytes: int = 0
    since: datetime.datetime | None = None
    counted: bool = True

    @property
    def is_any(self) -> bool:
        return self.files > 0 or not self.counted


@dataclass(frozen=True, slots=True)
class Between:
    """What is known of a write whose last epoch is committed, and that has a trigger.

    `due_in_s`: until the next look; `news`: what the last one found, None if there was none yet since the commit; `begins`:
    whether the next epoch begins now.
    """

    due_in_s: float
    news: News | None = None
    begins: bool = False


def check_schedule(trigger: Trigger) -> None:
    """NeedsChange(ManifestInvalid) for a schedule that cannot be read."""
    next_time(trigger, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))


def next_time(trigger: Trigger, after: datetime.datetime) -> datetime.datetime:
    """Return the first time after this one at which a look is due."""
    if trigger.every is not None:
        return after + datetime.timedelta(seconds=trigger.every)
    assert trigger.cron is not None
    try:
        zone = ZoneInfo(trigger.time_zone or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # Europe is a folder of zones
        raise NeedsChange(
            reasons.MANIFEST_INVALID, f"spec.trigger.timeZone: {trigger.time_zone!r} is no time zone, such as Europe/Berlin"
        ) from error
    try:
        return next(CronSim(trigger.cron, after.astimezone(zone))).astimezone(datetime.UTC)
    except (CronSimError, StopIteration) as error:
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"spec.trigger.cron: {trigger.cron!r} is no schedule that ever comes: minute, hour, day of month, month and day of "
            "week are expected, as in 0 3 * * *",
        ) from error


def is_enough(least: AtLeast | None, news: News, now: datetime.datetime) -> bool:
    """Whether an epoch begins for these news."""
    if not news.is_any:
        return False
    if least is None or not news.counted:
        return True
    if least.files is not None and news.files >= least.files:
        return True
    if least.bytes is not None and news.size_bytes >= least.bytes:
        return True
    return least.or_after is not None and news.since is not None and (now - news.since).total_seconds() >= least.or_after
