"""Reconciles CheckpointedWrites: each turn loads one, does rounds of the loop until it waits, and tells what follows from them.

Level-triggered: what woke us does not matter, and every turn may be the first or be cut off anywhere. Two controllers at once
disturb each other's status (the API server refuses the older), never the data.
"""

from __future__ import annotations

import datetime
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from checkpoint_commit.catalogs.named import CatalogBook
from checkpoint_commit.catalogs.source_tables import open_source
from checkpoint_commit.catalogs.vended import keys_of_write
from checkpoint_commit.lance.namespaces import located
from checkpoint_commit.ports import Sink
from checkpoint_commit.sinks.registry import format_of
from checkpoint_control.decision.actions import Commit, Finish, RecordAttempt, Stall, StopDriver, StopKeptDriver, Wait
from checkpoint_control.decision.triggers import check_schedule
from checkpoint_control.loop.looks import Looks, listing_of, open_news, refuse_paths_of_pods
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.loop.table_facts import refuse_own_outputs
from checkpoint_control.pipelines.inherited import parent_of
from checkpoint_control.progress.epoch_progress import measure
from checkpoint_control.writes.former import refuse_former, title_in_cluster
from checkpoint_control.writes.registration import write_of_object
from checkpoint_operator.code_source import CodeSource
from checkpoint_operator.config import OperatorConfig
from checkpoint_operator.ends.deleting import ObjectDeletion
from checkpoint_operator.ends.retention import Retention, clean_up_after
from checkpoint_operator.kube.api import Conflict, KubeApi
from checkpoint_operator.metrics.counters import Metrics
from checkpoint_operator.metrics.round_metrics import count_progress, count_round, count_start
from checkpoint_operator.objects import confirm_object, manifest_of, named_object, owner_of, refuse_own_disk
from checkpoint_operator.pods.driver_pod import pod_name
from checkpoint_operator.pods.handed_keys import HandedKeysEntry
from checkpoint_operator.pods.pod_drivers import PodDrivers
from checkpoint_operator.session import ClusterHost, Session, open_session
from checkpoint_operator.status.object_status import status_of
from checkpoint_operator.status.publishing import Publisher
from checkpoint_operator.status.round_status import Failed, Figures, is_finished
from checkpoint_operator.turns.turns import CommitTurns, DriverTurns
from checkpoint_operator.watch.cache import Cache, WriteName
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable, one_line
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.manifest.spec import ManifestInvalid, Spec
from checkpoint_protocol.places.secrets import Secrets
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store.authenticated_store import KeySource
from checkpoint_protocol.store.layout import scope_in_cluster
from checkpoint_protocol.store.object_store import ObjectStore

