"""Whose turn it is, and how far an actor goes on."""

from __future__ import annotations

from typing import Final

from tests.simulation.scheduler import Actor, Order
from tests.simulation.world import World

TO_ITS_SLEEP: Final = Order(calls=200)
TO_A_CROSSING: Final = Order(calls=200, to_crossing=True)
A_LITTLE: Final = Order(calls=6)
ONE_CALL: Final = Order()


class Turns:
    """Whose turn it is: one actor goes on until it sleeps or waits; then the next in rotation."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._last: Actor | None = None

    def candidates(self, among: list[Actor]) -> list[Actor]:
        """Return the ready ones, the dullest choice first."""
        ready = [actor for actor in among if actor.is_ready]
        if self._last is None or not ready:
            return ready
        if self._last in ready and self._last.point.kind != "sleep":
            ready.remove(self._last)
            return [self._last, *self._rotated(ready)]
        return self._rotated(ready)

    def _rotated(self, ready: list[Actor]) -> list[Actor]:
        actors = self.world.scheduler.actors
        last = actors.index(self._last) if self._last is not None else -1
        return sorted(ready, key=lambda actor: (actors.index(actor) <= last, actors.index(actor)))

    def take(self, actor: Actor, order: Order = TO_ITS_SLEEP) -> None:
        self._last = actor
        self.world.scheduler.run(actor, order)
