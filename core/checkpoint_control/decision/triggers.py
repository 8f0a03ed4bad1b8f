"""Whether another epoch follows, after which one, and when. Pure: the time is given, and no safety rests on it.

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


# Whether a write goes on with another epoch, and after which: the one place that answers it. Pure.
#
# An epoch begins in the store with its first launch record; to open one before that changes nothing there. Asked by the rules, by
# the controller before it opens a store for a write that is finished, and by the command `status`.


@dataclass(frozen=True, slots=True)
class NextEpoch:
    """The epoch that is asked for. Its input is what no epoch up to `after` has taken."""

    number: int
    after: int


def next_epoch(
    number: int, began_with: str | None, run_nonce: str, *, was_deleted: bool = False, is_triggered: bool = False
) -> NextEpoch | None:
    """Return the epoch that follows this one once it is committed; None if this one is the last that is asked for.

    `began_with`: the runNonce of its first attempt, None if that is not known, so that nothing follows from it; `run_nonce`:
    that of the manifest now. `was_deleted`: this one has ended by a deletion, so that what it was asked for is not done.
    `is_triggered`: the trigger of the write is due, and there is enough for another epoch.
    """
    if not was_deleted and not is_triggered and (began_with is None or began_with == run_nonce):
        return None
    return NextEpoch(number + 1, after=number)
