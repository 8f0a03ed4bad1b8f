"""What a write answers, in Python and in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_OF_A_VALUE: Final = 120


class WriteFailed(Exception):
    """The write did not come to its commit. What is sealed stays, and the next run resumes it.

    `reason` is one word, as in the reference of reasons; `message` says what to do.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message

    def __reduce__(self) -> tuple[type[WriteFailed], tuple[str, str]]:
        return type(self), (self.reason, self.message)


@dataclass(frozen=True, slots=True)
class Result:
    """What was committed, of the write's last epoch.

    `table`: where to. `version`: Iceberg's snapshot, or the version of the Lance dataset; None where there was nothing to commit.
    `was_committed`: all of it was there already, and this run did nothing. `rows_quarantined` failed, and are not in the table.
    """

    table: str
    version: int | None
    rows_read: int
    rows_written: int
    rows_quarantined: int
    files: int
    attempts: int
    key: str
    seconds: float
    was_committed: bool

    def _repr_html_(self) -> str:
        rows = [(one.name.replace("_", " "), getattr(self, one.name)) for one in fields(self)]
        return table_html((), [(name, f"{value:,.1f}" if isinstance(value, float) else value) for name, value in rows])


@dataclass(frozen=True, slots=True)
class PreviewFailure:
    """A row on which a step failed: where it lies, the step, and the type and the words of what that raised."""

    row: str
    step: str
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What the steps made of the first rows of the source, or of those that a stage has sealed: `rows` are those that they gave.

    `notice`: that a stage whose rows are read was of other code or arguments; mostly empty.
    """

    rows: pa.Table
    rows_read: int
    failed: tuple[PreviewFailure, ...]
    notice: str = ""

    def __str__(self) -> str:
        failed = [f"{one.row}: {one.step}: {one.error}: {one.message}" for one in self.failed]
        return "\n".join([self.notice, str(self.rows), *failed]).strip()

    def _repr_html_(self) -> str:
        titles = [f"{one.name}: {one.type}" for one in self.rows.schema]
        given = table_html(titles, [tuple(row.values()) for row in self.rows.to_pylist()])
        failed = [(one.row, one.step, one.error, one.message) for one in self.failed]
        said = f"<p>{escape(self.notice)}</p>" if self.notice else ""
        return said + given + (table_html(("row that failed", "step", "error", "message"), failed) if failed else "")


def table_html(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table for a notebook. Values are texts of the user's, and long ones are cut."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:,}" if type(value) is int else str(value)
    return escape(text if len(text) <= _MOST_OF_A_VALUE else f"{text[:_MOST_OF_A_VALUE]}…")
