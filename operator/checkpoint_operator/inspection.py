"""Reads a checkpoint store for people: everything that can be read is shown, and what cannot is named.

Unlike the ledger, which refuses to go on at a record that it cannot read, this passes on to the next; no rule rests on it.
Called by the commands `inspect` and `status`. Puts nothing, makes no folder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from checkpoint_operator.inspected import (
    ShownAttempt,
    ShownClaim,
    ShownCommit,
    ShownEpoch,
    ShownError,
    ShownFailure,
    ShownRowError,
    ShownStore,
    ShownSums,
    ShownWrite,
)
from checkpoint_protocol import layout, reasons, writes
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.layout import EpochLayout
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.parts import Input, InputInParts
from checkpoint_protocol.put_once import read
from checkpoint_protocol.quarantine import key_of, rows_retried
from checkpoint_protocol.records import (
    ClaimRecord,
    IcebergBase,
    IcebergFile,
    IcebergTarget,
    LanceBase,
    LanceTarget,
    LaunchRecord,
    MarkRecord,
    NameRecord,
    NoTarget,
    PinnedIceberg,
    PinnedLance,
    PinnedTable,
    QuarantinedRow,
    Record,
    RowKey,
    Seal,
    SourceFile,
    StagedFile,
    StoredPart,
    Target,
)
from checkpoint_protocol.storage import StorageSettings
from checkpoint_protocol.store import ObjectStore, local_path, open_store, translate_store_error

#: A store that leaves so many questions unanswered is down: then the rest is not asked, each with its own patience.
_MOST_UNANSWERED: Final = 3
_DIGEST_DIGITS: Final = 12

_T = TypeVar("_T")
_R = TypeVar("_R", bound=Record)
#: A task and the number of its seal.
_Link = tuple[int, int]


def open_existing(uri: str, storage: StorageSettings) -> ObjectStore | None:
    """Return the store, or None if it is a folder of this machine that does not exist: opening one would make it."""
    folder = local_path(uri)
    if folder is not None:
        try:
            is_folder, is_there = folder.is_dir(), folder.exists()
        except OSError as error:
            raise translate_store_error(error, uri) from error
        if not is_there:
            return None
        if not is_folder:
            raise NeedsChange(reasons.STORE_UNAVAILABLE, f"{uri} is a file and no folder; correct the URI")
    return open_store(uri, storage)


def inspect_store(store: ObjectStore, only: str | None = None) -> ShownStore:
    """Return what the store holds; of one write (by uid, name or namespace/name) if `only` is given.

    Raises NeedsChange if there is no such write, Retryable if the store does not answer.
    """
    inspector = Inspector(store, shows_rows=True)
    writes = inspector.read_writes(only)
    return ShownStore(
        uri=store.uri,
        writes=writes,
        errors=inspector.errors,
        strays=tuple(sorted(inspector.strays)),
    )


@dataclass(slots=True)
class Inspector:
    """Reads one store, and remembers what could not be read. `strays` are the objects seen so far that are no records.

    `shows_rows`: each row that failed is shown, and not only their number.
    """

    store: ObjectStore
    shows_rows: bool = False
    strays: list[str] = field(default_factory=list)
    _wrong: dict[str, str] = field(default_factory=dict)
    _deletions: dict[str, bool | None] = field(default_factory=dict)
    _without_files: set[EpochKey] = field(default_factory=set)
    _unanswered: int = 0

    @property
    def errors(self) -> tuple[ShownError, ...]:
        """The objects that could not be read so far, or that must be there and are not."""
        return tuple(ShownError(object=path, message=message) for path, message in sorted(self._wrong.items()))

    # --- writes -----------------------------------------------------------------------------------------------------------

    def read_writes(self, only: str | None) -> tuple[ShownWrite, ...]:
        names = self._read_names()
        if only is None:
            found = self._uids_in(self._list(f"{layout.CONTROL}/"), self._list(f"{layout.STAGED}/"))
            uids = sorted(found | names.keys(), key=lambda uid: (sorted(names[uid]) if uid in names else ["~"], uid))
        else:
            uids = [self._resolve(only, names)]
        return tuple(self.read_write(uid, tuple(sorted(names.get(uid, ())))) for uid in uids)

    def read_write(self, uid: str, names: tuple[str, ...]) -> ShownWrite:
        listed = [*self._list(f"{layout.CONTROL}/{uid}/"), *self._list(f"{layout.STAGED}/{uid}/")]
        record = self._try(layout.write_path(uid), lambda: writes.read_write(self.store, uid))
        by_epoch = self._by_epoch(uid, listed)
        if by_epoch and layout.write_path(uid) not in listed:
            self._missing(layout.write_path(uid), "the write has epochs")
        namespace, _, name = names[0].partition("/") if names else ("", "", "")
        identity = record.identity if record else {}
        source, sink = identity.get("source"), identity.get("sink")
        return ShownWrite(
            uid=uid,
            namespace=record.namespace if record else namespace or None,
            name=record.name if record else name or None,
            names=names,
            is_deleted=self._is_deleted(uid),
            source=source if isinstance(source, dict) else None,
            sink=sink if isinstance(sink, dict) else None,
            epochs=tuple(self._read_epoch(EpochKey(uid, epoch), paths) for epoch, paths in sorted(by_epoch.items())),
        )

    def _read_names(self) -> dict[str, set[str]]:
        """Return the names of each uid. One that was forgotten means its newest uid only."""
        newest: dict[str, tuple[int, str]] = {}
        for path in self._list(f"{layout.NAMES}/"):
            if (parts := layout.name_of(path)) is None:
                self.strays.append(path)
                continue
            name, times = f"{parts[0]}/{parts[1]}", parts[2]
            if times >= newest.get(name, (0, ""))[0]:
                newest[name] = times, path
        names: dict[str, set[str]] = defaultdict(set)
        for name, (_, path) in newest.items():
            if (record := self._read(path, NameRecord)) is not None:
                names[record.uid].add(name)
        return names

    def _uids_in(self, *listings: Iterable[str]) -> set[str]:
        uids: set[str] = set()
        for path in (path for listing in listings for path in listing):
            uid, separator, _ = path.partition("/")[2].partition("/")
            if separator and is_uid(uid):
                uids.add(uid)
            else:
                self.strays.append(path)
        return uids

    def _resolve(self, wanted: str, names: dict[str, set[str]]) -> str:
        """Return the uid of what the user wrote: a uid, a name, or namespace/name."""
        meant = sorted(uid for uid, of_uid in names.items() if any(wanted in (name, name.partition("/")[2]) for name in of_uid))
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise NeedsChange(
                reasons.NAME_AMBIGUOUS, f"{wanted!r} is a name in several namespaces of {self.store.uri}; say namespace/name"
            )
        if is_uid(wanted) and any(self._list(f"{folder}/{wanted}/") for folder in (layout.CONTROL, layout.STAGED)):
            return wanted
        known = ", ".join(sorted(name for of_uid in names.values() for name in of_uid)) or "none"
        raise NeedsChange(reasons.WRITE_UNKNOWN, f"{self.store.uri} has no write {wanted!r}; its names are: {known}")

    def _by_epoch(self, uid: str, listed: Iterable[str]) -> dict[int, list[str]]:
        epochs: dict[int, list[str]] = defaultdict(list)
        for path in listed:
            number, separator, _ = path.partition("/")[2].removeprefix(f"{uid}/").partition("/")
            if separator and _is_number(number):
                epochs[int(number)].append(path)
            elif layout.is_code(path, uid):
                continue
            elif path not in (layout.write_path(uid), layout.deleted_path(uid)):
                self.strays.append(path)
        return epochs

    # --- one epoch --------------------------------------------------------------------------------------------------------

    def read_epoch(self, key: EpochKey) -> ShownEpoch:
        at = EpochLayout(key)
        return self._read_epoch(key, [*self._list(f"{at.control}/"), *self._list(f"{at.staged}/")])

    def read_commit(self, key: EpochKey) -> ShownCommit | None:
        """Return the mark of an epoch."""
        mark = self._read(EpochLayout(key).mark, MarkRecord)
        return _commit(mark) if mark else None

    def _read_epoch(self, key: EpochKey, paths: list[str]) -> ShownEpoch:
        ledger, at = Ledger(self.store, key), EpochLayout(key)
        numbers, known = _attempts_in(at, paths)
        launches = {number: self._launch(ledger, number, number in known) for number in numbers}
        seals = _seals_in(at, numbers, paths)
        attempts = tuple(self._attempt(ledger, number, launches[number], seals[number]) for number in numbers)
        for number in numbers:
            if (plan := self._try(at.plan(number), partial(ledger.read_plan, number))) is not None:
                self._expect(plan.parts, partial(at.plan_part, number), paths, at.plan(number))
        claims = sorted(index for path in paths if (index := layout.claim_index_of(path, at.commit)) is not None)
        known_keys = {path for path in paths for number in numbers if layout.is_keys_object(path, at.keys(number))}
        self.strays += sorted(set(paths) - _records_of(at, numbers, claims, seals, paths) - known_keys)
        since = next((launch.input_since for number in reversed(numbers) if (launch := launches[number])), 1)
        source = self._input(ledger, since)
        if isinstance(source, InputInParts):
            self._expect(source.index.parts, at.input_part, paths, at.input_since(since))
        mark = self._try(at.mark, ledger.read_mark)
        first = launches.get(1)
        return ShownEpoch(
            epoch=key.epoch,
            run_nonce=first.run_nonce if first else None,
            input_files=source.totals.files if source else None,
            input_bytes=source.totals.size_bytes if source else None,
            input_table=_pinned(source.table) if source else None,
            input_keys=tuple(column.name for column in source.keys) if source else (),
            rows_retried=rows_retried(source),
            attempts=attempts,
            sealed=self._sum(at, attempts),
            claims=tuple(_claim(index, self._read(at.claim(index), ClaimRecord)) for index in claims),
            is_committed=None if at.mark in self._wrong else mark is not None,
            commit=_commit(mark) if mark else None,
        )

    def _expect(self, parts: Iterable[StoredPart], path_of: Callable[[str], str], listed: Collection[str], named_by: str) -> None:
        """Note the parts of a record that are not there. A listing is no snapshot, but they are put before what names them."""
        there = set(listed) if parts else set()
        for part in parts:
            if path_of(part.token) not in there:
                self._missing(path_of(part.token), f"{named_by} names it")

    def _launch(self, ledger: Ledger, number: int, is_listed: bool) -> LaunchRecord | None:
        launch = self._try(ledger.at.launch(number), lambda: ledger.read_launch(number))
        if launch is None and not is_listed:
            self._missing(ledger.at.launch(number), f"attempt {number} has left records")
        return launch

    def _attempt(self, ledger: Ledger, number: int, launch: LaunchRecord | None, found: set[_Link]) -> ShownAttempt:
        at = ledger.at
        closed = self._try(at.closed(number), lambda: ledger.read_closed(number))
        plan = self._try(at.plan(number), lambda: ledger.read_plan(number))
        failure = self._try(at.failure(number), lambda: ledger.read_failure(number))
        target = launch.target if launch else None
        if target is None and (made := self._try(at.target(number), lambda: ledger.read_target(number))) is not None:
            target = made.target
        if closed is not None:
            lengths = dict(enumerate(closed.chain_lengths))
        else:
            lengths = {task: n for task, n in _gap_free_lengths(found).items() if plan is None or task < plan.task_count}
        counting = [(task, link) for task, length in lengths.items() for link in range(length)]
        seals = self._read_seals(ledger, number, counting, found)
        if found and plan is None:
            self._missing(at.plan(number), "there are seals of it")
        is_closed = None if at.closed(number) in self._wrong else closed is not None
        return ShownAttempt(
            attempt=number,
            code_digest=launch.code_digest[:_DIGEST_DIGITS] if launch else None,
            target=_title(target) if target else None,
            counted=launch.counted if launch else (),
            tasks=plan.task_count if plan else None,
            tasks_done=sum(seal.last for seal in seals),
            input_files_done=plan.done_files if plan else None,
            sealed=_sums(seals),
            seals_not_counted=len(found - set(counting)),
            closed=is_closed,
            complete=closed.complete if closed else None,
            failure=ShownFailure(attempt=number, family=failure.family, reason=failure.reason, message=failure.message)
            if failure
            else None,
            quarantined=tuple(self._rows_that_failed(ledger, seals, launch.input_since if launch else 1))
            if self.shows_rows
            else (),
        )

    def _input(self, ledger: Ledger, since: int) -> Input | None:
        found = self._try(ledger.at.input_since(since), lambda: [ledger.read_input(since)])
        return found[0] if found else None

    def _file(self, ledger: Ledger, record: Input, number: int) -> SourceFile | None:
        """Return a file of the input; None, with an error noted once, if its part cannot be read."""
        if ledger.key in self._without_files:
            return None
        file = self._try(f"{ledger.at.input_parts}", lambda: record.files[number])
        if file is None:
            self._without_files.add(ledger.key)
        return file

    def _rows_that_failed(self, ledger: Ledger, seals: Iterable[Seal], input_since: int) -> Iterator[ShownRowError]:
        """Give what can be read of them: a seal's object that is gone is named once, and what came before it is shown."""
        for seal in seals:
            try:
                for row in ledger.quarantined_rows(seal):
                    yield self._row_error(ledger, row, input_since)
            except CheckpointError as error:
                self._wrong[ledger.at.seal(seal.attempt, seal.task, seal.link)] = error.message

    def _row_error(self, ledger: Ledger, row: QuarantinedRow, input_since: int) -> ShownRowError:
        record = self._input(ledger, input_since)
        shown = ShownRowError(step=row.step, error=row.error, message=row.message, traceback=row.traceback)
        if isinstance(row.row, RowKey):
            return shown.model_copy(update={"key": key_of(row.row, record), "source": row.row.source})
        where = row.row.range
        found: dict[str, Any] = {"start": where.start, "end": where.end}
        file = None
        if record is not None and where.file < record.totals.files:
            file = self._file(ledger, record, where.file)
        if file is not None:
            found |= {"file": file.path, "etag": file.etag, "unit": file.unit}
        return shown.model_copy(update=found)

    def _read_seals(self, ledger: Ledger, attempt: int, places: list[_Link], found: set[_Link]) -> list[Seal]:
        def read_seal(place: _Link) -> Seal | None:
            path = ledger.at.seal(attempt, *place)
            seal = self._try(path, lambda: ledger.read_seal(attempt, *place))
            if seal is None and place not in found:
                self._missing(path, "it counts")
            return seal

        return [seal for seal in ledger.ask_all(read_seal, places) if seal is not None]

    def _sum(self, at: EpochLayout, attempts: tuple[ShownAttempt, ...]) -> ShownSums:
        if not attempts:
            return ShownSums()
        last = attempts[-1]
        by_number = {attempt.attempt: attempt for attempt in attempts}
        total = last.sealed
        for number in last.counted:
            if number in by_number and by_number[number].closed is not False:
                total += by_number[number].sealed
            else:
                self._missing(at.closed(number), "a later attempt builds on it")
        return total

    # --- reading without giving up --------------------------------------------------------------------------------------------

    def _list(self, folder: str) -> list[str]:
        return [stored.path for stored in self.store.list(folder)]

    def _read(self, path: str, model: type[_R]) -> _R | None:
        return self._try(path, lambda: read(self.store, path, model))

    def _try(self, path: str, ask: Callable[[], _T | None]) -> _T | None:
        """Return what is read; None, with an error noted, if it cannot be. Raises Retryable once the store seems down."""
        try:
            return ask()
        except CheckpointError as error:
            if isinstance(error, Retryable):
                self._unanswered += 1
                if self._unanswered > _MOST_UNANSWERED:
                    raise
            self._wrong[path] = error.message
            return None

    def _is_deleted(self, uid: str) -> bool | None:
        """Whether a write was deleted; None if that cannot be read."""
        if uid not in self._deletions:
            path = layout.deleted_path(uid)
            note = self._try(path, lambda: writes.read_deleted(self.store, uid))
            self._deletions[uid] = None if path in self._wrong else note is not None
        return self._deletions[uid]

    def _missing(self, path: str, why: str) -> None:
        folder, _, rest = path.partition("/")
        if folder == layout.STAGED and self._is_deleted(rest.partition("/")[0]):
            return  # deletion has removed what was staged
        self._wrong.setdefault(path, f"{self.store.uri}/{path} is not there, though {why}")


