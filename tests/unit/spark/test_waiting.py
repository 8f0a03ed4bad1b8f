"""Which launch record a driver goes on with that waits for the next stage or epoch, and what ends its waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.records import DeletedRecord, LaunchRecord, StageIdentity
from checkpoint_protocol.store.layout import deleted_path
from checkpoint_protocol.store.put_once import put_once
from checkpoint_work.driver.waiting import Keep, await_next
from tests.support.records import KEY, end_epoch, launch, ledger_over, plan
from tests.support.stores import MemoryStore, Wrapped

NEXT = EpochKey(KEY.uid, 2)
DIGEST = "ab" * 32
KEEP = Keep(DIGEST, epoch_s=60.0)


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


# --- stages ---------------------------------------------------------------------------------------------------------------

MERGE = KEY.of_stage("merge-7")
KEEP_STAGES = Keep(DIGEST, stage_s=60.0)
CODE = "ef" * 32


def in_session(**changes: object) -> LaunchRecord:
    return for_kept(**{"session_code": CODE, **changes})


def after_the_steps(stages: Mapping[EpochKey, LaunchRecord]) -> MemoryStore:
    """Return a store in which a driver has done the steps, and the launch records of stages are there."""
    store = MemoryStore()
    ledger_over(store).attempts.put_launch(in_session())
    ledger_over(store).plans.put_plan(plan())
    for key, record in stages.items():
        ledger_over(store, key=key).attempts.put_launch(record)
    return store


def next_stage(store: MemoryStore | Wrapped, time: Time, done: EpochKey = KEY, keep: Keep = KEEP_STAGES) -> EpochKey | None:
    return await_next(ledger_over(store, key=done), 1, keep, time.clock, time.sleep)


def test_it_goes_on_with_a_stage_of_its_epoch_whatever_the_code_of_that_stage_is_called() -> None:
    store = after_the_steps({MERGE: in_session(code_digest="e" * 64)})

    assert next_stage(store, Time()) == MERGE


def test_after_a_stage_it_goes_on_with_the_next_one_and_with_the_epoch_itself_which_is_the_last_of_a_pipeline() -> None:
    parse, embed = KEY.of_stage("parse-0011223344556677-1"), KEY.of_stage("embed-0011223344556677-1")
    store = MemoryStore()
    ledger_over(store, key=parse).attempts.put_launch(in_session())
    ledger_over(store, key=parse).plans.put_plan(plan())
    ledger_over(store, key=embed).attempts.put_launch(in_session())

    assert next_stage(store, Time(), parse) == embed
    ledger_over(store, key=embed).plans.put_plan(plan())
    ledger_over(store).attempts.put_launch(in_session())
    assert next_stage(store, Time(), embed) == KEY


@pytest.mark.parametrize(
    "changes",
    [
        {"driver_digest": "cd" * 32},
        {"driver_digest": None},
        {"session_code": "cd" * 32},
        {"session_code": None, "code": "f" * 64},
    ],
    ids=["started otherwise", "for no driver that waits", "other code", "not in a session"],
)
def test_a_stage_that_is_for_another_driver_ends_it(changes: dict[str, object]) -> None:
    time = Time()

    assert next_stage(after_the_steps({MERGE: in_session(**changes)}), time) is None
    assert time.now_s == 0.0


def test_a_stage_that_is_planned_or_given_up_is_passed_over() -> None:
    gone, again = KEY.of_stage("merge-5"), KEY.of_stage("merge-6")
    store, time = after_the_steps({gone: in_session(), again: in_session(), MERGE: in_session()}), Time()
    ledger_over(store, key=gone).plans.put_plan(plan())
    ledger_over(store, key=again).chains.close(1)

    assert next_stage(store, time) == MERGE


def test_it_waits_for_a_stage_for_as_long_as_it_is_told_and_ends_at_once_with_the_commit() -> None:
    store, time = after_the_steps({}), Time()
    assert next_stage(store, time) is None
    assert 60.0 <= time.now_s < 62.0

    end_epoch(ledger_over(store), in_session())
    time = Time()
    assert next_stage(store, time) is None
    assert time.now_s == 0.0


def test_it_waits_for_stages_and_for_the_next_epoch_at_once_and_after_the_commit_for_the_epoch_alone() -> None:
    store, both, time = after_the_steps({}), Keep(DIGEST, epoch_s=600.0, stage_s=60.0), Time()
    end_epoch(ledger_over(store), in_session())
    assert next_stage(store, time, keep=both) is None
    assert 600.0 <= time.now_s < 602.0

    ledger_over(store, key=NEXT).attempts.put_launch(in_session())
    assert next_stage(store, Time(), keep=both) == NEXT

    # The merge runs none of the code that the epochs have in common, and is no reason against it.
    ledger_over(store, key=MERGE).attempts.put_launch(in_session(code_digest="e" * 64, code=None))
    ledger_over(store, key=MERGE).plans.put_plan(plan())
    assert next_stage(store, Time(), MERGE, both) == NEXT


PARSE, EMBED = "parse-0011223344556677-1", "embed-0011223344556677-1"


def of_pipeline(reads: str) -> LaunchRecord:
    stage = StageIdentity(name="any", reads=reads, hash_in="0" * 64, algorithm=1, run_nonce="", takes_all=False)
    return in_session(stage=stage)


def after_an_epoch_of_stages() -> MemoryStore:
    store = MemoryStore()
    ledger_over(store, key=KEY.of_stage(PARSE)).plans.put_plan(plan())
    end_epoch(ledger_over(store, key=KEY.of_stage(PARSE)), of_pipeline(""))
    ledger_over(store).plans.put_plan(plan())
    end_epoch(ledger_over(store), of_pipeline(PARSE))
    return store


@pytest.mark.parametrize("done", [KEY, MERGE], ids=["the last stage", "a merge after it"])
def test_after_an_epoch_of_stages_it_goes_on_with_the_first_stage_of_the_next_one(done: EpochKey) -> None:
    store, both = after_an_epoch_of_stages(), Keep(DIGEST, epoch_s=600.0, stage_s=60.0)
    ledger_over(store, key=MERGE).attempts.put_launch(in_session())
    ledger_over(store, key=MERGE).plans.put_plan(plan())
    ledger_over(store, key=NEXT.of_stage(PARSE)).attempts.put_launch(of_pipeline(""))

    assert next_stage(store, Time(), done, both) == NEXT.of_stage(PARSE)


def test_a_next_epoch_that_others_have_brought_to_a_later_stage_ends_it() -> None:
    store, time, both = after_an_epoch_of_stages(), Time(), Keep(DIGEST, epoch_s=600.0, stage_s=60.0)
    ledger_over(store, key=NEXT.of_stage(EMBED)).attempts.put_launch(of_pipeline(PARSE))

    assert next_stage(store, time, keep=both) is None
    assert time.now_s == 0.0
