"""Which commits an Iceberg table knows: by the summaries of its snapshots, and by its properties, which outlive these.

An epoch's snapshot says its key and, for people, the name of the write in its summary. A property of the table has the highest
epoch of each write that is committed, and another one the highest whose commit a deletion has blocked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from checkpoint_commit.iceberg.commit import OnAuditBranch
from checkpoint_commit.iceberg.refs import Refs, audit_branch_of
from checkpoint_commit.outcomes import Former, Presence
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import KEY_PROPERTY_PREFIX, EpochKey

_KEY: Final = f"{KEY_PROPERTY_PREFIX}key"
_NAME: Final = f"{KEY_PROPERTY_PREFIX}name"
#: What Iceberg's own Java says of a snapshot whose files are those of another one.
_PICKED: Final = "source-snapshot-id"
_TOMBSTONE: Final = f"{KEY_PROPERTY_PREFIX}tombstone"
#: After a write's own property: the highest epoch that a deletion has blocked. Snapshots expire, properties do not.
_BLOCKED_SUFFIX: Final = ".deleted"


def on_audit_branch(metadata: TableMetadata, key: EpochKey, ancestry: Iterable[Snapshot] = ()) -> OnAuditBranch | None:
    """Return what is on the branch on which rows of the write wait for their audit; None if there is no such branch or tag.

    `ancestry`: of the target, into which somebody may have picked it.
    """
    name = audit_branch_of(key)
    ref = metadata.refs.get(name)
    if ref is None:
        return None
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    is_staged = snapshot is not None and ref.snapshot_ref_type == SnapshotRefType.BRANCH and not _says_tombstone(snapshot)
    return OnAuditBranch(
        name,
        ref.snapshot_id,
        snapshot.parent_snapshot_id if snapshot is not None else None,
        snapshot.manifest_list if snapshot is not None else "",
        is_of_write=is_staged and _key_in(snapshot).partition("/")[0] == key.uid,
        is_of_epoch=is_staged and _key_in(snapshot) == str(key),
        picked_as=next((one.snapshot_id for one in ancestry if _said(one, _PICKED) == str(ref.snapshot_id)), None),
    )


def refuse_others_with(metadata: TableMetadata, key: EpochKey, title: str) -> None:
    """NeedsChange if a branch or tag of others has rows of an epoch that was not committed: they are to be removed."""
    own = on_audit_branch(metadata, key)
    for name, ref in metadata.refs.items():
        if own is not None and own.is_of_write and name == own.name:
            continue
        head = metadata.snapshot_by_id(ref.snapshot_id)
        if any(_key_in(one) == str(key) and not _says_tombstone(one) for one in ancestors_of(head, metadata)):
            raise NeedsChange(
                reasons.AUDIT_BRANCH_TAKEN,
                f"the branch or tag {name!r} of the table {title} has the rows of epoch {key.epoch}, which would be removed; "
                "drop it, or move the branch of the write to it to have the rows committed",
            )


def commit_properties(metadata: TableMetadata, key: EpochKey) -> dict[str, str]:
    """Return what the properties of the table say once the epoch is committed."""
    return {key.property_name: str(max(key.epoch, _recorded_epoch(metadata, key)))}


def commit_summary(key: EpochKey, written_by: str) -> dict[str, str]:
    """Return what the snapshot of the epoch's commit says of it. The name is for people, and for `find_former`."""
    return {_KEY: str(key)} | ({_NAME: written_by} if written_by else {})


def tombstone_properties(key: EpochKey) -> dict[str, str]:
    """Return what the properties say once the epoch's commit is blocked. The write's own stays: it says what is in the table."""
    return {f"{key.property_name}{_BLOCKED_SUFFIX}": str(key.epoch)}


def tombstone_summary(key: EpochKey) -> dict[str, str]:
    """Return what the summary of a tombstone's snapshot says."""
    return {_KEY: str(key), _TOMBSTONE: "true"}


def committed_snapshot(metadata: TableMetadata, ancestry: Iterable[Snapshot], key: EpochKey) -> int | None:
    """Return the snapshot id of the epoch's commit if it is in the table: by its properties or on the branch."""
    for snapshot in ancestry:
        if _carries(snapshot, key) and not _says_tombstone(snapshot):
            return snapshot.snapshot_id
    return key.snapshot_id if _recorded_epoch(metadata, key) >= key.epoch else None


def is_current(metadata: TableMetadata, ancestry: Sequence[Snapshot], key: EpochKey, commit_id: int) -> bool:
    """Whether a commit lies below the head of the branch. Only what is sure counts against it: snapshots expire."""
    if any(snapshot.snapshot_id == commit_id or _carries(snapshot, key) for snapshot in ancestry):
        return True
    is_whole = metadata.format_version > 1 and (not ancestry or is_first(ancestry[-1]))
    return not is_whole and metadata.snapshot_by_id(commit_id) is None


def presence_of(metadata: TableMetadata, refs: Refs, key: EpochKey, identity: str, commit_id: int) -> Presence:
    """Return what a table, which is there, shows of a recorded commit."""
    if str(metadata.table_uuid) != identity:
        return Presence.REPLACED
    if is_current(metadata, refs.ancestry(metadata), key, commit_id):
        return Presence.HERE
    return Presence.ROLLED_BACK if refs.has_branch(metadata) else Presence.BRANCH_DROPPED


def is_blocked(metadata: TableMetadata, ancestry: Iterable[Snapshot], key: EpochKey) -> bool:
    """Whether a deletion's tombstone is in the table. It outlives its snapshot by a property, as a commit does."""
    if any(_carries(snapshot, key) and _says_tombstone(snapshot) for snapshot in ancestry):
        return True
    return _recorded_epoch(metadata, key, _BLOCKED_SUFFIX) >= key.epoch


def _carries(snapshot: Snapshot, key: EpochKey) -> bool:
    if snapshot.snapshot_id == key.snapshot_id:
        return True
    return _key_in(snapshot) == str(key)


def _key_in(snapshot: Snapshot | None) -> str:
    return _said(snapshot, _KEY)


def _said(snapshot: Snapshot | None, name: str) -> str:
    summary = snapshot.summary if snapshot is not None else None
    return summary.additional_properties.get(name, "") if summary is not None else ""


def _says_tombstone(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and _TOMBSTONE in snapshot.summary.additional_properties


def _recorded_epoch(metadata: TableMetadata, key: EpochKey, suffix: str = "") -> int:
    recorded = metadata.properties.get(f"{key.property_name}{suffix}", "0")
    return int(recorded) if recorded.isdecimal() else 0


def is_first(snapshot: Snapshot) -> bool:
    """Whether a snapshot is the first of its table."""
    # pyiceberg takes the parent from a snapshot whose parent it expires; only the number tells then. Format 1 has none.
    return snapshot.parent_snapshot_id is None and (snapshot.sequence_number or 1) == 1


def find_former(ancestry: Iterable[Snapshot], name: str, uid: str | None, title: str) -> Former | None:
    """Return the latest commit, among those that are still known, of another write of that name."""
    for snapshot in ancestry:
        said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        if said.get(_NAME) == name and said.get(_KEY, "").partition("/")[0] != uid:
            return Former(title, said.get(_KEY, ""))
    return None
