"""One generation of one write, with the ports that its rounds need. Made anew when its manifest changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from checkpoint_commit.ports import PinSource, Sink
from checkpoint_control.decision.code_changes import parse_approval
from checkpoint_control.loop.looks import Looks
from checkpoint_control.loop.observing import Observer
from checkpoint_control.loop.reconcile import Reconciler, Round
from checkpoint_control.ports import Write
from checkpoint_control.progress.activity import TimeLeft
from checkpoint_control.writes.registration import check_identity, registering
from checkpoint_operator.host import ClusterHost
from checkpoint_operator.pods.driver_pod import Owner
from checkpoint_protocol.identity import row_keys_of
from checkpoint_protocol.manifest.spec import Spec

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
    #: Of progress alone, since anything else was told.
    patches: int = 0
    #: What the metrics have of the rows of `counted_epoch`. `committing`: the epoch whose commit is made, and not counted yet.
    counted_epoch: int = 0
    rows_sealed: int = 0
    rows_failed: int = 0
    committing: int = 0
    counted_plan: tuple[int, int] | None = None
    time_left: TimeLeft = field(default_factory=TimeLeft)


def open_session(
    host: ClusterHost,
    sink: Sink,
    pin_source: PinSource,
    looks: Looks | None,
    commit_turn: Callable[[], AbstractContextManager[object]],
    announce: Callable[[Round], None],
) -> Session:
    """Return the session of a write. NeedsChange if it is not the write that its store knows."""
    store, uid, owner, spec = host.store, host.uid, host.drivers.owner, host.drivers.spec
    start_over = "" if uid == owner.uid else _START_OVER
    check_identity(store, uid, spec, start_over)
    row_keys = row_keys_of(spec.checkpoint.uri, owner.namespace, owner.name)
    write = Write(uid=uid, spec=spec, code_digest="", row_keys=row_keys)
    approval = parse_approval(owner.approval)
    observer = Observer(write, store, host.drivers, sink, host, pin_source=pin_source, looks=looks, approval=approval)
    register = registering(store, uid, owner.namespace, owner.name, spec, start_over)
    return Session(owner, spec, Reconciler(observer, commit_turn, announce, register))
