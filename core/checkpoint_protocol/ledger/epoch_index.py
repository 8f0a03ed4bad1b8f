"""The cumulative index: one record of what all epochs up to one have taken, so that the next need not read their records.

    control/<uid>/0-index/<e>.json            put once, by whoever begins epoch e + 1, before its first launch record
    control/<uid>/index-parts/<token>.json    files of it, once they are many; put before the record that names them

It is made of the index before and the records of the epochs since, which are all finished: whoever makes it makes the same, so
that one that was not put (its maker died) is made by whoever comes next. Parts are named by what they
hold and by the epoch that they are made for: two makers put the same objects, and no name comes back after it was removed.

The last indexes are kept, as a driver reads the one of the epoch before its own; older ones go, with what only they name.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sources.source import FilesSource, Source
from checkpoint_protocol.records import (
    CommitRecord,
    CsvDialect,
    KeysCovered,
    KeySet,
    KeysObject,
    LaunchRecord,
    OutstandingRows,
    RowPosition,
    StoredPart,
    TakenFile,
    TakenKeys,
    TakenPartition,
    TakenPartRecord,
    TakenRecord,
    decode,
    encode,
    takes_the_whole_source,
)
from checkpoint_protocol.records.formats.operations import AddColumns
from checkpoint_protocol.records.inputs import SourceFile, some_columns
from checkpoint_protocol.rows.keys import add_key_sets, subtract_key_set
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.macs import without_mac
from checkpoint_protocol.store.memory import reading
from checkpoint_protocol.store.object_listing import shown
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_protocol.store.parts import Input, digest_of
from checkpoint_protocol.store.put_once import put_once, read

#: A part takes some megabytes; files that are fewer stay in the index itself, which is written for each epoch.
_FILES_OF_A_PART: Final = 30_000
_MOST_FILES_IN_INDEX: Final = 1_000
_MOST_ROWS_IN_INDEX: Final = 4_000
#: So many parts that are not full may be there, before they are put together.
_MOST_SMALL_PARTS: Final = 4
#: The last ones that are kept: the driver of an epoch reads the one before it, and a slow one may be an epoch behind.
_KEPT: Final = 3
_NO_KEYS: Final = KeySet(rows=0, fingerprint="0" * 32)

#: A file as it was: its path and its etag.
FileVersion = tuple[str, str]
Rows = set[tuple[int, int]]
#: A row that an epoch has quarantined: the file as the epoch's input has it, from and to.
QuarantinedAt = tuple[SourceFile, tuple[int, int]]
#: Returns the keys objects to name in the place of these; those that it does not return are no longer named.
CompactKeys = Callable[[Sequence[KeysObject]], Sequence[KeysObject]]

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class EpochIndex:
    """The indexes of one write."""

    store: ObjectStore
    uid: str
    pause: Callable[[float], None] = time.sleep
    compact: CompactKeys = tuple
    open_ledger: Callable[[ObjectStore, EpochKey], Ledger] = Ledger

    def read(self, epoch: int) -> TakenRecord | None:
        return read(self.store, layout.index_path(self.uid, epoch), TakenRecord)

    def up_to(self, epoch: int) -> TakenRecord:
        """Return what the epochs up to this one have taken: as it is stored, or made of their records. Puts nothing.

        Corrupt if a record that it takes is gone: what was taken is not known then, and rows could be taken twice.
        """
        if epoch == 0:
            return TakenRecord(token=new_token(), epoch=0)
        return self.read(epoch) or self._made(epoch, puts=False).record()

    def ensure(self, epoch: int) -> TakenRecord:
        """Return the index up to this epoch, which is finished; put it if it is not there. Idempotent, and raises as `up_to`."""
        if epoch == 0:
            return self.up_to(0)
        if (found := self.read(epoch)) is not None:
            return found
        try:
            made = self._in_parts(self._made(epoch, puts=True).record())
        except Corrupt:
            # Whoever was faster may have removed what the indexes before had.
            if (found := self.read(epoch)) is not None:
                return found
            raise
        stored = put_once(self.store, layout.index_path(self.uid, epoch), made, self.pause)
        with contextlib.suppress(CheckpointError):  # what stays costs room, and the next epoch removes it
            self._clean(stored)
        return stored

    def newest(self) -> TakenRecord:
        """Return the newest index that a listing shows; an empty one if it shows none."""
        listed = self._listed()
        return (self.read(max(listed)) if listed else None) or self.up_to(0)

    def files(self, record: TakenRecord) -> Iterator[TakenFile]:
        """Give the files that an index names, in the order in which they were taken."""
        for part in record.parts:
            with reading():
                yield from self._part(part).files
        yield from record.files

    def outstanding(self, record: TakenRecord) -> tuple[OutstandingRows, ...]:
        """Return the rows that are to be tried again, where they are.

        Corrupt if those of an epoch cannot be read (`unread`): to pass them over would lose them without a word.
        """
        again = [rows for number in record.unread for rows in _outstanding_of(self.quarantined_by(number))]
        return (*self.stored_outstanding(record), *again)

    def stored_outstanding(self, record: TakenRecord) -> tuple[OutstandingRows, ...]:
        return (*(rows for part in record.outstanding_parts for rows in self._part(part).outstanding), *record.outstanding)

    def quarantined_by(self, number: int) -> list[QuarantinedAt]:
        """Return the rows that this epoch, which is committed, has quarantined. Corrupt if a record of that is gone."""
        ledger = self.open_ledger(self.store, EpochKey(self.uid, number))
        commit = ledger.commits.read_commit()
        launch = ledger.attempts.read_launch(commit.attempts) if commit is not None else None
        if commit is None or launch is None:
            raise _gone(ledger, ledger.at.commit_record if commit is None else ledger.at.launch(commit.attempts))
        ledger, launch, commit = _that_read_the_source(ledger, launch, commit)
        record = ledger.inputs.read_input(commit.input_since)
        if record is None:
            raise _gone(ledger, ledger.at.input_since(commit.input_since))
        return _quarantined_in(ledger, record, launch, commit)

    # --- making -------------------------------------------------------------------------------------------------------------

    def _made(self, epoch: int, *, puts: bool) -> _Draft:
        base = self._newest_before(epoch)
        draft = _Draft(base if base is not None else TakenRecord(token=new_token(), epoch=0), self, puts)
        for number in range(draft.base.epoch + 1, epoch + 1):
            draft.add(self.open_ledger(self.store, EpochKey(self.uid, number)))
        return draft

    def _newest_before(self, epoch: int) -> TakenRecord | None:
        """Return the newest index of an epoch before; None if there is none. That of the last one is asked for by its name."""
        if epoch == 1:
            return None
        if (last := self.read(epoch - 1)) is not None:
            return last
        for number in sorted((number for number in self._listed() if number < epoch), reverse=True):
            if (found := self.read(number)) is not None:
                return found
        return None

    def _listed(self) -> list[int]:
        folder = layout.index_folder(self.uid)
        return [number for one in shown(self.store.list(folder)) if (number := layout.number_of(one.path, folder)) is not None]

    def _in_parts(self, record: TakenRecord) -> TakenRecord:
        """Put the parts of an index that is too large for one object, and return it with those."""
        keys = record.keys
        if keys is not None:
            keys = keys.model_copy(update={"objects": tuple(self.compact(keys.objects))})
        parts, files = list(record.parts), record.files
        if len(files) > _MOST_FILES_IN_INDEX:
            small = _trailing_small(parts)
            if len(small) >= _MOST_SMALL_PARTS:
                del parts[len(parts) - len(small) :]
                files = (*(file for part in small for file in self._part(part).files), *files)
            for piece in _pieces(files, _FILES_OF_A_PART):
                parts.append(self.put_part(TakenPartRecord(token=new_token(), epoch=record.epoch, files=piece)))
            files = ()
        outstanding, outstanding_parts = record.outstanding, list(record.outstanding_parts)
        if sum(len(one.rows) for one in outstanding) > _MOST_ROWS_IN_INDEX:
            cut = [piece for one in outstanding for piece in _cut_rows(one)]
            for group in _groups(cut):
                outstanding_parts.append(self.put_part(TakenPartRecord(token=new_token(), epoch=record.epoch, outstanding=group)))
            outstanding = ()
        return record.model_copy(
            update={
                "files": files,
                "parts": tuple(parts),
                "outstanding": outstanding,
                "outstanding_parts": tuple(outstanding_parts),
                "keys": keys,
            }
        )

    def put_part(self, part: TakenPartRecord) -> StoredPart:
        # By what it holds: whoever makes the same index puts the same object.
        without_token = encode(part.model_copy(update={"token": "0" * 32}))
        named = part.model_copy(update={"token": digest_of(without_token)[:32]})
        put_once(self.store, layout.index_part(self.uid, named.token), named, self.pause)
        return StoredPart(token=named.token, count=len(named.files) or len(named.outstanding), digest=digest_of(encode(named)))

    def _part(self, part: StoredPart) -> TakenPartRecord:
        path = layout.index_part(self.uid, part.token)
        where = f"{self.store.uri}/{path}"
        with reading():
            data = self.store.get(path, TakenPartRecord.most_bytes)
            if data is None:
                raise Corrupt(reasons.RECORD_UNREADABLE, f"{where} is gone, though an index of the write names it as its part")
            if digest_of(without_mac(data)) != part.digest:
                raise Corrupt(reasons.RECORD_UNREADABLE, f"{where} is not what was put: its bytes have another digest")
            return decode(TakenPartRecord, data, where)

    # --- cleaning -----------------------------------------------------------------------------------------------------------

    def _clean(self, newest: TakenRecord) -> None:
        """Remove indexes that nobody reads any more, and what only these name. The index last: it says what else is to go."""
        old = sorted(number for number in self._listed() if number <= newest.epoch - _KEPT)
        if not old:
            return
        kept = [newest, *(one for number in range(1, _KEPT) if (one := self.read(newest.epoch - number)) is not None)]
        needed = {name for record in kept for name in self._names(record)}
        for number in old:
            record = self.read(number)
            gone = self._names(record) - needed if record is not None else set()
            self.store.delete([*sorted(gone), layout.index_path(self.uid, number)])

    def _names(self, record: TakenRecord) -> set[str]:
        """Return the objects that an index names and that were made for indexes."""
        parts = {layout.index_part(self.uid, part.token) for part in (*record.parts, *record.outstanding_parts)}
        objects = record.keys.objects if record.keys is not None else ()
        return parts | {item.path for item in objects if item.path.startswith(layout.index_parts(self.uid))}


def index_of(ledger: Ledger, compact: CompactKeys = tuple) -> EpochIndex:
    """Return the indexes of a ledger's write, which read the ledgers of other epochs as this one is read."""
    return EpochIndex(ledger.store, ledger.key.uid, ledger.pause, compact, lambda _, key: replace(ledger, key=key))


