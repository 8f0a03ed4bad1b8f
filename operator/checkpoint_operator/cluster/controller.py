"""One look at one CheckpointedWrite: rounds of the reconcile loop until it waits, and the status that follows.

Level-triggered: what woke us does not matter, and every look may be the first or be cut off anywhere. Two controllers at once
disturb each other's status (the API server refuses the older), never the data.
"""

from __future__ import annotations

import datetime
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from checkpoint_operator.cluster import status as statuses
from checkpoint_operator.cluster.api import Conflict, KubeApi
from checkpoint_operator.cluster.cache import Cache, WriteName
from checkpoint_operator.cluster.code_source import CodeSource
from checkpoint_operator.cluster.config import OperatorConfig
from checkpoint_operator.cluster.driver_turns import DriverTurns
from checkpoint_operator.cluster.events import event_body, warnings_between
from checkpoint_operator.cluster.metrics import Metrics
from checkpoint_operator.cluster.object_status import status_of, status_patch
from checkpoint_operator.cluster.pod_drivers import PodDrivers
from checkpoint_operator.cluster.pods import Owner, pod_name
from checkpoint_operator.cluster.session import CommitTurns, Session, open_session
from checkpoint_operator.cluster.status import RETRY_ANNOTATION, Frame
from checkpoint_operator.core.actions import Close, Commit, Finish, Stall, StopDriver, Wait
from checkpoint_operator.deletion import Kept, delete_write
from checkpoint_operator.progress import measure
from checkpoint_operator.reconcile import Round, Sink
from checkpoint_operator.sink_formats.registry import format_of
from checkpoint_operator.source_tables import LookAtSource
from checkpoint_operator.status_model import Status
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.manifest import CheckpointedWrite, ManifestInvalid, Spec, parse_manifest
from checkpoint_protocol.manifest import Sink as SinkSpec
from checkpoint_protocol.manifest import Source as SourceSpec
from checkpoint_protocol.records import LaunchRecord
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.store import ObjectStore, local_path

FINALIZER: Final = "checkpointed.dev/staged-results"
#: A person who knows that a store is gone for good lets a deletion end without it.
ABANDON_ANNOTATION: Final = "checkpointed.dev/abandon"
_MOST_RETRY_TEXT: Final = 128

