"""Rows that fail: how many may, and which of them no later epoch has made good. Pure but for reading records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import Quarantine
from checkpoint_protocol.positions import Range, merge, subtract
from checkpoint_protocol.quantities import format_share
from checkpoint_protocol.records import InputRecord

_MILLION: Final = 1_000_000

#: A file as it was: its path and its etag.
FileVersion = tuple[str, str]


def most_rows(on_row_error: str, limits: Quarantine, rows_in_epoch: int | None) -> int:
    """Return how many rows of an epoch may be quarantined. None: how many it has is not known yet, so no share is judged."""
    if on_row_error != "Quarantine":
        return 0
    if limits.max_share is None or rows_in_epoch is None:
        return limits.max_rows
    return min(limits.max_rows, rows_in_epoch * limits.max_share // _MILLION)


def describe_limit(on_row_error: str, limits: Quarantine, rows_in_epoch: int | None) -> str:
    """Say which field of the manifest it is that sets the limit, and what it allows."""
    if on_row_error != "Quarantine":
        return "onRowError: Fail allows none"
    most = most_rows(on_row_error, limits, rows_in_epoch)
    if most == limits.max_rows or limits.max_share is None:
        return f"quarantine.maxRows allows {limits.max_rows:,}"
    return f"quarantine.maxShare ({format_share(limits.max_share)} of {rows_in_epoch:,} rows) allows {most:,}"


def rows_of(record: InputRecord | None) -> int | None:
    """Return how many rows an epoch has, where its files tell: those whose positions are rows with a known end."""
    rows = 0
    for index, file in enumerate(record.files if record is not None else ()):
        for piece in file.ranges(index):
            if file.unit == "bytes" or piece.end is None:
                return None
            rows += piece.end - piece.start
    return rows if record is not None else None


def outstanding(epochs: Iterable[Ledger]) -> dict[FileVersion, tuple[tuple[int, int], ...]]:
    """Return the positions, from and to, that were quarantined in these finished epochs and that none after has made good.

    A row that a later epoch has taken again is that epoch's: it is in the table, or quarantined there once more. Raises Corrupt
    if a record is gone: whether a row is in the table already would not be known.
    """
    found: dict[FileVersion, tuple[Range, ...]] = {}
    for ledger in epochs:
        files = _input_of(ledger).files
        for index, file in enumerate(files):
            version = (file.path, file.etag)
            if version in found:
                # Kept under index 0: within one file version only positions matter.
                found[version] = subtract(found[version], [_at_zero(piece) for piece in file.ranges(index)])
        for piece in _quarantined_in(ledger):
            file = files[piece.file]
            version = (file.path, file.etag)
            found[version] = merge([*found.get(version, ()), _at_zero(piece)])
    return {
        version: tuple((piece.start, piece.end) for piece in pieces if piece.end is not None)
        for version, pieces in found.items()
        if pieces
    }


def earlier_epochs(ledger: Ledger) -> list[Ledger]:
    """Return the epochs before this one, ascending: all are finished, as they follow one another."""
    key = ledger.key
    return [Ledger(ledger.store, EpochKey(key.uid, number), ledger.pause, ledger.ask_all) for number in range(1, key.epoch)]


def _quarantined_in(ledger: Ledger) -> Iterable[Range]:
    mark = ledger.read_mark()
    if mark is None:
        raise _gone(ledger, ledger.at.mark)
    if mark.rows_quarantined == 0:
        return
    launch = ledger.read_launch(mark.attempts)
    if launch is None:
        raise _gone(ledger, ledger.at.launch(mark.attempts))
    for seal in ledger.counted_seals((*launch.counted, mark.attempts)):
        for row in ledger.quarantined_rows(seal):
            yield row.row.range


def _input_of(ledger: Ledger) -> InputRecord:
    record = ledger.read_input()
    if record is None:
        raise _gone(ledger, ledger.at.input)
    return record


def _gone(ledger: Ledger, path: str) -> Corrupt:
    return Corrupt(
        reasons.RECORD_UNREADABLE,
        f"{ledger.store.uri}/{path} is gone, so which rows of epoch {ledger.key.epoch} are quarantined is unknown; without it "
        "rows could be taken twice: set quarantine.retry: Never, or start a new write for them",
    )


def _at_zero(piece: Range) -> Range:
    return piece.model_copy(update={"file": 0})