def is_uid(text: str) -> bool:
    """Whether a text can be the uid of a write."""
    try:
        EpochKey(text, 1)
    except ValueError:
        return False
    return True


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and text == str(int(text)) and text != "0"


def _attempts_in(at: EpochLayout, paths: Iterable[str]) -> tuple[list[int], set[int]]:
    """Return the attempts that have any record, and those that have a launch record."""
    launched, others = set(), set()
    for path in paths:
        if number := layout.number_of(path, at.launches):
            launched.add(number)
        elif number := layout.number_of(path, at.closings):
            others.add(number)
        elif path.startswith(f"{at.staged}/"):
            head, separator, _ = path.removeprefix(f"{at.staged}/").partition("/")
            if separator and _is_number(head):
                others.add(int(head))
    return sorted(launched | others), launched


def _seals_in(at: EpochLayout, numbers: Iterable[int], paths: Iterable[str]) -> dict[int, set[_Link]]:
    seals: dict[int, set[_Link]] = {number: set() for number in numbers}
    for path in paths:
        head = path.removeprefix(f"{at.staged}/").partition("/")[0]
        if _is_number(head) and (place := layout.seal_of(path, at.seals(int(head)))) is not None:
            seals[int(head)].add(place)
    return seals


def _records_of(
    at: EpochLayout, numbers: Collection[int], claims: Iterable[int], seals: dict[int, set[_Link]], listed: Sequence[str]
) -> set[str]:
    """Return every path of the epoch that is a record's, or a bundle's."""
    kinds = (at.launch, at.target, at.closed, at.plan, at.output, at.failure, at.input_since, at.progress)
    paths = {at.input, at.mark, *(at.claim(index) for index in claims)}
    paths |= {path_of(number) for number in numbers for path_of in kinds}
    paths |= {path for path in listed for number in numbers if layout.number_of(path, at.works(number)) is not None}
    paths |= {path for path in listed for number in numbers if layout.is_quarantine(path, at.quarantines(number))}
    # Named or not: a driver that died, or whose record did not win, leaves parts that nobody reads.
    folders = (at.input_parts, *(at.plan_parts(number) for number in numbers))
    paths |= {path for path in listed if any(layout.is_part(path, folder) for folder in folders)}
    paths |= {path for path in listed if any(layout.bundle_of(path, at.seals(number)) is not None for number in numbers)}
    return paths | {at.seal(number, *place) for number, places in seals.items() for place in places}