_MOST_ROUNDS: Final = 50
_FIRST_LOOK_S, _MOST_LOOK_S = 3.0, 30.0
_FIRST_PROGRESS_S, _MOST_PROGRESS_S = 10.0, 60.0
_STALLED_LOOK_S: Final = 60.0
_LINGER_S: Final = 60.0
_CONFLICT_PAUSE_S: Final = 0.5
_MOST_TROUBLE_PAUSE_S: Final = 60.0
#: What passes by itself within a moment is not told.
_TROUBLES_BEFORE_TOLD: Final = 2

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Controller:
    """Looks at writes. One thread at a time looks at one write; the work queue sees to that."""

    api: KubeApi
    cache: Cache
    config: OperatorConfig
    settings: Settings
    metrics: Metrics
    open_store: Callable[[str], ObjectStore]
    open_sink: Callable[[SinkSpec], Sink]
    open_source: Callable[[SourceSpec], LookAtSource]
    code_source: CodeSource
    instance: str
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)
    jitter: Callable[[], float] = random.random
    #: Has a write looked at.
    wake: Callable[[WriteName], None] = lambda key: None
    _sessions: dict[WriteName, Session] = field(default_factory=dict)
    _turns: CommitTurns = field(init=False)
    _places: DriverTurns = field(init=False)

    def __post_init__(self) -> None:
        self._places = DriverTurns(self.config.drivers_per_namespace, self.cache.writes_at_work, self.clock)
        self._turns = CommitTurns(threading.Semaphore(self.config.commit_workers))

    def look(self, key: WriteName) -> float | None:
        """Bring one write on as far as it goes now; return after how many seconds to look again, None to wait for an event."""
        body = self.cache.write(key)
        if body is None:
            self._sessions.pop(key, None)
            return None
        try:
            delay = self._look(key, body)
        except Conflict:
            return _CONFLICT_PAUSE_S * (1 + self.jitter())
        except Retryable as trouble:
            return self._in_trouble(key, trouble)
        except CheckpointError as error:
            return self._stall(key, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # Not foreseen: a defect of ours, or a library's; a panic of a native one is no Exception. It must not be silent; the
            # log has the whole of it.
            _log.exception("a look at %s/%s ended unexpectedly", key.namespace, key.name)
            gist = f"the operator failed: {type(error).__name__}: {error}; its log has the whole of it"
            return self._stall(key, Retryable(reasons.OPERATOR_DEFECT, gist))
        if (session := self._sessions.get(key)) is not None:
            session.troubles = 0
        if (waiting := self._places.next_of(key.namespace)) is not None:
            self.wake(waiting)
        return delay

    # --- one look ---------------------------------------------------------------------------------------------------------

    def _look(self, key: WriteName, body: Mapping[str, Any]) -> float | None:
        metadata = body["metadata"]
        if metadata.get("deletionTimestamp") is not None:
            return self._delete(key, body)
        try:
            spec = _manifest(body).spec
        except ManifestInvalid as error:
            self._stall(key, error)
            return None
        self._refuse_own_disk(spec)
        status = status_of(body)
        if statuses.is_finished(status, metadata["uid"], spec, metadata["generation"]):
            self._sessions.pop(key, None)
            return self._afterwards(key, body, spec, status)
        self._hold(key, body)
        session = self._session(key, spec)
        done = self._rounds(key, session)
        return self._after(key, session, done)

    def _refuse_own_disk(self, spec: Spec) -> None:
        """Whoever may apply a manifest has no business with the operator's disk, and drivers could not see what is on it."""
        uris = {"spec.checkpoint.uri": spec.checkpoint.uri, **format_of(spec.sink).uris}
        for field_path, uri in uris.items():
            if local_path(uri) is not None and not self.config.allow_local_paths:
                raise NeedsChange(
                    reasons.MANIFEST_INVALID,
                    f"{field_path}: {uri} is a path; in a cluster it is to be in an object store (s3://, gs://, az://)",
                )

    def _hold(self, key: WriteName, body: Mapping[str, Any]) -> None:
        """Put our finalizer on before anything of the write exists elsewhere."""
        finalizers = body["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            version = body["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version, "finalizers": [*finalizers, FINALIZER]}}
            self.cache.put_write(self.api.patch_write(key.namespace, key.name, patch))

    def _session(self, key: WriteName, spec: Spec) -> Session:
        body = self._body(key)
        owner = _owner(body)
        session = self._sessions.get(key)
        if session is not None and session.owner == owner:
            return session
        store = self.open_store(spec.checkpoint.uri)
        drivers = PodDrivers(
            api=self.api,
            known_pod=self.cache.pod,
            owner=owner,
            spec=spec,
            store_uri=store.uri,
            workloads=self.config.workloads,
            record=lambda epoch, launch, pod: self._record_start(key, epoch, launch, pod),
            note=self._note_pod,
        )
        session = open_session(
            owner=owner,
            spec=spec,
            store=store,
            sink=self.open_sink(spec.sink),
            drivers=drivers,
            resolve_code=lambda: self.code_source.resolve(owner, spec, store),
            failed_before=lambda numbers: _failed_before(status_of(body), owner, numbers),
            commit_turn=lambda: self._turns.take(lambda: self._record_commit(key)),
            clock=self.clock,
            look_at_source=self.open_source(spec.source),
            ask_for_a_place=lambda: self._places.ask(key),
        )
        self._sessions[key] = session
        return session

    def _rounds(self, key: WriteName, session: Session) -> Round:
        reconciler = session.reconciler
        reconciler.is_past_deadline = self._is_past_deadline(key, session.spec)
        for _ in range(_MOST_ROUNDS):
            done = reconciler.step()
            self._count(session, done)
            if done.outcome is not None or not any(_is_effect(action) for action in done.actions):
                break
        return done

    def _after(self, key: WriteName, session: Session, done: Round) -> float | None:
        progress = measure(session.reconciler.current_tallies())
        self.metrics.staged_rows.inc(max(0, progress.rows_written - session.rows_sealed))
        session.rows_sealed = max(session.rows_sealed, progress.rows_written)
        self.metrics.quarantined_rows.inc(max(0, progress.rows_quarantined - session.rows_quarantined))
        session.rows_quarantined = max(session.rows_quarantined, progress.rows_quarantined)
        if progress.tasks is not None and session.counted_plan != (done.key.epoch, progress.attempt):
            session.counted_plan = (done.key.epoch, progress.attempt)
            self.metrics.input_files_done.inc(progress.input_files_done)
        last = done.seen.last
        pod = pod_name(session.owner, done.key.epoch, last.number) if last is not None else None
        before = status_of(self._body(key))

        left_s = session.time_left.measure(self.clock(), progress)

        def status(frame: Frame) -> Status:
            return statuses.after_round(frame, done, progress, session.failed_before, pod, left_s)

        if self._is_worth_telling(session, before, status(self._frame(key, session.spec))):
            self._publish_of(session, key, status)
            session.last_patch_s = self.clock()
            session.patches += 1
        match done.outcome:
            case Finish():
                self._sessions.pop(key, None)
                body = self._body(key)
                return self._afterwards(key, body, session.spec, status_of(body))
            case Stall():
                return _STALLED_LOOK_S
        if last is not None and not last.is_closed:
            return min(_MOST_LOOK_S, max(_FIRST_LOOK_S, (last.idle_s + last.starved_s) / 10))
        return max(1.0, min(done.seen.pause_left_s, _MOST_LOOK_S)) if done.seen.pause_left_s > 0 else _MOST_LOOK_S

    def _is_worth_telling(self, session: Session, before: Status, after: Status) -> bool:
        """Progress alone is told ever more rarely; everything else at once."""
        if _phase_of(before.activity) != _phase_of(after.activity):
            return True
        counts = {
            "activity": None,
            "queue_position": None,
            "progress": None,
            "tasks_sealed": None,
            "rows_sealed": None,
            "rows_quarantined": None,
        }
        is_first_failure = bool(after.rows_quarantined) and not before.rows_quarantined
        if is_first_failure or before.model_copy(update=counts) != after.model_copy(update=counts):
            return True
        interval_s = min(_MOST_PROGRESS_S, _FIRST_PROGRESS_S * 2 ** min(session.patches, 8))
        return before != after and self.clock() - session.last_patch_s >= interval_s

    def _is_past_deadline(self, key: WriteName, spec: Spec) -> bool:
        """By the wall clock: it bounds effort, and no safety rests on it."""
        if spec.active_deadline_seconds is None:
            return False
        status = status_of(self._body(key))
        if status.started_at is None or status.run_nonce != spec.run_nonce:
            return False
        return self._age_s(status.started_at) > spec.active_deadline_seconds

    def _afterwards(self, key: WriteName, body: Mapping[str, Any], spec: Spec, status: Status) -> float | None:
        """See a finished write off: a driver that does not end by itself is ended, and a time to live is kept."""
        delays = (self._end_lingering(body, status), self._expire(key, body, spec, status))
        return min((delay for delay in delays if delay is not None), default=None)

    def _end_lingering(self, body: Mapping[str, Any], status: Status) -> float | None:
        """A driver ends soon after its last task; until then its pod, and its log, are left alone."""
        attempt = (status.attempts or (None,))[-1]
        if attempt is None or attempt.pod is None or status.commit is None or status.commit.committed_at is None:
            return None
        pod = self.cache.pod(body["metadata"]["namespace"], attempt.pod)
        if pod is None or pod["status"].get("phase") in ("Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]:
            return None
        left_s = _LINGER_S - self._age_s(status.commit.committed_at)
        if left_s > 0:
            return left_s + 1
        self.api.delete_pod(body["metadata"]["namespace"], attempt.pod, pod["metadata"]["uid"])
        return None

    def _expire(self, key: WriteName, body: Mapping[str, Any], spec: Spec, status: Status) -> float | None:
        """Delete a finished write whose time to live has passed."""
        if spec.ttl_seconds_after_finished is None or status.commit is None or status.commit.committed_at is None:
            return None
        left_s = spec.ttl_seconds_after_finished - self._age_s(status.commit.committed_at)
        if left_s > 0:
            return left_s + 1
        self.api.delete_write(key.namespace, key.name, body["metadata"]["uid"])
        return None

    # --- deletion ---------------------------------------------------------------------------------------------------------

    def _delete(self, key: WriteName, body: Mapping[str, Any]) -> float | None:
        """End the drivers, see to it that nothing can land any more, remove what is staged, and let the object go."""
        metadata = body["metadata"]
        if FINALIZER not in (metadata.get("finalizers") or ()):
            self._sessions.pop(key, None)
            return None
        is_abandoned = (metadata.get("annotations") or {}).get(ABANDON_ANNOTATION) == "true"
        if is_abandoned:
            self._keep_from_landing(key, body)
        elif (held_up := self._clean_up(key, body)) is not None:
            message = (
                f"the deletion waits: {held_up.message}; rows that it has committed stay in the table in any case. To delete it "
                f"without cleaning up: kubectl annotate checkpointedwrite {key.name} {ABANDON_ANNOTATION}=true"
            )
            self._publish(key, lambda frame: statuses.deleting(frame, held_up.reason, message))
            return _STALLED_LOOK_S
        finalizers = [name for name in metadata["finalizers"] if name != FINALIZER]
        version = self._body(key)["metadata"]["resourceVersion"]
        self.api.patch_write(
            key.namespace, key.name, {"metadata": {"resourceVersion": version, "finalizers": finalizers or None}}
        )
        self._sessions.pop(key, None)
        return None

    def _keep_from_landing(self, key: WriteName, body: Mapping[str, Any]) -> None:
        """Put the note of a deletion that a person has abandoned, if the store answers: no committer begins any more then."""
        try:
            writes.put_deleted(self.open_store(_manifest(body).spec.checkpoint.uri), _owner(body).uid)
        except CheckpointError as error:
            _log.warning(
                "the deletion of %s/%s is abandoned, and its store has no note of that: %s",
                key.namespace,
                key.name,
                error.message,
            )

    def _clean_up(self, key: WriteName, body: Mapping[str, Any]) -> Kept | None:
        owner, status = _owner(body), status_of(body)
        try:
            spec = _manifest(body).spec
            self._stop_drivers(owner, status)
            ended = delete_write(self.open_store(spec.checkpoint.uri), owner.uid, self.open_sink(spec.sink))
        except CheckpointError as error:
            if isinstance(error, ManifestInvalid) and not status.attempt:
                return None  # it was never accepted, so nothing was begun
            return Kept(error.reason, error.message)
        return ended if isinstance(ended, Kept) else None

    def _stop_drivers(self, owner: Owner, status: Status) -> None:
        """Ask the drivers to end: a courtesy, since they end with the object that owns them, and nobody counts what they seal."""
        for attempt in status.attempts or ():
            if attempt.pod is None:
                continue
            try:
                pod = self.api.get_pod(owner.namespace, attempt.pod)
                if pod is not None and any(by.get("uid") == owner.uid for by in pod["metadata"].get("ownerReferences") or ()):
                    self.api.delete_pod(owner.namespace, attempt.pod, pod["metadata"]["uid"])
            except Retryable as error:
                if error.reason != reasons.API_FORBIDDEN:
                    raise
                # Of a namespace that is being deleted, the role goes before the writes; so do the pods.
                _log.warning("the driver %s/%s could not be asked to end: %s", owner.namespace, attempt.pod, error.message)

    # --- status -----------------------------------------------------------------------------------------------------------

    def _record_start(self, key: WriteName, epoch: EpochKey, launch: LaunchRecord, pod: str) -> None:
        session = self._sessions[key]
        self._publish_of(session, key, lambda frame: statuses.starting(frame, epoch, launch, pod, session.failed_before))

    def _note_pod(self, pod: Mapping[str, Any]) -> None:
        self.cache.put_pod(pod)

    def _record_commit(self, key: WriteName) -> None:
        self._publish_of(self._sessions[key], key, statuses.committing)

    def _publish_of(self, session: Session, key: WriteName, make: Callable[[Frame], Status]) -> None:
        """Write the status of a round. Raises Conflict if the manifest has changed since the round began: what was done is not
        what is asked for now, and must not be told as if it were.
        """
        if _owner(self._body(key)) != session.owner:
            raise Conflict(f"the manifest of {key.namespace}/{key.name} was changed")
        self._publish(key, make)

    def _publish(self, key: WriteName, make: Callable[[Frame], Status]) -> None:
        """Write a status unless it is there. Raises Conflict if the object has changed since it was read."""
        body = self._body(key)
        try:
            spec: Spec | None = _manifest(body).spec
        except ManifestInvalid:
            spec = None
        before = status_of(body)
        after = make(self._frame(key, spec))
        patch = status_patch(body, after)
        if patch is None:
            return
        self.cache.put_write(self.api.patch_status(key.namespace, key.name, patch))
        for reason, message in warnings_between(before, after):
            self._tell(body, reason, message)

    def _tell(self, body: Mapping[str, Any], reason: str, message: str) -> None:
        name = f"{body['metadata']['name']}.{new_token()[:16]}"
        now = self.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        _log.warning(message, extra={"write": f"{body['metadata']['namespace']}/{body['metadata']['name']}", "reason": reason})
        try:
            self.api.create_event(body["metadata"]["namespace"], event_body(body, name, reason, message, now, self.instance))
        except CheckpointError as error:
            # The status says the same; nobody waits for an event.
            _log.warning("an event could not be written: %s", error.message)

    def _stall(self, key: WriteName, error: CheckpointError) -> float:
        self.metrics.troubles.labels(error.reason).inc()
        try:
            self._publish(key, lambda frame: statuses.stalled(frame, error.reason, error.message))
        except CheckpointError as second:
            _log.warning("a status could not be written: %s", second.message)
        return _STALLED_LOOK_S

    def _in_trouble(self, key: WriteName, trouble: Retryable) -> float:
        session = self._sessions.get(key)
        self.metrics.troubles.labels(trouble.reason).inc()
        troubles = session.troubles + 1 if session is not None else _TROUBLES_BEFORE_TOLD
        if session is not None:
            session.troubles = troubles
        if troubles >= _TROUBLES_BEFORE_TOLD and trouble.reason != reasons.API_UNAVAILABLE:
            try:
                self._publish(key, lambda frame: statuses.in_trouble(frame, trouble.reason, trouble.message))
            except CheckpointError as error:
                _log.warning("a status could not be written: %s", error.message)
        return min(_MOST_TROUBLE_PAUSE_S, 2.0 ** min(troubles, 6)) * (0.5 + self.jitter())

    def _frame(self, key: WriteName, spec: Spec | None) -> Frame:
        body = self._body(key)
        return Frame(
            previous=status_of(body),
            generation=body["metadata"]["generation"],
            now=self.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            spec=spec,
            name=key.name,
            retry=_owner(body).retry,
        )

    def _body(self, key: WriteName) -> Mapping[str, Any]:
        body = self.cache.write(key)
        if body is None:
            raise Conflict(f"{key.namespace}/{key.name} is gone")
        return body

    def _age_s(self, since: str) -> float:
        return (self.now() - datetime.datetime.fromisoformat(since)).total_seconds()

    def _count(self, session: Session, done: Round) -> None:
        kind = session.spec.sink.format
        for action in done.actions:
            match action:
                case Commit():
                    self.metrics.commits.labels(kind, "committed").inc()
                case Stall(reason, _) if done.seen.last is not None and done.seen.last.is_complete:
                    self.metrics.commits.labels(kind, reason).inc()
                case Close(_, _, failure):
                    cause = statuses.cause_of(failure.reason) if failure is not None else "Completed"
                    self.metrics.attempts.labels(cause).inc()
                case Finish() if done.mark is not None:
                    self.metrics.committed_rows.labels(kind).inc(done.mark.rows_written)


def _phase_of(activity: str | None) -> str | None:
    """Return what comes before the numbers of an activity."""
    return activity.partition(":")[0] if activity is not None else None


def _is_effect(action: object) -> bool:
    """Whether to go on at once. A driver that is told to end takes its time."""
    return not isinstance(action, Wait | StopDriver)


def _manifest(body: Mapping[str, Any]) -> CheckpointedWrite:
    """Read the manifest in an object, without what the API server has added."""
    metadata = {name: body["metadata"][name] for name in ("name", "namespace")}
    return parse_manifest({"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": metadata, "spec": body["spec"]})


def _owner(body: Mapping[str, Any]) -> Owner:
    metadata = body["metadata"]
    retry = str((metadata.get("annotations") or {}).get(RETRY_ANNOTATION, ""))[:_MOST_RETRY_TEXT]
    return Owner(metadata["namespace"], metadata["name"], metadata["uid"], metadata["generation"], retry)


def _failed_before(status: Status, owner: Owner, numbers: list[int]) -> int:
    """Return the last attempt whose failure no longer counts: a manifest that was changed asks for new tries, as a person may."""
    if status.failed_before_generation not in (None, owner.generation) or (status.retried or "") != owner.retry:
        return numbers[-1] if numbers else 0
    known = status.failed_before or 0
    return known if numbers and known <= numbers[-1] else 0
