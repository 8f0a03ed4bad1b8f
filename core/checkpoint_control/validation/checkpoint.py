"""The checkpoint store: is it there or could it be made, does it honour put-if-absent, and what does it know of the write?"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from checkpoint_commit.sinks.port import why_not_writable
from checkpoint_control.validation.report import Findings
from checkpoint_control.views.stored_status import StoredStatus, read_status
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.store.object_store import local_path, open_store, probe

_WHERE = "spec.checkpoint.uri"


@dataclass(frozen=True, slots=True)
class CheckpointSeen:
    """The store as it is now. `exists` is None where that could not be told; `status` is None where nothing could be read."""

    exists: bool | None
    status: StoredStatus | None


def check_checkpoint(manifest: CheckpointedWrite, storage: StorageSettings, findings: Findings) -> CheckpointSeen:
    """Try the store where it exists; where it is a folder that does not, check whether it could be made."""
    uri = manifest.spec.checkpoint.uri
    folder = local_path(uri)
    if folder is not None and not folder.exists():
        _check_can_be_made(folder, findings)
        return CheckpointSeen(exists=False, status=read_status(manifest, None))
    if folder is not None and not folder.is_dir():
        findings.problem(_WHERE, f"{uri} is a file and no folder; correct the URI")
        return CheckpointSeen(exists=None, status=None)
    try:
        store = open_store(uri, storage)
        had_probes = folder is not None and (folder / "probe").exists()
        try:
            probe(store)
        finally:
            if folder is not None and not had_probes:
                with contextlib.suppress(OSError):  # another one probes just now
                    (folder / "probe").rmdir()
        status = read_status(manifest, store)
    except CheckpointError as error:
        findings.error(_WHERE, error)
        return CheckpointSeen(exists=None, status=None)
    for part in status.identity_changed:
        findings.problem(
            f"spec.{part}",
            f"is not what the write {status.name!r} began with in {uri}; it is fixed for the life of a write: undo the change, "
            "or give the new write another metadata.name",
        )
    for wrong in status.errors:
        findings.problem(_WHERE, f"{wrong.object}: {wrong.message}")
    return CheckpointSeen(exists=True, status=status)


def _check_can_be_made(folder: Path, findings: Findings) -> None:
    if (why := why_not_writable(folder)) is not None:
        findings.problem(_WHERE, f"the folder {folder} cannot be made: {why}")
