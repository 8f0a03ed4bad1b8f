"""When the next epoch of a write with a trigger begins: schedules, and whether there is enough."""

from __future__ import annotations

import datetime

import pytest

from checkpoint_control.decision.actions import Finish, OpenEpoch, Wait
from checkpoint_control.decision.observation import Observation
from checkpoint_control.decision.rules import decide
from checkpoint_control.decision.triggers import Between, News, is_enough, next_epoch, next_time
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.trigger import AtLeast, Trigger
from tests.unit.decision.observations import COMMITTED, seen

NOW = datetime.datetime(2026, 3, 28, 12, 0, tzinfo=datetime.UTC)
LATER = AtLeast.model_validate({"files": 3, "orAfter": "60s"})


def committed_epoch(**fields: object) -> Observation:
    return seen(**{"commit": COMMITTED, "began_with": "", **fields})


def at(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("trigger", "after", "expected"),
    [
        (Trigger.model_validate({"every": "90s"}), "2026-03-28T12:00:00+00:00", "2026-03-28T12:01:30+00:00"),
        (Trigger(cron="0 3 * * *"), "2026-03-28T12:00:00+00:00", "2026-03-29T03:00:00+00:00"),
        (Trigger(cron="0 3 * * *", time_zone="Europe/Berlin"), "2026-03-27T12:00:00+00:00", "2026-03-28T02:00:00+00:00"),
        # The hour that the summer time of this night leaves out comes with the next one.
        (Trigger(cron="30 2 * * *", time_zone="Europe/Berlin"), "2026-03-28T12:00:00+00:00", "2026-03-29T01:00:00+00:00"),
        # The hour that comes twice counts once.
        (Trigger(cron="30 2 * * *", time_zone="Europe/Berlin"), "2026-10-25T00:31:00+00:00", "2026-10-26T01:30:00+00:00"),
    ],
)
def test_the_next_look_is_due_as_the_schedule_says(trigger: Trigger, after: str, expected: str) -> None:
    assert next_time(trigger, at(after)) == at(expected)


@pytest.mark.parametrize(
    ("trigger", "field"),
    [
        (Trigger(cron="61 3 * * *"), "spec.trigger.cron"),
        (Trigger(cron="0 0 31 2 *"), "spec.trigger.cron"),
        (Trigger(cron="0 3 * * *", time_zone="Europe/Nowhere"), "spec.trigger.timeZone"),
        (Trigger(cron="0 3 * * *", time_zone="Europe"), "spec.trigger.timeZone"),
    ],
)
def test_a_schedule_that_never_comes_is_refused_with_its_field(trigger: Trigger, field: str) -> None:
    with pytest.raises(NeedsChange, match=field) as refused:
        next_time(trigger, NOW)
    assert refused.value.reason == reasons.MANIFEST_INVALID


@pytest.mark.parametrize(
    ("least", "news", "enough"),
    [
        (None, News(), False),
        (None, News(files=1), True),
        (None, News(counted=False), True),
        (AtLeast(files=3), News(files=2, size_bytes=1 << 40), False),
        (AtLeast(files=3), News(files=3), True),
        (AtLeast(files=3, bytes=100), News(files=1, size_bytes=100), True),
        (
            LATER,
            News(files=1, since=NOW - datetime.timedelta(seconds=59)),
            False,
        ),
        (LATER, News(files=1, since=NOW - datetime.timedelta(seconds=60)), True),
        (LATER, News(), False),
    ],
)
def test_an_epoch_begins_for_enough_news_or_for_old_ones(least: AtLeast | None, news: News, enough: bool) -> None:
    assert is_enough(least, news, NOW) is enough


def test_after_a_commit_the_trigger_opens_the_next_epoch_and_else_the_write_waits() -> None:
    news = News(files=2)
    assert decide(committed_epoch(goes_on=True)) == (Wait("new input"),)
    assert decide(committed_epoch(goes_on=True, between=Between(5.0, News()))) == (Wait("new input"),)
    assert decide(committed_epoch(goes_on=True, between=Between(0.0, news, begins=True))) == (OpenEpoch(2, 1, news),)
    assert decide(committed_epoch(goes_on=True, is_suspended=True)) == (Wait("suspend to be unset"),)
    assert decide(committed_epoch(goes_on=True, run_nonce="2")) == (OpenEpoch(2, 1, None),), "a person may ask at any time"
    assert decide(committed_epoch()) == (Finish(),)


def test_a_late_trigger_never_opens_an_epoch_beside_one_that_is_not_committed() -> None:
    at_work = committed_epoch(goes_on=True, between=Between(0.0, News(files=1), begins=True), commit=None)
    assert not any(isinstance(action, OpenEpoch) for action in decide(at_work))
    assert next_epoch(3, "", "", is_triggered=True) is not None
