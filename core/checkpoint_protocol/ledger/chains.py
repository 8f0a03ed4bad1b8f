"""The chains of seals: where each ends, and which links of it count once the attempt is closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger.attempts import Attempts
from checkpoint_protocol.ledger.bundles import Bundles
from checkpoint_protocol.ledger.epoch_records import EpochRecords
from checkpoint_protocol.ledger.inputs import Plans
from checkpoint_protocol.ledger.seals import Seals
from checkpoint_protocol.records import ClosedRecord, GivenUp, Seal
from checkpoint_protocol.store.parallel import READERS, streamed

#: Of tasks that a listing does not show, so many in a row are asked for in vain before the rest is taken to have nothing.
_MOST_IN_VAIN: Final = 1_024
_ASKED_AT_ONCE: Final = 4 * READERS


@dataclass(frozen=True, slots=True)
class Chains:
    """The chains, by attempt and task."""

    records: EpochRecords
    attempts: Attempts
    plans: Plans
    seals: Seals
    bundles: Bundles

    def read_chain(self, attempt: int, task: int) -> tuple[Seal, ...]:
        """Return the seals of a task from link 0 to the first link that is not there. Asks for each; trusts no listing."""
        chain: list[Seal] = []
        while (seal := self.seals.read_seal(attempt, task, len(chain))) is not None:
            chain.append(seal)
            if seal.last:
                break
        return tuple(chain)

    def close(self, attempt: int, given_up: GivenUp | None = None) -> ClosedRecord:
        """Fix for good which seals of an attempt count, and return what was fixed (by us, or by another closer before).

        For each task of the plan: the gap-free prefix of its chain. The listing is only where the search starts; the links
        after it are asked for one by one, so that a listing that lags loses nothing. Of tasks that it does not show at all the
        first are asked for, in the order in which Spark starts them, until a thousand in a row have nothing: what a listing
        misses is recent, and a task is begun when those before it are. Whoever goes on sealing afterwards seals in vain: no one
        will count it. Bundles only save reading: one that does not hold what the listing shows is passed over.
        `given_up`: why, where the driver has not said it.
        """
        found, is_stored = self._find_closed(attempt)
        if is_stored:
            return found
        found = found.model_copy(update={"given_up": given_up})
        if not found.complete:
            self.records.let_go()
            return self.attempts.put_closed(found)
        # Whoever has closed it gathers its results next, and begins with the launch record.
        put, _ = self.records.read_both(lambda: self.attempts.put_closed(found), lambda: self.attempts.read_launch(attempt))
        return put

    def _find_closed(self, attempt: int) -> tuple[ClosedRecord, bool]:
        """Return the record that is stored, or the one to put, and whether it is stored."""
        # The listing is asked for beside the record, as an attempt that is to be closed is open as a rule.
        closed, listing = self.records.read_both(
            lambda: self.attempts.read_closed(attempt), lambda: self.seals.list_seals(attempt)
        )
        if closed is not None:
            return closed, True
        if (plan := self.plans.read_plan(attempt)) is None:
            nothing = ClosedRecord(token=new_token(), attempt=attempt, plan_token=None, chain_lengths=(), complete=False)
            return nothing, False
        checked = self.bundles.check(attempt, listing)
        lengths = listing.lengths()
        del listing
        # Of tasks that have something only: there may be a million in a plan of which nothing came.
        whole = {task: lengths[task] for task, is_last in checked.newest_is_last.items() if is_last and task < plan.task_count}
        shown = sorted(task for task in lengths if task < plan.task_count and task not in whole)
        ends = {task: (length, True) for task, length in whole.items()}
        found = streamed(
            self.records.map_all,
            lambda task: self._end_of_chain(attempt, task, lengths[task], task in checked.newest_is_last),
            shown,
        )
        ends.update(zip(shown, found, strict=True))
        ends.update(self._ends_of_those_not_shown(attempt, plan.task_count, lengths))
        chains = [0] * (max((task for task, (length, _) in ends.items() if length), default=-1) + 1)
        for task, (length, _) in ends.items():
            if length:
                chains[task] = length
        found_now = ClosedRecord(
            token=new_token(),
            attempt=attempt,
            plan_token=plan.token,
            chain_lengths=tuple(chains),
            complete=sum(is_whole for _, is_whole in ends.values()) == plan.task_count,
            bundles=tuple(checked.bundles),
        )
        return found_now, False

    def _ends_of_those_not_shown(
        self, attempt: int, tasks: int, shown: Mapping[int, int]
    ) -> Iterator[tuple[int, tuple[int, bool]]]:
        """Give the ends of chains that a listing does not show; see `close` for how many are asked for."""
        in_vain = 0
        rest = (task for task in range(tasks) if task not in shown)
        while in_vain < _MOST_IN_VAIN and (some := list(islice(rest, _ASKED_AT_ONCE))):
            for task, end in zip(
                some, self.records.map_all(lambda task: self._end_of_chain(attempt, task, 0, False), some), strict=True
            ):
                in_vain = 0 if end[0] else in_vain + 1
                if end[0]:
                    yield task, end

    def _end_of_chain(self, attempt: int, task: int, listed: int, goes_on: bool) -> tuple[int, bool]:
        """Return the length of a task's chain, and whether it ends in a `last` seal, starting from a listed prefix.

        `goes_on`: the newest that is listed is known, and is not the last.
        """
        length = listed
        newest = self.seals.read_seal(attempt, task, length - 1, keeps=True) if length and not goes_on else None
        if length and newest is None and not goes_on:
            raise Corrupt(
                reasons.RECORD_UNREADABLE,
                f"{self.records.where(self.records.at.seal(attempt, task, length - 1))} is listed, and cannot be found",
            )
        while newest is None or not newest.last:
            following = self.seals.read_seal(attempt, task, length, keeps=True)
            if following is None:
                return length, False
            newest = following
            length += 1
        return length, True

    def counted_seals(self, attempts: Iterable[int]) -> Iterator[Seal]:
        """Give every seal that counts of these closed attempts, once, and let it go. Corrupt if one of them is not closed.

        From the bundles that were checked at the closing, one request for about a thousand; what is in none of them, one by one.
        """
        for attempt in attempts:
            closed = self.attempts.read_closed(attempt)
            if closed is None:
                raise Corrupt(
                    reasons.RECORD_UNREADABLE,
                    f"{self.records.where(self.records.at.closed(attempt))} is gone, though a later attempt builds on it",
                )
            given = {task: bytearray(length) for task, length in enumerate(closed.chain_lengths) if length}
            yield from self.bundles.checked_seals(attempt, closed, given)
            missing = [(task, link) for task, links in given.items() for link, is_given in enumerate(links) if not is_given]
            yield from self.seals.read_links(attempt, missing)

    def seals_so_far(self, attempts: Iterable[int]) -> Iterator[Seal]:
        """Give the seals of these attempts, and let each go: of one that is at work, what a listing shows.

        For people, as the next moment may have more.
        """
        for attempt in attempts:
            if self.attempts.read_closed(attempt) is not None:
                yield from self.counted_seals([attempt])
                continue
            lengths = self.seals.list_seals(attempt).lengths()
            places = [(task, link) for task, length in sorted(lengths.items()) for link in range(length)]
            yield from self.seals.read_links(attempt, places)
