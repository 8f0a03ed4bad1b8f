"""The adversary: who runs next, what fails, who dies, who sleeps and wakes as a zombie. Then faults stop, and all must end.

An example is one call of `play`: a scene, weights of the faults, some steps in which anything may happen; then, for each write,
a fresh runner that must finish within a bound while zombies still run; last, every zombie runs to its end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.simulation.choices import Choices, weighted
from tests.simulation.deleters import start_deleter
from tests.simulation.faults import ANYTHING, FaultWeights, Focus, Scene, one_of
from tests.simulation.parts import PRODUCTION, Parts
from tests.simulation.runners import start_runner
from tests.simulation.scheduler import EFFECTS, VARIED, Actor, Order, Point
from tests.simulation.source import Input
from tests.simulation.turns import A_LITTLE, ONE_CALL, TO_A_CROSSING, TO_ITS_SLEEP, Turns
from tests.simulation.world import DeletionLog, Format, Job, RunnerLog, World

_VARIED_BEFOREHAND: Final = frozenset({"describe-input", "read", "cores", "ship", "start"})
_REQUESTS: Final = frozenset({"swap", "append", "fence", "block_commit"})

_ZOMBIE_STRIDES: Final = (TO_ITS_SLEEP, TO_A_CROSSING, A_LITTLE, ONE_CALL)
_MOST_RUNNERS: Final = 4
_MOST_DELETERS: Final = 3
_MOST_FILES: Final = 8
_LEAP_S: Final = 10_000.0
#: Faults have stopped: so many steps are enough for a fresh runner to end, whatever was left behind.
_BOUND: Final = 6_000


def play(format: Format, choices: Choices, parts: Parts = PRODUCTION, focus: Focus = ANYTHING) -> World:
    """Play one example to its end. The caller checks, and closes the world."""
    world = World(format, parts, is_cluster=choices.below(2) == 1)
    try:
        _set_up(world, choices, focus)
        torment(world, choices, focus.draw_weights(choices), one_of(choices, focus.steps))
        if focus.deletes:
            _end_with_deletion(world, choices, focus)
            return world
        for job in world.jobs:
            job.is_over = True
            settle(world, choices, job)
        if focus.triggered:
            pass
        elif focus.fails:
            for _ in range(choices.below(3)):
                _try_again(world, choices, focus)
        elif choices.below(focus.extras) == 1:
            world.jobs[0].begin_next_epoch(2)
            settle(world, choices, world.jobs[0])
        let_zombies_end(world, choices)
    except BaseException:
        world.scheduler.close()
        raise
    return world


def _set_up(world: World, choices: Choices, focus: Focus) -> None:
    explodes = choices.below(3) == 1 and not focus.upserts
    world.row_bytes = one_of(choices, focus.row_bytes)
    world.overwrites = focus.overwrites
    world.audits = focus.audits
    world.upserts = focus.upserts
    world.overwrites_where = focus.overwrites_where
    if focus.branches:
        world.let_writes_go_to_a_branch()
    waits = choices.below(3) == 1
    world.add_job(list(one_of(choices, focus.sizes)), explodes=explodes, waits=waits)
    if choices.below(focus.extras) == 1 and not (focus.overwrites or focus.overwrites_where):
        world.add_job([2, 1], explodes=explodes)
    if focus.triggered:
        world.jobs[0].most_files = 1 + choices.below(2)
    if focus.fails:
        _let_rows_fail(world.jobs[0], choices)
    if choices.below(4) == 1:
        world.jobs[0].on_code_change = "Restart"
    if choices.below(2) == 1:
        world.table.append_as_stranger()
    for job in world.jobs:
        start_runner(world, job)
    _play_until(world, choices, one_of(choices, focus.scenes))
    world.retains = focus.retains
    if focus.deletes and not focus.retains:
        start_deleter(world, world.jobs[0])


def _may_be_deleted(world: World) -> bool:
    """A write whose records are kept is deleted in its second epoch: in its first, it would be forgotten."""
    return not world.retains or bool(world.jobs[0].epoch_ends)


def _let_rows_fail(job: Job, choices: Choices) -> None:
    """Choose rows on which the steps raise: always, or at every other call, so that tries of one task differ."""
    numbers = sorted({number for number, _ in Input(job.input.first, job.input.sizes, explodes=False).expected()})
    kinds = {number: choices.below(4) for number in numbers}
    job.input.poison = frozenset(number for number, kind in kinds.items() if kind == 1)
    job.input.flaky = frozenset(number for number, kind in kinds.items() if kind >= 2)
    job.ever_failing = job.input.poison | job.input.flaky
    job.quarantines = True


def _try_again(world: World, choices: Choices, focus: Focus) -> None:
    """Begin an epoch that takes quarantined rows, with some of them mended, and let anything happen in it."""
    job = world.jobs[0]
    job.retry = one_of(choices, ("Also", "Only", "Never"))
    job.input.poison = frozenset(number for number in job.input.poison if choices.below(2))
    job.begin_next_epoch(2 if job.retry != "Only" and choices.below(2) else 0)
    start_runner(world, job)
    torment(world, choices, focus.draw_weights(choices), one_of(choices, focus.steps))
    settle(world, choices, job)


def _play_until(world: World, choices: Choices, scene: Scene) -> None:
    """Let all go well until the scene is set, and let a second runner come in."""
    turns = Turns(world)
    while (candidates := turns.candidates(world.scheduler.actors)) and not scene(world, candidates[0]):
        point = candidates[0].point
        is_varied = point.kind in _VARIED_BEFOREHAND and choices.below(2) == 1
        turns.take(candidates[0], Order(point.faults[0] if is_varied else None))
    for job in world.jobs:
        start_runner(world, job)


def _end_with_deletion(world: World, choices: Choices, focus: Focus) -> None:
    """Delete the first write, in its first epoch or after it; a runner that does not know may come afterwards."""
    deleted, *others = world.jobs
    if focus.retains or (not world.is_deleted(deleted) and choices.below(4) == 1):
        settle(world, choices, deleted)
        deleted.begin_next_epoch(2)
        start_runner(world, deleted)
        if focus.retains:
            start_deleter(world, deleted)
        torment(world, choices, focus.draw_weights(choices), one_of(choices, focus.steps))
    settle_deletion(world, choices, deleted)
    if focus.retains:
        # Applied again, while all who worked for the object before may go on.
        world.objects_gone += 1
        settle(world, choices, deleted)
    for job in others:
        settle(world, choices, job)
    if choices.below(2) == 1:
        start_runner(world, deleted)
    let_zombies_end(world, choices)


# --- chaos ----------------------------------------------------------------------------------------------------------------


def torment(world: World, choices: Choices, weights: FaultWeights, steps: int) -> None:
    """Let anything happen for a number of steps."""
    turns = Turns(world)
    for _ in range(steps):
        candidates = turns.candidates(world.scheduler.actors)
        if not candidates and not any(actor.is_paused for actor in world.scheduler.actors):
            return
        _step(world, choices, weights, turns, candidates)


def _step(world: World, choices: Choices, weights: FaultWeights, turns: Turns, candidates: list[Actor]) -> None:
    scheduler = world.scheduler
    actor = candidates[0] if candidates else None
    point = actor.point if actor else None
    weight = 1
    if point and point.kind in EFFECTS:
        weight = 8 if point.kind in _REQUESTS or "/commit/" in point.what else 4
    paused = [other for other in scheduler.actors if other.is_paused and not other.ended]
    flying = len(world.raw_store.flying) + len(world.table.flying)
    idle_runners = sum(not log.actor.ended and not log.actor.is_paused for log in world.runners)
    may_run_more = len(world.runners) < _MOST_RUNNERS * len(world.jobs)
    rivals = [other for other in candidates[1:] if actor and other.contest == actor.contest]
    match weighted(
        choices,
        (
            24 if actor else 0,
            weights.switch if len(candidates) > 1 else 0,
            weights.rival if rivals else 0,
            weights.crash * weight if actor else 0,
            weights.pause * weight if actor else 0,
            weights.wake if paused else 0,
            10 if flying else 0,
            weights.strangers,
            (8 if idle_runners == 0 else 1) if may_run_more else 0,
            weights.leap,
            weights.deletes if len(world.deletions) < _MOST_DELETERS and _may_be_deleted(world) else 0,
            weights.files if len(world.jobs[0].input.sizes) < _MOST_FILES else 0,
            1,
        ),
    ):
        case 0 if actor:
            turns.take(actor, _order(choices, weights, actor.point))
        case 1:
            other = candidates[1 + choices.below(len(candidates) - 1)]
            turns.take(other, _order(choices, weights, other.point))
        case 2:
            other = one_of(choices, tuple(rivals))
            turns.take(other, _order(choices, weights, other.point))
        case 3 if actor:
            turns.take(actor, Order(crash="before" if choices.below(2) == 0 else "after"))
        case 4 if actor:
            actor.is_paused = True
            scheduler.say(f"({actor.name} falls asleep before {point.kind if point else ''})")
        case 5:
            _wake(world, paused[choices.below(len(paused))])
        case 6:
            _land_or_drop(world, choices)
        case 7:
            strangers = world.table.strangers()
            strangers[choices.below(len(strangers) if weights.removes_history else len(strangers) - 1)]()
        case 8:
            _change_code(world, choices)
            start_runner(world, world.jobs[choices.below(len(world.jobs))])
        case 9:
            scheduler.now_s += _LEAP_S
            scheduler.say("(the clock leaps)")
        case 10:
            start_deleter(world, world.jobs[0])
        case 11:
            world.jobs[0].let_a_file_come(1 + choices.below(2))
            scheduler.say("(a file comes)")
        case _:
            pass


def _order(choices: Choices, weights: FaultWeights, point: Point) -> Order:
    """Let the call fail, or let the actor go on for some way."""
    if weighted(choices, (24, _fault_weight(weights, point))) == 1:
        # A port names its worst fault first; it is as likely as two others.
        return Order(point.faults[max(0, choices.below(len(point.faults) + 1) - 1)], salt=choices.below(256))
    return replace(one_of(choices, weights.strides), luck=choices.below(1 << 16))


def _fault_weight(weights: FaultWeights, point: Point) -> int:
    if not point.faults:
        return 0
    if point.kind in VARIED:
        return 8
    if point.kind == "put":
        return weights.puts
    return weights.requests if point.kind in _REQUESTS or point.kind == "start" else weights.reads


def _change_code(world: World, choices: Choices) -> None:
    """A later runner may come with other code, and with another policy for what other code has sealed."""
    job = world.jobs[0]
    if choices.below(4) == 1:
        job.code_digest = ("f" if choices.below(4) else "e") * 64
    if choices.below(4) == 1:
        job.on_code_change = "Restart" if job.on_code_change == "Continue" else "Continue"


def _wake(world: World, actor: Actor) -> None:
    actor.is_paused = False
    world.scheduler.say(f"({actor.name} wakes)")


def _land_or_drop(world: World, choices: Choices) -> None:
    index = choices.below(len(world.raw_store.flying) + len(world.table.flying))
    is_dropped = choices.below(4) == 1
    port: object = world.raw_store
    if index >= len(world.raw_store.flying):
        index -= len(world.raw_store.flying)
        port = world.table
    assert port is world.raw_store or port is world.table
    (port.drop if is_dropped else port.land)(index)


# --- then faults stop -----------------------------------------------------------------------------------------------------


def settle(world: World, choices: Choices, job: Job) -> RunnerLog:
    """Start a fresh runner and let it end: first among the zombies, then with its own drivers alone."""
    fresh = start_runner(world, job)
    world.scheduler.say("(faults stop; a fresh runner)")
    _let_end(world, choices, fresh.actor)
    return fresh


def settle_deletion(world: World, choices: Choices, job: Job) -> DeletionLog:
    """Start a fresh deleter and let it end, as a fresh runner."""
    fresh = start_deleter(world, job)
    world.scheduler.say("(faults stop; a fresh deleter)")
    _let_end(world, choices, fresh.actor)
    return fresh


def _let_end(world: World, choices: Choices, fresh: Actor) -> None:
    turns = Turns(world)
    for _ in range(choices.below(4) * 20):
        candidates = turns.candidates(world.scheduler.actors)
        if fresh.ended or not candidates:
            break
        if world.raw_store.flying and choices.below(16) == 1:
            _land_or_drop(world, choices)
        turns.take(candidates[choices.below(len(candidates))], one_of(choices, _ZOMBIE_STRIDES))
    for _ in range(_BOUND):
        if fresh.ended:
            return
        family = [actor for actor in world.scheduler.actors if actor.descends_from(fresh)]
        ready = turns.candidates(family)
        if not ready:
            world.scheduler.say("(nothing can go on)")
            break
        turns.take(ready[0])
    world.scheduler.say(f"({fresh.name} does not end)")


def let_zombies_end(world: World, choices: Choices) -> None:
    """Wake everybody and land everything, in any order; nothing may change any more."""
    turns = Turns(world)
    for actor in world.scheduler.actors:
        if actor.is_paused and not actor.ended:
            _wake(world, actor)
    for _ in range(_BOUND):
        flying = len(world.raw_store.flying) + len(world.table.flying)
        candidates = turns.candidates(world.scheduler.actors)
        if not flying and not candidates:
            return
        if flying and (not candidates or choices.below(8) == 1):
            _land_or_drop(world, choices)
        else:
            turns.take(candidates[choices.below(len(candidates))], one_of(choices, _ZOMBIE_STRIDES))
    world.scheduler.say("(the zombies do not end)")
