"""The rules of the store, over one epoch's records: who wins a put, what a chain is, which seals count.

Safety rests here and in the table's compare-and-swap, nowhere else. Everything is put-if-absent; nothing is ever changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from checkpoint_protocol import layout, reasons
from checkpoint_protocol.errors import Corrupt, Retryable, Superseded
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.layout import EpochLayout
from checkpoint_protocol.records import (
    ClaimRecord,
    ClosedRecord,
    DeletedRecord,
    FailureRecord,
    InputRecord,
    LaunchRecord,
    MarkRecord,
    NameRecord,
    OutputRecord,
    PlanRecord,
    Record,
    Seal,
    TargetRecord,
    WriteRecord,
    decode,
    encode,
)
from checkpoint_protocol.store import ObjectStore

_R = TypeVar("_R", bound=Record)
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

#: How often a put is sent again when the store says "exists" and nothing is there (a put of somebody else's is in flight).
_PUT_TRIES: Final = 8
_PUT_PAUSE_S: Final = 0.25
_READERS: Final = 16


class Mapper(Protocol):
    """Asks the same of many items, in any order, and returns the answers in theirs. Raises what one of them raises."""

    def __call__(self, function: Callable[[_Item], _Answer], items: Sequence[_Item]) -> list[_Answer]: ...


def in_threads(function: Callable[[_Item], _Answer], items: Sequence[_Item]) -> list[_Answer]:
    """Ask many at a time: each answer is a round trip to the store."""
    if not items:
        return []
    with ThreadPoolExecutor(min(_READERS, len(items))) as readers:
        return list(readers.map(function, items))


def read(store: ObjectStore, path: str, model: type[_R]) -> _R | None:
    """Return a record, or None if there surely is none. Corrupt if it cannot be read."""
    data = store.get(path)
    return None if data is None else decode(model, data, f"{store.uri}/{path}")


def put_once(store: ObjectStore, path: str, record: _R, pause: Callable[[float], None] = time.sleep) -> _R:
    """Put a record unless one is there, and return the one that stands: ours if the tokens are equal.

    Idempotent: putting the same record again returns it. Raises Retryable when the store does not answer; the put may then
    still land, and the same call with the same record tells.
    """
    data = encode(record)
    for _ in range(_PUT_TRIES):
        if store.put_if_absent(path, data):
            return record
        standing = read(store, path, type(record))
        if standing is not None:
            return standing
        pause(_PUT_PAUSE_S)
    raise Retryable(
        reasons.STORE_UNAVAILABLE,
        f"{store.uri}/{path}: the store says that the object exists, and returns none; it may be held by an unfinished put",
    )


def name_write(store: ObjectStore, namespace: str, name: str, uid: str) -> str:
    """Return the uid that this name means from now on: the given one, unless the name has one already."""
    return put_once(store, layout.name_path(namespace, name), NameRecord(token=new_token(), uid=uid)).uid


def look_up_name(store: ObjectStore, namespace: str, name: str) -> str | None:
    """Return the uid of a name, or None."""
    record = read(store, layout.name_path(namespace, name), NameRecord)
    return record.uid if record else None


def read_write(store: ObjectStore, uid: str) -> WriteRecord | None:
    return read(store, layout.write_path(uid), WriteRecord)


def put_write(store: ObjectStore, record: WriteRecord) -> WriteRecord:
    return put_once(store, layout.write_path(record.uid), record)


def put_deleted(store: ObjectStore, uid: str, pause: Callable[[float], None] = time.sleep) -> DeletedRecord:
    """Note that a write is deleted; from then on no new claim of it leads to a commit.

    Idempotent. Claims that were put before must be looked for afterwards, by `Ledger.read_claim`: see `Ledger.is_deleted`.
    """
    return put_once(store, layout.deleted_path(uid), DeletedRecord(token=new_token(), uid=uid), pause)


def read_deleted(store: ObjectStore, uid: str) -> DeletedRecord | None:
    """Return the note that a write is deleted, or None."""
    return read(store, layout.deleted_path(uid), DeletedRecord)


def list_epochs(store: ObjectStore, uid: str) -> list[int]:
    """Return the numbers of the epochs that have any control record, ascending."""
    folder = layout.control_folder(uid)
    return sorted({epoch for stored in store.list(folder) if (epoch := layout.epoch_of(stored.path, folder)) is not None})


@dataclass(slots=True)
class Ledger:
    """The records of one epoch of one write.

    No record ever changes, so each is remembered once it was read or put. That one is not there is asked anew each time.
    """

    store: ObjectStore
    key: EpochKey
    pause: Callable[[float], None] = time.sleep
    ask_all: Mapper = in_threads
    _known: dict[str, Record] = field(default_factory=dict)

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

    # --- input and attempts -----------------------------------------------------------------------------------------------

    def put_input(self, record: InputRecord) -> InputRecord:
        """Fix the input of the epoch; return the record that stands, which another driver may have put."""
        return self._put(self.at.input, record)

    def read_input(self) -> InputRecord | None:
        return self._read(self.at.input, InputRecord)

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
        """Fix the plan of an attempt. Raises Superseded if another driver of the attempt has: this one must end at once."""
        standing = self._put(self.at.plan(record.attempt), record)
        if standing.token != record.token:
            raise Superseded(
                "SecondDriver",
                f"attempt {record.attempt} of {self.key} has another driver, whose plan stands; this one ends",
            )
        return standing

    def read_plan(self, attempt: int) -> PlanRecord | None:
        return self._read(self.at.plan(attempt), PlanRecord)

    # --- the seal chain ---------------------------------------------------------------------------------------------------

    def put_seal(self, seal: Seal) -> None:
        """Make a segment of a task count.

        Visible from the moment the object exists, never in part. Putting the same seal again is harmless: a put whose answer
        was lost is recognised by its token. Raises Superseded when another try of the task has sealed this link; the caller
        must give its segment up, because its rows may already be counted.
        """
        path = self.at.seal(seal.attempt, seal.task, seal.link)
        if self._put(path, seal).token != seal.token:
            raise Superseded("LinkSealed", f"{self.store.uri}/{path} was sealed by another try of the task")

    def put_keys(self, path: str, data: bytes) -> None:
        """Store the keys of a segment, before its seal. The path has a token of the try: nobody else puts there.

        Raises Retryable when the store does not answer; then nobody names the object, if it is there.
        """
        for _ in range(_PUT_TRIES):
            if self.store.put_if_absent(path, data) or self.store.get(path) == data:
                return
            self.pause(_PUT_PAUSE_S)
        raise Retryable(reasons.STORE_UNAVAILABLE, f"{self.store.uri}/{path} cannot be put, and is not there")

    def read_seal(self, attempt: int, task: int, link: int) -> Seal | None:
        """Return a seal. Corrupt if it says that it belongs elsewhere."""
        path = self.at.seal(attempt, task, link)
        seal = self._read(path, Seal)
        if seal is not None and (seal.attempt, seal.task, seal.link) != (attempt, task, link):
            raise Corrupt(
                reasons.RECORD_UNREADABLE,
                f"{self.store.uri}/{path} says that it is attempt {seal.attempt}, task {seal.task}, link {seal.link}",
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

    def list_links(self, attempt: int) -> dict[int, int]:
        """Return, for each task with seals, how many links its listing shows without a gap.

        A listing is no snapshot: link 1 may be seen where link 0 was not. Only what precedes the first gap is returned.
        """
        links: dict[int, set[int]] = {}
        folder = self.at.seals(attempt)
        for stored in self.store.list(folder):
            if place := layout.seal_of(stored.path, folder):
                links.setdefault(place[0], set()).add(place[1])
        return {task: _gap_free_length(seen) for task, seen in links.items()}

    def read_seals(self, attempt: int, lengths: dict[int, int]) -> dict[int, tuple[Seal, ...]]:
        """Return the first `lengths[task]` seals of each task, many at a time. Corrupt if one of them is gone."""
        wanted = [(attempt, task, link) for task, length in lengths.items() for link in range(length)]
        missing = [where for where in wanted if self.at.seal(*where) not in self._known]
        if len(missing) > 1:
            self.ask_all(lambda where: self.read_seal(*where), missing)
        found: dict[int, tuple[Seal, ...]] = {}
        for task, length in lengths.items():
            chain = []
            for link in range(length):
                seal = self.read_seal(attempt, task, link)
                if seal is None:
                    raise Corrupt(
                        reasons.RECORD_UNREADABLE,
                        f"{self.store.uri}/{self.at.seal(attempt, task, link)} counts, and is gone: seals must not be removed",
                    )
                chain.append(seal)
            found[task] = tuple(chain)
        return found

    # --- closing ----------------------------------------------------------------------------------------------------------

    def close(self, attempt: int) -> ClosedRecord:
        """Fix for good which seals of an attempt count, and return what was fixed (by us, or by another closer before).

        For each task of the plan: the gap-free prefix of its chain. The listing is only where the search starts; the links
        after it are asked for one by one, so that a listing that lags loses nothing. Whoever goes on sealing afterwards seals
        in vain: no one will count it.
        """
        if (standing := self.read_closed(attempt)) is not None:
            return standing
        plan = self.read_plan(attempt)
        if plan is None:
            record = ClosedRecord(token=new_token(), attempt=attempt, plan_token=None, chain_lengths=(), complete=False)
        else:
            listed = self.list_links(attempt)
            ends = self.ask_all(lambda task: self._end_of_chain(attempt, task, listed.get(task, 0)), range(plan.task_count))
            record = ClosedRecord(
                token=new_token(),
                attempt=attempt,
                plan_token=plan.token,
                chain_lengths=tuple(length for length, _ in ends),
                complete=all(is_whole for _, is_whole in ends),
            )
        return self._put(self.at.closed(attempt), record)

    def _end_of_chain(self, attempt: int, task: int, listed: int) -> tuple[int, bool]:
        """Return the length of a task's chain, and whether it ends in a `last` seal, starting from a listed prefix."""
        length = listed
        newest = self.read_seal(attempt, task, length - 1) if length else None
        if length and newest is None:
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
        """Give every seal that counts of these closed attempts. Corrupt if one of them is not closed."""
        for attempt in attempts:
            closed = self.read_closed(attempt)
            if closed is None:
                raise Corrupt(
                    reasons.RECORD_UNREADABLE,
                    f"{self.store.uri}/{self.at.closed(attempt)} is gone, though a later attempt builds on it",
                )
            for chain in self.read_seals(attempt, dict(enumerate(closed.chain_lengths))).values():
                yield from chain

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


def _gap_free_length(links: set[int]) -> int:
    length = 0
    while length in links:
        length += 1
    return length
