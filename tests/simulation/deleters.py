"""Deleters: the production deletion as an actor, as the cluster's controller drives it: called again until it ends."""

from __future__ import annotations

from typing import Any, Final

from checkpoint_control.writes.deletion import DeletionOutcome
from checkpoint_protocol.errors import Retryable
from tests.simulation.parts import one_by_one
from tests.simulation.runners import open_sink
from tests.simulation.world import DeletionLog, Job, World

_POLL_S: Final = 30.0


def start_deleter(world: World, job: Job) -> DeletionLog:
    """Add a deleter of a write."""
    number = len(world.deletions) + 1
    actor = world.scheduler.spawn(f"deleter {number} of {job.uid}", "deleter", job.uid, lambda: _run(world, log))
    log = DeletionLog(actor, job, world.objects_gone)
    world.deletions.append(log)
    return log


class _IsGone(Exception):
    """The object was deleted, and another has its name."""


def _run(world: World, log: DeletionLog) -> None:
    while True:
        try:
            outcome = _delete(world, log)
        except Retryable:
            world.scheduler.sleep(_POLL_S)
            continue
        except _IsGone:
            log.came_late = True
            return
        log.landed = frozenset(landing.key for landing in world.table.landings if landing.key is not None)
        log.outcome = outcome
        return


def _delete(world: World, log: DeletionLog) -> DeletionOutcome:
    def confirm() -> None:
        """As the API server answers: an object is there until its deletion has ended."""
        if world.scheduler.at("get object", "", lambda _: world.objects_gone) != log.number:
            raise _IsGone

    common: dict[str, Any] = {"pause": world.scheduler.sleep, "map_all": one_by_one}
    if world.retains:
        return world.parts.retain(world.store, log.job.uid, open_sink(world, log.job), confirm=confirm, **common)
    return world.parts.delete(world.store, log.job.uid, open_sink(world, log.job), **common)