def of_the_source(ledger: Ledger) -> Ledger:
    """Return the ledger whose input a committed epoch took of its source: its own, or of its stages that of the first one."""
    commit = ledger.commits.read_commit()
    launch = ledger.attempts.read_launch(commit.attempts) if commit is not None else None
    if commit is None or launch is None:
        return ledger
    return _that_read_the_source(ledger, launch, commit)[0]


def _that_read_the_source(
    ledger: Ledger, launch: LaunchRecord, commit: CommitRecord
) -> tuple[Ledger, LaunchRecord, CommitRecord]:
    """Return who has read the source, of an epoch and its stages: each reads the result of the one before."""
    passed: set[str] = set()
    while launch.reads_stage:
        if launch.reads_stage in passed:  # a driver has the key of its write, and may have put such a record
            raise Corrupt(
                reasons.RECORD_UNREADABLE,
                f"{ledger.store.uri}: a stage of {ledger.key} reads its own result, {launch.reads_stage}",
            )
        passed.add(launch.reads_stage)
        ledger = replace(ledger, key=ledger.key.of_stage(launch.reads_stage))
        done = ledger.commits.read_commit()
        if done is None:
            raise _gone(ledger, ledger.at.commit_record)
        before = ledger.attempts.read_launch(done.attempts)
        if before is None:
            raise _gone(ledger, ledger.at.launch(done.attempts))
        launch, commit = before, done
    return ledger, launch, commit


