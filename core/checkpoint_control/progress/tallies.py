"""What the seals of an epoch say so far, as sums: for people, to see when an attempt looks sealed, and how many rows have failed.

Nothing is committed because of them: a commit goes by the seals that were closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from checkpoint_control.decision.observation import Attempt, RowErrorLimit
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_records import SealListing
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import ClosedRecord, LaunchRecord, QuarantinedRow, RowKey, Seal
from checkpoint_protocol.rows.quarantine import describe_limit, key_of, key_text, most_rows
from checkpoint_protocol.store.parallel import READERS
from checkpoint_protocol.store.parts import Input


@dataclass(slots=True)
class ChainTally:
    """What the seals of a task, or of an attempt, amount to. `is_whole`: the last one is among them."""

    length: int = 0
    is_whole: bool = False
    rows_read: int = 0
    rows_written: int = 0
    rows_quarantined: int = 0
    files: int = 0
    positions: int = 0

    def add(self, seal: Seal) -> None:
        self.length += 1
        self.is_whole = self.is_whole or seal.last
        self.rows_read += seal.rows_read
        self.rows_written += seal.rows_written
        self.rows_quarantined += seal.rows_quarantined
        self.files += len(seal.files)
        self.positions += seal.positions

    def add_chain(self, chain: ChainTally) -> None:
        self.length += chain.length
        self.is_whole = self.is_whole or chain.is_whole
        self.rows_read += chain.rows_read
        self.rows_written += chain.rows_written
        self.rows_quarantined += chain.rows_quarantined
        self.files += chain.files
        self.positions += chain.positions


@dataclass(slots=True)
class Tallies:
    """The sums of one epoch's seals. Each seal is read once, however often they are asked for."""

    ledger: Ledger
    _chains: dict[int, dict[int, ChainTally]] = field(default_factory=dict)
    _bundles: dict[int, set[int]] = field(default_factory=dict)
    _closed: dict[int, ChainTally] = field(default_factory=dict)
    _newest: dict[tuple[int, int], tuple[int, bool]] = field(default_factory=dict)
    _covers_rows: dict[int, bool] = field(default_factory=dict)

    def of_tasks(self, attempt: int) -> dict[int, ChainTally]:
        """Return the sums of each task's seals as far as a listing shows them. Each is read once in the life of the tallies."""
        listing = self.ledger.seals.list_seals(attempt)
        self._take_in_bundles(attempt, listing)
        chains = self._chains.setdefault(attempt, {})
        lengths = listing.lengths()
        missing = [
            (task, link)
            for task, length in lengths.items()
            for link in range(chains.setdefault(task, ChainTally()).length, length)
        ]
        for seal in self.ledger.seals.read_links(attempt, missing):
            chains[seal.task].add(seal)
        return chains

    def of_closed(self, attempt: int) -> ChainTally:
        """Return the sums of all seals that count of a closed attempt. They are read once in the life of the tallies."""
        if attempt not in self._closed:
            tally = ChainTally()
            known = self._as_closed(attempt)
            for chain in known or ():
                tally.add_chain(chain)
            for seal in self.ledger.chains.counted_seals([attempt] if known is None else []):
                tally.add(seal)
            self._closed[attempt] = tally
        return self._closed[attempt]

    def covers_rows(self, attempt: int) -> bool:
        """Whether a seal that counts of a closed attempt covers any row. Reads up to the first that does, once."""
        if attempt not in self._covers_rows:
            closed = self.ledger.attempts.read_closed(attempt)
            has_seals = closed is not None and any(closed.chain_lengths)
            self._covers_rows[attempt] = has_seals and any(seal.positions for seal in self.ledger.chains.counted_seals([attempt]))
        return self._covers_rows[attempt]

    def _as_closed(self, attempt: int) -> list[ChainTally] | None:
        """Return the sums of the chains as they were closed, if the seals were tallied one by one before; else None."""
        closed = self.ledger.attempts.read_closed(attempt)
        if closed is None or not self._chains.get(attempt) or self._bundles.get(attempt):
            return None
        chains = self.of_tasks(attempt)
        known = [chains.get(task, ChainTally()) for task in range(len(closed.chain_lengths))]
        # A driver that is thought dead may have sealed more, in vain.
        is_same = all(chain.length == length for chain, length in zip(known, closed.chain_lengths, strict=True))
        return known if is_same and not self._bundles.get(attempt) else None

    def shows_every_last(self, attempt: int, tasks: int, listing: SealListing) -> bool:
        """Whether each task's newest seal in a listing is its last one. Asks for as few as it can, and for none of them twice."""
        lengths = listing.lengths()
        if any(lengths.get(task, 0) == 0 for task in range(tasks)):
            return False
        chains = self._chains.setdefault(attempt, {})

        def unknown() -> list[tuple[int, int]]:
            known = (self._is_known(chains, attempt, task, lengths[task]) for task in range(tasks))
            return [(task, lengths[task] - 1) for task, is_known in enumerate(known) if not is_known]

        if len(unknown()) > READERS:
            self._take_in_bundles(attempt, listing)
        places = unknown()
        to_be_read = {task for task, _ in places}
        if any(not self._is_last(chains, attempt, task) for task in range(tasks) if task not in to_be_read):
            return False
        # Where all are last ones the attempt is closed next, and these are asked for again.
        for seal in self.ledger.seals.read_links(attempt, places, keeps=True):
            self._newest[attempt, seal.task] = (seal.link, seal.last)
            if not seal.last:
                self.ledger.records.let_go()
                return False
        return True

    def _is_known(self, chains: dict[int, ChainTally], attempt: int, task: int, length: int) -> bool:
        return (task in chains and chains[task].length >= length) or self._newest.get((attempt, task), (-1,))[0] == length - 1

    def _is_last(self, chains: dict[int, ChainTally], attempt: int, task: int) -> bool:
        return (task in chains and chains[task].is_whole) or self._newest.get((attempt, task), (-1, False))[1]

    def _take_in_bundles(self, attempt: int, listing: SealListing) -> None:
        """Tally what bundles hold that were not seen before. Unchecked: no rule rests on it."""
        seen = self._bundles.setdefault(attempt, set())
        new = [number for number in listing.bundles if number not in seen]
        chains = self._chains.setdefault(attempt, {})
        for bundle in self.ledger.bundles.read_bundles(attempt, new):
            for place, data in bundle.seals():
                chain = chains.setdefault(place.task, ChainTally())
                if place.link == chain.length:
                    chain.add(self.ledger.seals.decode_seal(attempt, place.task, place.link, data))
        seen.update(new)


