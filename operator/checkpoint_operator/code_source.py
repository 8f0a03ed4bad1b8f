"""The steps' code of a write in a cluster, from its ConfigMap, object or image, with the digest that tells versions apart."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from checkpoint_control.code.archive import (
    CodeArchive,
    CodeVersion,
    archive_of_files,
    archive_of_object,
    fetch_version,
    has_archive,
    put_archive,
    version_of,
)
from checkpoint_control.code.digest import code_digest
from checkpoint_control.code.trees import ArchiveTree, Tree
from checkpoint_operator.config import WorkloadDefaults
from checkpoint_operator.kube.api import KubeApi
from checkpoint_operator.pods.driver_pod import image_of
from checkpoint_protocol import reasons
from checkpoint_protocol.code import archives
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.memory import MemoryBudget
from checkpoint_protocol.store.object_store import ObjectStore

#: What was found at so many URIs is remembered.
_MOST_REMEMBERED: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Taken:
    """An archive that was checked."""

    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why an object cannot be used."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class CodeSource:
    """Finds code, and puts it into the write's store under its digest: an attempt's code cannot change under it.

    A version of an object, by its etag, is fetched and checked once, whether it can be used or not. Its etag is read each time,
    with what the namespace may read.
    """

    api: KubeApi
    settings_of: Callable[[str], Settings]
    workloads: WorkloadDefaults
    memory: MemoryBudget | None = None
    version_of: Callable[[str, StorageSettings], CodeVersion] = version_of
    fetch: Callable[[str, StorageSettings, CodeVersion], bytes] = fetch_version
    #: By namespace and URI: another namespace may have other settings for the same one.
    _known: OrderedDict[tuple[str, str], tuple[CodeVersion, _Taken | _Refused]] = field(default_factory=OrderedDict, repr=False)
    #: By all that the digest of code depends on.
    _digests: OrderedDict[tuple[str | None, ...], str] = field(default_factory=OrderedDict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def resolve(self, namespace: str, uid: str, spec: Spec, store: ObjectStore) -> tuple[str, str | None]:
        """Return the digest of a write's code, and that of its archive in the store (None: it is in the image)."""
        archive: str | None = None
        if spec.code.config_map is not None:
            files = self._archive_of_config_map(namespace, spec.code.config_map.name)
            put_archive(store, uid, files)
            archive = files.digest
        elif spec.code.uri is not None:
            archive = self._digest_at(spec.code.uri, namespace, uid, store)

        def open_tree() -> Tree | None:
            if archive is None:
                return None
            data = store.get(layout.code_path(uid, archive), archives.MAX_ARCHIVE_BYTES)
            if data is None:
                raise Retryable(reasons.CODE_MISSING, f"the code {archive[:12]} is not in {store.uri}; it is put there again")
            if hashlib.sha256(data).hexdigest() != archive:
                path = layout.code_path(uid, archive)
                raise Corrupt(reasons.RECORD_UNREADABLE, f"{store.uri}/{path} is not what its name says; remove it")
            return ArchiveTree(archives.OpenArchive(data))

        return self._digest(spec, archive, open_tree), archive

    def _digest(self, spec: Spec, archive: str | None, open_tree: Callable[[], Tree | None]) -> str:
        """Return the digest of what the steps run. An archive is read once for the same steps: it cannot change."""
        image = image_of(spec, self.workloads)
        program = spec.source.program.call if spec.source.program is not None else ""
        known = (archive, image, spec.code.path, repr(spec.last_part), program)
        with self._lock:
            digest = self._digests.get(known) if archive is not None else None
        if digest is None:
            digest = code_digest(spec, open_tree, image)
            with self._lock:
                self._digests[known] = digest
                if len(self._digests) > _MOST_REMEMBERED:
                    self._digests.popitem(last=False)
        return digest

    def _archive_of_config_map(self, namespace: str, name: str) -> CodeArchive:
        found = self.api.get_config_map(namespace, name)
        if found is None:
            raise NeedsChange(
                reasons.CODE_MISSING,
                f"spec.code.configMap: there is no ConfigMap {namespace}/{name}; make it, e.g. kubectl create "
                f"configmap {name} --from-file=steps.py",
            )
        files = {key: text.encode() for key, text in (found.get("data") or {}).items()}
        files |= {key: base64.b64decode(data) for key, data in (found.get("binaryData") or {}).items()}
        return archive_of_files(files)

    def _digest_at(self, uri: str, namespace: str, uid: str, store: ObjectStore) -> str:
        """Have the code at a URI in the write's store, and return its digest. NeedsChange if it cannot be used."""
        settings = self.settings_of(namespace)
        version = self.version_of(uri, settings)
        known = self._recall(namespace, uri, version)
        if isinstance(known, _Refused):
            raise NeedsChange(known.reason, known.message)
        if known is not None and has_archive(store, uid, known.digest, known.size_bytes):
            return known.digest
        # Held until it is stored: several writes may want theirs at once.
        with (self.memory or _UNBOUNDED).room_for_archive(2 * version.size_bytes):
            data = self.fetch(uri, settings, version)
            try:
                archive = archive_of_object(uri, data)
            except NeedsChange as error:
                self._remember(namespace, uri, version, _Refused(error.reason, error.message))
                raise
            self._remember(namespace, uri, version, _Taken(archive.digest, len(archive.data)))
            put_archive(store, uid, archive)
            return archive.digest

    def _recall(self, namespace: str, uri: str, version: CodeVersion) -> _Taken | _Refused | None:
        with self._lock:
            known = self._known.get((namespace, uri))
        return known[1] if known is not None and known[0] == version and version.etag is not None else None

    def _remember(self, namespace: str, uri: str, version: CodeVersion, found: _Taken | _Refused) -> None:
        with self._lock:
            self._known[namespace, uri] = (version, found)
            self._known.move_to_end((namespace, uri))
            if len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)


#: Where nobody has given a budget: only what archives have of their own counts.
_UNBOUNDED: Final = MemoryBudget(1 << 30)
