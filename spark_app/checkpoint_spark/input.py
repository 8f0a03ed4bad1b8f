"""The input of an epoch: fixed by its first driver, the same for every attempt after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

import pyarrow as pa

from checkpoint_formats.arrow_schema import encode_schema
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.recorded import Identify, find_moved, under_recorded_names
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.port import Described, FileReader
from checkpoint_formats.readers import file_reader_for
from checkpoint_formats.selecting import Selection, selection_of
from checkpoint_formats.uniting import unite
from checkpoint_formats.where import Filter
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.outputs import outputs_of
from checkpoint_protocol.parts import Input
from checkpoint_protocol.quarantine import FileVersion, earlier_epochs, outstanding
from checkpoint_protocol.records import InputRecord, LaunchRecord, PinnedIceberg, PinnedLance, PinnedTable, SourceFile
from checkpoint_protocol.source import FilesSource, IcebergSource, LanceSource
from checkpoint_protocol.storage import StorageSettings
from checkpoint_protocol.where import Condition
from checkpoint_spark.reading import refuse_moved_rows_of_earlier_epochs


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the epochs before had as their input, and of it the rows that are to be tried again, from and to."""

    inputs: Sequence[Input] = ()
    again: Mapping[FileVersion, tuple[tuple[int, int], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EarlierOf:
    """The same of one source; a union has several. `epochs` are the files of each epoch and the table that they are of."""

    epochs: Sequence[tuple[Sequence[SourceFile], PinnedTable | None]]
    again: Mapping[FileVersion, tuple[tuple[int, int], ...]]

    @property
    def files(self) -> dict[str, SourceFile]:
        return {file.path: file for files, _ in self.epochs for file in files}

    @property
    def table(self) -> PinnedTable | None:
        return self.epochs[-1][1] if self.epochs else None


#: Lists the source, and returns what no earlier epoch had, and the rows of these that are to be tried again.
ListSource = Callable[[Earlier], InputRecord]


def fix_input(ledger: Ledger, launch: LaunchRecord, list_source: ListSource) -> Input:
    """Return the epoch's input: the record that stands, or what the source holds now and no earlier epoch had."""
    recorded = ledger.inputs.read_input(launch.input_since)
    if recorded is not None:
        return recorded
    epochs = earlier_epochs(ledger)
    again = outstanding(epochs) if launch.quarantine.retry != "Never" else {}
    found = list_source(Earlier(_inputs_of_earlier_epochs(ledger), again))
    refuse_moved_rows_of_earlier_epochs(epochs, launch, found)
    return ledger.inputs.put_input(found, launch.input_since)


def list_source(launch: LaunchRecord, storage: StorageSettings, checkpoint_uri: str, earlier: Earlier) -> InputRecord:
    """Return what of the source of a launch the epoch takes: of a union, what it takes of each member."""
    selection, members = selection_of(launch.source), launch.source.members
    files = SourceFiles(storage, outputs_of(launch.target, checkpoint_uri))
    there = [files.expand(member.paths) if isinstance(member, FilesSource) else () for member in members]
    _refuse_shared_files(there)
    found: list[Described] = []
    tables: list[PinnedTable | None] = []
    for number, member in enumerate(members):
        before = earlier_of(earlier, number, launch)
        match member:
            case FilesSource():
                sets_apart = launch.on_row_error == "Quarantine"
                reader = file_reader_for(member, selection, storage, sets_apart=sets_apart)
                found.append(take_of_files(launch, reader, there[number], files.identify, before))
                tables.append(None)
            case IcebergSource():
                described, iceberg = _take_of_iceberg(launch, number, selection, storage, before)
                found.append(described)
                tables.append(iceberg)
            case LanceSource():
                described, lance = _take_of_lance(launch, member, selection, storage, before)
                found.append(described)
                tables.append(lance)
            case other:
                assert_never(other)
    schema = unite(found, selection)
    if selection.condition is not None:
        Filter(selection.condition, schema)
    return InputRecord(
        token=new_token(),
        files=_of_all(found),
        arrow_schema=encode_schema(schema),
        tables=tuple(tables) if any(tables) else (),
    )


def earlier_of(earlier: Earlier, number: int, launch: LaunchRecord) -> EarlierOf:
    if launch.source.union is None:
        return EarlierOf([(record.files, _table_of(record, 0)) for record in earlier.inputs], earlier.again)
    epochs = [([file for file in record.files if file.source == number], _table_of(record, number)) for record in earlier.inputs]
    versions = {(file.path, file.etag) for files, _ in epochs for file in files}
    return EarlierOf(epochs, {version: rows for version, rows in earlier.again.items() if version in versions})


def _table_of(record: Input, number: int) -> PinnedTable | None:
    return record.tables[number] if record.tables else None


def _refuse_shared_files(there: Sequence[Sequence[FoundFile]]) -> None:
    """NeedsChange(ManifestInvalid) if two members of a union have one file, under whatever name: its rows would come twice."""
    taken: dict[tuple[str, str], tuple[int, str]] = {}
    for number, files in enumerate(there):
        for file in files:
            before, path = taken.setdefault((file.identity, file.etag), (number, file.path))
            if before != number:
                same = "" if path == file.path else f" (the file {path})"
                raise NeedsChange(
                    reasons.MANIFEST_INVALID,
                    f"source.union: the sources {before} and {number} both have the file {file.path}{same}, so that its rows "
                    "would come twice; name it in one of them",
                )


def _of_all(found: Sequence[Described]) -> tuple[SourceFile, ...]:
    if len(found) == 1:
        return found[0].files
    return tuple(replace(file, source=number) for number, member in enumerate(found) for file in member.files)


def take_of_files(
    launch: LaunchRecord, reader: FileReader, found: Sequence[FoundFile], identify: Identify, earlier: EarlierOf
) -> Described:
    """Return what the epoch takes of the files that are there now."""
    described = reader.describe(found)
    known = earlier.files
    files = under_recorded_names(described.files, known, identify)
    moved: Mapping[str, SourceFile] = {}
    if known and launch.on_replaced != "Process" and launch.quarantine.retry != "Only":
        recorded = (file for files, _ in earlier.epochs for file in files)
        moved = find_moved([file for file in files if file.path not in known], recorded, partial(_is_gone, reader))
    taken = _taken(files, lambda file: _is_new(file, known, moved, launch.on_replaced), earlier, launch, are_files=True)
    return replace(described, files=taken)


def _take_of_iceberg(
    launch: LaunchRecord, number: int, selection: Selection, storage: StorageSettings, earlier: EarlierOf
) -> tuple[Described, PinnedIceberg]:
    from checkpoint_formats.iceberg.plan import columns_of, described, find_files

    table = launch.source_tables[number] if launch.source_tables else None
    if table is None:
        raise Corrupt(
            reasons.RECORD_UNREADABLE,
            f"the launch record of attempt {launch.attempt} does not name a snapshot of its source table; it was written by "
            "another release: use that one, or start a new write",
        )
    before = earlier.table if isinstance(earlier.table, PinnedIceberg) else None
    condition = selection.condition
    if launch.source.union is not None and condition is not None and not _applies(condition, columns_of(table)):
        condition = None
    new: tuple[SourceFile, ...] = ()
    if launch.quarantine.retry == "Only":
        # The next epoch takes what came after this one's snapshot, so that must be the one up to which all was taken.
        table = before or table.model_copy(update={"snapshot_id": None})
    else:
        new = find_files(table, condition, storage, before, launch.on_replaced)
    present: tuple[SourceFile, ...] = ()
    if earlier.again:
        try:
            present = find_files(table, condition, storage, None, launch.on_replaced)
        except Retryable as error:
            if launch.quarantine.retry != "Only" or error.reason != reasons.SOURCE_CHANGED:
                raise
            raise NeedsChange(
                error.reason,
                f"{error.message}; quarantine.retry: Only reads the snapshot of the epoch before, which the table no longer has: "
                "set quarantine.retry: Also, which reads the one of now, or Never",
            ) from error
    files = {file.path: file for file in (*present, *new)}
    names = {file.path for file in new}
    taken = _taken([files[path] for path in sorted(files)], lambda file: file.path in names, earlier, launch)
    return described(table, taken, selection.columns_to_read), table


def _applies(condition: Condition, schema: pa.Schema) -> bool:
    """Whether files of a member can be left out by a condition, which is one on the columns of all members together."""
    try:
        Filter(condition, schema)
    except NeedsChange:
        return False
    return True


def _take_of_lance(
    launch: LaunchRecord, source: LanceSource, selection: Selection, storage: StorageSettings, earlier: EarlierOf
) -> tuple[Described, PinnedLance]:
    from checkpoint_formats.lance.reader import find_fragments

    had = [(table, files) for files, table in earlier.epochs if isinstance(table, PinnedLance)]
    described, table = find_fragments(source, selection.columns_to_read, storage, had, launch.on_replaced)
    known = earlier.files
    return replace(described, files=_taken(described.files, lambda file: file.path not in known, earlier, launch)), table


def _taken(
    files: Sequence[SourceFile],
    is_new: Callable[[SourceFile], bool],
    earlier: EarlierOf,
    launch: LaunchRecord,
    *,
    are_files: bool = False,
) -> tuple[SourceFile, ...]:
    """Return what of the source's files the epoch takes: all of a new one, of a known one the rows that are tried again."""
    _refuse_lost_rows(earlier, files, launch, are_files=are_files)
    taken = []
    for file in files:
        if rows := earlier.again.get((file.path, file.etag)):
            taken.append(replace(file, only=rows))
        elif launch.quarantine.retry != "Only" and is_new(file):
            taken.append(file)
    return tuple(taken)


def _refuse_lost_rows(earlier: EarlierOf, files: Sequence[SourceFile], launch: LaunchRecord, *, are_files: bool) -> None:
    """Rows can be tried again only in the file in which they failed; with onReplaced, the others are passed over."""
    now = {file.path: file.etag for file in files}
    for (path, etag), rows in earlier.again.items():
        if launch.on_replaced != "Fail" or now.get(path) == etag:
            continue
        if are_files:
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
        record = earlier.inputs.read_committed_input()
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
