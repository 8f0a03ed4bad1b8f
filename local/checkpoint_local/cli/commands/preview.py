"""`checkpointed-write preview`: what the steps make of the first rows, before anything is run."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel
from rich.console import Console
from rich.text import Text

from checkpoint_commit.lance.columns import notes_on_vectors
from checkpoint_local.cli import exits
from checkpoint_local.cli.exits import read_files, say_error
from checkpoint_local.cli.printing import answers, as_json, cell, messages, plain_table, print_data, say_problem
from checkpoint_local.java import notice
from checkpoint_local.preview import Previewed
from checkpoint_local.preview import preview as run_steps
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.progress_reports import FailedRow


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
        rows=tuple({name: as_json(value) for name, value in row.items()} for row in found.rows.to_pylist()),
        failed=found.failed,
    )


def _print(out: Console, console: Console, found: Previewed) -> None:
    if found.rows.num_rows:
        table = plain_table(*found.rows.column_names)
        table.add_row(*(Text(str(column.type), style="dim") for column in found.rows.schema))
        for row in found.rows.to_pylist():
            table.add_row(*(Text(cell(value)) for value in row.values()))
        out.print(table)
    for failed in found.failed:
        say_problem(console, f"{failed.row}: {failed.step}: {failed.error}: {failed.message}")
    read, given = counted(found.rows_read, "row"), counted(found.rows.num_rows, "row")
    lost = f", {counted(len(found.failed), 'row')} failed" if found.failed else ""
    console.print(f"{read} read, {given} given{lost}; nothing was written", markup=False)
