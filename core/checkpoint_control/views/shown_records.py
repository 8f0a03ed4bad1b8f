"""Records as they are shown to people, and the phase that follows from them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from checkpoint_control.decision.observation import Attempt, DriverState, Failure
from checkpoint_control.decision.phases import Phase, phase_of
from checkpoint_control.views.inspected import ShownAttempt, ShownBegan, ShownClaim, ShownCommit, ShownEpoch, ShownSums
from checkpoint_protocol.records import (
    Began,
    ClaimRecord,
    CommitRecord,
    PinnedTable,
    Seal,
)

DIGEST_DIGITS: Final = 12


def phase_in_store(epoch: ShownEpoch, *, is_deleted: bool, is_unreadable: bool) -> Phase:
    """Return the phase of an epoch by the store alone. `is_unreadable`: one of its records is."""
    last = observed(epoch.attempts[-1]) if epoch.attempts else None
    return phase_of(last, is_committed=bool(epoch.is_committed), is_deleted=is_deleted, is_unreadable=is_unreadable)


def observed(last: ShownAttempt) -> Attempt:
    """Return an attempt as a round would see it that cannot see drivers: one that has not said why it ended may be at work."""
    failure = last.failure
    return Attempt(
        number=last.attempt,
        code_digest=last.code_digest or "",
        driver=DriverState.ELSEWHERE if failure is None and not last.closed else DriverState.GONE,
        is_sealed=not last.closed and last.tasks is not None and last.tasks_done == last.tasks,
        is_closed=bool(last.closed),
        is_complete=bool(last.complete),
        failure=Failure(failure.family, failure.reason, failure.message) if failure is not None else None,
    )


def sum_of(seals: Sequence[Seal]) -> ShownSums:
    sizes_bytes = [size_bytes for seal in seals for file in seal.files for size_bytes in file.sizes_bytes]
    return ShownSums(
        seals=len(seals),
        rows_read=sum(seal.rows_read for seal in seals),
        rows_written=sum(seal.rows_written for seal in seals),
        staged_files=len(sizes_bytes),
        staged_bytes=sum(sizes_bytes),
        rows_quarantined=sum(seal.rows_quarantined for seal in seals),
    )


def sums_of_commit(commit_record: CommitRecord) -> ShownSums:
    """Return what the seals of an epoch added up to, of which some or all are cleaned."""
    return ShownSums(
        rows_read=commit_record.rows_read,
        rows_written=commit_record.rows_written,
        staged_files=commit_record.files,
        rows_quarantined=commit_record.rows_quarantined,
    )


def tables_of(tables: Sequence[PinnedTable | None]) -> str | None:
    return ", ".join(table.title for table in tables if table is not None) or None


def show_began(began: Began) -> ShownBegan:
    return ShownBegan(why=began.why, at=began.at, files=began.files, size_bytes=began.size_bytes)


def show_claim(index: int, record: ClaimRecord | None) -> ShownClaim:
    if record is None:
        return ShownClaim(index=index, table_identity=None, base=None)
    return ShownClaim(index=index, table_identity=record.base.table_identity, base=record.base.at)


def show_commit(commit_record: CommitRecord) -> ShownCommit:
    return ShownCommit(
        target=commit_record.target,
        table_identity=commit_record.table_identity,
        commit_id=commit_record.commit_id,
        rows_read=commit_record.rows_read,
        rows_written=commit_record.rows_written,
        files=commit_record.files,
        attempts=commit_record.attempts,
        code_digests=tuple(digest[:DIGEST_DIGITS] for digest in commit_record.code_digests),
        read_digests=tuple(digest[:DIGEST_DIGITS] for digest in commit_record.read_digests),
        rows_quarantined=commit_record.rows_quarantined,
        rows_quarantined_before=commit_record.rows_quarantined_before,
    )
