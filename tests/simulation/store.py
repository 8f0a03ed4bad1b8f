"""A simulated object store: put-if-absent is linearizable, answers get lost, puts land late, listings are no snapshots.

Faults of a put:
    lost        it is applied, and the answer is lost (Retryable)
    late        no answer (Retryable); it is applied at any later time, or never
    dropped     no answer (Retryable), and no effect
    repeated    it is applied, and reported as "exists already": a retried request met its own first one
    held        "exists already", although nothing is there: another put of the object is, or seemed to be, in flight
Of a get and a list:
    down        no answer (Retryable)
Of a list:
    ragged      any object that was put a moment ago may be missing, also an earlier one where a later one is shown

A get after a completed put sees it, always. Reading is never wrong; this is what S3, GCS and Azure promise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.store.object_store import StoredObject, refuse_larger
from tests.simulation.scheduler import Order, Scheduler

PUT_FAULTS: Final = ("late", "lost", "dropped", "repeated", "held")
READ_FAULTS: Final = ("down",)
LIST_FAULTS: Final = ("ragged", "down")

#: An object that was put within so many steps is new enough to be missed by a listing.
_RECENT_STEPS: Final = 120


@dataclass(frozen=True, slots=True)
class _Stored:
    data: bytes
    at_step: int


@dataclass(slots=True)
class SimulatedStore:
    """Implements ObjectStore. `flying` are puts without an answer that may land yet."""

    scheduler: Scheduler
    uri: str = "s3://sim/checkpoints"
    objects: dict[str, _Stored] = field(default_factory=dict)
    flying: list[tuple[str, bytes]] = field(default_factory=list)

    # --- the port ---------------------------------------------------------------------------------------------------------

    def put_if_absent(self, path: str, data: bytes) -> bool:
        def effect(order: Order) -> bool:
            match order.fault:
                case "lost":
                    self._apply(path, data)
                    raise _no_answer(path)
                case "late":
                    self.flying.append((path, data))
                    raise _no_answer(path)
                case "dropped":
                    raise _no_answer(path)
                case "repeated":
                    self._apply(path, data)
                    return False
                case "held":
                    return False
                case _:
                    return self._apply(path, data)

        return self.scheduler.at("put", path, effect, PUT_FAULTS)

    def get(self, path: str, most_bytes: int) -> bytes | None:
        def effect(order: Order) -> bytes | None:
            if order.fault == "down":
                raise _no_answer(path)
            found = self.peek(path)
            if found is not None:
                refuse_larger(len(found), most_bytes, f"{self.uri}/{path}")
            return found

        return self.scheduler.at("get", path, effect, READ_FAULTS)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        def effect(order: Order) -> list[StoredObject]:
            if order.fault == "down":
                raise _no_answer(folder)
            paths = [path for path in self.objects if path.startswith(folder)]
            missed = self._missed(paths, order.salt) if order.fault == "ragged" else frozenset()
            return [
                StoredObject(path, len(data := self.objects[path].data), hashlib.md5(data, usedforsecurity=False).hexdigest())
                for path in paths
                if path not in missed
            ]

        return iter(self.scheduler.at("list", folder, effect, LIST_FAULTS))

    def delete(self, paths: Iterable[str]) -> None:
        gone = list(paths)

        def effect(_: Order) -> None:
            for path in gone:
                self.objects.pop(path, None)

        self.scheduler.at("delete", ", ".join(gone), effect)

    # --- for the world ----------------------------------------------------------------------------------------------------

    def peek(self, path: str) -> bytes | None:
        """Read without a point."""
        stored = self.objects.get(path)
        return None if stored is None else stored.data

    def overwrite(self, path: str, data: bytes) -> None:
        """What no store that we accept does; for the mutants."""
        self.objects[path] = _Stored(data, self.scheduler.step_number)

    def land(self, index: int) -> None:
        """Let a put that was never answered take effect."""
        path, data = self.flying.pop(index)
        landed = self._apply(path, data)
        self.scheduler.say(f"(late put {path} {'lands' if landed else 'finds the object there'})")

    def drop(self, index: int) -> None:
        path, _ = self.flying.pop(index)
        self.scheduler.say(f"(late put {path} never lands)")

    def _missed(self, paths: Sequence[str], salt: int) -> frozenset[str]:
        """Return what a listing does not show: one new object, or any of them."""
        new = [path for path in paths if self.objects[path].at_step > self.scheduler.step_number - _RECENT_STEPS]
        salt, is_one = divmod(salt, 2)
        if is_one and new:
            return frozenset({new[salt % len(new)]})
        return frozenset(path for index, path in enumerate(new) if salt >> (index % 8) & 1)

    def _apply(self, path: str, data: bytes) -> bool:
        if path in self.objects:
            return False
        self.objects[path] = _Stored(data, self.scheduler.step_number)
        return True


def _no_answer(path: str) -> Retryable:
    return Retryable(reasons.STORE_UNAVAILABLE, f"s3://sim/checkpoints/{path}: no answer")
