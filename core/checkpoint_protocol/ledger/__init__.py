"""The rules of the store, over one epoch's records: who wins a put, what a chain is, which seals count.

Safety rests here and in the table's compare-and-swap, nowhere else. Everything is put-if-absent; nothing is ever changed.

    attempts      what driver n is told, what it and the operator agree on, why it ended, which of its seals count
    inputs        what every attempt of the epoch reads
    plans         the tasks of an attempt, and which driver's they are
    seals         the segments of tasks that are finished, one by one
    bundles       copies of many seals in one object
    quarantine    rows that failed, where they are too many for their seal
    chains        the seals of a task one after the other, and those that count
    merges        the keys of the rows that an upsert has staged
    commits       who may try to commit, and that the commit was seen in the table
    epoch_index   what all epochs up to one have taken, so that the next need not read their records
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger.attempts import Attempts, Commits
from checkpoint_protocol.ledger.bundles import Bundles
from checkpoint_protocol.ledger.chains import Chains
from checkpoint_protocol.ledger.epoch_records import EpochRecords
from checkpoint_protocol.ledger.inputs import Inputs, Merges, Plans
from checkpoint_protocol.ledger.seals import Quarantine, Seals
from checkpoint_protocol.records import PART_BYTES
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_protocol.store.parallel import Mapper, in_threads

_First = TypeVar("_First")
_Second = TypeVar("_Second")


@dataclass(slots=True)
class Ledger:
    """The records of one epoch of one write, by family.

    No record ever changes, so each is remembered once it was read or put; but not the seals, which are many. That one is not
    there is asked anew each time. An input or a plan of more than `part_bytes` is put in parts.
    """

    store: ObjectStore
    key: EpochKey
    pause: Callable[[float], None] = time.sleep
    map_all: Mapper = in_threads
    part_bytes: int = PART_BYTES
    records: EpochRecords = field(init=False)
    attempts: Attempts = field(init=False)
    inputs: Inputs = field(init=False)
    plans: Plans = field(init=False)
    seals: Seals = field(init=False)
    bundles: Bundles = field(init=False)
    quarantine: Quarantine = field(init=False)
    chains: Chains = field(init=False)
    commits: Commits = field(init=False)
    merges: Merges = field(init=False)

    def __post_init__(self) -> None:
        self.records = EpochRecords(self.store, self.at, self.pause, self.map_all, self.part_bytes)
        self.attempts = Attempts(self.records)
        self.commits = Commits(self.records)
        self.inputs = Inputs(self.records, self.commits)
        self.plans = Plans(self.records)
        self.merges = Merges(self.records)
        self.seals = Seals(self.records, self.plans)
        self.bundles = Bundles(self.records, self.plans, self.seals)
        self.quarantine = Quarantine(self.records)
        self.chains = Chains(self.records, self.attempts, self.plans, self.seals, self.bundles)

    @property
    def at(self) -> EpochLayout:
        return EpochLayout(self.key)

    def read_both(self, first: Callable[[], _First], second: Callable[[], _Second]) -> tuple[_First, _Second]:
        """Ask two things side by side: each is a round trip to the store."""
        return self.records.read_both(first, second)


__all__ = ["Ledger"]
