"""The input of a stage that reads another one's result: the files that the closed seals of that stage name.

No listing: what the stage's record of its end counts is fixed for good, so that whoever asks gets the same files in one order.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from checkpoint_formats.rows.plain_types import decode_schema, encode_schema
from checkpoint_formats.rows.selecting import SelectingReader, Selection
from checkpoint_formats.stage_results.groups import GroupReader, PiecesOfFile
from checkpoint_formats.stage_results.reader import bucket_path, source_file
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import Grouping, InputRecord, LaunchRecord, Seal, StageFile, StageTarget
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.store.parts import Input
from checkpoint_work.inputs.reading import reader_of_input


def fix_stage_input(ledger: Ledger, launch: LaunchRecord) -> Input:
    """Return the attempt's input: the record that stands, or the result of the stage that it reads."""
    recorded = ledger.inputs.read_input(launch.input_since)
    if recorded is not None:
        return recorded
    given, schema = _files_of(_ledger_read(ledger, launch))
    files = _buckets(given) if launch.keeps_groups else tuple(source_file(target, file) for target, file in given)
    return ledger.inputs.put_input(InputRecord(token=new_token(), files=files, arrow_schema=schema), launch.input_since)


def all_buckets(stage: Ledger) -> tuple[tuple[SourceFile, ...], pa.Schema]:
    """Return the buckets of a stage's result, which is done, as files, and the schema of their rows."""
    given, schema = _files_of(stage)
    return _buckets(given), decode_schema(schema)


def first_files(stage: Ledger, most_rows: int) -> tuple[tuple[SourceFile, ...], pa.Schema]:
    """Return files that a stage has sealed by now, done or not, up to one with which there are so many rows; and the schema."""
    numbers = stage.attempts.list_attempts()
    launch = stage.attempts.read_launch(numbers[-1]) if numbers else None
    if launch is None:
        raise _gone(stage)
    attempts = (*launch.counted, launch.attempt)
    given, schema = _files_sealed(stage, attempts, stage.chains.seals_so_far(attempts))
    files: list[SourceFile] = []
    rows = 0
    for target, file in given:
        files.append(source_file(target, file))
        rows += file.rows
        if rows >= most_rows:
            break
    return tuple(files), decode_schema(schema)


def _ledger_read(ledger: Ledger, launch: LaunchRecord) -> Ledger:
    return dataclasses.replace(ledger, key=ledger.key.of_stage(launch.reads_stage))


def open_reader(ledger: Ledger, launch: LaunchRecord, storage: StorageSettings, record: Input) -> SelectingReader:
    """Return the reader of an attempt's input: of its source, of the result of a stage, or of the groups of one."""
    if launch.stage is not None and launch.stage.groups is not None:
        return open_groups(_ledger_read(ledger, launch), launch.stage.groups, storage)
    return reader_of_input(launch, storage, record)


def open_groups(stage: Ledger, grouping: Grouping, storage: StorageSettings) -> SelectingReader:
    """Return the reader of an Aggregate, which knows where the rows of each bucket of this stage's result lie."""
    pieces: dict[str, list[PiecesOfFile]] = defaultdict(list)
    for target, file in _files_of(stage)[0]:
        numbers: dict[int, list[int]] = defaultdict(list)
        for number, bucket in enumerate(file.buckets):
            numbers[bucket].append(number)
        for bucket, batches in numbers.items():
            pieces[bucket_path(target, bucket)].append(PiecesOfFile(f"{target.folder}/{file.name}", tuple(batches)))
    return SelectingReader(Selection(), GroupReader(grouping, pieces, storage))


def _buckets(given: Iterable[tuple[StageTarget, StageFile]]) -> tuple[SourceFile, ...]:
    """Return the buckets that have rows, as files: a row is known by its number among those of its bucket."""
    rows: Counter[str] = Counter()
    size_bytes: Counter[str] = Counter()
    for target, file in given:
        for count, bucket in zip(file.batches, file.buckets, strict=True):
            path = bucket_path(target, bucket)
            rows[path] += count
            size_bytes[path] += file.size_bytes * count // max(1, file.rows)
    return tuple(
        SourceFile(path=path, etag="", size_bytes=size_bytes[path], unit="rows", end=count)
        for path, count in sorted(rows.items())
    )


def _files_of(stage: Ledger) -> tuple[Iterator[tuple[StageTarget, StageFile]], str]:
    """Return the files of a stage's result, with what they were staged for, and the schema of their rows."""
    commit = stage.commits.read_commit()
    launch = stage.attempts.read_launch(commit.attempts) if commit is not None else None
    if launch is None:
        raise _gone(stage)
    attempts = (*launch.counted, launch.attempt)
    return _files_sealed(stage, attempts, stage.chains.counted_seals(attempts))


def _gone(stage: Ledger) -> Corrupt:
    return Corrupt(
        reasons.RECORD_UNREADABLE, f"{stage.store.uri}: the records of the stage {stage.key} are gone; was the write deleted?"
    )


def _files_sealed(
    stage: Ledger, attempts: Sequence[int], seals: Iterator[Seal]
) -> tuple[Iterator[tuple[StageTarget, StageFile]], str]:
    targets = {number: target for number in attempts if (target := _target_of(stage, number)) is not None}
    schema = next(reversed(targets.values())).arrow_schema if targets else encode_schema(pa.schema([]))
    given = ((targets[seal.attempt], file) for seal in seals for file in seal.files if isinstance(file, StageFile))
    return given, schema


def _target_of(stage: Ledger, attempt: int) -> StageTarget | None:
    launch = stage.attempts.read_launch(attempt)
    target = launch.target if launch is not None else None
    if target is None:
        made = stage.attempts.read_target(attempt)
        target = made.target if made is not None else None
    return target if isinstance(target, StageTarget) else None