@dataclass(slots=True)
class _Draft:
    """An index in the making: one that is stored, and what the epochs since have taken.

    `puts`: files that fill a part are put at once, and are in memory no longer.
    """

    base: TakenRecord
    index: EpochIndex
    puts: bool
    epoch: int = 0
    files: list[TakenFile] = field(default_factory=list)
    #: As they were, unless an epoch has changed them.
    rows: dict[FileVersion, tuple[int, Rows]] | None = None

    def __post_init__(self) -> None:
        self.epoch, self.files = self.base.epoch, list(self.base.files)

    def record(self) -> TakenRecord:
        changes: dict[str, object] = {"token": new_token(), "epoch": self.epoch, "files": tuple(self.files)}
        if self.rows is not None:
            changes["outstanding_parts"] = ()
            changes["outstanding"] = tuple(
                OutstandingRows(path=path, etag=etag, source=source, rows=tuple(sorted(rows)))
                for (path, etag), (source, rows) in self.rows.items()
                if rows
            )
        return self.base.model_copy(update=changes)

    def add(self, ledger: Ledger) -> None:
        """Add what the next epoch has taken."""
        self.epoch = ledger.key.epoch
        self._read_again()
        commit = ledger.commits.read_commit()
        if commit is None:
            raise _gone(ledger, ledger.at.commit_record)
        if commit.was_deleted:
            self.base = self.base.model_copy(update={"not_committed": (*self.base.not_committed, self.epoch)})
            return
        launch = ledger.attempts.read_launch(commit.attempts)
        if launch is None:
            raise _gone(ledger, ledger.at.launch(commit.attempts))
        operation, of_table = launch.operation, commit
        ledger, launch, commit = _that_read_the_source(ledger, launch, commit)
        record = ledger.inputs.read_input(commit.input_since)
        if record is None:
            raise _gone(ledger, ledger.at.input_since(commit.input_since))
        if takes_the_whole_source(operation):
            self.base = TakenRecord(token=new_token(), epoch=0, not_committed=self.base.not_committed)
            self.files, self.rows = [], {}
        in_table = (self.epoch, of_table.rows_written) if of_table.commit_id is not None else self.base.in_table
        # What came to the tables of a source since is not taken by an epoch that only tries rows again.
        # Where all rows have moved before their values were committed, the version still counts of which they have some.
        in_vain = isinstance(operation, AddColumns) and of_table.commit_id is None and of_table.rows_written > 0
        if launch.quarantine.retry != "Only" and not in_vain:
            at = of_table.commit_id if record.tables else None
            self.base = self.base.model_copy(update={"tables": record.tables, "tables_committed_at": at})
        self.base = self.base.model_copy(update={"in_table": in_table})
        if record.keys:
            self._add_keys(ledger, record, launch, commit)
            return
        self._add_files(record, launch.source)
        self._add_rows(ledger, record, launch, commit)

    def _add_files(self, record: Input, source: Source) -> None:
        numbered: set[int] = set()
        partitions = {(one.source, one.topic_id, one.partition): one for one in self.base.partitions}
        for file in record.files:
            if file.kafka is not None:
                if file.only is None and file.end is not None:
                    place = (file.source, file.etag, file.kafka)
                    partitions[place] = TakenPartition(
                        partition=file.kafka, topic_id=file.etag, end=file.end, epoch=self.epoch, source=file.source
                    )
                continue
            if file.unit == "records":
                numbered.add(file.source)
            # Of what is taken again the whole file was taken before.
            if file.iceberg is None and file.only is None:
                self.files.append(
                    TakenFile(
                        path=file.path,
                        etag=file.etag,
                        size_bytes=file.size_bytes,
                        fragment=file.fragment,
                        source=file.source,
                        columns=file.columns,
                    )
                )
                if self.puts and len(self.files) == _FILES_OF_A_PART:
                    part = TakenPartRecord(token=new_token(), epoch=self.epoch, files=tuple(self.files))
                    self.base = self.base.model_copy(update={"parts": (*self.base.parts, self.index.put_part(part))})
                    self.files = []
        columns = some_columns((*self.base.file_columns, *record.file_columns))
        self.base = self.base.model_copy(update={"partitions": tuple(partitions.values()), "file_columns": columns})
        found = {dialect_of(source, number) for number in numbered} - set(self.base.dialects)
        if found:
            ordered = sorted(found, key=lambda one: (one.source, one.delimiter, one.quote))
            self.base = self.base.model_copy(update={"dialects": (*self.base.dialects, *ordered)})

    def _add_rows(self, ledger: Ledger, record: Input, launch: LaunchRecord, commit: CommitRecord) -> None:
        """Keep which rows are quarantined and not made good since.

        A row that an epoch has taken again is that epoch's: it is in the table, or quarantined there once more.
        """
        if not record.totals.retried and not commit.rows_quarantined:
            return
        rows = self._known_rows()
        if record.totals.retried:
            for file in record.files:
                if file.only is not None and (known := rows.get((file.path, file.etag))) is not None:
                    known[1].difference_update(file.only)
        if not commit.rows_quarantined:
            return
        try:
            quarantined = _quarantined_in(ledger, record, launch, commit)
        except Corrupt:
            # The epoch has taken these rows, whatever has become of them: without a retry, nobody asks for more.
            self.base = self.base.model_copy(update={"unread": (*self.base.unread, self.epoch)})
            return
        self._add_quarantined(quarantined)

    def _known_rows(self) -> dict[FileVersion, tuple[int, Rows]]:
        if self.rows is None:
            stored = self.index.stored_outstanding(self.base)
            self.rows = {(one.path, one.etag): (one.source, set(one.rows)) for one in stored}
        return self.rows

    def _add_quarantined(self, quarantined: Sequence[QuarantinedAt]) -> None:
        for file, row in quarantined:
            self._known_rows().setdefault((file.path, file.etag), (file.source, set()))[1].add(row)

    def _read_again(self) -> None:
        """Add what epochs have quarantined whose records could not be read, and are back: nobody can have retried it since."""
        for number in self.base.unread:
            with contextlib.suppress(Corrupt):
                self._add_quarantined(self.index.quarantined_by(number))
                self.base = self.base.model_copy(update={"unread": tuple(sorted({*self.base.unread} - {number}))})

    def _add_keys(self, ledger: Ledger, record: Input, launch: LaunchRecord, commit: CommitRecord) -> None:
        before = self.base.keys
        objects = list(before.objects) if before is not None else []
        everything, failed = [], []
        for seal in ledger.chains.counted_seals((*launch.counted, commit.attempts)):
            if not isinstance(seal.covered, KeysCovered):
                where = ledger.records.where(ledger.at.seal(seal.attempt, seal.task, seal.link))
                raise Corrupt(reasons.RECORD_UNREADABLE, f"{where} covers positions, and the epoch's rows are known by keys")
            objects += seal.covered.objects
            everything.append(seal.covered.keys)
            if seal.covered.quarantined is not None:
                failed.append(seal.covered.quarantined)
        with_result = subtract_key_set(add_key_sets(everything), add_key_sets(failed))
        keys = TakenKeys(
            columns=record.keys,
            objects=tuple(objects),
            with_result=add_key_sets([before.with_result if before else _NO_KEYS, with_result]),
            quarantined=add_key_sets([before.quarantined if before else _NO_KEYS, *failed]),
            was_retried=(before is not None and before.was_retried) or record.retried is not None,
        )
        self.base = self.base.model_copy(update={"keys": keys})


