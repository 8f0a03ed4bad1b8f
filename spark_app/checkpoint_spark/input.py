"""The input of an epoch: fixed by its first driver, the same for every attempt after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from checkpoint_formats.arrow_schema import encode_schema
from checkpoint_formats.files.recorded import Identify, find_moved, under_recorded_names
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.port import FileReader
from checkpoint_formats.readers import file_reader_for
from checkpoint_formats.selecting import as_read, condition_of
from checkpoint_formats.where import Filter
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import Source
from checkpoint_protocol.outputs import outputs_of
from checkpoint_protocol.parts import Input
from checkpoint_protocol.quarantine import FileVersion, earlier_epochs, outstanding
from checkpoint_protocol.records import InputRecord, LaunchRecord, PinnedIceberg, PinnedLance, SourceFile
from checkpoint_protocol.storage import StorageSettings
from checkpoint_spark.reading import refuse_moved_rows_of_earlier_epochs


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the epochs before had as their input, and of it the rows that are to be tried again, from and to."""

    inputs: Sequence[Input]
    again: Mapping[FileVersion, tuple[tuple[int, int], ...]]

    @property
    def files(self) -> dict[str, SourceFile]:
        return {file.path: file for record in self.inputs for file in record.files}


#: Looks at the source, and returns what no earlier epoch had, and the rows of these that are to be tried again.
Look = Callable[[Earlier], InputRecord]


def fix_input(ledger: Ledger, launch: LaunchRecord, look: Look) -> Input:
    """Return the epoch's input: the record that stands, or what the source holds now and no earlier epoch had."""
    standing = ledger.read_input(launch.input_since)
    if standing is not None:
        return standing
    epochs = earlier_epochs(ledger)
    again = outstanding(epochs) if launch.quarantine.retry != "Never" else {}
    found = look(Earlier(_inputs_of_earlier_epochs(ledger), again))
    refuse_moved_rows_of_earlier_epochs(epochs, launch, found)
    return ledger.put_input(found, launch.input_since)


def look_at_source(launch: LaunchRecord, storage: StorageSettings, checkpoint_uri: str, earlier: Earlier) -> InputRecord:
    """Return what of the source of a launch the epoch takes."""
    source = as_read(launch.source)
    match source.format:
        case "iceberg":
            return _look_at_iceberg(launch, source, storage, earlier)
        case "lance":
            return _look_at_lance(launch, source, storage, earlier)
        case _:
            outputs = outputs_of(launch.target, checkpoint_uri)
            reader = file_reader_for(launch.source, storage, outputs=outputs, sets_apart=launch.on_row_error == "Quarantine")
            return look_at_files(launch, reader, SourceFiles(storage).identify, earlier)


def look_at_files(launch: LaunchRecord, reader: FileReader, identify: Identify, earlier: Earlier) -> InputRecord:
    """Return what the epoch takes of the files that a source's paths mean now."""
    files, schema = reader.describe(launch.source.all_paths)
    known = earlier.files
    files = under_recorded_names(files, known, identify)
    moved: Mapping[str, SourceFile] = {}
    if known and launch.on_replaced != "Process" and launch.quarantine.retry != "Only":
        recorded = (file for record in earlier.inputs for file in record.files)
        moved = find_moved([file for file in files if file.path not in known], recorded, partial(_is_gone, reader))
    files = _taken(files, lambda file: _is_new(file, known, moved, launch.on_replaced), earlier, launch)
    return InputRecord(token=new_token(), files=files, arrow_schema=encode_schema(schema))


def _look_at_iceberg(launch: LaunchRecord, source: Source, storage: StorageSettings, earlier: Earlier) -> InputRecord:
    from checkpoint_formats.iceberg.plan import columns_of, find_files

    table = launch.source_table
    if table is None:
        raise Corrupt(
            reasons.RECORD_UNREADABLE,
            f"the launch record of attempt {launch.attempt} does not name a snapshot of its source table; it was written by "
            "another release: use that one, or start a new write",
        )
    had = earlier.inputs[-1].table if earlier.inputs else None
    before = had if isinstance(had, PinnedIceberg) else None
    condition = condition_of(source)
    new: tuple[SourceFile, ...] = ()
    if launch.quarantine.retry == "Only":
        # The next epoch takes what came after this one's snapshot, so that must be the one up to which all was taken.
        table = before or table.model_copy(update={"snapshot_id": None})
    else:
        new = find_files(table, condition, storage, before, launch.on_replaced)
    standing: tuple[SourceFile, ...] = ()
    if earlier.again:
        try:
            standing = find_files(table, condition, storage, None, launch.on_replaced)
        except Retryable as error:
            if launch.quarantine.retry != "Only" or error.reason != reasons.SOURCE_CHANGED:
                raise
            raise NeedsChange(
                error.reason,
                f"{error.message}; quarantine.retry: Only reads the snapshot of the epoch before, which the table no longer has: "
                "set quarantine.retry: Also, which reads the one of now, or Never",
            ) from error
    files = {file.path: file for file in (*standing, *new)}
    names = {file.path for file in new}
    taken = _taken([files[path] for path in sorted(files)], lambda file: file.path in names, earlier, launch)
    schema = columns_of(table, source)
    return InputRecord(token=new_token(), files=taken, arrow_schema=encode_schema(schema), table=table)


