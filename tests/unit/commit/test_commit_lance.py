"""The Lance commit protocol over a small dataset with faults by script: every branch, by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from checkpoint_commit.lance import commit as lance
from checkpoint_commit.outcomes import (
    BlockOutcome,
    CommitBlocked,
    CommitOutcome,
    Committed,
    Landed,
    Refused,
    Rejected,
    RequestOutcome,
    TryLater,
)
from checkpoint_commit.results import Results
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import ClaimRecord, LanceBase
from tests.support.records import DIGEST, KEY, LANCE, TOKEN, appended, lance_fragment, ledger_over
from tests.support.stores import Wrapped
from tests.support.tables import FakeLance, FakeVersion, Fault, down

FILES = (lance_fragment("a.lance"), lance_fragment("b.lance"))
RESULTS = Results(change=appended(FILES), targets=(LANCE,), rows_read=2, rows_written=2, attempts=1, code_digests=(DIGEST,))


class Logged(Wrapped):
    """Writes puts of claims into the table's log, to see what came first."""

    log: list[str]

    def put_if_absent(self, path: str, data: bytes) -> bool:
        made = super().put_if_absent(path, data)
        self.log.append(path.rsplit("/", 1)[1].removesuffix(".json"))
        return made


@dataclass
class World:
    """One dataset, one store, and any number of committers one after another."""

    table: FakeLance = field(default_factory=FakeLance)
    store: Any = field(default_factory=Logged)
    pauses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store.log = self.table.log
        self.table.before_request = self.claim_must_stand

    def ledger(self) -> Ledger:
        return ledger_over(self.store)

    def claim_must_stand(self) -> None:
        assert self.ledger().commits.read_claim(0) is not None, "no claim must mean: never tried"

    def commit(self, *faults: Fault) -> CommitOutcome:
        self.table.faults = deque(faults)
        return lance.commit(self.table, self.ledger(), RESULTS, self.pauses.append)

    def claim(self, at_version: int = 1) -> None:
        """As a committer that died right after."""
        base = LanceBase(identity=TOKEN, at_version=at_version)
        self.ledger().commits.put_claim(ClaimRecord(token=new_token(), index=0, base=base))
        self.table.log.clear()

    def requests(self) -> list[str]:
        return [entry for entry in self.table.log if " on " in entry]

    def assert_once(self) -> None:
        """One copy, and at most one append that is not based on a fence."""
        (landed,) = self.table.commits_of(KEY)
        assert landed.files == ("a.lance", "b.lance")
        fences = {number for number, version in enumerate(self.table.versions, 1) if version.kind == "fence"}
        appends = [int(request.split()[-1]) for request in self.requests() if request.startswith("append")]
        assert len([based for based in appends if based not in fences]) <= 1


def with_history(count: int = 2) -> World:
    world = World()
    for _ in range(count):
        world.table.append_as_stranger()
    return world


# --- the first committer --------------------------------------------------------------------------------------------------


def test_the_first_committer_looks_then_claims_what_it_saw_then_appends_once_without_a_fence() -> None:
    world = with_history()

    assert world.commit() == Committed(TOKEN, 4, by_us=True)

    assert world.table.log == ["latest", "load", "incompatibility", "claim-0", "append on 3", "schema of 4"]
    claim = world.ledger().commits.read_claim(0)
    assert claim is not None
    assert claim.base == LanceBase(identity=TOKEN, at_version=3)
    world.assert_once()


def test_an_append_of_a_stranger_does_not_disturb_ours() -> None:
    world = with_history()

    assert world.commit("stranger") == Committed(TOKEN, 5, by_us=True)
    world.assert_once()


def test_a_dataset_that_was_made_again_is_rejected_before_any_claim() -> None:
    world = World(FakeLance(identity="f" * 32))

    outcome = world.commit()

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.TABLE_REPLACED
    assert world.ledger().commits.list_claims() == []


# --- a claim exists -------------------------------------------------------------------------------------------------------


def test_where_a_claim_exists_a_fence_comes_before_the_append_which_is_based_on_it() -> None:
    world = with_history()
    world.claim(3)

    assert world.commit() == Committed(TOKEN, 5, by_us=True)

    assert world.table.log == [
        "load",
        "incompatibility",
        "claim-1",
        "fence on 3",
        "load",
        "incompatibility",
        "append on 4",
        "schema of 5",
    ]
    world.assert_once()


