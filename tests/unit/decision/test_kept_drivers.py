"""Which driver does an attempt that none was started for: one that waits, as long as it may be there."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkpoint_control.decision.observation import DriverObservation, DriverState, Failure
from checkpoint_control.loop.drivers import KeptDrivers, Place
from checkpoint_control.progress.epoch_progress import describe, how_far, measure, share_of
from checkpoint_control.progress.tallies import Tallies
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.progress_reports import DriverProgress, StartedAs, encode_advice, read_report
from checkpoint_protocol.records import LaunchRecord, StageIdentity
from tests.support.records import KEY, launch, ledger_over
from tests.support.stores import MemoryStore

DIGEST, CODE = "ab" * 32, "ef" * 32
MERGE, LATER = KEY.of_stage("merge-7"), KEY.of_stage("merge-8")
NOT_STARTED = DriverObservation(DriverState.NOT_STARTED)


def in_session(**changes: object) -> LaunchRecord:
    return launch().model_copy(update={"driver_digest": DIGEST, "session_code": CODE, **changes})


@dataclass
class Watched:
    """The driver port of which these places are at work; all others have ended."""

    running: set[Place]

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        if (key, attempt) in self.running:
            return DriverObservation(DriverState.RUNNING)
        return DriverObservation(DriverState.GONE, Failure("Retryable", "DriverFailed", f"{key}/{attempt} was killed"))

    def expect(self, key: EpochKey, attempt: int) -> None:
        raise AssertionError("nothing is recorded")

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        raise AssertionError("nothing is started")

    def stop(self, key: EpochKey, attempt: int) -> None:
        raise AssertionError("nothing is stopped")


@dataclass
class Lab:
    """A store with the launch records of these attempts, the first of each key, and a clock."""

    running: set[Place] = field(default_factory=set)
    store: MemoryStore = field(default_factory=MemoryStore)
    now_s: float = 0.0
    for_epochs: bool = False
    kept: KeptDrivers = field(init=False)

    def __post_init__(self) -> None:
        self.kept = KeptDrivers(Watched(self.running), DIGEST, lambda: self.now_s, self.for_epochs)

    def ledger(self, key: EpochKey) -> Ledger:
        return ledger_over(self.store, key=key)

    def put(self, key: EpochKey, record: LaunchRecord | None = None) -> None:
        self.ledger(key).attempts.put_launch(record or in_session())

    def tell(self, key: EpochKey, started_as: StartedAs | None) -> None:
        progress = DriverProgress(attempt=1, phase="Planning", started_as=started_as)
        self.store.objects[self.ledger(key).at.progress(1)] = encode_advice(progress)

    def state(self, key: EpochKey, own: DriverObservation = NOT_STARTED, attempt: int = 1) -> DriverState:
        record = self.ledger(key).attempts.read_launch(attempt)
        assert record is not None
        return self.kept.observe(self.ledger(key), record, own).state


def test_the_driver_of_the_steps_is_waited_for_a_while_until_it_tells_that_it_does_the_merge() -> None:
    lab = Lab({(KEY, 1)})
    lab.put(KEY)
    lab.put(MERGE)

    assert lab.state(MERGE) is DriverState.RUNNING
    lab.now_s = 9.0
    assert lab.state(MERGE) is DriverState.RUNNING
    lab.now_s = 11.0
    assert lab.state(MERGE) is DriverState.NOT_STARTED

    lab.tell(MERGE, StartedAs(epoch=1, attempt=1))
    assert lab.state(MERGE) is DriverState.RUNNING
    assert lab.kept.place_of(MERGE, 1) == (KEY, 1)


def test_a_driver_that_is_gone_is_told_of_and_another_one_is_started_at_once() -> None:
    lab = Lab()
    lab.put(KEY)
    lab.put(MERGE)
    (ledger, record) = lab.ledger(MERGE), in_session()

    found = lab.kept.observe(ledger, record, NOT_STARTED)

    assert found.state is DriverState.NOT_STARTED
    assert found.problem is not None
    assert "was killed" in found.problem.message


def test_a_driver_that_was_started_for_a_stage_is_known_by_the_stage() -> None:
    lab = Lab({(MERGE, 1)})
    for key in (KEY, MERGE, LATER):
        lab.put(key)

    assert lab.state(LATER) is DriverState.RUNNING, "a merge that follows a merge"
    lab.tell(LATER, StartedAs(epoch=1, stage=MERGE.stage, attempt=1))
    assert lab.state(LATER) is DriverState.RUNNING
    assert lab.kept.place_of(LATER, 1) == (MERGE, 1)


def identity(reads: str) -> StageIdentity:
    return StageIdentity(name="any", reads=reads, hash_in="0" * 64, algorithm=1, run_nonce="", takes_all=False)


def test_a_stage_of_a_pipeline_is_left_to_the_driver_of_the_stage_that_it_reads_and_the_first_one_to_nobody() -> None:
    parse, embed = KEY.of_stage("parse-0011223344556677-1"), KEY.of_stage("embed-0011223344556677-1")
    lab = Lab({(parse, 1)})
    lab.put(parse, in_session(stage=identity("")))
    lab.put(embed, in_session(stage=identity(parse.stage)))

    assert lab.state(parse) is DriverState.NOT_STARTED
    assert lab.state(embed) is DriverState.RUNNING
    lab.tell(embed, StartedAs(epoch=1, stage=parse.stage, attempt=1))
    lab.put(KEY, in_session(stage=identity(embed.stage)))
    assert lab.state(KEY) is DriverState.RUNNING


@pytest.mark.parametrize(
    "changes",
    [{"driver_digest": None}, {"driver_digest": "cd" * 32}, {"session_code": "cd" * 32}, {"attempt": 2}],
    ids=["for no driver that waits", "started otherwise", "other code", "second attempt"],
)
def test_an_attempt_that_a_driver_which_waits_would_not_take_is_left_to_none(changes: dict[str, object]) -> None:
    lab, record = Lab({(KEY, 1)}), in_session(**changes)
    lab.put(KEY)
    lab.put(MERGE, record)

    assert lab.state(MERGE, attempt=record.attempt) is DriverState.NOT_STARTED


def test_where_a_driver_was_started_for_the_attempt_only_one_that_says_so_does_it_instead() -> None:
    lab, gone = Lab({(KEY, 1)}), DriverObservation(DriverState.GONE)
    lab.put(KEY)
    lab.put(MERGE)

    assert lab.state(MERGE, gone) is DriverState.GONE
    lab.tell(MERGE, StartedAs(epoch=1, attempt=1))
    assert lab.state(MERGE, gone) is DriverState.RUNNING


@pytest.mark.parametrize("for_epochs", [True, False])
def test_the_next_epoch_is_left_to_the_driver_of_the_one_before_if_that_waits_for_epochs(for_epochs: bool) -> None:
    lab, following = Lab({(KEY, 1)}, for_epochs=for_epochs), EpochKey(KEY.uid, 2)
    lab.put(KEY)
    lab.put(following)

    assert lab.state(following) is (DriverState.RUNNING if for_epochs else DriverState.NOT_STARTED)


@pytest.mark.parametrize("for_epochs", [True, False])
def test_the_first_stage_of_the_next_epoch_is_left_to_the_driver_of_the_epoch_before_if_that_waits_for_epochs(
    for_epochs: bool,
) -> None:
    parse = KEY.of_stage("parse-0011223344556677-1")
    following = EpochKey(KEY.uid, 2).of_stage(parse.stage)
    lab = Lab({(parse, 1)}, for_epochs=for_epochs)
    lab.put(parse, in_session(stage=identity("")))
    lab.put(KEY, in_session(stage=identity(parse.stage)))
    lab.tell(KEY, StartedAs(epoch=1, stage=parse.stage, attempt=1))
    lab.put(following, in_session(stage=identity("")))

    assert lab.state(following) is (DriverState.RUNNING if for_epochs else DriverState.NOT_STARTED)
    lab.tell(following, StartedAs(epoch=1, stage=parse.stage, attempt=1))
    assert lab.state(following) is DriverState.RUNNING


# --- what nobody has signed -----------------------------------------------------------------------------------------------

#: Values that stand in no field of ours, or in another one.
HOSTILE: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["../../../x", "", "/", "a/b", ".", "merge-7", "a" * 70_000, "\udcff", "x\0y", "Planning", "rows"]),
    st.sampled_from(
        [-1, 0, 1, 2, (1 << 31) - 1, 1 << 31, 1 << 63, 10**400, 1e308, 0.5, True, None, [], {}, [[[]]], {"a": {"b": 1}}]
    ),
    st.text(max_size=20),
    st.integers(),
)
WORK = {"kind": "work", "version": 1, "task": 0, "link": 0, "rows": 1, "positions": 1, "calls": 1, "calls_in_flight": 1}
SOUND = {
    "kind": "progress",
    "version": 1,
    "attempt": 1,
    "phase": "RunningTasks",
    "unit": "rows",
    "positions_known": 10,
    "work": [WORK],
    "started_as": {"epoch": 1, "attempt": 1, "stage": "merge-7"},
}


@st.composite
def forged(draw: st.DrawFn) -> bytes:
    """An object of advice of which one value, or several, are another, or are gone; or no such object at all."""
    told = json.loads(json.dumps(SOUND))
    for _ in range(draw(st.integers(1, 3))):
        part = draw(st.sampled_from([told, told["started_as"], told["work"][0]]))
        name = draw(st.sampled_from(sorted({*part, "more"})))
        if isinstance(part.get(name), dict | list):
            continue
        part[name] = draw(HOSTILE)
    whole = draw(st.sampled_from(["told", "told", "told", "cut", "other"]))
    data = json.dumps(told).encode()
    return data if whole == "told" else data[: len(data) // 2] if whole == "cut" else json.dumps(draw(HOSTILE)).encode()


def test_an_object_that_is_in_order_is_believed() -> None:
    """Else the next test would show nothing."""
    lab = Lab({(KEY, 1)})
    lab.store.objects["told"] = json.dumps(SOUND).encode()
    assert read_report(lab.store, "told", DriverProgress) is not None


@given(forged(), forged(), st.booleans())
@example(json.dumps(SOUND | {"started_as": {"epoch": 1, "attempt": 1, "stage": "../../../x"}}).encode(), b"", True)
def test_what_an_unsigned_object_says_stops_no_look_whatever_it_says(told: bytes, behind: bytes, for_epochs: bool) -> None:
    """Whoever may write to the staging area could else stop a write for good: it is looked at in each round."""
    lab = Lab({(KEY, 1)}, for_epochs=for_epochs)
    for key in (KEY, MERGE, EpochKey(KEY.uid, 2)):
        lab.put(key)
        for attempt in (1, 2):
            lab.store.objects[lab.ledger(key).at.progress(attempt)] = told if key != KEY else behind
    for key in (KEY, MERGE, EpochKey(KEY.uid, 2)):
        ledger = lab.ledger(key)
        record = ledger.attempts.read_launch(1)
        assert record is not None
        lab.kept.observe(ledger, record, NOT_STARTED)
        list(lab.kept.places(ledger, record))
        lab.kept.unwanted(ledger, is_suspended=True)
        for place, _attempt in [lab.kept.place_of(key, 1)]:
            assert place.uid == KEY.uid
        counts = measure(Tallies(ledger), None)
        assert describe(counts) is not None
        how_far(counts)
        share_of(counts)
