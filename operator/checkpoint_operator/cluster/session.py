"""One generation of one write, with the ports that its rounds need. Made anew when its manifest changes."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from checkpoint_operator.cluster.pod_drivers import PodDrivers
from checkpoint_operator.cluster.pods import Owner
from checkpoint_operator.commit.outcomes import BurialOutcome, CommitOutcome, TryLater
from checkpoint_operator.commit.results import Results
from checkpoint_operator.reconcile import Reconciler, Sink, Write
from checkpoint_operator.source_tables import LookAtSource
from checkpoint_protocol import ledger as store_rules
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import Spec
from checkpoint_protocol.records import StagedFile, Target, WriteRecord
from checkpoint_protocol.store import ObjectStore

_FIRST_PAUSE_S: Final = 10.0
_MOST_PAUSE_S: Final = 300.0


def pause_after(failures: int) -> float:
    """Return the seconds between a failed attempt and the next: 10, 20, 40 ... 300, as for the pods of a Kubernetes Job."""
    return min(_MOST_PAUSE_S, _FIRST_PAUSE_S * float(1 << min(max(failures, 1) - 1, 10)))


@dataclass(frozen=True, slots=True)
class BoundedSink:
    """A sink of which only so many commit at once: a commit takes memory. `before` is called before each."""

    inner: Sink
    slots: threading.Semaphore
    before: Callable[[], None]

    @property
    def title(self) -> str:
        return self.inner.title

    def describe(self) -> Target | None:
        return self.inner.describe()

    def create(self, arrow_schema: str) -> Target:
        return self.inner.create(arrow_schema)

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        if not self.slots.acquire(blocking=False):
            return TryLater(reasons.COMMIT_QUEUED, "as many commits as the operator may make at once are at work")
        try:
            self.before()
            return self.inner.commit(ledger, results)
        finally:
            self.slots.release()

    def bury(self, ledger: Ledger) -> BurialOutcome:
        return self.inner.bury(ledger)

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        return self.inner.discard(key, targets, files)


@dataclass(slots=True)
class Session:
    """What is kept of a write between rounds, to save requests."""

    owner: Owner
    spec: Spec
    reconciler: Reconciler
    failed_before: int
    troubles: int = 0
    last_patch_s: float = float("-inf")
    patches: int = 0
    rows_sealed: int = field(default=0)
    counted_plan: tuple[int, int] | None = None


def open_session(
    owner: Owner,
    spec: Spec,
    store: ObjectStore,
    sink: BoundedSink,
    drivers: PodDrivers,
    resolve_code: Callable[[], tuple[str, str | None]],
    failed_before: Callable[[list[int]], int],
    clock: Callable[[], float],
    look_at_source: LookAtSource,
) -> Session:
    """Introduce the write to its store and return its session. NeedsChange if it is not the write that the store knows.

    `resolve_code` gives the code's digest and that of its archive, if it has one, whenever an attempt may depend on it.
    """
    _introduce(store, owner, spec)

    def renew(write: Write) -> Write:
        digest, archive = resolve_code()
        return dataclasses.replace(write, code_digest=digest, code=archive)

    write = Write(uid=owner.uid, spec=spec, code_digest="")
    reconciler = Reconciler(
        write, store, drivers, sink, clock=clock, renew=renew, pause_after=pause_after, look_at_source=look_at_source
    )
    counted_from = failed_before(reconciler.current_ledger().list_attempts())
    reconciler.first_counted_failure = counted_from + 1
    return Session(owner, spec, reconciler, counted_from)


def _introduce(store: ObjectStore, owner: Owner, spec: Spec) -> None:
    standing = store_rules.put_write(
        store,
        WriteRecord(
            token=new_token(),
            uid=owner.uid,
            namespace=owner.namespace,
            name=owner.name,
            identity=spec.identity,
            identity_digest=spec.identity_digest,
        ),
    )
    if standing.identity_digest != spec.identity_digest:
        changed = [part for part in spec.identity if spec.identity[part] != standing.identity.get(part)]
        raise NeedsChange(
            reasons.IDENTITY_CHANGED,
            f"spec.{changed[0] if changed else 'source'} is not what the write began with in {store.uri}; it is fixed for the "
            "life of a write: undo the change, or give the new write another name",
        )
