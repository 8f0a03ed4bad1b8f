"""The input of an epoch: fixed by its first driver, the same for every attempt after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

import pyarrow as pa

from checkpoint_formats.arrow_schema import encode_schema
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.recorded import Identify, find_moved, under_recorded_names
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.port import Described, FileReader
from checkpoint_formats.readers import file_reader_for
from checkpoint_formats.rows.selecting import Selection, selection_of
from checkpoint_formats.rows.uniting import refuse_shared_files, unite
from checkpoint_formats.rows.where import Filter
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import FileVersion, index_of
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.manifest.sources.source import FilesSource, IcebergSource, LanceSource
from checkpoint_protocol.manifest.where import Condition
from checkpoint_protocol.places.outputs import outputs_of
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import (
    AddColumns,
    InputRecord,
    LaunchRecord,
    OutstandingRows,
    PinnedIceberg,
    PinnedKafka,
    PinnedLance,
    PinnedTable,
    SourceFile,
    TakenFile,
    TakenPartition,
)
from checkpoint_protocol.store.parts import Input
from checkpoint_spark.inputs.earlier import taken_before
from checkpoint_spark.inputs.reading import refuse_moved_rows_of_earlier_epochs


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the epochs before have taken of files, tables and topics, and the rows that failed and are to be tried again."""

    files: Sequence[TakenFile] = ()
    tables: Sequence[PinnedTable | None] = ()
    again: Sequence[OutstandingRows] = ()
    partitions: Sequence[TakenPartition] = ()
    last_epoch: int = 0


@dataclass(frozen=True, slots=True)
class EarlierOf:
    """The same of one source; a union has several. `again` are rows of each file, from and to."""

    taken: Sequence[TakenFile]
    table: PinnedTable | None
    again: Mapping[FileVersion, tuple[tuple[int, int], ...]]
    partitions: Sequence[TakenPartition] = ()
    last_epoch: int = 0

    @property
    def files(self) -> dict[str, TakenFile]:
        """As they were taken last, by their paths."""
        return {file.path: file for file in self.taken}


#: Lists the source, and returns what no earlier epoch had, and the rows of these that are to be tried again.
ListSource = Callable[[Earlier], InputRecord]


def fix_input(ledger: Ledger, launch: LaunchRecord, list_source: ListSource) -> Input:
    """Return the epoch's input: the record that stands, or what the source holds now and no earlier epoch had."""
    recorded = ledger.inputs.read_input(launch.input_since)
    if recorded is not None:
        return recorded
    taken, index = taken_before(ledger, launch), index_of(ledger)
    again = index.outstanding(taken) if launch.quarantine.retry != "Never" else ()
    found = list_source(Earlier(tuple(index.files(taken)), taken.tables, again, taken.partitions, taken.last_that_took))
    refuse_moved_rows_of_earlier_epochs(taken.dialects, launch, found)
    return ledger.inputs.put_input(found, launch.input_since)


def list_source(launch: LaunchRecord, storage: StorageSettings, checkpoint_uri: str, earlier: Earlier) -> InputRecord:
    """Return what of the source of a launch the epoch takes: of a union, what it takes of each member."""
    selection, members = selection_of(launch.source), launch.source.members
    files = SourceFiles(storage, outputs_of(launch.target, checkpoint_uri))
    there = [files.expand(member.paths) if isinstance(member, FilesSource) else () for member in members]
    refuse_shared_files(there)
    budget = Budget(launch, files.identify)
    found: list[Described] = []
    tables: list[PinnedTable | None] = []
    for number, member in enumerate(members):
        before = earlier_of(earlier, number, launch)
        match member:
            case FilesSource():
                sets_apart = launch.on_row_error == "Quarantine"
                reader = file_reader_for(member, selection, storage, sets_apart=sets_apart)
                found.append(take_of_files(launch, reader, budget.within(there[number], before), files.identify, before))
                tables.append(None)
            case IcebergSource():
                described, iceberg = _take_of_iceberg(launch, number, selection, storage, before)
                found.append(described)
                tables.append(iceberg)
            case LanceSource():
                described, lance = _take_of_lance(launch, member, selection, storage, before)
                found.append(described)
                tables.append(lance)
            case KafkaSource():
                described, kafka = _take_of_kafka(launch, member, selection, storage, before)
                found.append(described)
                tables.append(kafka)
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
        left=budget.left,
    )


