"""One death at one place, enumerated: which effect, before or after it, who dies with it, or who sleeps through what follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from checkpoint_protocol.identity import EpochKey
from tests.simulation.choices import Dull
from tests.simulation.deleters import start_deleter
from tests.simulation.parts import PRODUCTION, Parts
from tests.simulation.runners import start_runner
from tests.simulation.scheduler import EFFECTS, Actor, Order, Point
from tests.simulation.turns import ONE_CALL, Turns
from tests.simulation.world import Format, Job, World

#: How it ends there: the actor dies before or after the effect, or falls asleep before it and wakes when all is over.
How = Literal["before", "after", "asleep"]
#: Who: the actor alone, or everything that runs, as when a machine is lost.
Who = Literal["alone", "all"]

_BOUND: Final = 2_000


@dataclass(frozen=True, slots=True)
class Death:
    """`place` is the number of an effect in a life, from 0, or the name of the first of its kind."""

    place: int | str
    how: How
    who: Who


def new_world(format: Format, sizes: list[int], parts: Parts = PRODUCTION, *, upserts: bool = False) -> tuple[World, Job]:
    """Return a world with one write, and with rows of a stranger: some of which are replaced where it upserts."""
    world = World(format, parts, upserts=upserts)
    job = world.add_job(sizes, explodes=not upserts)
    world.table.append_as_stranger()
    return world, job


def live(world: World, job: Job, death: Death | None = None) -> list[str]:
    """Run the write with a new runner, without faults, to its end or to this death. Return the names of the effects so far.

    After the death of one actor the others go on as far as they can.
    """
    return _play_out(world, start_runner(world, job).actor, death)


def delete(world: World, job: Job, death: Death | None = None) -> list[str]:
    """Run a new deleter of the write, in the same way."""
    return _play_out(world, start_deleter(world, job).actor, death)


def _play_out(world: World, root: Actor, death: Death | None) -> list[str]:
    turns = Turns(world)
    effects: list[str] = []
    for _ in range(_BOUND):
        candidates = turns.candidates([actor for actor in world.scheduler.actors if actor.descends_from(root)])
        if not candidates or root.ended:
            return effects
        actor = candidates[0]
        order = ONE_CALL
        if actor.point.kind in EFFECTS:
            effects.append(name_of(actor.point))
            if death is not None and death.place in (len(effects) - 1, effects[-1]):
                if death.how == "asleep":
                    actor.is_paused = True
                    continue
                order = Order(crash=death.how)
        turns.take(actor, order)
        if order.crash and death is not None and death.who == "all":
            _end_all(world)
            return effects
    raise AssertionError(f"no end after {_BOUND} steps; effects: {effects}")


def _end_all(world: World) -> None:
    for actor in world.scheduler.actors:
        if not actor.ended:
            world.scheduler.crash(actor)


def name_of(point: Point) -> str:
    """Name an effect by what it is for."""
    if point.kind != "put":
        return point.kind
    folder, _, name = point.what.rpartition("/")
    for part in ("launch", "closed", "seals", "quarantine", "0-index"):
        if f"/{part}" in folder:
            return f"put {part}"
    if name.endswith(".parquet"):
        return "put keys of a merge"
    for part in ("input", "plan"):
        if folder.endswith(f"/{part}"):
            return f"put part of {part}"
    return f"put {name.split('-')[0].removesuffix('.json')}"


def is_all_sealed(world: World, job: Job) -> bool:
    """Whether the latest attempt has a plan whose every task has its last seal, in the store as it is now."""
    ledger = world.plain_ledger(EpochKey(job.uid, 1))
    attempts = ledger.attempts.list_attempts()
    plan = ledger.plans.read_plan(attempts[-1]) if attempts else None
    if plan is None:
        return False
    chains = [ledger.chains.read_chain(plan.attempt, task) for task in range(plan.task_count)]
    return all(chain and chain[-1].last for chain in chains)


DULL: Final = Dull()