def dialect_of(source: Source, member: int) -> CsvDialect:
    """Return the characters that say where a record of this member's text begins."""
    files = source.members[member]
    options = files.csv_options if isinstance(files, FilesSource) else None
    delimiter, quote = (options.delimiter, options.quote) if options is not None else ("", "")
    return CsvDialect(source=member, delimiter=delimiter, quote=quote or "")


def _quarantined_in(ledger: Ledger, record: Input, launch: LaunchRecord, commit: CommitRecord) -> list[QuarantinedAt]:
    found: list[Range] = []
    for seal in ledger.chains.counted_seals((*launch.counted, commit.attempts)):
        for row in ledger.quarantine.quarantined_rows(seal):
            if not isinstance(row.row, RowPosition):
                raise Corrupt(
                    reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: epoch {ledger.key.epoch} quarantines rows by their keys"
                )
            found.append(row.row.range)
    # In the order of the files, which are read in parts.
    found.sort(key=lambda row: row.file)
    return [(record.files[row.file], (row.start, row.end)) for row in found if row.end is not None]


def _outstanding_of(quarantined: Sequence[QuarantinedAt]) -> Iterator[OutstandingRows]:
    rows: dict[FileVersion, tuple[int, Rows]] = {}
    for file, row in quarantined:
        rows.setdefault((file.path, file.etag), (file.source, set()))[1].add(row)
    for (path, etag), (source, found) in rows.items():
        yield OutstandingRows(path=path, etag=etag, source=source, rows=tuple(sorted(found)))


