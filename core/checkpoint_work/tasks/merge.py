"""A merge stage of an upsert, as its drivers and tasks do it: keys of the staged rows, files to read, rows to delete.

The keys are those of the epoch, whose rows are all sealed; the first driver of the first merge puts them, and every other one
finds them. Called by attempt.py and executor.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from checkpoint_formats.port import Reader, Stager
from checkpoint_formats.rows.plain_types import decode_schema, encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import (
    IcebergDeletes,
    InputRecord,
    LanceDeletes,
    LanceTarget,
    LaunchRecord,
    Merge,
    MergeKeysRecord,
    PinnedIceberg,
    StagedFile,
    Target,
)
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.parts import Input

if TYPE_CHECKING:
    from checkpoint_formats.merging.sources import MergeSource


def fix_merge_input(ledger: Ledger, launch: LaunchRecord, merge: Merge, storage: StorageSettings) -> Input:
    """Return the files that the merge reads: those that stand, or what the table has now that may have one of the keys.

    NeedsChange(OutputKeyRepeated) before anything is read of the table, if several staged rows have one key.
    """
    from checkpoint_formats.merging.sources import merge_source_for

    recorded = ledger.inputs.read_input(launch.input_since)
    if recorded is not None:
        return recorded
    source = merge_source_for(launch.source, launch.source_tables, merge, storage)
    epoch = Ledger(ledger.store, EpochKey(ledger.key.uid, ledger.key.epoch), ledger.pause, ledger.map_all)
    staged = source.staged_of(file for seal in epoch.chains.counted_seals(merge.attempts) for file in seal.files)
    if merge.found_by:
        files = source.files_to_rewrite(staged, _left_out(epoch, merge.found_by))
    else:
        files = source.files_to_merge(epoch.merges.read_keys() or _put_keys(epoch, merge, source, staged), staged)
    found = InputRecord(
        token=new_token(),
        files=files,
        arrow_schema=encode_schema(pa.schema([source.schema.field(name) for name in merge.keys])),
        tables=(source.table,),
    )
    return ledger.inputs.put_input(found, launch.input_since)


def _left_out(epoch: Ledger, stages: Sequence[str]) -> Mapping[str, Sequence[StagedFile]]:
    """Return the files that these stages have staged, by the data files of which they name rows."""
    found: dict[str, list[StagedFile]] = defaultdict(list)
    for name in stages:
        stage = replace(epoch, key=epoch.key.of_stage(name))
        record = stage.commits.read_commit()
        launch = stage.attempts.read_launch(record.attempts) if record is not None else None
        if record is None or launch is None:
            raise Corrupt(reasons.RECORD_UNREADABLE, f"{epoch.store.uri}: records of the stage {stage.key} are gone")
        for seal in stage.chains.counted_seals((*launch.counted, record.attempts)):
            for file in seal.files:
                if isinstance(file, IcebergDeletes):
                    found[file.data_file].append(file)
                elif isinstance(file, LanceDeletes):
                    found[file.source].append(file)
    return found


def matching(ledger: Ledger, merge: Merge, schema: pa.Schema, reader: Reader, resources: ExitStack | None = None) -> Reader:
    """Return the reader of a merge's input. `resources`: what it opens is closed with these; None: it is not to read."""
    from checkpoint_formats.merging.reading import MatchingReader, WholeFiles

    if merge.found_by:
        return WholeFiles(reader)
    epoch = Ledger(ledger.store, EpochKey(ledger.key.uid, ledger.key.epoch), ledger.pause, ledger.map_all)
    keys = epoch.merges.read_keys()
    if keys is None:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}/{epoch.at.merge_keys} is gone; was the write deleted?")
    return MatchingReader(reader, merge, keys, epoch.merges.read_part, schema, resources or ExitStack())


def begin_staging(
    reader: Reader,
    stager: Stager,
    record: Input,
    pieces: Sequence[Range],
    merge: Merge,
    target: Target,
    storage: StorageSettings,
) -> Reader:
    """Tell the stager which table and files these pieces are of; return the reader of what it takes."""
    if isinstance(target, LanceTarget) and merge.found_by:
        from checkpoint_formats.lance import staged_rows

        return staged_rows.rest_reader(target.uri, decode_schema(target.arrow_schema), storage)
    if not isinstance(record.tables[0], PinnedIceberg) and not merge.rewrites:
        return reader
    from checkpoint_formats.iceberg.merge import PositionDeletesStager, RewritesStager, columns_of_rewrites, rest_reader
    from checkpoint_formats.merging.reading import MatchingReader
    from checkpoint_formats.merging.rewriting import RewritingReader

    (table,) = record.tables
    kind = RewritesStager if merge.rewrites else PositionDeletesStager
    if not isinstance(table, PinnedIceberg) or not isinstance(stager, kind):
        raise Corrupt(reasons.RECORD_UNREADABLE, "the input of a merge has no Iceberg table")
    stager.begin(table, (record.files[piece.file] for piece in pieces if piece.file < len(record.files)))
    if merge.found_by:
        return rest_reader(table, storage)
    if not merge.rewrites:
        return reader
    assert isinstance(reader, MatchingReader)
    return RewritingReader(reader.inner, reader.rows_to_delete, columns_of_rewrites(table))


def _put_keys(epoch: Ledger, merge: Merge, source: MergeSource, staged: Sequence[StagedFile]) -> MergeKeysRecord:
    from checkpoint_formats.merging.keys import Wanted

    made = source.put_keys(staged, lambda rows, data: epoch.merges.put_part(new_token(), rows, data))
    places = tuple(path for file in staged for path in file.paths) if Wanted.of(merge).places_are_asked_for else ()
    return epoch.merges.put_keys(
        MergeKeysRecord(
            token=new_token(),
            keys=merge.keys,
            rows=made.rows,
            parts=made.parts,
            bounds=made.bounds,
            where=made.where,
            files=places,
            repeated=made.repeated if merge.on_duplicate == "Last" else 0,
        )
    )
