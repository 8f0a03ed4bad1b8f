"""Rows that fail: how many may, and which of them no later epoch has made good. Pure but for reading records."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import Quarantine
from checkpoint_protocol.parts import Input
from checkpoint_protocol.positions import Range
from checkpoint_protocol.quantities import format_share
from checkpoint_protocol.records import RowKey, RowPosition

_MILLION: Final = 1_000_000

#: A file as it was: its path and its etag.
FileVersion = tuple[str, str]


def most_rows(limits: Quarantine, record: Input | None, rows_read: int | None = None) -> int:
    """Return how many rows of an epoch may be quarantined.

    `rows_read` is said once all rows are; before, a share is judged only where the input tells how many there are. Rows that
    are tried again may fail again: they are not lost anew.
    """
    retried = rows_retried(record)
    rows = _rows_of(record) if rows_read is None else rows_read
    if rows is None:
        return limits.max_rows + retried
    return min(limits.max_rows, max(0, rows - retried) * limits.max_share // _MILLION) + retried


def describe_limit(limits: Quarantine, record: Input | None, rows_read: int | None = None) -> str:
    """Say which field of the manifest it is that sets the limit, and what it allows."""
    retried = rows_retried(record)
    most = most_rows(limits, record, rows_read) - retried
    again = f", and {retried:,} that are tried again" if retried else ""
    if most == limits.max_rows:
        return f"quarantine.maxRows allows {most:,}{again}"
    return f"quarantine.maxShare, {format_share(limits.max_share)} of all rows, allows {most:,}{again}"


def rows_retried(record: Input | None) -> int:
    """Return how many rows of an epoch's input earlier epochs had quarantined."""
    if record is None:
        return 0
    return record.totals.retried + (record.retried.rows if record.retried is not None else 0)


def _rows_of(record: Input | None) -> int | None:
    """Return how many rows an epoch has at the most, where its files tell: those of which rows are counted, to a known end.

    Rows that `where` or a table's deletes leave out are among them: how many these are is known when all are read.
    """
    if record is None or record.keys:
        return None
    return record.totals.rows


def key_of(row: RowKey, record: Input | None) -> dict[str, str]:
    """Return the key columns of a row that failed, with their values as text; without the input's record they have no names."""
    names = [column.name for column in record.keys] if record is not None else [f"k{place}" for place in range(len(row.values))]
    return dict(zip(names, row.values, strict=False))


def key_text(key: Mapping[str, str], source: int) -> str:
    """Write a key for people; `source` is the number of its source, which is said where there are several."""
    values = ", ".join(f"{name}={value}" for name, value in key.items())
    return f"{values} of source {source}" if source else values


def outstanding(epochs: Iterable[Ledger]) -> dict[FileVersion, tuple[tuple[int, int], ...]]:
    """Return the positions, from and to, of each row that was quarantined in these finished epochs and in none after made good.

    A row that a later epoch has taken again is that epoch's: it is in the table, or quarantined there once more. Raises Corrupt
    if a record is gone: whether a row is in the table already would not be known.
    """
    found: dict[FileVersion, set[tuple[int, int]]] = {}
    for ledger in epochs:
        record = _input_of(ledger)
        if record.totals.retried:
            for file in record.files:
                found.get((file.path, file.etag), set()).difference_update(file.only or ())
        # In the order of the files, which are read in parts.
        for row in sorted(_quarantined_in(ledger), key=lambda row: row.file):
            file, where = record.files[row.file], (row.start, row.end)
            if where[1] is not None:
                found.setdefault((file.path, file.etag), set()).add((where[0], where[1]))
    return {version: tuple(sorted(rows)) for version, rows in found.items() if rows}


def earlier_epochs(ledger: Ledger) -> list[Ledger]:
    """Return the epochs before this one that have a commit, ascending: all are finished, as they follow one another.

    One that has ended by a deletion has none, and its rows are taken by whatever epoch comes after it.
    """
    uid = ledger.key.uid
    earlier = [dataclasses.replace(ledger, key=EpochKey(uid, number)) for number in range(1, ledger.key.epoch)]
    return [one for one in earlier if (commit := one.commits.read_commit()) is None or not commit.was_deleted]


def _quarantined_in(ledger: Ledger) -> Iterable[Range]:
    commit_record = ledger.commits.read_commit()
    if commit_record is None:
        raise _gone(ledger, ledger.at.commit_record)
    if commit_record.rows_quarantined == 0:
        return
    launch = ledger.attempts.read_launch(commit_record.attempts)
    if launch is None:
        raise _gone(ledger, ledger.at.launch(commit_record.attempts))
    for seal in ledger.chains.counted_seals((*launch.counted, commit_record.attempts)):
        for row in ledger.quarantine.quarantined_rows(seal):
            if not isinstance(row.row, RowPosition):
                raise Corrupt(
                    reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: epoch {ledger.key.epoch} quarantines rows by their keys"
                )
            yield row.row.range


def _input_of(ledger: Ledger) -> Input:
    record = ledger.inputs.read_committed_input()
    if record is None:
        raise _gone(ledger, ledger.at.input)
    return record


def _gone(ledger: Ledger, path: str) -> Corrupt:
    return Corrupt(
        reasons.RECORD_UNREADABLE,
        f"{ledger.store.uri}/{path} is gone, so which rows of epoch {ledger.key.epoch} are quarantined is unknown; without it "
        "rows could be taken twice: set quarantine.retry: Never, or start a new write for them",
    )