def test_each_takeover_puts_the_next_claim() -> None:
    world = with_history()
    for _ in range(3):
        assert isinstance(world.commit(*["dropped"] * 100), TryLater)  # type: ignore[arg-type]

    claims = world.ledger().commits.list_claims()
    assert claims == list(range(len(claims)))
    assert world.commit() == Committed(TOKEN, 5, by_us=True)
    world.assert_once()


def test_two_committers_race_for_the_first_claim_and_the_loser_fences() -> None:
    world = with_history()
    other = World(world.table, world.store)

    class LetsTheOtherClaim(Wrapped):
        def put_if_absent(self, path: str, data: bytes) -> bool:
            if path.endswith("claim-0.json"):
                other.claim(3)
            return super().put_if_absent(path, data)

    world.store = LetsTheOtherClaim(world.store)

    assert world.commit() == Committed(TOKEN, 5, by_us=True)
    assert world.requests() == ["fence on 3", "append on 4"]
    world.assert_once()


def test_the_first_committers_late_append_is_refused_after_the_fence_of_the_second() -> None:
    world = with_history()
    world.commit(*["late"] + ["dropped"] * 100)  # type: ignore[arg-type]

    assert world.commit() == Committed(TOKEN, 5, by_us=True)
    world.table.land_late()
    world.assert_once()


def test_the_first_committers_append_that_lands_before_the_fence_is_found_by_the_look_up_to_it() -> None:
    world = with_history()
    world.claim(3)

    def land() -> None:
        world.table.before_request = lambda: None
        world.table.append(3, KEY, appended(FILES))

    world.table.before_request = land

    assert world.commit() == Committed(TOKEN, 4, by_us=False)
    world.assert_once()


def test_an_append_that_lands_between_look_and_fence_refuses_the_fence_and_is_found() -> None:
    world = with_history()
    world.claim(3)

    assert world.commit("stranger") == Committed(TOKEN, 6, by_us=True)
    assert world.requests() == ["fence on 3", "fence on 4", "append on 5"]
    world.assert_once()


class FencesAnyhow(FakeLance):
    """A fence lands also where an append came after what it is based on."""

    def fence(self, read_version: int) -> RequestOutcome:
        self.before_request()
        self.versions.append(FakeVersion("fence"))
        return Landed(len(self.versions))


def test_an_append_that_landed_before_a_fence_is_found_behind_it() -> None:
    world = World(FencesAnyhow())
    world.claim(1)

    def land() -> None:
        world.table.before_request = lambda: None
        world.table.append(1, KEY, appended(FILES))

    world.table.before_request = land

    assert world.commit() == Committed(TOKEN, 2, by_us=False)
    world.assert_once()


# --- refused, unknown, late -----------------------------------------------------------------------------------------------


def test_an_append_that_may_be_on_its_way_is_fenced_before_the_next() -> None:
    world = with_history()

    assert world.commit("dropped") == Committed(TOKEN, 5, by_us=True)
    assert world.requests() == ["append on 3", "fence on 3", "append on 4"]
    world.assert_once()


def test_an_append_that_a_strangers_fence_refuses_is_fenced_by_us_and_lands() -> None:
    world = with_history()

    def fence_first() -> None:
        world.table.before_request = lambda: None
        world.table.fence(3)

    world.table.before_request = fence_first

    assert world.commit() == Committed(TOKEN, 6, by_us=True)
    assert world.requests()[-2:] == ["fence on 4", "append on 5"]
    world.assert_once()


@pytest.mark.parametrize(
    ("faults", "requests"),
    [
        (("lost",), ["fence on 3", "fence on 4", "append on 5"]),
        (("misreported",), ["fence on 3", "fence on 4", "append on 5"]),
        (("dropped",), ["fence on 3", "fence on 3", "append on 4"]),
        (("stranger",), ["fence on 3", "fence on 4", "append on 5"]),
        (("", "dropped"), ["fence on 3", "append on 4", "fence on 4", "append on 5"]),
        (("", "stranger"), ["fence on 3", "append on 4"]),
    ],
)
def test_a_takeover_whose_fence_or_append_goes_wrong_begins_again_with_a_fence(
    faults: Sequence[Fault], requests: list[str]
) -> None:
    world = with_history()
    world.claim(3)

    assert isinstance(outcome := world.commit(*faults), Committed)
    assert outcome.by_us
    assert world.requests() == requests
    world.assert_once()


