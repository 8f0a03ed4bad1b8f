"""A file that is replaced, grows or goes after it was opened and before its rows are sealed: nothing of it is sealed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_formats.none import NoStager
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.rows.positions import Range
from checkpoint_work.tasks.rows_by_position import RowsByPosition
from checkpoint_work.tasks.segments import Task, run_task
from tests.support.reading import open_reader
from tests.support.steps_here import steps_here
from tests.support.stores import MemoryStore

ROWS: Final = 4


@dataclass
class Meddling(NoStager):
    """Takes the rows of a segment, and then lets something happen to the files, in the segment that it is told."""

    meddle: Callable[[], None]
    segment: int = 0

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[()]:
        super().stage(batches)
        if self.segment == 0:
            self.meddle()
        self.segment -= 1
        return ()


def write(path: Path, format: str, rows: int = ROWS) -> None:
    """Write a file as programs do that replace one: beside it, and renamed."""
    new = path.with_name("_new")
    if format == "parquet":
        pq.write_table(pa.table({"id": range(rows)}), new)
    else:
        new.write_text("".join(f'{{"id": {number}}}\n' if format == "json" else f"{number}\n" for number in range(rows)))
    new.rename(path)


def run(folder: Path, format: str, meddle: Callable[[], None], segment: int = 0) -> Ledger:
    """Run a task over two files of which each makes a segment; return its ledger. Raises what the task does."""
    for name in ("a", "b"):
        write(folder / f"{name}.{format}", format)
    options: dict[str, Any] = {"options": {"header": False}} if format == "csv" else {}
    reader = open_reader(format, **options)
    files, schema = reader.describe([str(folder)])
    ledger = Ledger(MemoryStore(), EpochKey("ab" * 16, 1))
    pieces = tuple(Range(file=index, start=file.start, end=file.end) for index, file in enumerate(files))
    stager = Meddling(meddle, segment)
    with pytest.raises(NeedsChange) as stopped:
        run_task(
            Task(attempt=1, number=0, code_digest="0" * 64, interval_s=1e-9, minimum_bytes=0),
            RowsByPosition(pieces, files, schema, reader),
            steps_here(stager),
            stager,
            ledger,
            iter(range(1_000)).__next__,
        )
    assert stopped.value.reason == reasons.SOURCE_CHANGED
    return ledger


@pytest.mark.parametrize("format", ["parquet", "csv", "json", "binary"])
def test_what_was_read_of_a_file_that_is_replaced_is_not_sealed(format: str, tmp_path: Path) -> None:
    ledger = run(tmp_path, format, lambda: write(tmp_path / f"a.{format}", format))
    assert ledger.chains.read_chain(1, 0) == ()


def test_what_was_read_of_a_file_that_grows_is_not_sealed(tmp_path: Path) -> None:
    def append() -> None:
        with (tmp_path / "a.csv").open("a") as file:
            file.write("more\n")

    assert run(tmp_path, "csv", append).chains.read_chain(1, 0) == ()


def test_what_was_read_of_a_file_that_goes_is_not_sealed(tmp_path: Path) -> None:
    assert run(tmp_path, "parquet", (tmp_path / "a.parquet").unlink).chains.read_chain(1, 0) == ()


def test_what_was_sealed_of_the_files_before_stays(tmp_path: Path) -> None:
    ledger = run(tmp_path, "parquet", lambda: write(tmp_path / "b.parquet", "parquet"), segment=1)
    assert [seal.rows_read for seal in ledger.chains.read_chain(1, 0)] == [ROWS]
