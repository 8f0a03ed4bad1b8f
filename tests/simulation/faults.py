"""How often each fault comes, and where: drawn anew for each example, so that examples differ in kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from tests.simulation.choices import Choices
from tests.simulation.scheduler import Actor, Order
from tests.simulation.turns import A_LITTLE, ONE_CALL, TO_A_CROSSING, TO_ITS_SLEEP
from tests.simulation.world import World

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FaultWeights:
    """How likely each thing is in one example, as weights against 24 for "the same actor goes on".

    `reads`, `puts`, `requests`: faults of each. `rival`: a rival of this actor goes on. `strides`: how far an actor goes.
    """

    strides: tuple[Order, ...]
    switch: int
    rival: int
    reads: int
    puts: int
    requests: int
    crash: int
    pause: int
    wake: int
    strangers: int
    leap: int
    removes_history: bool
    deletes: int = 0
    #: Files that come to the source.
    files: int = 0


#: Where an example begins: when this is so for the actor whose turn it is. Until then nothing goes wrong.
Scene = Callable[[World, Actor], bool]


def at_once(world: World, actor: Actor) -> bool:
    return True


def tasks_begin(world: World, actor: Actor) -> bool:
    return actor.role == "task"


def a_driver_looks_at_the_source(world: World, actor: Actor) -> bool:
    return actor.point.kind == "describe-input"


def all_is_sealed(world: World, actor: Actor) -> bool:
    tasks = [other for other in world.scheduler.actors if other.role == "task"]
    return bool(tasks) and all(task.ended for task in tasks)


def a_commit_begins(world: World, actor: Actor) -> bool:
    return actor.point.kind == "look"


def a_claim_begins(world: World, actor: Actor) -> bool:
    return actor.point.kind == "put" and "/claim-" in actor.point.what


def the_second_epoch_begins(world: World, actor: Actor) -> bool:
    return world.last_epoch(world.jobs[0]) > 1


def a_request_begins(world: World, actor: Actor) -> bool:
    return actor.point.kind in ("swap", "append")


_STRIDES: Final = (
    (TO_ITS_SLEEP, TO_A_CROSSING, TO_A_CROSSING, A_LITTLE, ONE_CALL),
    (TO_ITS_SLEEP, TO_A_CROSSING, TO_A_CROSSING),
    (TO_A_CROSSING,),
    (TO_A_CROSSING, A_LITTLE, ONE_CALL),
)


@dataclass(frozen=True, slots=True)
class Focus:
    """What examples are drawn from: one of each, the dullest first.

    `extras`: 1 in so many examples has a second write, and 1 in so many a second epoch. `deletes`: how likely somebody deletes
    the first write meanwhile; if at all, it ends with its deletion. `retains`: in its second epoch, which keeps the records of
    the first, and it is applied again after that. `fails`: steps raise on some rows, which are quarantined, and later epochs
    try them again. `overwrites`: each epoch reads all, and takes the place of all that is in the table.
    `audits`: rows wait on a branch for an audit, which they pass. `triggered`: the first write has a trigger, and files come.
    `audits`: rows wait on a branch for an audit, which they pass. `upserts`: rows take the place of those with their number.
    `branches`: they go to a branch, while others write to main as well. `overwrites_where`: each epoch reads all, and takes
    the place of all but strangers' own rows.
    """

    scenes: tuple[Scene, ...]
    sizes: tuple[tuple[int, ...], ...]
    row_bytes: tuple[int, ...]
    steps: tuple[int, ...]
    extras: int
    weights: Mapping[str, tuple[int, ...]]
    deletes: int = 0
    retains: bool = False
    fails: bool = False
    overwrites: bool = False
    audits: bool = False
    triggered: bool = False
    upserts: bool = False
    overwrites_where: bool = False
    branches: bool = False

    def draw_weights(self, choices: Choices) -> FaultWeights:
        drawn = {name: one_of(choices, weights) for name, weights in self.weights.items()}
        removes_history = drawn.pop("removes_history") == 1
        return FaultWeights(strides=one_of(choices, _STRIDES), removes_history=removes_history, deletes=self.deletes, **drawn)


def one_of(choices: Choices, alternatives: tuple[_T, ...]) -> _T:
    return alternatives[choices.below(len(alternatives))]


ANYTHING: Final = Focus(
    scenes=(at_once, tasks_begin, all_is_sealed, a_commit_begins),
    sizes=((3, 2), (5,), (4, 3), (1,)),
    row_bytes=(16 << 10, 4 << 10),
    steps=(20, 60, 150),
    extras=4,
    weights={
        "switch": (4, 12, 40),
        "rival": (0, 12, 40),
        "reads": (0, 0, 1, 6),
        "puts": (0, 0, 4, 16),
        "requests": (0, 12, 40, 120),
        "crash": (0, 1, 3),
        "pause": (0, 1, 4),
        "wake": (1, 4, 12),
        "strangers": (0, 0, 1, 3),
        "leap": (0, 0, 1),
        "removes_history": (0, 0, 0, 1),
    },
)
#: Committers of one write that get into each other's way.
COMMITS: Final = replace(
    ANYTHING,
    scenes=(a_commit_begins,),
    sizes=((1,),),
    steps=(60,),
    extras=16,
    weights={
        **ANYTHING.weights,
        "rival": (12, 40),
        "reads": (0,),
        "puts": (0, 0, 4),
        "requests": (12, 24, 60),
        "crash": (0, 0, 1),
        "pause": (0, 1),
        "wake": (4, 12),
        "leap": (0,),
        "removes_history": (0, 0, 0, 0, 0, 1),
    },
)
#: Tries of one task, drivers of one attempt, and who closes it.
TASKS: Final = replace(
    ANYTHING,
    scenes=(tasks_begin, all_is_sealed),
    sizes=((5,), (4, 3), (3, 2)),
    row_bytes=(4 << 10, 16 << 10),
    steps=(60,),
    extras=16,
    weights={
        **ANYTHING.weights,
        "rival": (12, 40),
        "reads": (0,),
        "puts": (0, 0, 4),
        "requests": (0,),
        "crash": (0, 1),
        "pause": (0, 2),
        "wake": (1, 4),
        "strangers": (0,),
        "removes_history": (0,),
    },
)
#: Drivers of one attempt that look at the source at once.
INPUTS: Final = replace(TASKS, scenes=(a_driver_looks_at_the_source,), sizes=((3, 2), (2,)), steps=(20,))
#: Strangers who compact, and remove the history in which a commit is looked for.
STRANGERS: Final = replace(
    COMMITS, weights={**COMMITS.weights, "strangers": (4, 12), "crash": (0, 1, 3), "removes_history": (0, 1, 1)}
)
#: A write that is deleted while committers of it are at work, asleep, or not yet there.
DELETIONS: Final = replace(
    COMMITS,
    scenes=(a_claim_begins, a_claim_begins, a_request_begins, a_commit_begins, tasks_begin),
    steps=(12, 40),
    weights={
        **COMMITS.weights,
        "rival": (40, 120),
        "requests": (0, 0, 12, 40),
        "crash": (0, 1, 2),
        "pause": (0, 1, 3),
        "strangers": (0, 0, 2),
        "removes_history": (0, 0, 0, 1),
    },
    deletes=1,
)

#: Rows that fail, now and then or always, in one epoch after the other.
ROW_ERRORS: Final = replace(TASKS, fails=True, sizes=((3, 2), (5,), (2,)))
#: The same of a write that has committed an epoch, whose records stay; and it is applied again.
RETENTIONS: Final = replace(DELETIONS, retains=True, weights={**DELETIONS.weights, "removes_history": (0,)})

AUDITS: Final = replace(COMMITS, audits=True, weights={**COMMITS.weights, "strangers": (1, 4, 12)})
#: One epoch after another by a trigger, with whoever is left of the epochs before.
TRIGGERS: Final = replace(
    ANYTHING,
    scenes=(the_second_epoch_begins, at_once, tasks_begin, a_commit_begins),
    sizes=((1, 1, 2), (2, 1, 1), (1, 1, 1, 1)),
    steps=(60, 150),
    extras=16,
    triggered=True,
    weights={
        **ANYTHING.weights,
        "rival": (12, 40),
        "reads": (0, 0, 2),
        "puts": (0, 0, 4),
        "requests": (0, 12, 40),
        "pause": (1, 4),
        "strangers": (0, 1),
        "removes_history": (0,),
        "files": (2, 6),
    },
)


def rows_are_merged(world: World, actor: Actor) -> bool:
    return actor.role == "task" and "merge-" in actor.contest


UPSERTS: Final = replace(
    COMMITS,
    upserts=True,
    scenes=(a_commit_begins, a_commit_begins, rows_are_merged, tasks_begin),
    sizes=((1,), (2, 1)),
    weights={**COMMITS.weights, "strangers": (1, 4, 12)},
)
#: The same of a table that others move while a request is sent.
MOVED_UPSERTS: Final = replace(UPSERTS, scenes=(a_request_begins,), weights={**UPSERTS.weights, "strangers": (12,)})
#: The same where nobody else writes, so that an upsert often takes no row out: Lance lets two such land.
NEW_KEYS: Final = replace(UPSERTS, weights={**UPSERTS.weights, "strangers": (0,)})
#: The same of a write that is deleted meanwhile.
DELETED_UPSERTS: Final = replace(DELETIONS, upserts=True, sizes=((1,), (2, 1)))
OVERWRITES_WHERE: Final = replace(COMMITS, overwrites_where=True, weights={**COMMITS.weights, "strangers": (1, 4, 12)})
BRANCHES: Final = replace(COMMITS, branches=True, weights={**COMMITS.weights, "strangers": (1, 4, 12)})
OVERWRITES: Final = replace(COMMITS, overwrites=True, weights={**COMMITS.weights, "strangers": (1, 4, 12)})