def _look_at_lance(launch: LaunchRecord, source: Source, storage: StorageSettings, earlier: Earlier) -> InputRecord:
    from checkpoint_formats.lance.reader import find_fragments

    had = [(record.table, record.files) for record in earlier.inputs if isinstance(record.table, PinnedLance)]
    fragments, schema, table = find_fragments(source, storage, had, launch.on_replaced)
    if (condition := condition_of(source)) is not None:
        Filter(condition, schema)
    known = earlier.files
    files = _taken(fragments, lambda file: file.path not in known, earlier, launch)
    return InputRecord(token=new_token(), files=files, arrow_schema=encode_schema(schema), table=table)


def _taken(
    files: Sequence[SourceFile], is_new: Callable[[SourceFile], bool], earlier: Earlier, launch: LaunchRecord
) -> tuple[SourceFile, ...]:
    """Return what of the source's files the epoch takes: all of a new one, of a known one the rows that are tried again."""
    _refuse_lost_rows(earlier, files, launch)
    taken = []
    for file in files:
        if rows := earlier.again.get((file.path, file.etag)):
            taken.append(replace(file, only=rows))
        elif launch.quarantine.retry != "Only" and is_new(file):
            taken.append(file)
    return tuple(taken)


def _refuse_lost_rows(earlier: Earlier, files: Sequence[SourceFile], launch: LaunchRecord) -> None:
    """Rows can be tried again only in the file in which they failed; with onReplaced, the others are passed over."""
    now = {file.path: file.etag for file in files}
    for (path, etag), rows in earlier.again.items():
        if launch.on_replaced != "Fail" or now.get(path) == etag:
            continue
        if launch.source.all_paths:
            found = f"it now has etag {now[path]}" if path in now else "it is not there any more"
            found, way_out = f"with etag {etag}, and {found}", "put the old file back"
        else:
            found = "and it has changed since" if path in now else "and the table does not have it any more"
            way_out = "set quarantine.retry: Never"
        raise NeedsChange(
            reasons.SOURCE_CHANGED,
            f"{len(rows)} quarantined rows of {path} are to be tried again (quarantine.retry); they failed in it {found}; "
            f"{way_out}, or set onReplaced: Process or Skip to pass them over",
        )


def _inputs_of_earlier_epochs(ledger: Ledger) -> list[Input]:
    found = []
    for earlier in earlier_epochs(ledger):
        record = earlier.read_committed_input()
        if record is None:
            raise Corrupt(
                reasons.RECORD_UNREADABLE,
                f"{ledger.store.uri}/{earlier.at.input} is gone, so the files that epoch {earlier.key.epoch} had taken are "
                "unknown; without it rows could be taken twice: start a new write for the new files",
            )
        found.append(record)
    return found


def _is_gone(reader: FileReader, file: SourceFile) -> bool:
    try:
        reader.check_unchanged(file)
    except NeedsChange as error:
        if error.reason != reasons.SOURCE_CHANGED:
            raise
        return True
    return False


def _is_new(file: SourceFile, known: Mapping[str, SourceFile], moved: Mapping[str, SourceFile], on_replaced: str) -> bool:
    if file.path in moved:
        if on_replaced == "Skip":
            return False
        raise NeedsChange(
            reasons.SOURCE_MOVED,
            f"{file.path} has the etag {file.etag} and the {file.size_bytes} bytes of {moved[file.path].path}, which was taken "
            "by an earlier epoch and is not there any more: it seems to have been moved; move it back, or set onReplaced: Skip "
            "to pass it over, or onReplaced: Process to take its rows as new ones",
        )
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