_EXAMPLES: Final = 3
_MOST_OF_A_MESSAGE: Final = 300


def count_quarantined(tallies: Tallies, launch: LaunchRecord, closed: ClosedRecord | None) -> int:
    """Return how many rows an attempt's own seals quarantine, of those that count or that show by now.

    Costs no request where the attempt may not quarantine any.
    """
    if launch.on_row_error != "Quarantine":
        return 0
    if closed is not None:
        return tallies.of_closed(launch.attempt).rows_quarantined
    if tallies.ledger.plans.read_plan(launch.attempt) is None:
        return 0
    return sum(chain.rows_quarantined for chain in tallies.of_tasks(launch.attempt).values())


def limit_of(tallies: Tallies, spec: Spec, attempts: Sequence[Attempt]) -> RowErrorLimit | None:
    """Return what the manifest allows by now; None where no row was quarantined."""
    if not any(attempt.rows_quarantined for attempt in attempts):
        return None
    last = attempts[-1]
    record = tallies.ledger.inputs.read_input(last.input_since)
    examples = tuple(islice(_examples(tallies.ledger, attempts, record), _EXAMPLES))
    if spec.on_row_error != "Quarantine":
        return RowErrorLimit(0, "onRowError: Fail allows none", examples)
    rows_read = None
    if last.is_complete:
        rows_read = sum(tallies.of_closed(number).rows_read for number in (*last.counted, last.number))
    return RowErrorLimit(
        most_rows=most_rows(spec.quarantine, record, rows_read),
        set_by=describe_limit(spec.quarantine, record, rows_read),
        examples=examples,
    )


def _seals(ledger: Ledger, attempt: int, closed: ClosedRecord | None) -> Iterable[Seal]:
    if closed is not None:
        return ledger.chains.counted_seals([attempt])
    if ledger.plans.read_plan(attempt) is None:
        return ()
    lengths = ledger.seals.list_links(attempt)
    return ledger.seals.read_links(attempt, [(task, link) for task, length in lengths.items() for link in range(length)])


def _examples(ledger: Ledger, attempts: Iterable[Attempt], record: Input | None) -> Iterable[str]:
    """Say what failed, from what the seals themselves hold."""
    for attempt in attempts:
        if attempt.rows_quarantined:
            for seal in _seals(ledger, attempt.number, ledger.attempts.read_closed(attempt.number)):
                for row in seal.quarantined.rows if seal.quarantined is not None else ():
                    message = " ".join(row.message[:_MOST_OF_A_MESSAGE].split())
                    yield f"{place_of(row, record)}: {row.step}: {row.error}: {message}"


def place_of(row: QuarantinedRow, record: Input | None) -> str:
    """Name the place of a row in the input."""
    if isinstance(row.row, RowKey):
        return f"the row with {key_text(key_of(row.row, record), row.row.source)}"
    where = row.row.range
    if record is None or where.file >= record.totals.files:
        return f"position {where.start} of file number {where.file}"
    file = record.files[where.file]
    unit = {"rows": "row", "records": "row", "bytes": "the line at byte"}[file.unit]
    return f"{unit} {where.start} of {file.path}"
