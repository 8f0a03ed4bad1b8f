"""Actors in lockstep: one runs at a time, and whoever holds the scheduler decides which, and for how long.

Production code is synchronous, so every actor is a thread. It halts at port calls (*points*) until it is told to go on, with an
order that may make that call fail or end the actor before or after it, and that says where to halt next. Nothing else can
interleave: actors share nothing but the ports.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from tests.support.waiting import patience

_T = TypeVar("_T")
_PATIENCE_S: Final = 60.0


class Crashed(BaseException):
    """The actor ends here. A BaseException, so that nothing in the product can catch it by accident."""


@dataclass(frozen=True, slots=True)
class Order:
    """What befalls a port call. `fault` is one of those that the point offers; `salt` varies it.

    The actor then goes on for at most `calls` calls, and no further than the next crossing if `to_crossing`. It always halts
    where it would sleep or wait. Two bits of `luck` say for each call on the way whether it varies, where it can.
    """

    fault: str | None = None
    salt: int = 0
    crash: Literal["before", "after"] | None = None
    calls: int = 1
    to_crossing: bool = False
    luck: int = 0


#: Kinds of points after which the world is another.
EFFECTS: Final = frozenset({"put", "swap", "append", "fence", "block_commit", "discard", "delete", "start", "stop", "stage"})
#: Kinds of points where it matters most who comes first.
CROSSINGS: Final = EFFECTS | {"look"}
#: What varies in any run, without a fault: looks at the source, slow reads, the number of cores, speculation, listings that lag.
VARIED: Final = frozenset({"describe-input", "read", "cores", "ship", "list"})
_HALTS: Final = frozenset({"sleep", "wait"})

GO: Final = Order()
DIE: Final = Order(crash="before")


@dataclass(frozen=True, slots=True)
class Point:
    """A port call that waits to be made. `ready`, if given, says when it can return."""

    kind: str
    what: str
    faults: tuple[str, ...] = ()
    ready: Callable[[], bool] | None = None


_START: Final = Point("begin", "")


def _held() -> threading.Lock:
    """Return a lock that is held: who acquires it waits until another thread releases it."""
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class Actor:
    """A thread and where it halts.

    `contest`: what it wants to do; rivals are those of the same contest. `is_paused`: nobody hears of it, until it wakes as a
    zombie.
    """

    name: str
    role: str
    contest: str
    body: Callable[[], None]
    parent: Actor | None = None
    point: Point = _START
    order: Order = GO
    calls_left: int = 0
    luck_left: int = 0
    is_paused: bool = False
    is_doomed: bool = False
    is_dying: bool = False
    crashed: bool = False
    ended: bool = False
    error: BaseException | None = None
    thread: threading.Thread | None = None
    baton: threading.Lock = field(default_factory=_held)

    @property
    def is_ready(self) -> bool:
        """Whether it would go on if it were told to."""
        return not self.ended and not self.is_paused and (self.point.ready is None or self.point.ready())

    def descends_from(self, other: Actor) -> bool:
        return self is other or (self.parent is not None and self.parent.descends_from(other))


class Scheduler:
    """Holds the actors and the time. Used by one thread, which hands over to one actor and waits for it to halt."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.trace: list[str] = []
        self.step_number = 0
        self.now_s = 1_000.0
        self._current: Actor | None = None
        self._back = _held()

    # --- for whoever schedules --------------------------------------------------------------------------------------------

    def spawn(self, name: str, role: str, contest: str, body: Callable[[], None]) -> Actor:
        """Add an actor, which begins when it is first told to. Its parent is the actor that spawns it."""
        actor = Actor(name, role, contest, body, parent=self._current)
        self.actors.append(actor)
        return actor

    def ready(self) -> list[Actor]:
        return [actor for actor in self.actors if actor.is_ready]

    def run(self, actor: Actor, order: Order = GO) -> None:
        """Let an actor make the call that it halts at, and go on as it is told, or to its end."""
        assert not actor.ended
        assert self._current is None, "only one thread schedules"
        actor.order = DIE if actor.is_doomed else order
        actor.calls_left = actor.order.calls - 1
        actor.luck_left = actor.order.luck
        self._note(actor, actor.order)
        self._current = actor
        if actor.thread is None:
            actor.thread = threading.Thread(target=self._main, args=(actor,), name=actor.name, daemon=True)
            actor.thread.start()
        else:
            actor.baton.release()
        if not self._back.acquire(timeout=patience(_PATIENCE_S)):
            raise AssertionError(f"{actor.name} went on without the scheduler after {actor.point}")
        self._current = None
        if actor.ended:
            actor.thread.join()

    def crash(self, actor: Actor) -> None:
        """End an actor where it halts, before the call."""
        self.run(actor, DIE)

    def close(self) -> None:
        """End every thread."""
        for actor in self.actors:
            if actor.thread is None:
                actor.ended = True
            while not actor.ended:
                self.crash(actor)

    def say(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.step_number:4} {text}")

    def _note(self, actor: Actor, order: Order) -> None:
        self.step_number += 1
        befell = "".join(f" [{word}]" for word in (order.fault, order.crash and f"crash {order.crash}") if word)
        self.trace.append(f"{self.step_number:4} {actor.name}: {actor.point.kind} {actor.point.what}{befell}")

    def _main(self, actor: Actor) -> None:
        try:
            if actor.order.crash != "before":
                actor.body()
        except Crashed:
            pass
        except BaseException as error:
            actor.error = error
        finally:
            actor.crashed = actor.is_dying or actor.order.crash == "before"
            actor.ended = True
            self._back.release()

    # --- for the ports ----------------------------------------------------------------------------------------------------

    def at(self, kind: str, what: str, effect: Callable[[Order], _T], faults: tuple[str, ...] = ()) -> _T:
        """Make a port call when the scheduler says so. Outside of any actor it is made at once."""
        return self._halt(Point(kind, what, faults), effect)

    def wait(self, what: str, ready: Callable[[], bool]) -> None:
        """Halt until something has become true."""
        self._halt(Point("wait", what, ready=ready), lambda _: None)

    def sleep(self, seconds: float) -> None:
        def effect(_: Order) -> None:
            self.now_s += seconds

        self.at("sleep", f"{seconds:g} s", effect)

    def clock(self) -> float:
        return self.now_s

    def _halt(self, point: Point, effect: Callable[[Order], _T]) -> _T:
        actor = self._current
        if actor is None:
            return effect(GO)
        if actor.is_dying:
            raise Crashed
        actor.point = point
        if self._goes_on(actor, point):
            order = _varied(actor, point)
            self._note(actor, order)
            return effect(order)
        self._back.release()
        actor.baton.acquire()
        if actor.order.crash == "before":
            actor.is_dying = True
            raise Crashed
        try:
            return effect(actor.order)
        finally:
            if actor.order.crash == "after":
                actor.is_dying = True
                raise Crashed

    def _goes_on(self, actor: Actor, point: Point) -> bool:
        """Whether the last order covers this call too."""
        if actor.calls_left <= 0 or point.kind in _HALTS or (actor.order.to_crossing and point.kind in CROSSINGS):
            return False
        actor.calls_left -= 1
        return True


def _varied(actor: Actor, point: Point) -> Order:
    """Return what befalls a call on the way: nothing, or the first thing that the point offers."""
    if point.kind not in VARIED or not actor.luck_left:
        return GO
    actor.luck_left, two_bits = divmod(actor.luck_left, 4)
    return Order(point.faults[0], salt=actor.order.luck >> 3) if two_bits == 1 else GO
