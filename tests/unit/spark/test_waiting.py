"""Which launch record a driver goes on with that waits for the next epoch, and what ends its waiting."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.layout import deleted_path
from checkpoint_protocol.put_once import put_once
from checkpoint_protocol.records import DeletedRecord, LaunchRecord
from checkpoint_spark.waiting import Keep, await_next
from tests.support.records import KEY, launch, ledger_over
from tests.support.stores import MemoryStore, Wrapped

NEXT = EpochKey(KEY.uid, 2)
DIGEST = "ab" * 32
KEEP = Keep(60.0, DIGEST)


@dataclass
class Time:
    """Passes where somebody sleeps."""

    now_s: float = 0.0

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def for_kept(**changes: object) -> LaunchRecord:
    return launch().model_copy(update={"driver_digest": DIGEST, **changes})


def next_of(store: MemoryStore | Wrapped, time: Time) -> EpochKey | None:
    return await_next(ledger_over(store), 1, KEEP, time.clock, time.sleep)


def store_with(following: LaunchRecord | None) -> MemoryStore:
    store = MemoryStore()
    ledger_over(store).attempts.put_launch(for_kept())
    if following is not None:
        ledger_over(store, key=NEXT).attempts.put_launch(following)
    return store


def test_it_goes_on_with_the_first_attempt_of_the_next_epoch() -> None:
    assert next_of(store_with(for_kept()), Time()) == NEXT


@pytest.mark.parametrize(
    "changes",
    [{"driver_digest": "cd" * 32}, {"driver_digest": None}, {"code_digest": "e" * 64}, {"code": "f" * 64}],
    ids=["started otherwise", "for no driver that waits", "other code", "another archive"],
)
def test_an_epoch_that_is_for_another_driver_ends_it(changes: dict[str, object]) -> None:
    time = Time()

    assert next_of(store_with(for_kept(**changes)), time) is None
    assert time.now_s == 0.0


def test_it_waits_for_as_long_as_it_is_told_and_no_longer() -> None:
    time = Time()

    assert next_of(store_with(None), time) is None
    assert 60.0 <= time.now_s < 62.0


def test_the_deletion_of_the_write_ends_it() -> None:
    store, time = store_with(None), Time()
    put_once(store, deleted_path(KEY.uid), DeletedRecord(token=new_token(), uid=KEY.uid), time.sleep)

    assert next_of(store, time) is None
    assert time.now_s == 0.0


@dataclass
class Failing(Wrapped):
    """Does not give the launch record of the next epoch, so many times."""

    error: type[Exception] = Retryable
    times: int = 0
    asked: list[str] = field(default_factory=list)

    def get(self, path: str, most_bytes: int) -> bytes | None:
        if f"/{NEXT.epoch}/launch/" in path:
            self.asked.append(path)
            if len(self.asked) <= self.times:
                raise self.error(reasons.STORE_UNAVAILABLE, "no answer")
        return super().get(path, most_bytes)


def test_a_store_that_does_not_answer_for_a_while_ends_nothing_and_a_record_that_cannot_be_read_does() -> None:
    assert next_of(Failing(store_with(for_kept()), times=5), Time()) == NEXT
    time = Time()
    assert next_of(Failing(store_with(for_kept()), error=Corrupt, times=1), time) is None
    assert time.now_s == 0.0
