"""A small cluster without servers: an API with resource versions, preconditions, finalizers and watches, and a kubelet that runs
drivers in threads of this process, with the production code of the attempt and its tasks.

What the API does is checked against a real API server in tests/contract/kubernetes/test_kube_api.py.
"""

from __future__ import annotations

import base64
import copy
import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from checkpoint_operator.crd.status_model import UNOBSERVED_STATUS
from checkpoint_operator.kube import api_json
from checkpoint_operator.kube.api import Conflict
from checkpoint_operator.pods.driver_pod import (
    ATTEMPT_LABEL,
    DRIVER_CONTAINER,
    EPOCH_LABEL,
    EXECUTOR_CONTAINER,
    ROLE_LABEL,
    STAGE_LABEL,
    UID_LABEL,
)
from checkpoint_operator.watch.cache import Cache, WriteName, name_of, write_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Retryable, Superseded
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.progress_reports import DriverPhase, DriverProgress, StartedAs, encode_advice
from checkpoint_protocol.records import FailureRecord
from checkpoint_protocol.store.macs import WriteKeys
from checkpoint_protocol.store.object_store import ObstoreStore, open_store
from checkpoint_spark.driver.main import family_of, parse
from checkpoint_work.driver.attempt import run_attempt
from checkpoint_work.driver.waiting import await_next
from checkpoint_work.process import code as steps_code
from checkpoint_work.process.reporting import AtWork
from checkpoint_work.process.settings import RECORD_KEYS_VARIABLE, authenticated
from checkpoint_work.tasks.executor import execute_order
from tests.support import driver_threads
from tests.support.driver_threads import Killed


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def as_read(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """As it comes from the API server, and is read."""
    read: Mapping[str, Any] = api_json.loads(json.dumps(body, separators=(",", ":")).encode())
    return read


@dataclass
class FakeApi:
    """Implements KubeApi. `writes_made` has a word for each request that changes something; `down` makes all calls fail."""

    cache: Cache
    wake: Callable[[WriteName], None]
    writes: dict[WriteName, dict[str, Any]] = field(default_factory=dict)
    pods: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    config_maps: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    secrets: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    events: list[Mapping[str, Any]] = field(default_factory=list)
    pods_made: int = 0
    writes_made: list[str] = field(default_factory=list)
    down: bool = False
    refuse_pods: str | None = None
    on_pod: Callable[[dict[str, Any]], None] = lambda pod: None
    before: Callable[[str], None] = lambda request: None
    _versions: Any = field(default_factory=lambda: itertools.count(1))
    _lock: threading.RLock = field(default_factory=threading.RLock)

    # --- as a user ------------------------------------------------------------------------------------------------------------

    def apply(self, manifest: Mapping[str, Any], uid: str | None = None) -> WriteName:
        """Create or change a CheckpointedWrite, as `kubectl apply` does."""
        with self._lock:
            metadata = {"namespace": "default", **manifest["metadata"]}
            key = WriteName(metadata["namespace"], metadata["name"])
            known = self.writes.get(key)
            if known is None:
                body = {**copy.deepcopy(dict(manifest)), "metadata": {**metadata, "uid": uid or new_token(), "generation": 1}}
                body["status"] = dict(UNOBSERVED_STATUS)  # the default of the CRD
            else:
                body = {**known, "spec": copy.deepcopy(manifest["spec"])}
                if body["spec"] != known["spec"]:
                    generation = known["metadata"]["generation"] + 1
                    body["metadata"] = {**known["metadata"], "generation": generation}
            self._store(key, body)
            return key

    def delete(self, key: WriteName) -> None:
        with self._lock:
            body = self.writes[key]
            if body["metadata"].get("finalizers"):
                self._store(key, {**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
            else:
                self._remove(key)

    def annotate(self, key: WriteName, name: str, value: str) -> None:
        with self._lock:
            body = self.writes[key]
            annotations = {**body["metadata"].get("annotations", {}), name: value}
            self._store(key, {**body, "metadata": {**body["metadata"], "annotations": annotations}})

    # --- the port -------------------------------------------------------------------------------------------------------------

    def get_write(self, namespace: str, name: str, *, is_whole: bool = False) -> Mapping[str, Any] | None:
        self._ask("get write")
        body = self.writes.get(WriteName(namespace, name))
        return body if body is None or is_whole else as_read(body)

    def list_writes(self, namespace: str | None) -> Sequence[Mapping[str, Any]]:
        self._ask("list writes")
        return [{"metadata": body["metadata"]} for key, body in self.writes.items() if namespace in (None, key.namespace)]

    def patch_write(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._patch("patch write", WriteName(namespace, name), {**patch, "status": None}, keep="status")

    def patch_status(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._patch("patch status", WriteName(namespace, name), patch, keep="spec")

    def delete_write(self, namespace: str, name: str, uid: str) -> None:
        self._ask("delete write", changes=True)
        key = WriteName(namespace, name)
        if key in self.writes and self.writes[key]["metadata"]["uid"] == uid:
            self.delete(key)

    def get_pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        self._ask("get pod")
        return self.pods.get((namespace, name))

    def list_driver_pods(self, namespace: str | None) -> Sequence[Mapping[str, Any]]:
        self._ask("list pods")
        return [
            {"metadata": pod["metadata"]}
            for place, pod in self.pods.items()
            if namespace in (None, place[0]) and (pod["metadata"].get("labels") or {}).get(ROLE_LABEL) == DRIVER_CONTAINER
        ]

    def list_executor_pods(self, namespace: str, labels: Mapping[str, str | None]) -> Sequence[Mapping[str, Any]]:
        self._ask("list pods")
        chosen = {**labels, ROLE_LABEL: EXECUTOR_CONTAINER}
        return [
            pod
            for place, pod in self.pods.items()
            if place[0] == namespace
            and all((pod["metadata"].get("labels") or {}).get(name) == value for name, value in chosen.items())
        ]

    def try_pod(self, namespace: str, pod: Mapping[str, Any]) -> str | None:
        self._ask("try pod")
        return self.refuse_pods

    def create_pod(self, namespace: str, pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
        self._ask("create pod", changes=True)
        if self.refuse_pods is not None:
            raise Retryable(reasons.POD_REFUSED, self.refuse_pods)
        with self._lock:
            place = (namespace, pod["metadata"]["name"])
            if place in self.pods:
                return None
            made = copy.deepcopy(dict(pod))
            self.pods_made += 1
            made["metadata"] |= {
                "uid": new_token(),
                "creationTimestamp": f"2026-01-01T00:{self.pods_made // 60:02}:{self.pods_made % 60:02}Z",
            }
            made["status"] = {"phase": "Pending"}
            self.put_pod(made)
        self.on_pod(made)
        return made

    def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        self._ask("delete pod", changes=True)
        with self._lock:
            pod = self.pods.get((namespace, name))
            if pod is not None and pod["metadata"]["uid"] == uid:
                self.remove_pod(pod)

    def get_config_map(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        self._ask("get configmap")
        return self.config_maps.get((namespace, name))

    def get_secret(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        self._ask("get secret")
        return copy.deepcopy(self.secrets.get((namespace, name)))

    def patch_secret(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Mapping[str, Any] | None:
        self._ask("patch secret", changes=True)
        with self._lock:
            if (body := self.secrets.get((namespace, name))) is None:
                return None
            version = patch.get("metadata", {}).get("resourceVersion")
            if version is not None and version != body["metadata"]["resourceVersion"]:
                raise Conflict("it was changed")
            merged = merge_patch(body, patch)
            merged["metadata"] = {**merged["metadata"], "resourceVersion": str(next(self._versions))}
            self.secrets[namespace, name] = merged
            result: Mapping[str, Any] = copy.deepcopy(merged)
            return result

    def create_secret(self, namespace: str, secret: Mapping[str, Any]) -> None:
        self._ask("create secret", changes=True)
        with self._lock:
            made = copy.deepcopy(dict(secret))
            made["metadata"] |= {"resourceVersion": str(next(self._versions))}
            self.secrets.setdefault((namespace, made["metadata"]["name"]), made)

    def put_secret(self, namespace: str, name: str) -> None:
        """Make an empty Secret, as the chart does."""
        metadata = {"namespace": namespace, "name": name, "resourceVersion": str(next(self._versions))}
        self.secrets[namespace, name] = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}

    def create_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        self._ask("create event")
        self.events.append(event)

    def check(self) -> None:
        self._ask("check")

    @property
    def warnings(self) -> list[Mapping[str, Any]]:
        """The events that people may have to act on."""
        return [event for event in self.events if event["type"] == "Warning"]

    # --- as the kubelet ---------------------------------------------------------------------------------------------------------

    def put_pod(self, pod: dict[str, Any]) -> None:
        with self._lock:
            pod["metadata"]["resourceVersion"] = str(next(self._versions))
            self.pods[pod["metadata"]["namespace"], pod["metadata"]["name"]] = pod
            self.cache.put_pod(pod)
        if (key := write_of(pod)) is not None:
            self.wake(key)

    def set_pod_status(self, pod: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Change what a pod says, if it is still there."""
        with self._lock:
            known = self.pods.get((pod["metadata"]["namespace"], pod["metadata"]["name"]))
            if known is not None and known["metadata"]["uid"] == pod["metadata"]["uid"]:
                self.put_pod({**copy.deepcopy(known), "status": dict(status)})

    def remove_pod(self, pod: Mapping[str, Any]) -> None:
        with self._lock:
            self.pods.pop((pod["metadata"]["namespace"], pod["metadata"]["name"]), None)
            self.cache.remove_pod(pod)
        if (key := write_of(pod)) is not None:
            self.wake(key)

    # --- inside -----------------------------------------------------------------------------------------------------------------

    def _ask(self, request: str, changes: bool = False) -> None:
        self.before(request)
        if self.down:
            raise Retryable(reasons.API_UNAVAILABLE, "no answer")
        if changes:
            self.writes_made.append(request)

    def _patch(self, request: str, key: WriteName, patch: Mapping[str, Any], keep: str) -> Mapping[str, Any]:
        self._ask(request, changes=True)
        with self._lock:
            body = self.writes.get(key)
            if body is None:
                raise Conflict("it is gone")
            version = patch.get("metadata", {}).get("resourceVersion")
            if version is not None and version != body["metadata"]["resourceVersion"]:
                raise Conflict("it was changed")
            merged = merge_patch(body, patch)
            if keep in body:
                merged[keep] = body[keep]
            self._store(key, merged)
            if merged["metadata"].get("deletionTimestamp") and not merged["metadata"].get("finalizers"):
                self._remove(key)
            return as_read(merged)

    def _store(self, key: WriteName, body: dict[str, Any]) -> None:
        body["metadata"] = {**body["metadata"], "resourceVersion": str(next(self._versions))}
        self.writes[key] = body
        self.cache.hear_write(as_read(body))
        self.wake(key)

    def _remove(self, key: WriteName) -> None:
        body = self.writes.pop(key)
        self.cache.remove_write(body)
        owned = [pod for pod in self.pods.values() if write_of(pod) == name_of(body)]
        for pod in owned:
            self.remove_pod(pod)
        uid = body["metadata"]["uid"]
        for place, secret in list(self.secrets.items()):
            if any(owner["uid"] == uid for owner in secret["metadata"].get("ownerReferences", ())):
                del self.secrets[place]
        self.wake(key)


@dataclass
class FakeKubelet:
    """Runs a driver for each pod, in a thread. `between_tasks` is called before each task and may raise Killed."""

    api: FakeApi
    settings: Settings
    between_tasks: Callable[[int], None] = lambda number: None
    after_all: Callable[[], None] = lambda: None
    drivers_run: int = 0
    tasks_run: int = 0
    #: What a pod's status becomes instead of running its driver; by attempt.
    instead: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)
    #: Of the drivers, those that wait for the next stage, or epoch.
    waiting: set[str] = field(default_factory=set)
    #: What drivers of a stream do, with their pod and their keys.
    stream: Callable[[dict[str, Any], AtWork, WriteKeys | None], None] | None = None

    @property
    def only_waits(self) -> bool:
        return sum(thread.is_alive() for thread in self.threads) <= len(self.waiting)

    def run(self, pod: dict[str, Any]) -> None:
        attempt = int(pod["metadata"]["labels"][ATTEMPT_LABEL])
        if attempt in self.instead:
            self.api.set_pod_status(pod, self.instead[attempt])
            return
        self.api.set_pod_status(pod, {"phase": "Running"})
        self.drivers_run += 1
        arguments = pod["spec"]["containers"][0]["args"]
        store = driver_threads.while_the_test_runs(open_store(arguments[arguments.index("--uri") + 1], self.settings))
        self.threads.append(driver_threads.start(partial(self._drive, pod, attempt, store)))

    def record_keys_of(self, pod: Mapping[str, Any]) -> WriteKeys | None:
        """Return the keys that a driver finds in its environment. KeyError if it would not start, for want of a Secret."""
        for item in pod["spec"]["containers"][0]["env"]:
            if item["name"] == RECORD_KEYS_VARIABLE:
                reference = item["valueFrom"]["secretKeyRef"]
                secret = self.api.secrets[pod["metadata"]["namespace"], reference["name"]]
                return WriteKeys.model_validate_json(base64.b64decode(secret["data"][reference["key"]]))
        return None

    def join(self) -> bool:
        """Wait a moment for the drivers at work; return whether there were any."""
        alive = [thread for thread in self.threads if thread.is_alive()]
        for thread in alive:
            thread.join(0.05)
        return bool(alive)

    def _drive(self, pod: dict[str, Any], attempt: int, store: ObstoreStore) -> None:
        labels = pod["metadata"]["labels"]
        keys = self.record_keys_of(pod)
        key = EpochKey(labels[UID_LABEL], int(labels[EPOCH_LABEL]), labels.get(STAGE_LABEL, ""))
        at_work = AtWork((Ledger(authenticated(store, keys), key), attempt))
        code, reason = 0, "Completed"
        steps_code._in_use = None  # a pod is a new process, and these threads are one
        try:
            run_attempt(
                *at_work.now,
                self.settings.for_drivers(),
                2,
                partial(self._run_tasks, keys),
                lambda ledger, launch, parallelism: self._stream(pod, at_work, keys),
            )
            self.after_all()
            self._go_on(pod, at_work, keys, store)
        except Killed as killed:
            code, reason = 137, str(killed) or "Error"
        except Superseded:
            code, reason = 3, "Error"
        except CheckpointError as error:
            code, reason = 1, "Error"
            ledger, attempt = at_work.now
            ledger.attempts.put_failure(
                FailureRecord(
                    token=new_token(), attempt=attempt, family=family_of(error), reason=error.reason, message=error.message
                )
            )
        ended = {"name": "driver", "state": {"terminated": {"exitCode": code, "reason": reason}}}
        self.api.set_pod_status(pod, {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": [ended]})

    def _stream(self, pod: dict[str, Any], at_work: AtWork, keys: WriteKeys | None) -> None:
        assert self.stream is not None
        self.stream(pod, at_work, keys)

    def _go_on(self, pod: dict[str, Any], at_work: AtWork, keys: WriteKeys | None, store: ObstoreStore) -> None:
        """Wait for the next stages and epochs, and do them, as a driver does that is told to; until its pod is deleted."""
        arguments = pod["spec"]["containers"][0]["args"]
        keep = parse(arguments[1:], master="fake").keep
        if keep is None:
            return
        ledger, attempt = at_work.now
        started_as = StartedAs(epoch=ledger.key.epoch, stage=ledger.key.stage, attempt=attempt)
        metadata = pod["metadata"]

        def tell(phase: DriverPhase) -> None:
            ledger, attempt = at_work.now
            progress = DriverProgress(attempt=attempt, phase=phase, started_as=started_as)
            store.overwrite(ledger.at.progress(attempt), encode_advice(progress))

        def sleep(_: float) -> None:
            time.sleep(0.01)
            if (metadata["namespace"], metadata["name"]) not in self.api.pods:
                raise Killed

        while True:
            tell("Waiting")
            self.waiting.add(metadata["name"])
            try:
                following = await_next(*at_work.now, keep, sleep=sleep)
            finally:
                self.waiting.remove(metadata["name"])
            if following is None:
                return
            at_work.now = (Ledger(ledger.store, following), 1)
            tell("Planning")
            run_attempt(*at_work.now, self.settings.for_drivers(), 2, partial(self._run_tasks, keys))

    def _run_tasks(self, keys: WriteKeys | None, orders: Sequence[str]) -> None:
        for number, order in enumerate(orders):
            self.between_tasks(number)
            self.tasks_run += 1
            execute_order(order, self.settings.for_drivers(), keys)