_MOST_ROUNDS: Final = 50
_FIRST_POLL_S, _MOST_POLL_S = 3.0, 30.0
_KEPT_POLL_S: Final = 0.5
_STALLED_POLL_S: Final = 60.0
_CONFLICT_PAUSE_S: Final = 0.5
_LEAST_LOOK_S: Final = 0.5
_MOST_ERROR_PAUSE_S: Final = 60.0
#: What passes by itself within a moment is not told.
_ERRORS_BEFORE_TOLD: Final = 2

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Controller:
    """Reconciles writes. One thread at a time reconciles one write; the work queue sees to that."""

    api: KubeApi
    cache: Cache
    config: OperatorConfig
    metrics: Metrics
    #: What the writes of a namespace may use.
    settings_of: Callable[[str], Settings]
    #: Shared by all writes; None: each opens catalogs of its own.
    catalogs: CatalogBook | None
    #: Each for a namespace, with its settings.
    open_store: Callable[[str, str], ObjectStore]
    #: The last is what the table is to show of the write beside its key.
    open_sink: Callable[[str, SinkSpec, str], Sink]
    code_source: CodeSource
    instance: str
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)
    jitter: Callable[[], float] = random.random
    #: Has a write reconciled.
    wake: Callable[[WriteName], None] = lambda key: None
    #: Of drivers; the stores are opened with the same.
    record_keys: KeySource | None = None
    #: Under which stores have the names of writes.
    cluster: str = "unnamed"
    #: What no status says.
    secrets: Secrets = field(default_factory=Secrets)
    _sessions: dict[WriteName, Session] = field(default_factory=dict)
    _turns: CommitTurns = field(init=False)
    _places: DriverTurns = field(init=False)
    _publisher: Publisher = field(init=False)
    _deletion: ObjectDeletion = field(init=False)
    _retention: Retention = field(init=False)

    def __post_init__(self) -> None:
        self._places = DriverTurns(self.config.drivers_per_namespace, self.cache.writes_at_work, self.clock)
        self._turns = CommitTurns(self.config.commit_workers, self.clock, lambda key: self.wake(key))
        self._publisher = Publisher(self.api, self.cache, self.instance, self.clock, self.now, self.secrets, self.config.operator)
        self._retention = Retention(
            self.config.retention_days,
            lambda namespace, uri: self.open_store(namespace, uri),
            self.settings_of,
            self.clock,
            self.now,
        )
        self._deletion = ObjectDeletion(
            self.api,
            self.cache,
            self._publisher,
            lambda namespace, uri: self.open_store(namespace, uri),
            lambda namespace, spec: self.open_sink(namespace, spec, ""),
            self.config.allow_local_paths,
            self.cluster,
        )

    def warn(self, body: Mapping[str, Any], reason: str, message: str) -> None:
        """Tell people something about an object that is not reconciled."""
        self._publisher.warn(body, reason, message)

    def reconcile(self, key: WriteName) -> float | None:
        """Bring one write on as far as it goes now; return after how many seconds to come back, None to wait for an event."""
        body = self.cache.write(key)
        if body is None:
            self._sessions.pop(key, None)
            self._retention.forget(key)
            return None
        try:
            delay = self._bring_on(key, body)
        except Conflict:
            return _CONFLICT_PAUSE_S * (1 + self.jitter())
        except Retryable as error:
            return self._try_again(key, error)
        except CheckpointError as error:
            return self._stall(key, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # Not foreseen: a defect of ours, or a library's; a panic of a native one is no Exception. It must not be silent; the
            # log has the whole of it.
            _log.exception("the reconciliation of %s/%s ended unexpectedly", key.namespace, key.name)
            gist = f"the operator failed: {type(error).__name__}: {one_line(error)}; its log has the whole of it"
            return self._stall(key, Retryable(reasons.OPERATOR_DEFECT, gist))
        if (session := self._sessions.get(key)) is not None:
            session.errors = 0
        if (waiting := self._places.next_of(key.namespace)) is not None:
            self.wake(waiting)
        return delay

    def _bring_on(self, key: WriteName, body: Mapping[str, Any]) -> float | None:
        if body["metadata"].get("deletionTimestamp") is not None:
            if not self._deletion.delete(key, body):
                return _STALLED_POLL_S
            self._sessions.pop(key, None)
            return None
        if key.namespace == self.config.own_namespace:
            self._stall(key, _of_own_namespace(key.namespace))
            return None
        try:
            spec = manifest_of(body).spec
        except ManifestInvalid as error:
            self._stall(key, error)
            return None
        owner = owner_of(body)
        self._refuse_own_disk(spec)
        if is_finished(status_of(body), owner, spec):
            delay = self._end(key, body, spec)
        else:
            self._deletion.hold(key, body)
            delay = self._do_rounds(key, self._load(key, spec))
        if (now := self.cache.write(key)) is None:
            return delay
        until_old = self._retention.apply(key, spec, status_of(now))
        return min((due for due in (delay, until_old) if due is not None), default=None)

    def _load(self, key: WriteName, spec: Spec) -> Session:
        """Return the session of this generation of the write; its store, sink and drivers are opened once."""
        body = self.cache.existing_write(key)
        owner = owner_of(body)
        known = self._sessions.get(key)
        if known is not None and known.owner == owner:
            return known
        settings = self.settings_of(key.namespace)
        spec = located(spec, settings, begins=True)
        self._refuse_own_disk(spec)
        title = title_in_cluster(self.config.cluster_name, key.namespace, key.name)
        sink = self.open_sink(key.namespace, spec.sink.verified_at_least(self.config.verify), title)
        # Before anything is put into a store: it may be where the source lies.
        refuse_own_outputs(sink, spec, None, spec.checkpoint.uri)
        store = self.open_store(key.namespace, spec.checkpoint.uri)
        uid = write_of_object(
            store,
            named_object(self.cluster, owner),
            spec.on_recreate,
            end_former=lambda former: self._deletion.end_former(key.namespace, store, former, spec),
            confirm=lambda: confirm_object(self.api, self.cache, owner),
        )
        refuse_former(store, spec, uid, title, lambda: format_of(spec.sink).find_former(settings, title, uid))
        settings = settings.with_keys(handed := keys_of_write(spec, settings, self.catalogs))
        entry = HandedKeysEntry(self.api, key.namespace, handed) if handed is not None else None
        drivers = PodDrivers(self.api, self.cache, owner, spec, store.uri, self.config.workloads, self.record_keys, entry)

        def announce(decided: Round) -> None:
            is_first_of_all = uid == owner.uid and decided.key.epoch == 1
            if any(isinstance(action, RecordAttempt) for action in decided.actions) and not is_first_of_all:
                # What it is told is for good, and a watch lags: an epoch of a manifest of before would be one too many. The first
                # epoch of this very object cannot be another's: its deletion stands in the store.
                confirm_object(self.api, self.cache, owner, at_generation=True)
            # A commit is told with all that it commits, which is more than the last look at the progress has seen.
            is_commit = any(isinstance(action, Commit) for action in decided.actions)
            self._publisher.publish(key, decided, session, self._figures(session, decided) if is_commit else None)

        host = ClusterHost(key, drivers, uid, store, status_of(body), self.code_source, self._places, self.clock, self.now)
        pin_source, looks = open_source(spec.source, settings, self.catalogs), self._looks(spec, settings)
        scope = scope_in_cluster(self.cluster, key.namespace)
        parent = parent_of(spec, store, scope, settings, listing_of(spec, settings, self.catalogs))
        session = open_session(host, sink, pin_source, looks, lambda: self._turns.take(key), announce, parent)
        self._sessions[key] = session
        return session

    def _looks(self, spec: Spec, settings: Settings) -> Looks | None:
        if spec.trigger is None:
            return None
        check_schedule(spec.trigger)
        if not self.config.allow_local_paths:
            refuse_paths_of_pods(spec)
        return Looks(spec, open_news(spec, settings, self.catalogs), self.now)

    def _do_rounds(self, key: WriteName, session: Session) -> float | None:
        """Do rounds until one waits, and tell that one; return after how many seconds the next is due."""
        for _ in range(_MOST_ROUNDS):
            done = session.reconciler.step()
            count_round(self.metrics, session, done)
            if done.outcome is not None or not any(_is_effect(action) for action in done.actions):
                break
        figures = self._figures(session, done)
        count_progress(self.metrics, session, done, figures.progress)
        if figures.progress.entered:
            pod = self.cache.pod(key.namespace, pod_name(key.name, done.key, figures.progress.attempt))
            count_start(self.metrics, session, done, figures.progress, pod)
        self._publisher.publish(key, done, session, figures)
        if isinstance(done.outcome, Finish):
            return self._end(key, self.cache.existing_write(key), session.spec)
        if (between := done.seen.between) is not None and isinstance(done.actions[-1], Wait):
            body = self.cache.existing_write(key)
            delays = (between.due_in_s, clean_up_after(body, session.spec, self.api, self.cache, self.now))
            return max(_LEAST_LOOK_S, min(delay for delay in delays if delay is not None))
        return _STALLED_POLL_S if isinstance(done.outcome, Stall) else _due_s(done)

    def _figures(self, session: Session, done: Round) -> Figures:
        progress = measure(session.reconciler.current_tallies(), done.commit)
        return Figures(progress, session.time_left.measure(self.clock(), progress))

    def _end(self, key: WriteName, body: Mapping[str, Any], spec: Spec) -> float | None:
        self._sessions.pop(key, None)
        return clean_up_after(body, spec, self.api, self.cache, self.now)

    def _refuse_own_disk(self, spec: Spec) -> None:
        refuse_own_disk(spec, allow_local_paths=self.config.allow_local_paths)

    def _stall(self, key: WriteName, error: CheckpointError) -> float:
        self.metrics.errors.labels(error.reason).inc()
        self._publisher.try_to_publish(key, Failed(error.reason, error.message, may_pass=False))
        return _STALLED_POLL_S

    def _try_again(self, key: WriteName, error: Retryable) -> float:
        session = self._sessions.get(key)
        self.metrics.errors.labels(error.reason).inc()
        errors = session.errors + 1 if session is not None else _ERRORS_BEFORE_TOLD
        if session is not None:
            session.errors = errors
        if errors >= _ERRORS_BEFORE_TOLD and error.reason != reasons.API_UNAVAILABLE:
            self._publisher.try_to_publish(key, Failed(error.reason, error.message, may_pass=True))
        return min(_MOST_ERROR_PAUSE_S, 2.0 ** min(errors, 6)) * (0.5 + self.jitter())


def _of_own_namespace(namespace: str) -> NeedsChange:
    return NeedsChange(
        reasons.ACCESS_NOT_GRANTED,
        f"{namespace} is the operator's own namespace, and no write of it is served: pods there could read the operator's "
        "Secrets; apply it in another namespace",
    )


def _is_effect(action: object) -> bool:
    """Whether to go on at once. A driver that is told to end takes its time."""
    return not isinstance(action, Wait | StopDriver | StopKeptDriver)


def _due_s(done: Round) -> float:
    """Return after how many seconds a write that waits is due again, where no event comes before."""
    last = done.seen.last
    if last is not None and not last.is_closed:
        # The pod of a driver that goes on does not end with its epoch, or stage, so that no event tells that all is sealed.
        goes_on = done.seen.keeps_drivers or done.seen.is_stream or last.place is not None
        first_s = _KEPT_POLL_S if goes_on else _FIRST_POLL_S
        return min(_MOST_POLL_S, max(first_s, (last.idle_s + last.starved_s) / 10))
    return max(1.0, min(done.seen.pause_left_s, _MOST_POLL_S)) if done.seen.pause_left_s > 0 else _MOST_POLL_S
