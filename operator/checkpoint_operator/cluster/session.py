"""One generation of one write, with the ports that its rounds need. Made anew when its manifest changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from checkpoint_operator.cluster.pods.driver_pod import Owner
from checkpoint_operator.cluster.pods.pod_drivers import PodDrivers
from checkpoint_operator.core.code_changes import parse_approval
from checkpoint_operator.core.pauses import pause_after, retry_after
from checkpoint_operator.loop.driver_digest import digest_of_kept
from checkpoint_operator.loop.looks import Looks
from checkpoint_operator.loop.observing import Observer
from checkpoint_operator.loop.reconcile import Reconciler, Round
from checkpoint_operator.ports import PinSource, Sink, Write
from checkpoint_operator.progress.activity import TimeLeft
from checkpoint_operator.writes.registration import check_identity, registering
from checkpoint_protocol.identity import row_keys_of
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.store.object_store import ObjectStore

_START_OVER: Final = (
    "; an earlier object of this name has begun the write: spec.onRecreate: New starts over as a new one, and leaves what "
    "that one has committed in its table"
)


@dataclass(slots=True)
class Session:
    """What is kept of a write between rounds, to save requests."""

    owner: Owner
    spec: Spec
    reconciler: Reconciler
    errors: int = 0
    last_patch_s: float = float("-inf")
    patches: int = 0
    rows_sealed: int = field(default=0)
    rows_quarantined: int = field(default=0)
    counted_plan: tuple[int, int] | None = None
    time_left: TimeLeft = field(default_factory=TimeLeft)


def open_session(
    owner: Owner,
    uid: str,
    spec: Spec,
    store: ObjectStore,
    sink: Sink,
    drivers: PodDrivers,
    resolve_code: Callable[[Spec], tuple[str, str | None]],
    forgive: Callable[[list[int]], int],
    is_past_deadline: Callable[[int], bool],
    commit_turn: Callable[[], AbstractContextManager[object]],
    announce: Callable[[Round], None],
    clock: Callable[[], float],
    pin_source: PinSource,
    queue_for_a_place: Callable[[], int | None],
    looks: Looks | None = None,
) -> Session:
    """Return the session of a write. NeedsChange if it is not the write that its store knows.

    `uid` is the write's, which its object's name means.
    `resolve_code` gives the digest of a manifest's code, or a stage's, and that of its archive, if it has one, whenever an
    attempt may depend on it.
    """
    start_over = "" if uid == owner.uid else _START_OVER
    check_identity(store, uid, spec, start_over)

    def renew(write: Write) -> Write:
        digest, archive = resolve_code(write.spec)
        return dataclasses.replace(write, code_digest=digest, code=archive)

    row_keys = row_keys_of(spec.checkpoint.uri, owner.namespace, owner.name)
    write = Write(uid=uid, spec=spec, code_digest="", row_keys=row_keys)
    observer = Observer(
        write,
        store,
        drivers,
        sink,
        clock=clock,
        renew=renew,
        forgive=forgive,
        is_past_deadline=is_past_deadline,
        pause_after=pause_after,
        retry_after=retry_after,
        pin_source=pin_source,
        find_starvation=drivers.find_starvation,
        queue_for_a_place=queue_for_a_place,
        looks=looks,
        approval=parse_approval(owner.approval),
        driver_digest=digest_of_kept(spec, drivers.workloads.model_dump_json()),
        register=registering(store, uid, owner.namespace, owner.name, spec, start_over),
    )
    return Session(owner, spec, Reconciler(observer, commit_turn, announce))
