"""The rows that failed, counted from the seals: whether they are too many is decided by decision/rules.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from checkpoint_control.decision.observation import Attempt, RowErrorLimit
from checkpoint_control.progress.tallies import Tallies
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import ClosedRecord, LaunchRecord, QuarantinedRow, RowKey, Seal
from checkpoint_protocol.rows.quarantine import describe_limit, key_of, key_text, most_rows
from checkpoint_protocol.store.parts import Input

_EXAMPLES: Final = 3
_MOST_OF_A_MESSAGE: Final = 300


def count_quarantined(tallies: Tallies, launch: LaunchRecord, closed: ClosedRecord | None) -> int:
    """Return how many rows an attempt's own seals quarantine, of those that count or that show by now.

    Costs no request where the attempt may not quarantine any.
    """
    if launch.on_row_error != "Quarantine":
        return 0
    if closed is not None:
        return tallies.of_closed(launch.attempt).rows_quarantined
    if tallies.ledger.plans.read_plan(launch.attempt) is None:
        return 0
    return sum(chain.rows_quarantined for chain in tallies.of_tasks(launch.attempt).values())


def limit_of(tallies: Tallies, spec: Spec, attempts: Sequence[Attempt]) -> RowErrorLimit | None:
    """Return what the manifest allows by now; None where no row was quarantined."""
    if not any(attempt.rows_quarantined for attempt in attempts):
        return None
    last = attempts[-1]
    record = tallies.ledger.inputs.read_input(last.input_since)
    examples = tuple(islice(_examples(tallies.ledger, attempts, record), _EXAMPLES))
    if spec.on_row_error != "Quarantine":
        return RowErrorLimit(0, "onRowError: Fail allows none", examples)
    rows_read = None
    if last.is_complete:
        rows_read = sum(tallies.of_closed(number).rows_read for number in (*last.counted, last.number))
    return RowErrorLimit(
        most_rows=most_rows(spec.quarantine, record, rows_read),
        set_by=describe_limit(spec.quarantine, record, rows_read),
        examples=examples,
    )


def _seals(ledger: Ledger, attempt: int, closed: ClosedRecord | None) -> Iterable[Seal]:
    if closed is not None:
        return ledger.chains.counted_seals([attempt])
    if ledger.plans.read_plan(attempt) is None:
        return ()
    lengths = ledger.seals.list_links(attempt)
    return ledger.seals.read_links(attempt, [(task, link) for task, length in lengths.items() for link in range(length)])


def _examples(ledger: Ledger, attempts: Iterable[Attempt], record: Input | None) -> Iterable[str]:
    """Say what failed, from what the seals themselves hold."""
    for attempt in attempts:
        if attempt.rows_quarantined:
            for seal in _seals(ledger, attempt.number, ledger.attempts.read_closed(attempt.number)):
                for row in seal.quarantined.rows if seal.quarantined is not None else ():
                    message = " ".join(row.message[:_MOST_OF_A_MESSAGE].split())
                    yield f"{place_of(row, record)}: {row.step}: {row.error}: {message}"


def place_of(row: QuarantinedRow, record: Input | None) -> str:
    """Name the place of a row in the input."""
    if isinstance(row.row, RowKey):
        return f"the row with {key_text(key_of(row.row, record), row.row.source)}"
    where = row.row.range
    if record is None or where.file >= record.totals.files:
        return f"position {where.start} of file number {where.file}"
    file = record.files[where.file]
    unit = {"rows": "row", "records": "row", "bytes": "the line at byte"}[file.unit]
    return f"{unit} {where.start} of {file.path}"
