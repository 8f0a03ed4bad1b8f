"""`checkpointed-write preview`: what the steps make of the first rows, before anything is run."""

from __future__ import annotations

import datetime
import decimal
import os
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel
from rich.console import Console
from rich.text import Text

from checkpoint_commit.lance.columns import notes_on_vectors
from checkpoint_local.cli import exits
from checkpoint_local.cli.exits import read_files, say_error
from checkpoint_local.cli.printing import answers, messages, plain_table, print_data, say_problem
from checkpoint_local.java import notice
from checkpoint_local.preview import Previewed
from checkpoint_local.preview import preview as run_steps
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.printable import printable
from checkpoint_protocol.progress_reports import FailedRow

_MOST_OF_A_VALUE: Final = 60


class _Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class ColumnAnswer(_Answer):
    """A column that the steps give, with its Arrow type."""

    name: str
    type: str


class PreviewAnswer(_Answer):
    """The answer as data. Values that JSON has no form for are texts."""

    rows_read: int
    columns: tuple[ColumnAnswer, ...]
    rows: tuple[dict[str, JsonValue], ...]
    failed: tuple[FailedRow, ...]


def preview_command(file: Path, settings_file: Path | None, output: str, rows: int, stage: str | None = None) -> int:
    """Run the steps on so many rows, show what they give, and return the exit code."""
    console = messages()
    if (files := read_files(file, settings_file, console)) is None:
        return exits.MANIFEST_WRONG
    manifest, settings = files
    if (said := notice(os.environ)) is not None:
        console.print(said, style="yellow", markup=False)
    try:
        found = run_steps(manifest, settings, rows, stage)
    except CheckpointError as error:
        say_error(error, console)
        return exits.code_of(error)
    if found.notice:
        console.print(found.notice, style="yellow", markup=False)
    if manifest.spec.sink.lance is not None and stage is None:
        for note in notes_on_vectors(manifest.spec.sink.lance, found.rows):
            console.print(f"note: {note}", style="yellow", markup=False, soft_wrap=True)
    if output == "table":
        _print(answers(), console, found)
    else:
        print_data(_answer(found), output)
    return exits.FAILED if found.failed else exits.DONE


def _answer(found: Previewed) -> PreviewAnswer:
    return PreviewAnswer(
        rows_read=found.rows_read,
        columns=tuple(ColumnAnswer(name=column.name, type=str(column.type)) for column in found.rows.schema),
        rows=tuple({name: _as_json(value) for name, value in row.items()} for row in found.rows.to_pylist()),
        failed=found.failed,
    )


def _as_json(value: Any) -> JsonValue:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case list() | tuple():
            return [_as_json(item) for item in value]
        case dict():
            return {str(name): _as_json(item) for name, item in value.items()}
        case datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case bytes():
            return value.hex()
        case _:
            return str(value)


def _print(out: Console, console: Console, found: Previewed) -> None:
    if found.rows.num_rows:
        table = plain_table(*found.rows.column_names)
        table.add_row(*(Text(str(column.type), style="dim") for column in found.rows.schema))
        for row in found.rows.to_pylist():
            table.add_row(*(Text(_cell(value)) for value in row.values()))
        out.print(table)
    for failed in found.failed:
        say_problem(console, f"{failed.row}: {failed.step}: {failed.error}: {failed.message}")
    read, given = counted(found.rows_read, "row"), counted(found.rows.num_rows, "row")
    lost = f", {counted(len(found.failed), 'row')} failed" if found.failed else ""
    console.print(f"{read} read, {given} given{lost}; nothing was written", markup=False)


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        value = value[:_MOST_OF_A_VALUE].hex()
    text = printable(value if isinstance(value, str) else str(value))
    return text if len(text) <= _MOST_OF_A_VALUE else f"{text[: _MOST_OF_A_VALUE - 1]}…"
