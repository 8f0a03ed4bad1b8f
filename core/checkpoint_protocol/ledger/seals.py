"""Seals, and the rows that failed in them: put by tasks, read by everybody. Not remembered: there may be a million."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, Superseded
from checkpoint_protocol.ledger.epoch_records import EpochRecords, SealListing
from checkpoint_protocol.ledger.inputs import Plans
from checkpoint_protocol.records import (
    MAX_RECORD_BYTES,
    MAX_SEALS,
    MAX_TASKS,
    PlanRecord,
    QuarantinedRow,
    QuarantineRecord,
    Seal,
    decode,
)
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.memory import reading
from checkpoint_protocol.store.object_listing import shown
from checkpoint_protocol.store.object_store import StoredObject
from checkpoint_protocol.store.parallel import streamed
from checkpoint_protocol.store.put_once import put_object, put_once, read

#: Where memory is bounded, larger seals are decoded one after the other, each once it is its turn.
_MOST_AHEAD_BYTES: Final = 128 << 10
#: A listing shows a hundred seals for each task of the plan, and so many besides: a single task has them in a month.
_SEALS_OF_A_TASK: Final = MAX_SEALS // MAX_TASKS
_SEALS_BESIDES: Final = 100_000
#: And no more than these, which are some hundreds of megabytes in memory.
_MOST_LISTED: Final = 2 * MAX_TASKS
#: In two answers to a listing.
_FEW: Final = 2_000
#: Enough to cut a listing at.
_BORDERS: Final = 512


@dataclass(frozen=True, slots=True)
class Seals:
    """The seals, by attempt, task and link: a task's first has link 0."""

    records: EpochRecords
    plans: Plans

    def put_seal(self, seal: Seal) -> None:
        """Make a segment of a task count.

        Visible from the moment the object exists, never in part. Putting the same seal again is harmless: a put whose answer
        was lost is recognised by its token. Raises Superseded when another try of the task has sealed this link; the caller
        must give its segment up, because its rows may already be counted.
        """
        path = self.records.at.seal(seal.attempt, seal.task, seal.link)
        if put_once(self.records.store, path, seal, self.records.pause).token != seal.token:
            raise Superseded("LinkSealed", f"{self.records.where(path)} was sealed by another try of the task")

    def put_keys(self, path: str, data: bytes) -> None:
        """Store the keys of a segment, before its seal. The path has a token of the try: nobody else puts there.

        Raises Retryable when the store does not answer; then nobody names the object, if it is there.
        """
        if put_object(self.records.store, path, data, self.records.pause, max(len(data), MAX_RECORD_BYTES)) != data:
            raise Corrupt(reasons.RECORD_UNREADABLE, f"{self.records.where(path)} holds other keys than those that were put")

    def read_seal(self, attempt: int, task: int, link: int, *, keeps: bool = False) -> Seal | None:
        """Return a seal. Corrupt if it says that it belongs elsewhere. `keeps`: see `EpochRecords.get`."""
        with reading():
            data = self.records.get(self.records.at.seal(attempt, task, link), Seal.most_bytes, keeps=keeps)
            return None if data is None else self.decode_seal(attempt, task, link, data)

    def decode_seal(self, attempt: int, task: int, link: int, data: bytes, folder: str | None = None) -> Seal:
        where = self.records.where(f"{folder or self.records.at.seals(attempt)}{task}/{link}.json")
        seal = decode(Seal, data, where)
        if (seal.attempt, seal.task, seal.link) != (attempt, task, link):
            raise Corrupt(
                reasons.RECORD_UNREADABLE,
                f"{where} says that it is attempt {seal.attempt}, task {seal.task}, link {seal.link}",
            )
        return seal

    def list_seals(self, attempt: int) -> SealListing:
        """Return what a listing shows of the seals and bundles of an attempt. A seal that is not shown does not count.

        Corrupt for a listing of more than the tasks of the plan can have sealed: whoever may write there could take all memory.
        What has no place in any chain is passed over.
        """
        folder = self.records.at.seals(attempt)
        plan, few = self._read_plan_and_few(attempt, folder)
        tasks = plan.task_count if plan else 0
        borders = [f"{folder}{task}/" for task in range(0, tasks, max(1, tasks // _BORDERS))]
        listing = SealListing()
        most = min(_SEALS_BESIDES + _SEALS_OF_A_TASK * tasks, _MOST_LISTED)
        for stored in shown(self.records.store.list(folder, borders)) if few is None else few:
            if place := layout.seal_of(stored.path, folder):
                if (plan is not None and place[0] >= tasks) or place[1] >= _MOST_LISTED:
                    continue  # nobody's task, or link
                listing.add(*place, stored.size_bytes, stored.etag)
            elif (number := layout.bundle_of(stored.path, folder)) is not None and number < _MOST_LISTED:
                listing.bundles.append(number)
            if len(listing) > most:
                raise Corrupt(
                    reasons.RECORD_UNREADABLE,
                    f"{self.records.where(folder)} has more than {most:,} objects, which {tasks:,} tasks do not seal; "
                    "remove those that no driver of this write has put, and find out who may write there",
                )
        listing.bundles.sort()
        return listing

    def _read_plan_and_few(self, attempt: int, folder: str) -> tuple[PlanRecord | None, list[StoredObject] | None]:
        """Return the plan, and all that is listed in the folder where that was asked for beside the plan, and is little."""
        if self.plans.is_known(attempt):
            return self.plans.read_plan(attempt), None
        plan, first = self.records.read_both(
            lambda: self.plans.read_plan(attempt),
            lambda: list(islice(shown(self.records.store.list(folder)), _FEW)),
        )
        return plan, first if len(first) < _FEW else None

    def list_links(self, attempt: int) -> dict[int, int]:
        """Return, for each task with seals, how many links its listing shows without a gap.

        A listing is no snapshot: link 1 may be seen where link 0 was not. Only what precedes the first gap is returned.
        """
        return self.list_seals(attempt).lengths()

    def read_links(self, attempt: int, places: Sequence[tuple[int, int]], *, keeps: bool = False) -> Iterator[Seal]:
        """Give these seals, in this order, many at a time. Corrupt if one of them is gone. `keeps`: see `EpochRecords.get`."""
        seals = streamed(self.records.map_all, lambda place: self._read_ahead(attempt, *place, keeps), places)
        for place, seal in zip(places, seals, strict=True):
            if isinstance(seal, str):
                # Its memory is this thread's until the next is asked for.
                with reading():
                    yield self._that_counts(attempt, place, self.read_seal(attempt, *place))
            else:
                yield self._that_counts(attempt, place, seal)

    def _that_counts(self, attempt: int, place: tuple[int, int], seal: Seal | None) -> Seal:
        if seal is None:
            raise Corrupt(
                reasons.RECORD_UNREADABLE,
                f"{self.records.where(self.records.at.seal(attempt, *place))} counts, and is gone: seals must not be removed",
            )
        return seal

    def _read_ahead(self, attempt: int, task: int, link: int, keeps: bool) -> Seal | Literal["later"] | None:
        """Return a seal that others are read beside; where memory is bounded a large one not yet, as many may be decoded."""
        with reading() as held:
            data = self.records.get(self.records.at.seal(attempt, task, link), Seal.most_bytes, keeps=keeps)
            if data is None:
                return None
            if held.budget is not None and len(data) > _MOST_AHEAD_BYTES:
                return "later"
            return self.decode_seal(attempt, task, link, data)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The objects with quarantined rows. Not remembered: a task has no use for them any more."""

    records: EpochRecords

    def put_quarantine(self, attempt: int, record: QuarantineRecord) -> None:
        """Put rows that are too many for their seal. They count once a seal names the record's token; else nobody sees them."""
        put_once(self.records.store, self.records.at.quarantine(attempt, record.token), record, self.records.pause)

    def quarantined_rows(self, seal: Seal) -> Iterator[QuarantinedRow]:
        """Give the rows of a seal that failed, one stored object at a time. Corrupt if one of these is gone."""
        if seal.quarantined is None:
            return
        yield from seal.quarantined.rows
        for named in seal.quarantined.objects:
            path = self.records.at.quarantine(seal.attempt, named.token)
            record = read(self.records.store, path, QuarantineRecord)
            if record is None or len(record.rows) != named.rows:
                found = "is gone" if record is None else f"has {len(record.rows)} rows"
                raise Corrupt(
                    reasons.RECORD_UNREADABLE,
                    f"{self.records.where(path)} {found}; a seal of attempt {seal.attempt} names {named.rows} quarantined rows",
                )
            yield from record.rows
