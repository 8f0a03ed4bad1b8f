"""Deleters: the production deletion as an actor, as the cluster's controller drives it: called again until it ends."""

from __future__ import annotations

from typing import Final

from checkpoint_protocol.errors import Retryable
from tests.simulation.parts import one_by_one
from tests.simulation.runners import open_sink
from tests.simulation.world import DeletionLog, Job, World

_POLL_S: Final = 30.0


def start_deleter(world: World, job: Job) -> DeletionLog:
    """Add a deleter of a write."""
    number = len(world.deletions) + 1
    actor = world.scheduler.spawn(f"deleter {number} of {job.uid}", "deleter", job.uid, lambda: _run(world, log))
    log = DeletionLog(actor, job)
    world.deletions.append(log)
    return log


def _run(world: World, log: DeletionLog) -> None:
    sink = open_sink(world)
    while True:
        try:
            outcome = world.parts.delete(world.store, log.job.uid, sink, pause=world.scheduler.sleep, ask_all=one_by_one)
        except Retryable:
            world.scheduler.sleep(_POLL_S)
            continue
        log.landed = frozenset(landing.key for landing in world.table.landings if landing.key is not None)
        log.outcome = outcome
        return
