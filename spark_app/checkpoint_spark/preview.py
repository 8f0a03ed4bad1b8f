"""The steps on the first rows of a source: what they give is handed to who asks, and nothing is staged.

    python -m checkpoint_spark.preview --uri URI --uid UID --rows N --folder FOLDER --master MASTER

The store at URI is a temporary one, with a launch record of the write's first attempt and its code. Where FOLDER says
so, the rows are what a stage has sealed in the store of the write. Ends with 0 where FOLDER has the outcome, also that of a
failure (`checkpoint_protocol.progress_reports`).
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from checkpoint_formats.readers import reader_for, reader_of_stage
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.progress_reports import (
    PREVIEW_NAME,
    ROWS_NAME,
    SEALED_NAME,
    FailedRow,
    PreviewError,
    PreviewOutcome,
    SealedRows,
)
from checkpoint_protocol.records import LaunchRecord
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.object_store import open_store
from checkpoint_spark.driver.main import end_with_parent, family_of
from checkpoint_spark.driver.spark_runner import fast_start, first_rows_by_spark
from checkpoint_spark.process.gpus import with_variables
from checkpoint_work.inputs.epoch_input import fix_input, list_source
from checkpoint_work.inputs.reading import schema_to_read
from checkpoint_work.inputs.stage_input import all_buckets, first_files, open_groups
from checkpoint_work.process.code import use_code
from checkpoint_work.process.settings import log_traceback, masked, storage_settings
from checkpoint_work.steps.batches import BatchT, Failed
from checkpoint_work.steps.calling.calls import Surroundings
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.flow import Flow
from checkpoint_work.steps.loading import closing_steps
from checkpoint_work.steps.quarantine import describe
from checkpoint_work.tasks.rows_by_position import RowsByPosition

#: In so many pieces of the source rows are looked for that `where` takes.
_MOST_PIECES: Final = 1_000


@dataclass(slots=True)
class Preview:
    """Takes batches through the steps, and keeps what comes of them. Rows that fail are named; the others go on.

    `keeps_groups`: a batch is all rows of a key, which is never cut, and ends the preview where it fails.
    """

    launch: LaunchRecord
    most_rows: int
    keeps_groups: bool = False
    rows_read: int = 0
    given: list[pa.RecordBatch] = field(default_factory=list)
    failed: list[FailedRow] = field(default_factory=list)
    _declared: pa.Schema | None = None

    def run(self, batches: Iterator[BatchT]) -> None:
        """Do the first rows of the batches. Raises what ends a task."""
        sets_apart = not self.keeps_groups
        with closing_steps():
            pipeline = Pipeline(self.launch.steps, around=Surroundings(sets_apart=sets_apart, write=self.launch.row_keys))
            self._declared = pipeline.declared
            flow = Flow(pipeline, self._declared, sets_apart, self.most_rows)
            for finished in flow.finished(self._first(batches)):
                self.given += finished.results(self._note)
            pipeline.end()

    def _first(self, batches: Iterator[BatchT]) -> Iterator[BatchT]:
        for batch in batches:
            left = self.most_rows - self.rows_read
            if batch.rows.num_rows > left and not self.keeps_groups:
                batch = batch.slice(0, left)
            self.rows_read += batch.source_rows
            yield batch
            if self.rows_read >= self.most_rows:
                return

    def _note(self, one: Failed[Any]) -> None:
        row = describe(one.batch.identity_of(one.number), one.step, one.error)
        named = one.batch.place.of_row(one.number)
        self.failed.append(FailedRow(row=named, step=row.step, error=row.error, message=row.message))

    def table(self) -> pa.Table:
        """Return the rows that the steps gave. Types that were inferred from a few rows each are united."""
        if not self.given:
            return (self._declared or pa.schema([])).empty_table()
        return pa.concat_tables([pa.Table.from_batches([batch]) for batch in self.given], promote_options="permissive")


def preview_files(ledger: Ledger, launch: LaunchRecord, storage: StorageSettings, preview: Preview) -> None:
    """Preview a source whose rows are known by position."""
    record = fix_input(ledger, launch, partial(list_source, launch, storage, ledger.store.uri))
    reader = reader_for(launch.source, storage, record.tables, sets_apart=True)
    source = RowsByPosition(_first_pieces(record.files), record.files, schema_to_read(launch.source, record), reader)
    # Rows that `where` takes may be few: they are looked for in large steps.
    most_rows = preview.most_rows if launch.source.where is None else 1 << 16
    preview.run(source.rest((), BatchSizing(launch.interval_s, scale=1.0, most_rows=most_rows), None))


def preview_sealed(sealed: SealedRows, storage: StorageSettings, preview: Preview) -> None:
    """Preview what a stage has sealed."""
    stage = Ledger(open_store(sealed.uri, storage), EpochKey(sealed.uid, sealed.epoch, sealed.stage))
    if sealed.groups is not None:
        files, schema = all_buckets(stage)
        reader = open_groups(stage, sealed.groups, storage)
    else:
        files, schema = first_files(stage, preview.most_rows)
        reader = reader_of_stage(storage)
    source = RowsByPosition(_first_pieces(files), files, schema, reader, preview.keeps_groups)
    preview.run(source.rest((), BatchSizing(preview.launch.interval_s, scale=1.0, most_rows=preview.most_rows), None))


def _first_pieces(files: Sequence[SourceFile]) -> tuple[Range, ...]:
    pieces = (piece for index, file in enumerate(files) for piece in file.ranges(index) if piece.start != piece.end)
    return tuple(islice(pieces, _MOST_PIECES))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="checkpoint_spark.preview")
    parser.add_argument("--uri", required=True)
    parser.add_argument("--uid", required=True)
    parser.add_argument("--rows", required=True, type=int)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--master", required=True)
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    orders = parser.parse_args(arguments)
    threading.Thread(target=end_with_parent, name="parent-watch", daemon=True).start()
    conf = dict(item.split("=", 1) for item in orders.conf)
    try:
        outcome, table = _do(orders.uri, orders.uid, orders.rows, orders.master, conf, orders.folder / SEALED_NAME)
    except CheckpointError as error:
        outcome, table = _of_error(error), None
    except Exception as error:
        log_traceback(error)
        outcome, table = _of_error(Retryable(reasons.DRIVER_FAILED, f"{type(error).__name__}: {error}")), None
    if table is not None:
        with pa.OSFile(str(orders.folder / ROWS_NAME), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    (orders.folder / PREVIEW_NAME).write_text(outcome.model_dump_json(), encoding="utf-8")
    return 0


def _do(uri: str, uid: str, rows: int, master: str, conf: dict[str, str], sealed_file: Path) -> tuple[PreviewOutcome, pa.Table]:
    storage = storage_settings()
    store = open_store(uri, storage)
    ledger = Ledger(store, EpochKey(uid, 1))
    launch = ledger.attempts.read_launch(1)
    if launch is None:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{uri} has no launch record of attempt 1")
    use_code(store, uid, launch.code)
    sealed = SealedRows.model_validate_json(sealed_file.read_bytes()) if sealed_file.exists() else None
    preview = Preview(launch, rows, keeps_groups=sealed is not None and sealed.groups is not None)
    if sealed is not None:
        preview_sealed(sealed, storage, preview)
    elif launch.source.keyed is None:
        preview_files(ledger, launch, storage, preview)
    else:
        conf = fast_start(with_variables(conf, os.environ), os.environ)
        preview.run(first_rows_by_spark("checkpointed-write preview", master, conf, launch, rows))
    return PreviewOutcome(rows_read=preview.rows_read, failed=tuple(preview.failed)), preview.table()


def _of_error(error: CheckpointError) -> PreviewOutcome:
    return PreviewOutcome(
        error=PreviewError(family=family_of(error), reason=error.reason, message=masked(error.message)[:30_000])
    )


if __name__ == "__main__":
    # Steps may leave threads that wait for something.
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
