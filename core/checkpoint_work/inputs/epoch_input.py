"""The input of an epoch: planned and fixed by its first driver, the same for every attempt after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, assert_never

import pyarrow as pa

from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.files.take import take as take_of_files
from checkpoint_formats.port import Described
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_formats.rows.selecting import selection_of
from checkpoint_formats.rows.uniting import else_hint_of, refuse_shared_files, unite
from checkpoint_formats.rows.where import Filter
from checkpoint_formats.taking import EarlierOf, Identify, Taking, under_recorded_names
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import index_of
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.manifest.sources.source import FilesSource, IcebergSource, LanceSource, Positional, Source
from checkpoint_protocol.places.outputs import outputs_of
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import (
    InputRecord,
    LaunchRecord,
    Output,
    OutstandingRows,
    PinnedTable,
    TakenFile,
    TakenPartition,
    TakenRecord,
    takes_the_whole_source,
)
from checkpoint_protocol.records.inputs import FileColumns, SourceFile, some_columns
from checkpoint_protocol.store.parts import Input
from checkpoint_work.inputs.reading import refuse_moved_rows_of_earlier_epochs


def taken_before(ledger: Ledger, launch: LaunchRecord) -> TakenRecord:
    """Return what the epochs before this one have taken; nothing where the operation puts its rows in the place of theirs.

    What an epoch that overwrites does not read is not in the table afterwards, so it reads the whole source. A stage reads what
    its epoch gives it, and that in whole; but the first one of a pipeline takes of the source what its epoch does.
    """
    if launch.stage is not None:
        is_whole = launch.stage.takes_all
    else:
        is_whole = bool(ledger.key.stage) or takes_the_whole_source(launch.operation)
    of_others = 0 if is_whole else ledger.key.epoch - 1
    return index_of(ledger).up_to(of_others)


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the epochs before have taken of files, tables and topics, and the rows that failed and are to be tried again."""

    files: Sequence[TakenFile] = ()
    tables: Sequence[PinnedTable | None] = ()
    again: Sequence[OutstandingRows] = ()
    partitions: Sequence[TakenPartition] = ()
    last_epoch: int = 0
    columns: Sequence[FileColumns] = ()
    committed_at: int | None = None


_NOTHING: Final = Earlier()

#: Lists the source, and returns what no earlier epoch had, and the rows of these that are to be tried again.
ListSource = Callable[[Earlier], InputRecord]


def fix_input(ledger: Ledger, launch: LaunchRecord, list_source: ListSource) -> Input:
    """Return the epoch's input: the record that stands, or what the source holds now and no earlier epoch had."""
    recorded = ledger.inputs.read_input(launch.input_since)
    if recorded is not None:
        return recorded
    taken, index = taken_before(ledger, launch), index_of(ledger)
    again = index.outstanding(taken) if launch.quarantine.retry != "Never" else ()
    files = tuple(index.files(taken))
    found = list_source(
        Earlier(files, taken.tables, again, taken.partitions, taken.last_that_took, taken.file_columns, taken.tables_committed_at)
    )
    refuse_moved_rows_of_earlier_epochs(taken.dialects, launch, found)
    return ledger.inputs.put_input(found, launch.input_since)


def list_source(launch: LaunchRecord, storage: StorageSettings, checkpoint_uri: str, earlier: Earlier) -> InputRecord:
    """Return what the epoch takes of the source; of a union, of each member."""
    plan = SourcePlan(launch, storage, outputs_of(launch.target, checkpoint_uri), earlier)
    members = launch.source.members
    there = [plan.files.expand(member.paths) if isinstance(member, FilesSource) else () for member in members]
    refuse_shared_files(there)
    taken = [plan.take(number, files) for number, files in enumerate(there)]
    found, tables = [described for described, _ in taken], tuple(table for _, table in taken)
    schema = plan.columns(found)
    plan.check_where(schema, found)
    return InputRecord(
        token=new_token(),
        files=_of_all(found),
        arrow_schema=encode_schema(schema),
        tables=tables if any(tables) else (),
        left=plan.left,
        file_columns=some_columns(chain.from_iterable(described.file_columns for described in found)),
    )


class SourcePlan:
    """What an epoch takes of a source. The first driver of an epoch goes by it, and `validate` before there is one."""

    def __init__(
        self, launch: LaunchRecord, storage: StorageSettings, outputs: Sequence[Output], earlier: Earlier = _NOTHING
    ) -> None:
        self.files = SourceFiles(storage, outputs)
        self._launch = launch
        self._storage = storage
        self._earlier = earlier
        self._selection = selection_of(launch.source)
        self._budget = Budget(launch, self.files.identify)

    @property
    def source(self) -> Source:
        return self._launch.source

    @property
    def left(self) -> int:
        """How many new files are left to later epochs."""
        return self._budget.left

    def take(self, number: int, found: Sequence[FoundFile]) -> tuple[Described, PinnedTable | None]:
        """Return what is taken of a member of the source, and the table that is pinned. `found`: the files that it has."""
        launch, before = self._launch, earlier_of(self._earlier, number, self._launch)
        new = self._budget.within(found, before)
        taking = Taking(launch, number, self._selection, self._storage, before, new, self.files.identify)
        return _take(launch.source.members[number], taking)

    def columns(self, found: Sequence[Described]) -> pa.Schema:
        """Return the columns of all members. NeedsChange if they do not go together, or one that is asked for is in none."""
        return unite(found, self._selection)

    def check_where(self, columns: pa.Schema, found: Sequence[Described]) -> None:
        """Raise NeedsChange if `where` does not go with the columns."""
        if self._selection.condition is not None:
            Filter(self._selection.condition, columns, else_hint_of(found))


def _take(source: Positional, of: Taking) -> tuple[Described, PinnedTable | None]:
    match source:
        case FilesSource():
            return take_of_files(source, of)
        case IcebergSource():
            from checkpoint_formats.iceberg.take import take as take_of_iceberg

            return take_of_iceberg(source, of)
        case LanceSource():
            from checkpoint_formats.lance.take import take as take_of_lance

            return take_of_lance(source, of)
        case KafkaSource():
            from checkpoint_formats.kafka.take import take as take_of_kafka

            return take_of_kafka(source, of)
        case other:
            assert_never(other)


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
    columns = {one.digest: one for one in earlier.columns}
    return EarlierOf(files, table, again, partitions, earlier.last_epoch, columns, earlier.committed_at)


def _of_all(found: Sequence[Described]) -> tuple[SourceFile, ...]:
    if len(found) == 1:
        return found[0].files
    return tuple(replace(file, source=number) for number, member in enumerate(found) for file in member.files)
