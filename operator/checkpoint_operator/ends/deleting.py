"""Deletion of an object: drivers are told to end, nothing can land any more, what is staged goes, then the finalizer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from checkpoint_commit.ports import Sink
from checkpoint_control.writes.deletion import DeletionOutcome, Kept, delete_write, keep_from_landing, retain_write
from checkpoint_control.writes.registration import sink_to_end, write_to_delete
from checkpoint_operator.crd.status_model import Status
from checkpoint_operator.kube.api import Conflict, KubeApi
from checkpoint_operator.objects import confirm_object, has_spec, manifest_of, named_object, owner_of, refuse_own_disk
from checkpoint_operator.pods.driver_pod import Owner
from checkpoint_operator.status.object_status import status_of
from checkpoint_operator.status.publishing import Publisher
from checkpoint_operator.status.round_status import DeletionWaits
from checkpoint_operator.watch.cache import Cache, WriteName
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.manifest.spec import ManifestInvalid, Spec
from checkpoint_protocol.store.object_store import ObjectStore

FINALIZER: Final = "checkpointed.dev/staged-results"
#: A person who knows that a store is gone for good lets a deletion end without it.
ABANDON_ANNOTATION: Final = "checkpointed.dev/abandon"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObjectDeletion:
    api: KubeApi
    cache: Cache
    publisher: Publisher
    open_store: Callable[[str, str], ObjectStore]
    open_sink: Callable[[str, SinkSpec], Sink]
    allow_local_paths: bool
    cluster: str

    def hold(self, key: WriteName, body: Mapping[str, Any]) -> None:
        """Put our finalizer on before anything of the write exists elsewhere."""
        finalizers = body["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            version = body["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version, "finalizers": [*finalizers, FINALIZER]}}
            self.cache.put_write(self.api.patch_write(key.namespace, key.name, patch))

    def delete(self, key: WriteName, body: Mapping[str, Any]) -> bool:
        """End the write and let its object go; False if something holds that up, which is told. Idempotent."""
        metadata = body["metadata"]
        if FINALIZER not in (metadata.get("finalizers") or ()):
            return True
        if not has_spec(body):
            body = self._read_whole(key, body)
        if (metadata.get("annotations") or {}).get(ABANDON_ANNOTATION) == "true":
            self._keep_from_landing(key, body)
        elif (held_up := self._clean_up(body)) is not None:
            message = (
                f"the deletion waits: {held_up.message}; rows that it has committed stay in the table in any case. To delete it "
                f"without cleaning up: kubectl annotate checkpointedwrite {key.name} -n {key.namespace} {ABANDON_ANNOTATION}=true"
            )
            self.publisher.publish(key, DeletionWaits(held_up.reason, message))
            return False
        finalizers = [name for name in metadata["finalizers"] if name != FINALIZER]
        version = self.cache.existing_write(key)["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version, "finalizers": finalizers or None}}
        self.api.patch_write(key.namespace, key.name, patch)
        return True

    def _read_whole(self, key: WriteName, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the object with its spec, which says where there is something to clean up, however large it was made since."""
        whole = self.api.get_write(key.namespace, key.name, is_whole=True)
        if whole is None or whole["metadata"]["uid"] != body["metadata"]["uid"]:
            raise Conflict(f"the object {key.namespace}/{key.name} is gone, or was made again")
        return whole

    def _keep_from_landing(self, key: WriteName, body: Mapping[str, Any]) -> None:
        """Put the note of a deletion that a person has abandoned, if the store answers: no committer begins any more then."""
        try:
            spec = manifest_of(body).spec
            refuse_own_disk(spec, allow_local_paths=self.allow_local_paths)
            store, owner = self.open_store(key.namespace, spec.checkpoint.uri), owner_of(body)
            uid = write_to_delete(store, named_object(self.cluster, owner), spec)
            confirm_object(self.api, self.cache, owner)
            if uid is not None:
                keep_from_landing(store, uid, retain=spec.deletion_policy == "Retain")
        except CheckpointError as error:
            _log.warning(
                "the deletion of %s/%s is abandoned, and its store has no note of that: %s",
                key.namespace,
                key.name,
                error.message,
            )

    def _clean_up(self, body: Mapping[str, Any]) -> Kept | None:
        owner, status = owner_of(body), status_of(body)
        try:
            spec = manifest_of(body).spec
            self._stop_drivers(owner, status)
            # Also here: whoever makes an object may put the finalizer on it, so that nothing was checked before.
            refuse_own_disk(spec, allow_local_paths=self.allow_local_paths)
            store = self.open_store(owner.namespace, spec.checkpoint.uri)
            uid = write_to_delete(store, named_object(self.cluster, owner), spec)
            if uid is None:
                return None
            ended = self._end(store, uid, self.open_sink(owner.namespace, sink_to_end(store, uid, spec.sink)), spec, owner)
        except CheckpointError as error:
            if isinstance(error, ManifestInvalid) and not status.attempt:
                return None  # it was never accepted, so nothing was begun
            return Kept(error.reason, error.message)
        return ended if isinstance(ended, Kept) else None

    def end_former(self, namespace: str, store: ObjectStore, uid: str, spec: Spec) -> None:
        """End what is left of a write that an earlier object of this name began. NeedsChange if a person must act first."""
        sink = sink_to_end(store, uid, spec.sink)
        ended = retain_write(store, uid, self.open_sink(namespace, sink))
        if isinstance(ended, Kept):
            what = f"the write {uid}, which an earlier object of this name began, cannot be ended"
            raise NeedsChange(ended.reason, f"{what}: {ended.message}")

    def _end(self, store: ObjectStore, uid: str, sink: Sink, spec: Spec, owner: Owner) -> DeletionOutcome:
        """Whoever comes later under the name may have begun its next epoch: see `retain_write`."""
        if spec.deletion_policy == "Retain":
            return retain_write(store, uid, sink, confirm=lambda: confirm_object(self.api, self.cache, owner))
        confirm_object(self.api, self.cache, owner)
        return delete_write(store, uid, sink)

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
