"""`checkpointed-write failed`: the rows that are quarantined, with columns of theirs from the source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pydantic import Field, JsonValue
from rich.console import Console

from checkpoint_control.views.failed_rows import FailedRow, FailedRows, failed_rows
from checkpoint_control.views.inspected import Shown, ShownRowError
from checkpoint_control.views.inspection import open_existing
from checkpoint_local.cli import exits
from checkpoint_local.cli.exits import read_files, say_error
from checkpoint_local.cli.printing import answers, as_json, cell, messages, print_data, say_problem
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.settings import Settings

_MOST_OF_A_MESSAGE: Final = 200


class ShownFailedRow(ShownRowError):
    """A row that failed, with the columns that were asked for."""

    stage: str | None = Field(description="Null where the write has no stages.")
    columns: dict[str, JsonValue] = Field(description="Null where a row cannot be read any more.")


class ShownFailed(Shown):
    """The rows of an epoch that failed."""

    epoch: int | None = Field(description="Null where no row has failed.")
    rows: tuple[ShownFailedRow, ...]


def failed_command(
    file: Path, settings_file: Path | None, output: str, epoch: int | None, columns: Sequence[str], parquet: Path | None
) -> int:
    """Show the rows, or write them to a file, and return the exit code."""
    console = messages()
    if (files := read_files(file, settings_file, console)) is None:
        return exits.MANIFEST_WRONG
    manifest, settings = files
    try:
        found = find_failed(manifest, settings, epoch, columns)
        if parquet is not None:
            _write(parquet, found, console)
        elif output == "table":
            _print(answers(), found)
        else:
            print_data(ShownFailed(epoch=found.epoch, rows=tuple(map(_shown, found.rows))), output)
    except CheckpointError as error:
        say_error(error, console)
        return exits.code_of(error)
    except OSError as error:
        say_problem(console, f"error: {parquet}: cannot be written: {error}")
        return exits.FAILED
    for note in found.notes:
        console.print(f"note: {note}", style="yellow", markup=False, soft_wrap=True)
    return exits.DONE


def find_failed(manifest: CheckpointedWrite, settings: Settings, epoch: int | None, columns: Sequence[str]) -> FailedRows:
    """Return the rows of a write that failed."""
    store = open_existing(manifest.spec.checkpoint.uri, settings)
    return failed_rows(manifest, store, settings, epoch, columns)


def _shown(row: FailedRow) -> ShownFailedRow:
    columns = {name: as_json(value) for name, value in row.values.items()}
    return ShownFailedRow(**row.error.model_dump(), stage=row.stage, columns=columns)


def _write(path: Path, found: FailedRows, console: Console) -> None:
    count = 0
    with pq.ParquetWriter(path, found.schema) as file:
        for batch in found.batches():
            file.write_batch(batch)
            count += batch.num_rows
    console.print(f"{counted(count, 'row')} written to {path}", markup=False)


def _print(out: Console, found: FailedRows) -> None:
    count = 0
    for row in found.rows:
        count += 1
        values = ", ".join(f"{name}={cell(value)}" for name, value in row.values.items())
        where = f"{row.error.place}{f' ({values})' if values else ''}"
        message = " ".join(row.error.message[:_MOST_OF_A_MESSAGE].split())
        out.print(f"{where}: {row.error.step}: {row.error.error}: {message}", markup=False, soft_wrap=True)
    said = "no row has failed" if found.epoch is None else f"epoch {found.epoch}: {counted(count, 'row')} failed"
    out.print(said, style="bold", markup=False)
