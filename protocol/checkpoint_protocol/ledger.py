"""The rules of the store, over one epoch's records: who wins a put, what a chain is, which seals count.

Safety rests here and in the table's compare-and-swap, nowhere else. Everything is put-if-absent; nothing is ever changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from checkpoint_protocol import layout, reasons
from checkpoint_protocol.bundles import Bundle, BundledSeal, decode_bundle, encode_bundle, find_forgery, is_digest, may_be_digest
from checkpoint_protocol.errors import Corrupt, Retryable, Superseded
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.layout import EpochLayout
from checkpoint_protocol.listing import SealListing
from checkpoint_protocol.parallel import Mapper, in_threads, streamed
from checkpoint_protocol.parts import FilesInParts, Input, InputInParts, cut_files, cut_tasks, digest_of
from checkpoint_protocol.positions import Range
from checkpoint_protocol.put_once import PUT_PAUSE_S, PUT_TRIES, put_once, read, read_one_of
from checkpoint_protocol.records import (
    PART_BYTES,
    BundleRecord,
    CheckedBundle,
    ClaimRecord,
    ClosedRecord,
    DeletedRecord,
    FailureRecord,
    InputIndexRecord,
    InputPartRecord,
    InputRecord,
    LaunchRecord,
    MarkRecord,
    OutputRecord,
    PlanPartRecord,
    PlanRecord,
    QuarantinedRow,
    QuarantineRecord,
    Record,
    Seal,
    SourceFile,
    StoredPart,
    TargetRecord,
    decode,
    encode,
)
from checkpoint_protocol.store import ObjectStore

_R = TypeVar("_R", bound=Record)
_First = TypeVar("_First")
_Second = TypeVar("_Second")

#: What may stand where the input is fixed.
_INPUTS: Final[Sequence[type[InputRecord | InputIndexRecord]]] = (InputRecord, InputIndexRecord)
#: A part of a large record takes some megabytes.
_PARTS_AT_ONCE: Final = 4
#: A bundle takes some megabytes.
_BUNDLE_READERS: Final = 4
#: Enough to cut a listing at.
_BORDERS: Final = 512


@dataclass(slots=True)
class _CheckedBundles:
    bundles: list[CheckedBundle] = field(default_factory=list)
    newest_is_last: dict[int, bool] = field(default_factory=dict)


@dataclass(slots=True)
class Ledger:
    """The records of one epoch of one write.

    No record ever changes, so each is remembered once it was read or put; but not the seals, which are many. That one is not
    there is asked anew each time. An input or a plan of more than `part_bytes` is put in parts.
    """

    store: ObjectStore
    key: EpochKey
    pause: Callable[[float], None] = time.sleep
    ask_all: Mapper = in_threads
    part_bytes: int = PART_BYTES
    _known: dict[str, Record | InputInParts] = field(default_factory=dict)

    @property
    def at(self) -> EpochLayout:
        return EpochLayout(self.key)

    def _put(self, path: str, record: _R) -> _R:
        standing = put_once(self.store, path, record, self.pause)
        self._known[path] = standing
        return standing

    def _read(self, path: str, model: type[_R]) -> _R | None:
        known = self._known.get(path)
        if isinstance(known, model):
            return known
        found = read(self.store, path, model)
        if found is not None:
            self._known[path] = found
        return found

    def read_both(self, first: Callable[[], _First], second: Callable[[], _Second]) -> tuple[_First, _Second]:
        """Ask two things side by side: each is a round trip to the store."""
        found: list[Any] = self.ask_all(lambda question: question(), (first, second))
        return found[0], found[1]

    # --- input and attempts -----------------------------------------------------------------------------------------------

    def put_input(self, record: InputRecord, since: int = 1) -> Input:
        """Fix the input of the epoch; return what stands, which another driver may have put.

        One with many files is put in parts, and these before the index that names them: an index that stands is whole.
        `since`: as in the launch records of the attempts that read it.
        """
        stored: InputRecord | InputIndexRecord = record
        pieces = cut_files(record.files, self.part_bytes)
        if len(pieces) > 1:
            parts = [InputPartRecord(token=new_token(), files=tuple(piece)) for piece in pieces]
            stored = InputIndexRecord(
                token=record.token,
                parts=self._put_parts(self.at.input_part, [(part, len(part.files)) for part in parts]),
                totals=record.totals,
                arrow_schema=record.arrow_schema,
                table=record.table,
            )
        standing = self._remember_input(since, put_once(self.store, self.at.input_since(since), stored, self.pause, _INPUTS))
        # Ours is in memory already.
        return record if standing.token == record.token else standing

    def read_input(self, since: int = 1) -> Input | None:
        """Return the input. Of one in parts a file is read when it is asked for: Corrupt if its part is not as it was put."""
        known = self._known.get(self.at.input_since(since))
        if isinstance(known, InputRecord | InputInParts):
            return known
        found = read_one_of(self.store, self.at.input_since(since), _INPUTS)
        return None if found is None else self._remember_input(since, found)

    def read_committed_input(self) -> Input | None:
        """Return the input of a finished epoch. Its mark tells which, where the source was edited before any seal."""
        mark = self.read_mark()
        return self.read_input(mark.input_since if mark is not None else 1)

    def _remember_input(self, since: int, standing: InputRecord | InputIndexRecord) -> Input:
        found: Input
        if isinstance(standing, InputRecord):
            found = standing
        else:
            found = InputInParts(standing, FilesInParts(standing.parts, self._load_files))
        self._known[self.at.input_since(since)] = found
        return found

    def _load_files(self, part: StoredPart) -> tuple[SourceFile, ...]:
        path = self.at.input_part(part.token)
        files = self._read_part(path, part, InputPartRecord).files
        return self._counted(path, part, files)

    def _put_parts(self, path_of: Callable[[str], str], parts: Sequence[tuple[Record, int]]) -> tuple[StoredPart, ...]:
        """Store parts of a record, before the record that names them. Their names are random: nobody else puts there."""

        def put(numbered: tuple[Record, int]) -> StoredPart:
            part, count = numbered
            put_once(self.store, path_of(part.token), part, self.pause)
            return StoredPart(token=part.token, count=count, digest=digest_of(encode(part)))

        return tuple(streamed(self.ask_all, put, parts, _PARTS_AT_ONCE))

    def _read_part(self, path: str, part: StoredPart, model: type[_R]) -> _R:
        data = self.store.get(path)
        if data is None:
            raise Corrupt(reasons.RECORD_UNREADABLE, f"{self.store.uri}/{path} is gone, though a record names it as its part")
        if digest_of(data) != part.digest:
            raise Corrupt(
                reasons.RECORD_UNREADABLE, f"{self.store.uri}/{path} is not what was put: its bytes have another digest"
            )
        return decode(model, data, f"{self.store.uri}/{path}")

    def _counted(self, path: str, part: StoredPart, items: tuple[_First, ...]) -> tuple[_First, ...]:
        if len(items) != part.count:
            raise Corrupt(
                reasons.RECORD_UNREADABLE, f"{self.store.uri}/{path} has {len(items)} entries; its record says {part.count}"
            )
        return items

    def put_launch(self, record: LaunchRecord) -> LaunchRecord:
        return self._put(self.at.launch(record.attempt), record)

    def read_launch(self, attempt: int) -> LaunchRecord | None:
        return self._read(self.at.launch(attempt), LaunchRecord)

    def list_attempts(self) -> list[int]:
        """Return the recorded attempts, ascending. An attempt counts from its launch record."""
        folder = self.at.launches
        numbers = (layout.number_of(stored.path, folder) for stored in self.store.list(folder))
        return sorted(number for number in numbers if number)

    def put_output(self, attempt: int, record: OutputRecord) -> OutputRecord:
        return self._put(self.at.output(attempt), record)

    def read_output(self, attempt: int) -> OutputRecord | None:
        return self._read(self.at.output(attempt), OutputRecord)

    def put_target(self, attempt: int, record: TargetRecord) -> TargetRecord:
        return self._put(self.at.target(attempt), record)

    def read_target(self, attempt: int) -> TargetRecord | None:
        return self._read(self.at.target(attempt), TargetRecord)

    def put_failure(self, record: FailureRecord) -> FailureRecord:
        return self._put(self.at.failure(record.attempt), record)

    def read_failure(self, attempt: int) -> FailureRecord | None:
        return self._read(self.at.failure(attempt), FailureRecord)

    def put_plan(self, record: PlanRecord) -> PlanRecord:
        """Fix the plan of an attempt. Raises Superseded if another driver of the attempt has: this one must end at once.

        Many tasks are put in parts, and these before the plan; who reads the plan gets their number, and `read_tasks` them.
        """
        pieces = cut_tasks(record.tasks, self.part_bytes)
        if len(pieces) > 1:
            parts = [PlanPartRecord(token=new_token(), tasks=tuple(piece)) for piece in pieces]
            named = self._put_parts(
                lambda token: self.at.plan_part(record.attempt, token), [(part, len(part.tasks)) for part in parts]
            )
            record = record.model_copy(update={"tasks": (), "parts": named})
        standing = self._put(self.at.plan(record.attempt), record)
        if standing.token != record.token:
            raise Superseded(
                "SecondDriver",
                f"attempt {record.attempt} of {self.key} has another driver, whose plan stands; this one ends",
            )
        return standing

    def read_plan(self, attempt: int) -> PlanRecord | None:
        return self._read(self.at.plan(attempt), PlanRecord)

    def read_tasks(self, plan: PlanRecord) -> Iterator[tuple[Range, ...]]:
        """Give the tasks of a plan, in order. Corrupt if a part of it is gone, or is not as it was put."""
        yield from plan.tasks
        for part in plan.parts:
            path = self.at.plan_part(plan.attempt, part.token)
            yield from self._counted(path, part, self._read_part(path, part, PlanPartRecord).tasks)

    # --- the seal chain ---------------------------------------------------------------------------------------------------

    def put_seal(self, seal: Seal) -> None:
        """Make a segment of a task count.

        Visible from the moment the object exists, never in part. Putting the same seal again is harmless: a put whose answer
        was lost is recognised by its token. Raises Superseded when another try of the task has sealed this link; the caller
        must give its segment up, because its rows may already be counted.
        """
        path = self.at.seal(seal.attempt, seal.task, seal.link)
        if put_once(self.store, path, seal, self.pause).token != seal.token:
            raise Superseded("LinkSealed", f"{self.store.uri}/{path} was sealed by another try of the task")

    def put_keys(self, path: str, data: bytes) -> None:
        """Store the keys of a segment, before its seal. The path has a token of the try: nobody else puts there.

        Raises Retryable when the store does not answer; then nobody names the object, if it is there.
        """
        for _ in range(PUT_TRIES):
            if self.store.put_if_absent(path, data) or self.store.get(path) == data:
                return
            self.pause(PUT_PAUSE_S)
        raise Retryable(reasons.STORE_UNAVAILABLE, f"{self.store.uri}/{path} cannot be put, and is not there")

    def read_seal(self, attempt: int, task: int, link: int) -> Seal | None:
        """Return a seal. Corrupt if it says that it belongs elsewhere. Not remembered: there may be a million of them."""
        data = self.store.get(self.at.seal(attempt, task, link))
        return None if data is None else self.decode_seal(attempt, task, link, data)

    def decode_seal(self, attempt: int, task: int, link: int, data: bytes, folder: str | None = None) -> Seal:
        where = f"{self.store.uri}/{folder or self.at.seals(attempt)}{task}/{link}.json"
        seal = decode(Seal, data, where)
        if (seal.attempt, seal.task, seal.link) != (attempt, task, link):
            raise Corrupt(
                reasons.RECORD_UNREADABLE,
                f"{where} says that it is attempt {seal.attempt}, task {seal.task}, link {seal.link}",
            )
        return seal

    def read_chain(self, attempt: int, task: int) -> tuple[Seal, ...]:
        """Return the seals of a task from link 0 to the first link that is not there. Asks for each; trusts no listing."""
        chain: list[Seal] = []
        while (seal := self.read_seal(attempt, task, len(chain))) is not None:
            chain.append(seal)
            if seal.last:
                break
        return tuple(chain)

    def list_seals(self, attempt: int) -> SealListing:
        """Return what a listing shows of the seals and bundles of an attempt."""
        folder = self.at.seals(attempt)
        plan = self.read_plan(attempt)
        tasks = plan.task_count if plan else 0
        borders = [f"{folder}{task}/" for task in range(0, tasks, max(1, tasks // _BORDERS))]
        listing = SealListing()
        for stored in self.store.list(folder, borders):
            if place := layout.seal_of(stored.path, folder):
                listing.add(*place, stored.size_bytes, stored.etag)
            elif (number := layout.bundle_of(stored.path, folder)) is not None:
                listing.bundles.append(number)
        listing.bundles.sort()
        return listing

    def list_links(self, attempt: int) -> dict[int, int]:
        """Return, for each task with seals, how many links its listing shows without a gap.

        A listing is no snapshot: link 1 may be seen where link 0 was not. Only what precedes the first gap is returned.
        """
        return self.list_seals(attempt).lengths()

    def read_seals(self, attempt: int, lengths: dict[int, int]) -> dict[int, tuple[Seal, ...]]:
        """Return the first `lengths[task]` seals of each task, many at a time. Corrupt if one of them is gone."""
        wanted = [(task, link) for task, length in lengths.items() for link in range(length)]
        found: dict[int, list[Seal]] = {task: [] for task in lengths}
        for seal in self.read_links(attempt, wanted):
            found[seal.task].append(seal)
        return {task: tuple(chain) for task, chain in found.items()}

    def read_links(self, attempt: int, places: Sequence[tuple[int, int]]) -> Iterator[Seal]:
        """Give these seals, in this order, many at a time. Corrupt if one of them is gone."""
        seals = streamed(self.ask_all, lambda place: self.read_seal(attempt, *place), places)
        for place, seal in zip(places, seals, strict=True):
            if seal is None:
                raise Corrupt(
                    reasons.RECORD_UNREADABLE,
                    f"{self.store.uri}/{self.at.seal(attempt, *place)} counts, and is gone: seals must not be removed",
                )
            yield seal

    # --- bundles ----------------------------------------------------------------------------------------------------------

    def put_bundle(self, number: int, attempt: int, plan_token: str, seals: Sequence[tuple[BundledSeal, bytes]]) -> int:
        """Store copies of seals in one object, under this number or the next free one; return it.

        Idempotent enough: put twice, whoever reads takes each seal once.
        """
        record = BundleRecord(
            token=new_token(), attempt=attempt, plan_token=plan_token, seals=tuple(header for header, _ in seals)
        )
        data = encode_bundle(record, [seal for _, seal in seals])
        while not self.store.put_if_absent(self.at.bundle(attempt, number), data):
            number += 1
        return number

    def read_bundle(self, attempt: int, number: int) -> Bundle | None:
        """Return a bundle; None if it is not there, cannot be read, or belongs to another attempt or driver.

        It is a copy: then the seals themselves are read, and nothing is lost.
        """
        path = self.at.bundle(attempt, number)
        data = self.store.get(path)
        plan = self.read_plan(attempt)
        if data is None or plan is None:
            return None
        try:
            bundle = decode_bundle(data, f"{self.store.uri}/{path}")
        except Corrupt:
            return None
        is_ours = (bundle.record.attempt, bundle.record.plan_token) == (attempt, plan.token)
        return bundle if is_ours else None

    def read_bundles(self, attempt: int, numbers: Sequence[int]) -> Iterator[Bundle]:
        """Give those of these bundles that `read_bundle` does, in their order, a few of them ahead."""
        for bundle in streamed(self.ask_all, lambda number: self.read_bundle(attempt, number), numbers, _BUNDLE_READERS):
            if bundle is not None:
                yield bundle

    # --- bundles that may be believed ---------------------------------------------------------------------------------------

    def _check_bundles(self, attempt: int, listing: SealListing) -> _CheckedBundles:
        """Return the bundles that hold what the listing shows, and which of the tasks' newest seals are the last ones."""
        checked = _CheckedBundles()
        if not listing.bundles:
            return checked
        lengths = listing.lengths()

        def check(number: int) -> tuple[CheckedBundle, dict[int, Seal]] | None:
            bundle = self.read_bundle(attempt, number)
            if bundle is None or find_forgery(bundle, listing.get, self._etags_are_digests(attempt, bundle, listing)) is not None:
                return None
            newest = {
                seal.task: self.decode_seal(attempt, seal.task, seal.link, data)
                for seal, data in bundle.seals()
                if seal.link == lengths.get(seal.task, 0) - 1
            }
            return CheckedBundle(number=number, digest=bundle.digest), newest

        for known in streamed(self.ask_all, check, listing.bundles, _BUNDLE_READERS):
            if known is not None:
                checked.bundles.append(known[0])
                checked.newest_is_last.update({task: seal.last for task, seal in known[1].items()})
        return checked

    def _etags_are_digests(self, attempt: int, bundle: Bundle, listing: SealListing) -> bool:
        """Whether this store's etags are digests of the bytes, as one of the seals shows.

        A copy whose digest is the etag that is listed has shown it. Where it is not, the copy may be a forgery: the seal itself
        is read.
        """
        for place, copied in bundle.seals():
            stored = listing.get(place.task, place.link)
            if stored is None or not may_be_digest(etag := stored[1]):
                return False
            if is_digest(etag, copied):
                return True
            data = self.store.get(self.at.seal(attempt, place.task, place.link))
            return data is None or is_digest(etag, data)
        return False

    # --- rows that failed -------------------------------------------------------------------------------------------------

    def put_quarantine(self, attempt: int, record: QuarantineRecord) -> None:
        """Put rows that are too many for their seal. They count once a seal names the record's token; else nobody sees them."""
        # Not remembered: a task has no use for them any more.
        put_once(self.store, self.at.quarantine(attempt, record.token), record, self.pause)

    def quarantined_rows(self, seal: Seal) -> Iterator[QuarantinedRow]:
        """Give the rows of a seal that failed, one stored object at a time. Corrupt if one of these is gone."""
        if seal.quarantined is None:
            return
        yield from seal.quarantined.rows
        for named in seal.quarantined.objects:
            path = self.at.quarantine(seal.attempt, named.token)
            record = read(self.store, path, QuarantineRecord)
            if record is None or len(record.rows) != named.rows:
                found = "is gone" if record is None else f"has {len(record.rows)} rows"
                raise Corrupt(
                    reasons.RECORD_UNREADABLE,
                    f"{self.store.uri}/{path} {found}; a seal of attempt {seal.attempt} names {named.rows} quarantined rows",
                )
            yield from record.rows

    # --- closing ----------------------------------------------------------------------------------------------------------

    def close(self, attempt: int) -> ClosedRecord:
        """Fix for good which seals of an attempt count, and return what was fixed (by us, or by another closer before).

        For each task of the plan: the gap-free prefix of its chain. The listing is only where the search starts; the links
        after it are asked for one by one, so that a listing that lags loses nothing. Whoever goes on sealing afterwards seals
        in vain: no one will count it. Bundles only save reading: one that does not hold what the listing shows is passed over.
        """
        standing, plan = self.read_both(lambda: self.read_closed(attempt), lambda: self.read_plan(attempt))
        if standing is not None:
            return standing
        if plan is None:
            record = ClosedRecord(token=new_token(), attempt=attempt, plan_token=None, chain_lengths=(), complete=False)
        else:
            listing = self.list_seals(attempt)
            checked = self._check_bundles(attempt, listing)
            lengths = listing.lengths()
            del listing
            ends: list[tuple[int, bool]] = [(lengths.get(task, 0), True) for task in range(plan.task_count)]
            open_ends = [task for task in range(plan.task_count) if not checked.newest_is_last.get(task, False)]
            found = self.ask_all(
                lambda task: self._end_of_chain(attempt, task, lengths.get(task, 0), task in checked.newest_is_last), open_ends
            )
            for task, end in zip(open_ends, found, strict=True):
                ends[task] = end
            record = ClosedRecord(
                token=new_token(),
                attempt=attempt,
                plan_token=plan.token,
                chain_lengths=tuple(length for length, _ in ends),
                complete=all(is_whole for _, is_whole in ends),
                bundles=tuple(checked.bundles),
            )
        return self._put(self.at.closed(attempt), record)

    def _end_of_chain(self, attempt: int, task: int, listed: int, goes_on: bool) -> tuple[int, bool]:
        """Return the length of a task's chain, and whether it ends in a `last` seal, starting from a listed prefix.

        `goes_on`: the newest that is listed is known, and is not the last.
        """
        length = listed
        newest = self.read_seal(attempt, task, length - 1) if length and not goes_on else None
        if length and newest is None and not goes_on:
            raise Corrupt(
                reasons.RECORD_UNREADABLE,
                f"{self.store.uri}/{self.at.seal(attempt, task, length - 1)} is listed, and cannot be found",
            )
        while newest is None or not newest.last:
            following = self.read_seal(attempt, task, length)
            if following is None:
                return length, False
            newest = following
            length += 1
        return length, True

    def read_closed(self, attempt: int) -> ClosedRecord | None:
        return self._read(self.at.closed(attempt), ClosedRecord)

    def counted_seals(self, attempts: Iterable[int]) -> Iterator[Seal]:
        """Give every seal that counts of these closed attempts, once, and let it go. Corrupt if one of them is not closed.

        From the bundles that were checked at the closing, one request for about a thousand; what is in none of them, one by one.
        """
        for attempt in attempts:
            closed = self.read_closed(attempt)
            if closed is None:
                raise Corrupt(
                    reasons.RECORD_UNREADABLE,
                    f"{self.store.uri}/{self.at.closed(attempt)} is gone, though a later attempt builds on it",
                )
            given = [bytearray(length) for length in closed.chain_lengths]
            yield from self._read_from_bundles(attempt, closed, given)
            missing = [(task, link) for task, links in enumerate(given) for link, is_given in enumerate(links) if not is_given]
            yield from self.read_links(attempt, missing)

    def _read_from_bundles(self, attempt: int, closed: ClosedRecord, given: list[bytearray]) -> Iterator[Seal]:
        """Give the seals that count and that checked bundles hold, each once, and note them in `given`."""

        def get(checked: CheckedBundle) -> Bundle | None:
            bundle = self.read_bundle(attempt, checked.number)
            return bundle if bundle is not None and bundle.digest == checked.digest else None

        folder = self.at.seals(attempt)
        for bundle in streamed(self.ask_all, get, closed.bundles, _BUNDLE_READERS):
            for place, data in bundle.seals() if bundle is not None else ():
                if place.task < len(given) and place.link < len(given[place.task]) and not given[place.task][place.link]:
                    given[place.task][place.link] = 1
                    yield self.decode_seal(attempt, place.task, place.link, data, folder)

    # --- commit -----------------------------------------------------------------------------------------------------------

    def put_claim(self, record: ClaimRecord) -> ClaimRecord:
        """Take a claim number; return the claim that stands under it."""
        return self._put(self.at.claim(record.index), record)

    def list_claims(self) -> list[int]:
        """Return the claims that a listing shows, ascending."""
        folder = self.at.commit
        numbers = (layout.claim_index_of(stored.path, folder) for stored in self.store.list(folder))
        return sorted(number for number in numbers if number is not None)

    def read_claim(self, index: int) -> ClaimRecord | None:
        return self._read(self.at.claim(index), ClaimRecord)

    def is_deleted(self) -> bool:
        """Whether the write was deleted. A committer asks this after its claim stands and before any request to the table.

        Deletion does the same crosswise: it puts its note and then looks for claims. Whatever the order of these four, either
        the committer finds the note and sends nothing, or deletion finds the claim and buries what may be on its way.
        """
        return self._read(layout.deleted_path(self.key.uid), DeletedRecord) is not None

    def put_mark(self, record: MarkRecord) -> MarkRecord:
        """Note that the commit was seen in the table. Never to be called before it was seen."""
        return self._put(self.at.mark, record)

    def read_mark(self) -> MarkRecord | None:
        return self._read(self.at.mark, MarkRecord)
