"""The branch of an Iceberg table that a write goes to, and the tag of its commits. Asks nobody; Iceberg calls both references.

A branch that does not exist is made by the first commit to it: the snapshot's parent is main's head, and the request demands that
nobody has made the branch meanwhile. So it has a history in common with main, and main can be moved forward to it. That main has
moved on by then is in nobody's way.

A write whose rows are audited has one more branch, by its uid, on which an epoch's snapshot waits for the audit. It carries the
key: once the target's history has that snapshot, whoever has put it there, the epoch is committed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate

from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.tables.iceberg import AUDIT_BRANCH_PREFIX, EPOCH_VARIABLE


@dataclass(frozen=True, slots=True)
class Refs:
    """What a manifest names. `tag` may hold the number of the epoch as a variable."""

    branch: str = MAIN_BRANCH
    tag: str | None = None

    def has_branch(self, metadata: TableMetadata) -> bool:
        """Whether the branch is there. Main always is, also without a snapshot."""
        return self.branch == MAIN_BRANCH or self.branch in metadata.refs

    def head(self, metadata: TableMetadata) -> Snapshot | None:
        """Return the snapshot after which the next one of the branch comes."""
        return metadata.snapshot_by_name(self.branch if self.has_branch(metadata) else MAIN_BRANCH)

    def ancestry(self, metadata: TableMetadata) -> list[Snapshot]:
        """Return the snapshots before the next one of the branch that are still known, latest first."""
        return list(ancestors_of(self.head(metadata), metadata))

    def tag_of(self, key: EpochKey) -> str | None:
        return self.tag.replace(EPOCH_VARIABLE, str(key.epoch)) if self.tag is not None else None

    def why_no_branch(self, metadata: TableMetadata) -> str | None:
        """Say why the branch cannot be written: a tag has its name."""
        ref = metadata.refs.get(self.branch)
        if ref is None or ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            return None
        return f"has a tag {self.branch!r}, and a tag cannot be written; name a branch in sink.iceberg.branch"

    def why_no_tag(self, metadata: TableMetadata, key: EpochKey) -> str | None:
        """Say why the epoch's snapshot cannot have its tag: it is on another one, or a branch has that name."""
        name = self.tag_of(key)
        ref = metadata.refs.get(name) if name is not None else None
        if ref is None or (ref.snapshot_ref_type == SnapshotRefType.TAG and ref.snapshot_id == key.snapshot_id):
            return None
        way_out = "" if self.tag is None or EPOCH_VARIABLE in self.tag else f" ({EPOCH_VARIABLE} in it stands for the epoch)"
        return (
            f"has a {ref.snapshot_ref_type} {name!r} already, on snapshot {ref.snapshot_id}; name another one in "
            f"sink.iceberg.tag{way_out}, or drop that one"
        )


def audit_branch_of(key: EpochKey) -> str:
    """Return the name of the branch on which what the write has staged waits for its audit."""
    return f"{AUDIT_BRANCH_PREFIX}{key.uid}"


def staged_snapshot_id(metadata: TableMetadata, key: EpochKey, head: Snapshot | None) -> int:
    """Return the id of the epoch's snapshot for its audit after this head: the same whoever puts it there.

    The first one that is free; or that of a snapshot which is known and was put there already, if its branch was dropped since.
    """
    number = 0
    while True:
        digest = hashlib.sha256(f"audit:{key}:{number}".encode()).digest()
        snapshot_id = (int.from_bytes(digest[:8], "big") & 0x7FFF_FFFF_FFFF_FFFF) or 1
        found = metadata.snapshot_by_id(snapshot_id)
        if found is None or found.parent_snapshot_id == (head.snapshot_id if head is not None else None):
            return snapshot_id
        number += 1


def unmoved(metadata: TableMetadata, name: str) -> AssertRefSnapshotId:
    """Return the requirement that a branch or tag is what it is in this version of the table."""
    ref = metadata.refs.get(name)
    return AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id if ref is not None else None)


def moved(metadata: TableMetadata, branch: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """Return the update that moves a branch, or makes it. How long its snapshots are kept stays as it is."""
    ref = metadata.refs.get(branch)
    return SetSnapshotRefUpdate(
        ref_name=branch,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=ref.max_ref_age_ms if ref is not None else None,
        max_snapshot_age_ms=ref.max_snapshot_age_ms if ref is not None else None,
        min_snapshots_to_keep=ref.min_snapshots_to_keep if ref is not None else None,
    )


def tagged(name: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """Return the update that makes a tag."""
    return SetSnapshotRefUpdate(  # type: ignore[call-arg]
        ref_name=name, type=SnapshotRefType.TAG, snapshot_id=snapshot_id
    )