def test_a_takeovers_append_whose_answer_was_lost_is_found() -> None:
    world = with_history()
    world.claim(3)

    assert world.commit("", "lost") == Committed(TOKEN, 5, by_us=False)
    assert world.requests() == ["fence on 3", "append on 4"]
    world.assert_once()


def test_a_dataset_that_refuses_again_and_again_is_for_a_person_and_gets_one_version_a_look() -> None:
    world = with_history()
    refused: list[Fault] = ["", "dropped"] * 12
    outcomes = [world.commit("dropped", *refused) if look == 0 else world.commit(*refused) for look in range(6)]
    assert all(isinstance(outcome, TryLater) for outcome in outcomes[:5])

    before = len(world.requests())
    outcome = world.commit(*refused)

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.COMMIT_CONTENDED
    assert "the request was lost" in outcome.message
    assert len(world.requests()) - before == 2

    assert isinstance(world.commit(), Committed)
    world.assert_once()


def test_all_late_appends_of_a_committer_that_gave_up_leave_one_copy() -> None:
    world = with_history()
    world.commit(*["late", *["", "late"] * 12])  # type: ignore[arg-type]
    assert world.table.commits_of(KEY) == []

    world.commit()
    while world.table._late:
        world.table.land_late()
    world.assert_once()


# --- history that is gone, datasets that are gone -------------------------------------------------------------------------


def test_versions_that_were_cleaned_up_before_the_base_do_not_matter() -> None:
    world = with_history(3)
    world.claim(3)
    world.table.cleaned = 3

    assert world.commit() == Committed(TOKEN, 6, by_us=True)


def test_a_dataset_that_was_made_again_after_the_claim_is_rejected_and_not_unknown() -> None:
    world = with_history()
    world.claim(3)
    world.table.identity = "f" * 32
    world.table.append_as_stranger()
    world.table.append_as_stranger()
    world.table.clean_all_but_the_latest()

    outcome = world.commit()

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.TABLE_REPLACED
    assert world.requests() == []


def test_an_incompatibility_that_comes_between_two_tries_is_seen_before_the_next_append() -> None:
    world = with_history()
    world.claim(3)

    def spoil() -> None:
        world.table.incompatibility = Rejected(reasons.SCHEMA_CHANGED, "dropped")

    world.table.before_request = spoil

    assert world.commit() == Rejected(reasons.SCHEMA_CHANGED, "dropped")
    assert world.requests() == ["fence on 3"]


def test_a_column_that_was_retyped_between_look_and_append_is_told_by_the_committer_that_landed() -> None:
    world = with_history()
    world.table.before_request = world.table.retype_column

    outcome = world.commit()

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.SCHEMA_CHANGED
    assert "version 5" in outcome.message
    assert "the column 'x' was retyped" in outcome.message


def test_a_column_that_was_retyped_between_look_and_append_is_told_by_every_later_committer_too() -> None:
    world = with_history()
    world.table.before_request = world.table.retype_column
    world.commit("lost")
    world.table.before_request = lambda: None

    assert isinstance(again := world.commit(), Rejected)
    assert again.reason == reasons.SCHEMA_CHANGED
    world.assert_once()


def test_a_column_that_was_retyped_between_fence_and_append_is_told() -> None:
    world = with_history()
    world.claim(3)

    requests = iter([lambda: None, world.table.retype_column])
    world.table.before_request = lambda: next(requests)()

    assert isinstance(outcome := world.commit(), Rejected)
    assert outcome.reason == reasons.SCHEMA_CHANGED
    assert len(world.table.commits_of(KEY)) == 1


def test_a_column_that_was_retyped_after_the_commit_does_not_matter() -> None:
    world = with_history()
    world.commit()
    world.table.retype_column()

    assert world.commit() == Committed(TOKEN, 4, by_us=False)


# --- errors of the ports ---------------------------------------------------------------------------------------------------


