"""A commit that needs a stage first: drivers do it by the same rules as the rows, and then the commit is made, once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoint_commit.changes import Change, as_staged
from checkpoint_commit.outcomes import CommitOutcome, Final
from checkpoint_commit.ports import NeedsStage, Sink, Stage
from checkpoint_commit.results import Results
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_operator.pods.driver_pod import STAGE_LABEL
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import Operation, StagedFile, Target
from tests.controller.harness import World
from tests.support.checks import assert_exactly_once
from tests.support.driver_threads import Killed
from tests.support.places import IcebergPlace, on_disk
from tests.support.writes import SCHEMA, write_inputs

NAME = "again"


@dataclass
class StageSink:
    """What the stage stages for: files beside those of the epoch, which no commit takes."""

    inner: Sink
    before_the_end: Callable[[], None]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        return as_staged(operation, key, targets, files)

    def commit(self, ledger: Ledger, results: Results) -> Final:
        self.before_the_end()
        return Final()


@dataclass
class NeedsAStage:
    """A sink whose commit needs a stage that reads the source once more."""

    inner: Sink
    before_the_end: Callable[[], None]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome | NeedsStage:
        if Ledger(ledger.store, ledger.key.of_stage(NAME)).commits.read_commit() is None:
            return NeedsStage(Stage(NAME, lambda spec: spec, StageSink(self.inner, self.before_the_end)))
        return self.inner.commit(ledger, results)


def need_a_stage(world: World, before_the_end: Callable[[], None] = lambda: None) -> None:
    settings = world.place.settings
    world.operator.controller.open_sink = lambda _, spec, __: NeedsAStage(open_sink(spec, settings), before_the_end)


def ledgers(world: World) -> tuple[Ledger, Ledger]:
    """Return those of the epoch and of its stage."""
    uid = world.status.write_uid
    assert uid is not None
    key = EpochKey(uid, 1)
    assert writes.list_stages(world.store(), key) == [key.of_stage(NAME)]
    return Ledger(world.store(), key), Ledger(world.store(), key.of_stage(NAME))


def test_the_commit_is_made_once_after_drivers_of_its_own_have_done_the_stage_it_needs(world: World, source: Path) -> None:
    told: set[tuple[str | None, str | None]] = set()

    def look() -> bool:
        told.add((world.status.stage, world.status.phase))
        assert world.status.commit is None or world.status.stage is None
        return world.is_true("Committed")

    need_a_stage(world)
    world.apply(source)
    world.until(look)

    assert_exactly_once(world.place, range(200))
    epoch, stage = ledgers(world)
    assert [len(one.attempts.list_attempts()) for one in (epoch, stage)] == [1, 1]
    done = stage.commits.read_commit()
    assert done is not None
    assert (done.rows_read, done.commit_id) == (200, None)
    assert (NAME, "Running") in told
    assert not {phase for name, phase in told if name is not None} & {"Committing", "Committed"}
    assert world.status.stage is None
    pods = [pod["metadata"]["labels"].get(STAGE_LABEL) for pod in world.api.pods.values()]
    assert sorted(pods, key=str) == sorted([None, NAME], key=str)
    events = [event["reason"] for event in world.api.events]
    assert [events.count(reason) for reason in ("Started", "Sealed", "Committed")] == [2, 1, 1]


def test_a_driver_that_dies_in_the_stage_is_followed_by_another_of_the_stage_and_no_row_is_made_again(
    world: World, source: Path
) -> None:
    def die(number: int) -> None:
        if world.kubelet.drivers_run == 2 and number == 1:
            raise Killed

    world.kubelet.between_tasks = die
    need_a_stage(world)
    world.apply(source)
    world.until_committed()

    assert_exactly_once(world.place, range(200))
    epoch, stage = ledgers(world)
    assert [len(one.attempts.list_attempts()) for one in (epoch, stage)] == [1, 2]
    launch = stage.attempts.read_launch(2)
    assert launch is not None
    assert launch.counted == (1,)  # what it had sealed stays


def test_an_operator_that_begins_anew_in_the_stage_goes_on_with_it(world: World, source: Path) -> None:
    need_a_stage(world)
    world.apply(source)
    world.until(lambda: world.status.stage == NAME)

    world.restart_operator()
    need_a_stage(world)
    world.until_committed()

    assert_exactly_once(world.place, range(200))
    assert world.kubelet.drivers_run == 2


def test_a_run_nonce_that_is_set_in_the_stage_begins_an_epoch_and_no_other_stage(world: World, source: Path) -> None:
    need_a_stage(world)
    world.apply(source)
    world.until(lambda: world.status.stage == NAME)

    # The stage may still read the files that were there.
    (write_inputs(source.parent / "more", files=5, rows=50) / "part-4.parquet").rename(source / "part-4.parquet")
    world.edit(runNonce="2")
    world.until(lambda: world.status.epoch == 2 and world.is_true("Committed"))

    assert_exactly_once(world.place, range(250))
    ledgers(world)


def test_a_write_that_is_deleted_in_its_stage_leaves_no_file_of_either(tmp_path: Path, source: Path) -> None:
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    place.create(SCHEMA)
    world = World(place)

    def fail() -> None:
        raise Retryable(reasons.STORE_UNAVAILABLE, "not now")

    need_a_stage(world, fail)
    world.apply(source)
    world.until(lambda: world.status.stage == NAME and world.kubelet.drivers_run == 2 and not world.kubelet.join())
    data = Path(place.table().location().removeprefix("file://"))
    assert len(list(data.rglob("*.parquet"))) > 1

    world.delete()

    assert list(data.rglob("*.parquet")) == []
    assert place.rows() == []