def _gap_free_lengths(found: Iterable[_Link]) -> dict[int, int]:
    links: dict[int, set[int]] = defaultdict(set)
    for task, link in found:
        links[task].add(link)
    return {task: next(n for n in range(len(seen) + 1) if n not in seen) for task, seen in links.items()}


def _sums(seals: Sequence[Seal]) -> ShownSums:
    sizes_bytes = [size_bytes for seal in seals for file in seal.files for size_bytes in _sizes_bytes(file)]
    return ShownSums(
        seals=len(seals),
        rows_read=sum(seal.rows_read for seal in seals),
        rows_written=sum(seal.rows_written for seal in seals),
        staged_files=len(sizes_bytes),
        staged_bytes=sum(sizes_bytes),
        rows_quarantined=sum(seal.rows_quarantined for seal in seals),
    )


def _sizes_bytes(file: StagedFile) -> list[int]:
    return [file.size_bytes] if isinstance(file, IcebergFile) else [data_file.size_bytes for data_file in file.files]


def _title(target: Target) -> str:
    match target:
        case IcebergTarget():
            return target.table
        case LanceTarget():
            return target.uri
        case NoTarget():
            return "(no table)"


def _pinned(table: PinnedTable | None) -> str | None:
    match table:
        case PinnedIceberg():
            return f"{table.table} at snapshot {table.snapshot_id}" if table.snapshot_id is not None else f"{table.table}, empty"
        case PinnedLance():
            return f"{table.uri} at version {table.at_version}"
        case None:
            return None


def _claim(index: int, record: ClaimRecord | None) -> ShownClaim:
    match record.base if record else None:
        case IcebergBase(table_uuid=identity, snapshot_id=base) | LanceBase(identity=identity, at_version=base):
            return ShownClaim(index=index, table_identity=identity, base=base)
        case _:
            return ShownClaim(index=index, table_identity=None, base=None)


def _commit(mark: MarkRecord) -> ShownCommit:
    return ShownCommit(
        target=mark.target,
        table_identity=mark.table_identity,
        commit_id=mark.commit_id,
        rows_read=mark.rows_read,
        rows_written=mark.rows_written,
        files=mark.files,
        attempts=mark.attempts,
        code_digests=tuple(digest[:_DIGEST_DIGITS] for digest in mark.code_digests),
        read_digests=tuple(digest[:_DIGEST_DIGITS] for digest in mark.read_digests),
        rows_quarantined=mark.rows_quarantined,
    )