class Budget:
    """How much an epoch may take of new files, over all members of a source (`trigger.atMost`). At least one file."""

    def __init__(self, launch: LaunchRecord, identify: Identify) -> None:
        most = launch.at_most
        self._files = most.files if most is not None and most.files is not None else None
        self._bytes = most.bytes if most is not None and most.bytes is not None else None
        self._takes_replaced = launch.on_replaced != "Skip"
        self._identify = identify
        self._taken = 0
        self.left = 0

    def within(self, found: Sequence[FoundFile], earlier: EarlierOf) -> Sequence[FoundFile]:
        """Return the files without those new ones that are left to the next epoch: the oldest come first."""
        if self._files is None and self._bytes is None:
            return found
        # Under the names of before, so that a file of another name does not take the place of a new one.
        known = earlier.files
        alike = set() if self._takes_replaced else {(file.etag, file.size_bytes) for file in earlier.taken}
        strangers = {file.path for file in under_recorded_names(found, known, self._identify) if self._is_new(file, known)}
        new = [file for file in found if file.path in strangers and (file.etag, file.size_bytes) not in alike]
        left: set[str] = set()
        for file in sorted(new, key=lambda file: (file.modified_us, file.path)):
            is_full = self._files == 0 or (self._bytes is not None and file.size_bytes > self._bytes)
            if left or (is_full and self._taken):
                left.add(file.path)
                continue
            self._taken += 1
            self._files = None if self._files is None else self._files - 1
            self._bytes = None if self._bytes is None else max(0, self._bytes - file.size_bytes)
        self.left += len(left)
        return [file for file in found if file.path not in left]

    def _is_new(self, file: FoundFile, known: Mapping[str, TakenFile]) -> bool:
        before = known.get(file.path)
        return before is None or (before.etag != file.etag and self._takes_replaced)


def earlier_of(earlier: Earlier, number: int, launch: LaunchRecord) -> EarlierOf:
    is_union = launch.source.union is not None
    files = [file for file in earlier.files if file.source == number] if is_union else earlier.files
    again = {(one.path, one.etag): one.rows for one in earlier.again if one.source == number or not is_union}
    partitions = [one for one in earlier.partitions if one.source == number or not is_union]
    table = earlier.tables[number] if earlier.tables else None
    return EarlierOf(files, table, again, partitions, earlier.last_epoch)


def _of_all(found: Sequence[Described]) -> tuple[SourceFile, ...]:
    if len(found) == 1:
        return found[0].files
    return tuple(replace(file, source=number) for number, member in enumerate(found) for file in member.files)


def take_of_files(
    launch: LaunchRecord, reader: FileReader, found: Sequence[FoundFile], identify: Identify, earlier: EarlierOf
) -> Described:
    """Return what the epoch takes of the files that are there now."""
    known = earlier.files
    described = reader.describe(found)
    files = under_recorded_names(described.files, known, identify)
    moved: Mapping[str, TakenFile] = {}
    if known and launch.on_replaced != "Process" and launch.quarantine.retry != "Only":
        moved = find_moved([file for file in files if file.path not in known], earlier.taken, partial(_is_gone, reader))
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
    from checkpoint_formats.lance.reader import find_fragments, is_known

    added = launch.operation if isinstance(launch.operation, AddColumns) else None
    before = earlier.table if isinstance(earlier.table, PinnedLance) else None
    described, table = find_fragments(
        source, selection.columns_to_read, storage, earlier.taken, launch.on_replaced, added, before
    )
    known = earlier.files

    def is_new(file: SourceFile) -> bool:
        return file.path not in known if added is None else not is_known(file, known.get(file.path))

    return replace(described, files=_taken(described.files, is_new, earlier, launch)), table


def _take_of_kafka(
    launch: LaunchRecord, source: KafkaSource, selection: Selection, storage: StorageSettings, earlier: EarlierOf
) -> tuple[Described, PinnedKafka]:
    from checkpoint_formats.kafka.partitions import EarlierEpochs, find_partitions

    had = EarlierEpochs(
        partitions=earlier.partitions,
        last_epoch=earlier.last_epoch,
        cluster=earlier.table if isinstance(earlier.table, PinnedKafka) else None,
        again=earlier.again,
        takes_new=launch.quarantine.retry != "Only",
    )
    sets_apart = launch.on_row_error == "Quarantine"
    return find_partitions(source, selection.columns_to_read, storage, had, sets_apart=sets_apart)


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
            found, remedy = f"with etag {etag}, and {found}", "put the old file back"
        else:
            found = "and it has changed since" if path in now else "and the table does not have it any more"
            remedy = "set quarantine.retry: Never"
        raise NeedsChange(
            reasons.SOURCE_CHANGED,
            f"{len(rows)} quarantined rows of {path} are to be tried again (quarantine.retry); they failed in it {found}; "
            f"{remedy}, or set onReplaced: Process or Skip to pass them over",
        )


def _is_gone(reader: FileReader, file: TakenFile) -> bool:
    try:
        reader.check_unchanged(SourceFile(path=file.path, etag=file.etag, size_bytes=file.size_bytes, unit="rows", end=None))
    except NeedsChange as error:
        if error.reason != reasons.SOURCE_CHANGED:
            raise
        return True
    return False


def _is_new(file: SourceFile, known: Mapping[str, TakenFile], moved: Mapping[str, TakenFile], on_replaced: str) -> bool:
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
