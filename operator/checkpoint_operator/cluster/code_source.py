"""The steps' code of a write in a cluster, from its ConfigMap, object or image, with the digest that tells versions apart."""

from __future__ import annotations

import base64
import threading
from dataclasses import dataclass, field

from checkpoint_operator.cluster.api import KubeApi
from checkpoint_operator.cluster.config import WorkloadDefaults
from checkpoint_operator.cluster.pods import Owner, image_of
from checkpoint_operator.code import code_digest
from checkpoint_operator.code_archive import CodeArchive, archive_of_files, fetch_uri, put_archive
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest import Spec
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.store import ObjectStore


@dataclass(frozen=True, slots=True)
class CodeSource:
    """Finds code, and puts it into the write's store under its digest: an attempt's code cannot change under it."""

    api: KubeApi
    settings: Settings
    workloads: WorkloadDefaults
    #: An archive may take hundreds of megabytes, and eight workers may want theirs at once.
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def resolve(self, owner: Owner, spec: Spec, store: ObjectStore) -> tuple[str, str | None]:
        """Return the code's digest, and that of its archive in the store (None: it is in the image)."""
        if spec.code.config_map is None and spec.code.uri is None:
            return code_digest(spec, archive=None, image=image_of(spec, self.workloads)), None
        with self._one_at_a_time:
            archive = self._archive(owner, spec)
            if archive is not None:
                put_archive(store, owner.uid, archive)
        digest = code_digest(spec, archive=archive.digest if archive else None, image=image_of(spec, self.workloads))
        return digest, archive.digest if archive else None

    def _archive(self, owner: Owner, spec: Spec) -> CodeArchive | None:
        if spec.code.config_map is not None:
            name = spec.code.config_map.name
            found = self.api.get_config_map(owner.namespace, name)
            if found is None:
                raise NeedsChange(
                    reasons.CODE_MISSING,
                    f"spec.code.configMap: there is no ConfigMap {owner.namespace}/{name}; make it, e.g. kubectl create "
                    f"configmap {name} --from-file=steps.py",
                )
            files = {key: text.encode() for key, text in (found.get("data") or {}).items()}
            files |= {key: base64.b64decode(data) for key, data in (found.get("binaryData") or {}).items()}
            return archive_of_files(files)
        if spec.code.uri is not None:
            return fetch_uri(spec.code.uri, self.settings)
        return None
