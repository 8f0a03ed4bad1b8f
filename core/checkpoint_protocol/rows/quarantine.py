"""Rows that fail: how many may, and what they are called. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from checkpoint_protocol.manifest.quantities import format_share
from checkpoint_protocol.manifest.sections import Quarantine
from checkpoint_protocol.records import RowKey
from checkpoint_protocol.store.parts import Input

_MILLION: Final = 1_000_000


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
