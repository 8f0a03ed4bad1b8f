"""One generation of one write, with the ports that its rounds need. Made anew when its manifest changes."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Final

from checkpoint_operator.activity import TimeLeft
from checkpoint_operator.cluster.pod_drivers import PodDrivers
from checkpoint_operator.cluster.pods import Owner
from checkpoint_operator.reconcile import Reconciler, Sink, Write
from checkpoint_operator.registration import register
from checkpoint_operator.source_tables import LookAtSource
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.manifest import Spec
from checkpoint_protocol.store import ObjectStore

_PAUSE_AFTER_PROGRESS_S: Final = 1.0
_FIRST_PAUSE_S: Final = 10.0
_MOST_PAUSE_S: Final = 300.0
_FIRST_LOOK_AGAIN_S: Final = 300.0
_MOST_LOOK_AGAIN_S: Final = 3600.0


def pause_after(failures: int) -> float:
    """Return the seconds between an attempt and the next: 10, 20, 40 ... 300, as for the pods of a Kubernetes Job.

    `failures`: attempts in a row that sealed nothing. At 0 the last one has sealed something (or does not count), and the next
    follows almost at once: of attempts that bring the end nearer there are no more than there is work.
    """
    if failures == 0:
        return _PAUSE_AFTER_PROGRESS_S
    return min(_MOST_PAUSE_S, _FIRST_PAUSE_S * float(1 << min(failures - 1, 10)))


def look_again_after(failures: int) -> float:
    """Return the seconds until something outside of the manifest is looked at again: 5, 10, 20, 40, 60, 60 ... minutes."""
    return min(_MOST_LOOK_AGAIN_S, _FIRST_LOOK_AGAIN_S * float(1 << min(max(failures, 1) - 1, 10)))


@dataclass(frozen=True, slots=True)
class CommitTurns:
    """Only so many commits at once: each reads all its seals, and takes memory."""

    slots: threading.Semaphore

    @contextmanager
    def take(self, before: Callable[[], None]) -> Iterator[None]:
        """Hold a turn, in which `before` is called first. Retryable(CommitQueued) if all are taken."""
        if not self.slots.acquire(blocking=False):
            raise Retryable(reasons.COMMIT_QUEUED, "as many commits as the operator may make at once are at work")
        try:
            before()
            yield
        finally:
            self.slots.release()


@dataclass(slots=True)
class Session:
    """What is kept of a write between rounds, to save requests."""

    owner: Owner
    spec: Spec
    reconciler: Reconciler
    troubles: int = 0
    last_patch_s: float = float("-inf")
    patches: int = 0
    rows_sealed: int = field(default=0)
    rows_quarantined: int = field(default=0)
    counted_plan: tuple[int, int] | None = None
    time_left: TimeLeft = field(default_factory=TimeLeft)

    @property
    def failed_before(self) -> int:
        """Attempts of the current epoch up to this one no longer count as failed."""
        return (self.reconciler.first_counted_failure or 1) - 1


def open_session(
    owner: Owner,
    spec: Spec,
    store: ObjectStore,
    sink: Sink,
    drivers: PodDrivers,
    resolve_code: Callable[[], tuple[str, str | None]],
    failed_before: Callable[[list[int]], int],
    commit_turn: Callable[[], AbstractContextManager[object]],
    clock: Callable[[], float],
    look_at_source: LookAtSource,
    ask_for_a_place: Callable[[], int | None],
) -> Session:
    """Introduce the write to its store and return its session. NeedsChange if it is not the write that the store knows.

    `resolve_code` gives the code's digest and that of its archive, if it has one, whenever an attempt may depend on it.
    """
    register(store, owner.uid, owner.namespace, owner.name, spec)

    def renew(write: Write) -> Write:
        digest, archive = resolve_code()
        return dataclasses.replace(write, code_digest=digest, code=archive)

    write = Write(uid=owner.uid, spec=spec, code_digest="")
    reconciler = Reconciler(
        write,
        store,
        drivers,
        sink,
        clock=clock,
        renew=renew,
        pause_after=pause_after,
        look_again_after=look_again_after,
        commit_turn=commit_turn,
        look_at_source=look_at_source,
        look_at_executors=drivers.look_at_executors,
        ask_for_a_place=ask_for_a_place,
    )
    reconciler.first_counted_failure = failed_before(reconciler.current_ledger().list_attempts()) + 1
    return Session(owner, spec, reconciler)