def test_a_store_that_does_not_answer_after_the_fence_is_tried_later_and_nothing_is_appended() -> None:
    world = with_history()
    world.claim(3)
    world.table.errors = deque([None, down()])

    assert isinstance(world.commit(), TryLater)
    assert world.requests() == ["fence on 3"]
    assert isinstance(world.commit(), Committed)
    world.assert_once()


# --- deletion -------------------------------------------------------------------------------------------------------------


def delete(world: World) -> None:
    """Put the note, as deletion does before anything else."""
    writes.put_deleted(world.store, KEY.uid)


def block_commit(world: World, *faults: Fault) -> BlockOutcome:
    world.table.faults = deque(faults)
    return lance.block_commit(world.table, world.ledger(), world.pauses.append)


def burials(world: World) -> list[str]:
    return [entry for entry in world.table.log if entry.startswith("block_commit")]


def claimed() -> World:
    world = with_history()
    world.claim(3)
    return world


def test_a_takeover_of_a_deleted_write_neither_claims_nor_fences() -> None:
    world = claimed()
    delete(world)

    assert isinstance(outcome := world.commit(), Rejected)
    assert outcome.reason == reasons.WRITE_DELETED
    assert world.requests() == []
    assert world.ledger().commits.list_claims() == [0]


def test_a_claimed_epoch_is_buried_by_one_fence_that_carries_the_key() -> None:
    world = claimed()
    delete(world)
    world.table.log.clear()

    assert block_commit(world) == CommitBlocked(TOKEN)

    assert world.table.log == ["load", "block_commit on 3", "load"]
    assert len(world.table.tombstones_of(KEY)) == 1
    assert block_commit(world) == CommitBlocked(TOKEN), "and is found by whoever blocks again"
    assert len(burials(world)) == 1


def test_all_late_appends_and_fences_are_refused_after_the_tombstone() -> None:
    world = with_history()
    world.commit(*["late", *["", "late"] * 6, *["late"] * 100])  # type: ignore[arg-type]

    assert block_commit(world) == CommitBlocked(TOKEN)

    assert len(world.table._late) > 3
    while world.table._late:
        assert isinstance(world.table.land_late(), Refused)
    assert world.table.commits_of(KEY) == []


def test_an_append_that_lands_just_before_the_tombstone_is_found() -> None:
    world = claimed()

    def land() -> None:
        world.table.before_request = lambda: None
        world.table.append(3, KEY, appended(FILES))

    world.table.before_request = land

    assert block_commit(world) == Committed(TOKEN, 4, by_us=False)
    assert world.table.tombstones_of(KEY) == []


def test_an_append_that_is_in_the_dataset_goes_before_a_tombstone_that_landed_after_it_all_the_same() -> None:
    """No Lance that we accept does that; were it so, the rows must be known to be there."""
    world = claimed()

    def slip_in() -> None:
        world.table.before_request = lambda: None
        world.table.append(3, KEY, appended(FILES))
        world.table.versions.append(FakeVersion("fence", str(KEY)))

    world.table.before_request = slip_in

    assert block_commit(world, "", "dropped") == Committed(TOKEN, 4, by_us=False)
    assert isinstance(world.commit(), Committed)


def test_in_a_dataset_that_was_made_again_one_tombstone_is_put_and_the_claimed_one_is_not_named() -> None:
    """Its versions count from 1 again, so that the claim's version means nothing there."""
    world = World(FakeLance(identity="f" * 32))
    world.claim(50)

    assert block_commit(world) == CommitBlocked(None)
    assert block_commit(world) == CommitBlocked(None)
    assert len(burials(world)) == len(world.table.tombstones_of(KEY)) == 1


class ClaimedMeanwhile(FakeLance):
    """Somebody claims between our look for a claim and our look at the dataset, which was made again without an identity."""

    claim: Callable[[], None] = staticmethod(lambda: None)

    def latest_version(self) -> int | None:
        self.claim()
        self.identity = None
        return super().latest_version()


def test_a_dataset_made_again_after_somebodys_claim_is_looked_at_again_and_rejected() -> None:
    table = ClaimedMeanwhile()
    world = World(table)
    table.claim = lambda: world.claim(1)

    assert isinstance(outcome := world.commit(), Rejected)
    assert outcome.reason == reasons.TABLE_REPLACED
    assert world.requests() == []
