"""Tables whose changed rows go into another one (`source.changes: Upserts`): what holds for each format of a source."""

from __future__ import annotations

from typing import Any, Protocol

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.reconcile import Round
from checkpoint_protocol import reasons
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.store.object_store import open_store
from tests.support import vectors
from tests.support.crashes import Died, DyingStore, Effects, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import LancePlace
from tests.support.writes import drive, reconciler_for


class Pair(Protocol):
    """A table that is read, and a dataset into which its rows go, with a model of both."""

    @property
    def sink(self) -> LancePlace: ...

    def manifest(self, epoch: int = 1, **more: Any) -> CheckpointedWrite: ...

    def to_take(self) -> list[int]:
        """Return the ids of the rows that the next epoch takes, ascending."""

    def check(self) -> None:
        """What was taken by now is in the dataset, each row once: those that are gone from the source, too."""


def run(place: LancePlace, manifest: CheckpointedWrite, effects: Effects | None = None) -> Round:
    """Run to the end. What dies of an effect leaves a driver behind, which ends."""
    vectors.CALLED.clear()
    store = open_store(place.checkpoint_uri, place.settings)
    effects = effects or Effects()
    drivers, sink = DirectDrivers(store, place.settings), dying_sink(manifest, place.settings, effects)
    try:
        return drive(reconciler_for(manifest, place, drivers, DyingStore(store, effects), sink))
    except Died:
        drivers.finish()
        raise


def take_with_a_death(pair: Pair, epoch: int, death: tuple[int, bool] | None) -> None:
    """Run an epoch whose runner may die, and then another one; the steps were called once for each changed row."""
    to_take, called = pair.to_take(), []
    try:
        run(pair.sink, pair.manifest(epoch), Effects(*death) if death is not None else None)
        called = [*vectors.CALLED]
    except Died:
        called = [*vectors.CALLED]
        assert isinstance(run(pair.sink, pair.manifest(epoch)).outcome, Finish)
        called += vectors.CALLED
    assert sorted(called) == to_take
    pair.check()


def begin_without(pair: Pair) -> None:
    """Take all rows by a write that stops where rows have changed."""
    assert isinstance(run(pair.sink, pair.manifest(changes="Fail")).outcome, Finish)
    pair.check()


def check_that_it_is_set_where_the_write_has_stopped(pair: Pair) -> None:
    """Rows have changed since `begin_without`: the write stops and names the way out, which takes them."""
    stopped = run(pair.sink, pair.manifest(2, changes="Fail")).outcome
    assert isinstance(stopped, Stall)
    assert stopped.reason == reasons.SOURCE_CHANGED
    assert "source.changes: Upserts" in stopped.message

    assert isinstance(run(pair.sink, pair.manifest(2)).outcome, Finish)

    pair.check()
