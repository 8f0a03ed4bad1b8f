"""The commits of overwrites of Lance datasets, over a small dataset with faults by script: every branch, by name."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from checkpoint_commit.changes import StagedChange
from checkpoint_commit.lance import commit as lance
from checkpoint_commit.outcomes import CommitOutcome, Committed, Refused, Rejected
from checkpoint_commit.results import Results
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import ClaimRecord, LanceBase, OverwriteAll, OverwriteWhere
from tests.support.records import DIGEST, KEY, LANCE, TOKEN, lance_fragment, ledger_over
from tests.support.stores import MemoryStore
from tests.support.tables import FakeLance, FakeVersion, Fault

BASE = LanceBase(identity=TOKEN, at_version=1)
CHANGE = StagedChange(OverwriteAll(base=BASE), (lance_fragment("a.lance"), lance_fragment("b.lance")))
LATE: list[Fault] = ["late"] * 12
RESULTS = Results(change=CHANGE, targets=(LANCE,), rows_read=2, rows_written=2, attempts=1, code_digests=(DIGEST,))


@dataclass
class World:
    """One dataset at version 3, one store, and any number of committers one after another."""

    table: FakeLance = field(default_factory=FakeLance)
    store: Any = field(default_factory=MemoryStore)
    pauses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table.before_request = self.claim_must_stand
        while len(self.table.versions) < 3:
            self.table.append_as_stranger()

    def ledger(self) -> Ledger:
        return ledger_over(self.store)

    def claim_must_stand(self) -> None:
        assert self.ledger().commits.read_claim(0) is not None, "no claim must mean: never tried"

    def commit(self, *faults: Fault) -> CommitOutcome:
        self.table.faults = deque(faults)
        return lance.commit(self.table, self.ledger(), RESULTS, self.pauses.append)

    def claim(self, at_version: int = 3) -> None:
        """As a committer that died right after."""
        base = LanceBase(identity=TOKEN, at_version=at_version)
        self.ledger().commits.put_claim(ClaimRecord(token=new_token(), index=0, base=base))

    def requests(self) -> list[str]:
        return [entry for entry in self.table.log if " on " in entry]

    def assert_once(self) -> None:
        (landed,) = self.table.commits_of(KEY)
        assert landed.files == ("a.lance", "b.lance")


@pytest.fixture
def world() -> World:
    return World()


# --- the first committer --------------------------------------------------------------------------------------------------


def test_the_first_committer_claims_what_it_saw_asks_once_on_exactly_that_and_sees_it_there(world: World) -> None:
    assert world.commit() == Committed(TOKEN, 4, by_us=True)

    assert world.table.log == ["latest", "load", "incompatibility", "swap on 3", "load"]
    claim = world.ledger().commits.read_claim(0)
    assert claim is not None
    assert claim.base == LanceBase(identity=TOKEN, at_version=3)
    world.assert_once()


def test_rows_of_a_stranger_in_between_refuse_the_request_and_the_dataset_is_looked_at_again(world: World) -> None:
    assert world.commit("stranger") == Committed(TOKEN, 5, by_us=True)

    assert world.requests() == ["swap on 3", "swap on 4"]
    assert world.table.log.count("incompatibility") == 2, "it is here that rows of others are refused"
    world.assert_once()


@pytest.mark.parametrize("identity", ["f" * 32, None])
def test_a_dataset_that_was_made_again_is_rejected(identity: str | None) -> None:
    world = World(FakeLance(identity=identity))

    assert isinstance(outcome := world.commit(), Rejected)
    assert outcome.reason == reasons.TABLE_REPLACED
    assert world.ledger().commits.list_claims() == []
    world.claim()
    world.table.clean_all_but_the_latest()
    assert isinstance(again := world.commit(), Rejected)
    assert again.reason == reasons.TABLE_REPLACED


# --- several committers ---------------------------------------------------------------------------------------------------


def test_a_committer_that_finds_a_claim_looks_at_all_that_came_after_its_base(world: World) -> None:
    world.claim()
    world.table.swap(3, KEY, CHANGE)
    world.table.append_as_stranger()

    assert world.commit() == Committed(TOKEN, 4, by_us=False)
    world.assert_once()


def test_a_commit_that_another_makes_before_we_know_the_latest_version_to_load_is_found(world: World) -> None:
    other = World(world.table, world.store)

    class CommittedMeanwhile(FakeLance):
        def latest_version(self) -> int | None:
            latest = super().latest_version()
            if not self.commits_of(KEY):
                other.claim()
                FakeLance.swap(self, 3, KEY, CHANGE)
            return latest

    world.table = CommittedMeanwhile(versions=world.table.versions)

    assert world.commit() == Committed(TOKEN, 4, by_us=False)


# --- refused, unknown, late -----------------------------------------------------------------------------------------------


class BelowTheLatest(FakeLance):
    """The first request lands where a version was cleaned up: the dataset does not become it."""

    def swap(self, read_version: int, key: Any, change: Any) -> Any:
        landed = super().swap(read_version, key, change)
        if len(self.requested()) == 1:
            self.versions.pop()
            self.append_as_stranger()
        return landed

    def requested(self) -> list[str]:
        return [entry for entry in self.log if entry.startswith("swap")]


def test_a_request_that_landed_and_is_not_in_the_dataset_is_asked_again() -> None:
    world = World(BelowTheLatest())

    assert world.commit() == Committed(TOKEN, 5, by_us=True)
    assert world.requests() == ["swap on 3", "swap on 4"]


# --- an overwrite of a part: by claims and fences, as an append -------------------------------------------------------------


PART = StagedChange(OverwriteWhere(base=BASE, where="id = 1"), CHANGE.files)
RESULTS_OF_PART = replace(RESULTS, change=PART)


def commit_part(world: World, *faults: Fault) -> CommitOutcome:
    world.table.faults = deque(faults)
    return lance.commit(world.table, world.ledger(), RESULTS_OF_PART, world.pauses.append)


def test_the_first_committer_of_a_part_claims_then_asks_once_without_a_fence(world: World) -> None:
    assert commit_part(world) == Committed(TOKEN, 4, by_us=True)

    assert world.table.log == ["latest", "load", "incompatibility", "update on 3", "schema of 4"]
    world.assert_once()


def test_rows_of_a_stranger_in_between_do_not_refuse_an_overwrite_of_a_part(world: World) -> None:
    assert commit_part(world, "stranger") == Committed(TOKEN, 5, by_us=True)
    world.assert_once()


@pytest.mark.parametrize("fault", ["lost", "misreported"])
def test_an_update_that_landed_without_a_believable_answer_is_found(world: World, fault: Fault) -> None:
    assert commit_part(world, fault) == Committed(TOKEN, 4, by_us=False)
    assert world.requests() == ["update on 3"]


@pytest.mark.parametrize("fault", ["dropped", "late"])
def test_an_update_that_may_be_on_its_way_is_fenced_before_the_next(world: World, fault: Fault) -> None:
    assert commit_part(world, fault) == Committed(TOKEN, 5, by_us=True)

    assert world.requests() == ["update on 3", "fence on 3", "update on 4"]
    while world.table._late:
        assert isinstance(world.table.land_late(), Refused)
    world.assert_once()


def test_an_update_is_made_anew_on_the_fence_after_what_refused_it(world: World) -> None:
    def retype() -> None:
        world.table.before_request = lambda: None
        world.table.versions.append(FakeVersion("merge"))

    world.table.before_request = retype

    assert commit_part(world) == Committed(TOKEN, 6, by_us=True)
    assert world.requests() == ["update on 3", "fence on 4", "update on 5"]
    world.assert_once()
