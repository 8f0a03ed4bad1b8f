"""The input of an epoch: fixed by its first driver, the same for every attempt after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from checkpoint_protocol import ledger as rules
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.layout import EpochLayout
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import Source
from checkpoint_protocol.records import InputRecord, LaunchRecord, PinnedIceberg, PinnedLance, SourceFile
from checkpoint_protocol.storage import StorageSettings
from checkpoint_spark.arrow_schema import encode_schema
from checkpoint_spark.sources.chunks import FileReader
from checkpoint_spark.sources.reader import file_reader_for
from checkpoint_spark.sources.selecting import as_read, condition_of
from checkpoint_spark.sources.where import Filter

#: Looks at the source; is given the inputs of all earlier epochs, and returns what none of them had.
Look = Callable[[Sequence[InputRecord]], InputRecord]


def fix_input(ledger: Ledger, look: Look) -> InputRecord:
    """Return the epoch's input: the record that stands, or what the source holds now and no earlier epoch had."""
    standing = ledger.read_input()
    if standing is not None:
        return standing
    return ledger.put_input(look(_inputs_of_earlier_epochs(ledger)))


def look_at_source(launch: LaunchRecord, storage: StorageSettings, earlier: Sequence[InputRecord]) -> InputRecord:
    """Return what the source of a launch holds now, and no earlier epoch had."""
    source = as_read(launch.source)
    match source.format:
        case "iceberg":
            return _look_at_iceberg(launch, source, storage, earlier)
        case "lance":
            return _look_at_lance(launch, source, storage, earlier)
        case _:
            return look_at_files(launch, file_reader_for(launch.source, storage), earlier)


def look_at_files(launch: LaunchRecord, reader: FileReader, earlier: Sequence[InputRecord]) -> InputRecord:
    """Return the files that a source's paths mean now, and no earlier epoch had."""
    files, schema = reader.describe(launch.source.all_paths)
    known = {file.path: file for record in earlier for file in record.files}
    return InputRecord(
        token=new_token(),
        files=tuple(file for file in files if _is_new(file, known, launch.on_replaced)),
        arrow_schema=encode_schema(schema),
    )


def _look_at_iceberg(
    launch: LaunchRecord, source: Source, storage: StorageSettings, earlier: Sequence[InputRecord]
) -> InputRecord:
    from checkpoint_spark.sources.iceberg_plan import columns_of, find_files

    table = launch.source_table
    if table is None:
        raise Corrupt(
            reasons.RECORD_UNREADABLE,
            f"the launch record of attempt {launch.attempt} does not name a snapshot of its source table; it was written by "
            "another release: use that one, or start a new write",
        )
    before = earlier[-1].table if earlier else None
    condition = condition_of(source)
    files = find_files(table, condition, storage, before if isinstance(before, PinnedIceberg) else None, launch.on_replaced)
    schema = columns_of(table, source)
    return InputRecord(token=new_token(), files=files, arrow_schema=encode_schema(schema), table=table)


def _look_at_lance(launch: LaunchRecord, source: Source, storage: StorageSettings, earlier: Sequence[InputRecord]) -> InputRecord:
    from checkpoint_spark.sources.lance import find_fragments

    had = [(record.table, record.files) for record in earlier if isinstance(record.table, PinnedLance)]
    files, schema, table = find_fragments(source, storage, had, launch.on_replaced)
    if (condition := condition_of(source)) is not None:
        Filter(condition, schema)
    return InputRecord(token=new_token(), files=files, arrow_schema=encode_schema(schema), table=table)


def _inputs_of_earlier_epochs(ledger: Ledger) -> list[InputRecord]:
    found = []
    for epoch in range(1, ledger.key.epoch):
        where = EpochLayout(EpochKey(ledger.key.uid, epoch)).input
        record = rules.read(ledger.store, where, InputRecord)
        if record is None:
            raise Corrupt(
                reasons.RECORD_UNREADABLE,
                f"{ledger.store.uri}/{where} is gone, so the files that epoch {epoch} had taken are unknown; without it rows "
                "could be taken twice: start a new write for the new files",
            )
        found.append(record)
    return found


def _is_new(file: SourceFile, known: dict[str, SourceFile], on_replaced: str) -> bool:
    before = known.get(file.path)
    if before is None:
        return True
    if before.etag == file.etag or on_replaced == "Skip":
        return False
    if on_replaced == "Process":
        return True
    raise NeedsChange(
        reasons.SOURCE_CHANGED,
        f"{file.path} was taken by an earlier epoch with etag {before.etag}, and now has etag {file.etag}; "
        "set onReplaced: Process to take it again as new rows, or onReplaced: Skip to pass it over",
    )