def _trailing_small(parts: Sequence[StoredPart]) -> list[StoredPart]:
    """Return the parts at the end that are not full. Those in between stay: files are in the order in which they were taken."""
    begin = len(parts)
    while begin and parts[begin - 1].count < _FILES_OF_A_PART:
        begin -= 1
    return list(parts[begin:])


def _pieces(items: tuple[_Item, ...], most: int) -> list[tuple[_Item, ...]]:
    return [items[start : start + most] for start in range(0, len(items), most)]


def _cut_rows(one: OutstandingRows) -> list[OutstandingRows]:
    return [one.model_copy(update={"rows": rows}) for rows in _pieces(one.rows, _FILES_OF_A_PART)]


def _groups(items: Sequence[OutstandingRows]) -> Iterator[tuple[OutstandingRows, ...]]:
    group: list[OutstandingRows] = []
    rows = 0
    for one in items:
        if group and rows + len(one.rows) > _FILES_OF_A_PART:
            yield tuple(group)
            group, rows = [], 0
        group.append(one)
        rows += len(one.rows)
    if group:
        yield tuple(group)


def _gone(ledger: Ledger, path: str) -> Corrupt:
    return Corrupt(
        reasons.RECORD_UNREADABLE,
        f"{ledger.store.uri}/{path} is gone, so what epoch {ledger.key.epoch} has taken is unknown; without it rows could be "
        "taken twice: start a new write for what is new",
    )
