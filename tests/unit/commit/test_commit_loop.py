"""The commit loop with each of its strategies over small tables with faults by script, and with planted errors in the loop.

What only one strategy does is in test_commit_iceberg and test_commit_lance.
"""

from __future__ import annotations

import inspect
import math
import types
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from checkpoint_commit import commit_loop
from checkpoint_commit.iceberg import commit as iceberg
from checkpoint_commit.lance import commit as lance
from checkpoint_commit.outcomes import CommitBlocked, Committed, Refused, Rejected, TryLater, Unknown
from checkpoint_commit.results import Results
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from tests.support.records import DIGEST, ICEBERG, KEY, LANCE, appended, iceberg_file, lance_fragment, ledger_over
from tests.support.stores import LosesAnswers, MemoryStore, Wrapped
from tests.support.tables import FakeIceberg, FakeLance, Fault, down

STRATEGIES: Final = ("iceberg, swap", "lance, swap", "lance, fence", "lance, fence first")
ICEBERG_FILES: Final = (iceberg_file("a.parquet"), iceberg_file("b.parquet"))
LANCE_FILES: Final = (lance_fragment("a.lance"), lance_fragment("b.lance"))
GONE_WRONG: Final = Rejected(reasons.SCHEMA_CHANGED, "the column 'a' was dropped")


class Died(BaseException):
    """The committer dies here."""


@dataclass
class World:
    """A table with two commits of strangers, a store, and any number of committers one after another."""

    strategy: str
    run: Callable[[Any, Callable[[float], None]], Any] = commit_loop.run
    store: Any = field(default_factory=MemoryStore)
    pauses: list[float] = field(default_factory=list)
    key: EpochKey = KEY
    table: Any = None
    #: The committer dies of the request after so many.
    lives_for: float = math.inf

    def __post_init__(self) -> None:
        self.is_iceberg = self.strategy.startswith("iceberg")
        if self.table is None:
            self.table = FakeIceberg() if self.is_iceberg else FakeLance()
            self.table.append_as_stranger()
            self.table.append_as_stranger()
        self.table.before_request = self.claim_must_stand

    def other(self) -> World:
        """Another committer, over the same table and store."""
        return World(self.strategy, self.run, getattr(self.store, "inner", self.store), table=self.table)

    @property
    def ledger(self) -> Ledger:
        return ledger_over(self.store, key=self.key)

    def claim_must_stand(self) -> None:
        assert self.ledger.commits.read_claim(0) is not None, "no claim must mean: never tried"

    def how(self) -> Any:
        table: Any = _Mortal(self.table, self)
        files, target = (ICEBERG_FILES, ICEBERG) if self.is_iceberg else (LANCE_FILES, LANCE)
        results = Results(appended(files), (target,), rows_read=2, rows_written=2, attempts=1, code_digests=(DIGEST,))
        if self.is_iceberg:
            return iceberg.Swap.of(table, self.ledger, results, self.pauses.append)
        kinds: dict[str, Any] = {"swap": lance.Swap, "fence": lance.Fence, "fence first": lance.FenceFirst}
        kind = kinds[self.strategy.partition(", ")[2]]
        send = table.swap if kind is lance.Swap else table.append
        return kind.of(table, self.ledger, results, self.pauses.append, send)

    def commit(self, *faults: Fault) -> Any:
        """The faults are those of requests that carry the rows, and of what follows; a fence before them succeeds."""
        before: tuple[Fault, ...] = ("",) if self.strategy == "lance, fence first" and faults else ()
        self.table.faults = deque((*before, *faults))
        return self.run(self.how(), self.pauses.append)

    def block(self, *faults: Fault) -> Any:
        self.table.faults = deque(faults)
        how: Any = iceberg.Block if self.is_iceberg else lance.Block
        return self.run(how(self.ledger, self.table), self.pauses.append)

    def claim(self) -> None:
        """As a committer that died right after."""
        how = self.how()
        how.put_claim(how.load(None).base)
        self.table.log.clear()

    def delete(self) -> None:
        """Put the note, as deletion does before anything else."""
        writes.put_deleted(self.store, self.key.uid)

    def forget_history(self, *, with_rows: bool = False) -> None:
        """A stranger commits, and all before that is cleaned up. `with_rows`: he has rewritten the rows into files of his own."""
        if with_rows and self.is_iceberg:
            self.table.history = [one for one in self.table.history if one.key is None]
        elif with_rows:
            self.table.versions = [one if one.key is None else self.table.versions[0] for one in self.table.versions]
        self.table.append_as_stranger()
        if self.is_iceberg:
            self.table.properties.clear()
            self.table.expire_all_but_the_head()
        else:
            self.table.clean_all_but_the_latest()

    def land_what_is_late(self) -> list[Any]:
        self.table.before_request = lambda: None
        return [self.table.land_late() for _ in list(self.table._late)]

    def requests(self, *names: str) -> list[str]:
        return [entry for entry in self.table.log if entry.partition(" on ")[0] in (names or ("swap", "append"))]

    def assert_once(self) -> None:
        (landed,) = self.table.commits_of(self.key)
        assert landed.files == tuple(path for file in (ICEBERG_FILES if self.is_iceberg else LANCE_FILES) for path in file.paths)


class _Mortal:
    """The port of a committer, which may not live to see the answer to its request."""

    def __init__(self, table: Any, world: World) -> None:
        self._table, self._world = table, world

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._table, name)
        if name not in ("swap", "append", "fence"):
            return found

        def request(*arguments: Any) -> Any:
            answer = found(*arguments)
            self._world.lives_for -= 1
            if self._world.lives_for < 0:
                raise Died
            return answer

        return request


@pytest.fixture(params=STRATEGIES)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


# --- the first committer ---------------------------------------------------------------------------------------------------


def test_the_first_committer_claims_what_it_saw_and_its_rows_land_once(world: World) -> None:
    assert world.commit().by_us

    claim = world.ledger.commits.read_claim(0)
    assert claim is not None
    assert claim.base.at == (2 if world.is_iceberg else 3)
    assert len(world.requests()) == 1
    world.assert_once()


def test_what_does_not_fit_is_rejected_before_any_claim(world: World) -> None:
    world.table.incompatibility = GONE_WRONG

    assert world.commit() == GONE_WRONG
    assert world.ledger.commits.list_claims() == []
    assert world.requests() == []


def test_what_cannot_be_compared_is_told_before_any_claim(world: World) -> None:
    world.table.incompatibility = NeedsChange(reasons.TABLE_UNSUPPORTED, "format version 3")
    assert world.commit() == Rejected(reasons.TABLE_UNSUPPORTED, "format version 3")
    world.table.incompatibility = down()
    assert world.commit() == TryLater(reasons.CATALOG_UNAVAILABLE, "no answer")
    assert world.ledger.commits.list_claims() == []


def test_what_does_not_fit_any_more_is_rejected_before_the_next_request(world: World) -> None:
    def spoil() -> None:
        world.table.incompatibility = GONE_WRONG

    world.table.before_request = spoil

    assert world.commit("dropped") == GONE_WRONG
    assert len(world.requests()) <= 1


def test_no_table_is_rejected_by_its_name_before_any_claim(world: World) -> None:
    world.table.exists = False

    outcome = world.commit()

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.TABLE_MISSING
    assert (ICEBERG.table if world.is_iceberg else LANCE.uri) in outcome.message
    assert world.ledger.commits.list_claims() == []


def test_a_table_that_vanishes_between_two_requests_is_rejected(world: World) -> None:
    def vanish() -> None:
        world.table.exists = False

    world.table.before_request = vanish

    assert world.commit("dropped").reason == reasons.TABLE_MISSING


# --- several committers ----------------------------------------------------------------------------------------------------


def test_what_is_committed_is_found_and_nothing_is_sent(world: World) -> None:
    committed = world.commit()
    world.table.incompatibility = Rejected(reasons.STAGED_FILE_MISSING, "compacted away since")

    again = world.commit()

    assert (again.commit_id, again.by_us) == (committed.commit_id, False)
    assert len(world.requests()) == 1
    assert world.ledger.commits.read_claim(0) is not None


def test_the_next_epoch_is_not_taken_for_this_one(world: World) -> None:
    world.commit()
    world.key = EpochKey(KEY.uid, 2)

    assert world.commit().by_us
    world.assert_once()


def test_a_committer_that_died_after_its_claim_is_taken_over_and_its_claim_stands(world: World) -> None:
    world.claim()
    claim = world.ledger.commits.read_claim(0)

    assert world.commit().by_us
    assert world.ledger.commits.read_claim(0) == claim
    world.assert_once()


def test_the_loser_of_the_race_for_the_claim_looks_again_before_it_sends(world: World) -> None:
    class LetsTheOtherCommit(Wrapped):
        def put_if_absent(self, path: str, data: bytes) -> bool:
            if path.endswith("claim-0.json") and not world.table.commits_of(KEY):
                world.other().commit()
            return super().put_if_absent(path, data)

    world.store = LetsTheOtherCommit(world.store)

    assert not world.commit().by_us
    assert len(world.requests()) == 1
    world.assert_once()


def test_that_the_files_are_there_already_is_no_problem_if_somebody_has_claimed_since(world: World) -> None:
    name = "find_change" if world.is_iceberg else "find_incompatibility"
    other, compare = world.other(), getattr(world.table, name)

    def commit_meanwhile(*arguments: Any) -> Any:
        setattr(world.table, name, compare)
        other.commit()
        return Rejected(reasons.STAGED_RESULT_REFUSED, "there already")

    setattr(world.table, name, commit_meanwhile)

    assert not world.commit().by_us
    world.assert_once()


def test_the_answer_to_the_claim_is_lost_and_nothing_is_sent(world: World) -> None:
    world.store = LosesAnswers(world.store)

    assert isinstance(world.commit(), TryLater)
    assert world.requests() == []
    assert world.commit().by_us
    world.assert_once()


def test_an_unreadable_claim_is_corrupt_and_nothing_is_sent(world: World) -> None:
    world.store.put_if_absent(world.ledger.at.claim(0), b"garbage")

    with pytest.raises(Corrupt, match=r"claim-0\.json"):
        world.commit()
    assert world.requests() == []


# --- refused, unknown, late ------------------------------------------------------------------------------------------------


def test_a_request_that_landed_without_a_believable_answer_is_found_and_not_repeated(world: World) -> None:
    faults: tuple[Fault, ...] = ("lost", "misreported")
    for fault in faults:
        each = World(world.strategy, world.run)

        assert not each.commit(fault).by_us
        assert len(each.requests()) == 1
        each.assert_once()


def test_a_request_that_may_be_on_its_way_is_sent_again_and_one_lands(world: World) -> None:
    faults: tuple[Fault, ...] = ("dropped", "late")
    for fault in faults:
        each = World(world.strategy, world.run)

        assert each.commit(fault).by_us
        assert all(isinstance(answer, Refused) for answer in each.land_what_is_late())
        each.assert_once()


def test_a_late_request_that_lands_before_the_next_committers_is_found(world: World) -> None:
    world.commit("late", *["dropped"] * 40)  # type: ignore[arg-type]
    world.land_what_is_late()

    assert isinstance(world.commit(), Committed)
    world.assert_once()


def test_a_table_that_never_answers_is_left_for_later_after_bounded_waiting(world: World) -> None:
    outcome = world.commit(*["dropped"] * 100)  # type: ignore[arg-type]

    assert isinstance(outcome, TryLater)
    assert outcome.reason == reasons.COMMIT_CONTENDED
    assert "the request was lost" in outcome.message
    assert len(world.pauses) == 12
    assert world.pauses == sorted(world.pauses)
    assert world.pauses[1] == 2 * world.pauses[0]
    assert max(world.pauses) <= 5.0
    assert sum(world.pauses) < 60.0


def test_refused_credentials_are_for_a_person_and_no_answer_is_for_later(world: World) -> None:
    world.table.errors = deque([NeedsChange(reasons.CREDENTIALS_REFUSED, "refused"), down()])

    assert world.commit() == Rejected(reasons.CREDENTIALS_REFUSED, "refused")
    assert world.commit() == TryLater(reasons.CATALOG_UNAVAILABLE, "no answer")
    assert world.ledger.commits.list_claims() == []
    assert world.commit().by_us


def test_a_committer_that_died_at_any_request_is_followed_by_one_that_makes_it_one_copy(world: World) -> None:
    faults: tuple[Fault, ...] = ("", "lost", "late", "dropped", "stranger")
    before: tuple[Fault, ...] = ("dropped", "late")
    for number, fault, first in [(n, f, b) for n in range(3) for f in faults for b in before]:
        each = World(world.strategy, world.run, lives_for=number)
        with pytest.raises(Died):
            each.commit(*[first] * number, fault, *["dropped"] * 3)  # type: ignore[arg-type]
        each.lives_for = math.inf

        assert isinstance(each.commit(), Committed)
        each.land_what_is_late()
        assert isinstance(each.commit(), Committed)
        each.assert_once()


# --- what can no longer be seen --------------------------------------------------------------------------------------------


def test_a_staged_file_in_the_table_is_evidence_where_its_history_is_gone(world: World) -> None:
    world.commit()
    world.forget_history()
    world.table.incompatibility = Rejected(reasons.STAGED_RESULT_REFUSED, "there already")

    assert not world.commit().by_us
    assert len(world.requests()) == 1


def test_without_any_evidence_the_outcome_is_unknown_and_nothing_is_sent(world: World) -> None:
    """Committed, compacted, expired, vacuumed: to say "start a new write" would double the rows."""
    world.commit()
    world.forget_history(with_rows=True)
    world.table.incompatibility = Rejected(reasons.STAGED_FILE_MISSING, "its rows are lost: start a new write")

    outcome = world.commit()

    assert isinstance(outcome, Unknown)
    assert str(KEY) in outcome.message
    assert "check whether the rows are there" in outcome.message
    world.delete()
    assert isinstance(world.commit(), Unknown), "that nothing of it is in the table would not be known"
    assert len(world.requests()) == 1


def test_history_that_was_gone_before_any_claim_does_not_matter(world: World) -> None:
    world.forget_history()

    assert world.commit().by_us


# --- deletion --------------------------------------------------------------------------------------------------------------


def test_a_committer_of_a_deleted_write_claims_and_sends_nothing(world: World) -> None:
    world.delete()

    assert world.commit().reason == reasons.WRITE_DELETED
    assert world.ledger.commits.list_claims() == [0], "it asks after its claim stands, or deletion could miss it"
    assert world.commit().reason == reasons.WRITE_DELETED
    assert world.requests("swap", "append", "fence") == []


def test_that_a_write_was_deleted_goes_before_what_does_not_fit(world: World) -> None:
    world.delete()
    for problem in (NeedsChange(reasons.TABLE_UNSUPPORTED, "format version 3"), GONE_WRONG):
        world.table.incompatibility = problem

        assert world.commit().reason == reasons.WRITE_DELETED


def test_a_deletion_between_two_requests_is_seen_before_the_second(world: World) -> None:
    world.table.before_request = world.delete

    assert world.commit("dropped").reason == reasons.WRITE_DELETED
    assert len(world.requests()) == 1


def test_a_deletion_does_not_hide_what_is_committed(world: World) -> None:
    world.table.before_request = world.delete

    assert not world.commit("lost").by_us


def test_a_claimed_epoch_is_blocked_by_one_tombstone_which_all_later_committers_find(world: World) -> None:
    world.claim()
    world.delete()

    blocked = world.block()

    assert isinstance(blocked, CommitBlocked)
    assert blocked.table_identity == world.ledger.commits.read_claim(0).base.table_identity  # type: ignore[union-attr]
    assert world.block() == blocked, "and is found by whoever blocks again"
    assert len(world.requests("block_commit")) == len(world.table.tombstones_of(KEY)) == 1
    assert world.commit().reason == reasons.WRITE_DELETED
    assert world.requests() == world.table.commits_of(KEY) == []


def test_requests_on_their_way_are_refused_after_the_tombstone(world: World) -> None:
    fenced: list[Fault] = ["" if "fence" in world.strategy else "late", "late"]
    world.commit("late", *fenced * 20)

    assert isinstance(world.block(), CommitBlocked)
    assert all(isinstance(answer, Refused) for answer in world.land_what_is_late())
    assert world.table.commits_of(KEY) == []


def test_a_request_that_lands_just_before_the_tombstone_is_found(world: World) -> None:
    world.commit("late", *["dropped"] * 40)  # type: ignore[arg-type]
    world.table.before_request = lambda: world.land_what_is_late() and None

    assert isinstance(world.block(), Committed)
    assert world.table.tombstones_of(KEY) == []
    world.assert_once()


def test_what_is_committed_is_not_blocked(world: World) -> None:
    committed = world.commit()

    assert world.block() == Committed(committed.table_identity, committed.commit_id, by_us=False)
    assert world.requests("block_commit") == []


def test_a_tombstone_without_a_believable_answer_is_looked_for_before_the_next(world: World) -> None:
    asked: dict[Fault, int] = {"lost": 1, "misreported": 1, "dropped": 2, "stranger": 2}
    for fault, requests in asked.items():
        each = World(world.strategy, world.run)
        each.claim()

        assert isinstance(each.block(fault), CommitBlocked)
        assert len(each.requests("block_commit")) == requests
        assert len(each.table.tombstones_of(KEY)) == 1


def test_a_table_that_never_answers_a_tombstone_is_left_for_later_after_bounded_waiting(world: World) -> None:
    world.claim()

    outcome = world.block(*["dropped"] * 100)  # type: ignore[arg-type]

    assert isinstance(outcome, TryLater)
    assert outcome.reason == reasons.COMMIT_CONTENDED
    assert len(world.requests("block_commit")) == len(world.pauses) == 12


def test_where_there_is_no_table_nothing_can_land_and_none_is_named(world: World) -> None:
    world.claim()
    world.table.exists = False

    assert world.block() == CommitBlocked(None)
    assert world.requests("block_commit") == []


def test_without_evidence_a_block_is_unknown_and_nothing_is_sent(world: World) -> None:
    world.claim()
    world.table.append_as_stranger()
    world.forget_history()

    outcome = world.block()

    assert isinstance(outcome, Unknown)
    assert str(KEY) in outcome.message
    assert world.requests("block_commit") == []


def test_a_table_that_does_not_answer_a_block_is_for_later_and_one_that_refuses_for_a_person(world: World) -> None:
    world.claim()
    world.table.errors = deque([down(), NeedsChange(reasons.CREDENTIALS_REFUSED, "refused")])

    assert world.block() == TryLater(reasons.CATALOG_UNAVAILABLE, "no answer")
    assert world.block() == Rejected(reasons.CREDENTIALS_REFUSED, "refused")
    assert world.requests("block_commit") == []


# --- planted errors --------------------------------------------------------------------------------------------------------

SOURCE: Final = Path(commit_loop.__file__).read_text()
#: What each of them changes in the loop.
PLANTED: Final[dict[str, tuple[str, str]]] = {
    "what is in the table is not looked for": (
        "answer: _End | RequestOutcome | None = strategy.find_end(state, claim)",
        "answer = None",
    ),
    "a refusal leaves a claim": ("if claim is None and problem is None:", "if claim is None:"),
    "the claim of another is taken for ours": (
        "claim, is_first = strategy.put_claim(state.base)",
        "claim, is_first = strategy.put_claim(state.base)[0], True",
    ),
    "a claim since the look is not asked for": ("(claim := strategy.read_claim()) is not None", "False"),
    "nobody asks whether the write was deleted": ("if is_deleted:", "if False:"),
    "it is asked whether the write was deleted before the claim": (
        "    claim, said = strategy.claim_to_look_by()",
        "    if strategy.is_deleted():\n        return deleted(strategy)\n    claim, said = strategy.claim_to_look_by()",
    ),
    "what does not fit is sent": (
        "if problem is not None:\n                return problem",
        "if False:\n                return problem",
    ),
    "what cannot be compared is sent": ("if isinstance(problem, CheckpointError):", "if False:"),
    "what cannot be compared goes before a deletion": (
        "except CheckpointError as error:\n        return error",
        "except ZeroDivisionError as error:\n        return error",
    ),
    "one that does not answer is waited for at once": ("pause(pause_s(number))", "pass"),
    "the table is loaded once": ("state = strategy.load(claim)\n", "state = strategy.load(claim) if number == 0 else state\n"),
    "refused credentials are for later": (
        "return Rejected(error.reason, error.message)",
        "return TryLater(error.reason, error.message)",
    ),
    "no answer is for a person": ("return TryLater(error.reason, error.message)", "return Rejected(error.reason, error.message)"),
}
SCENARIOS: Final = [
    function
    for name, function in list(globals().items())
    if name.startswith("test_") and isinstance(function, types.FunctionType) and "world" in inspect.signature(function).parameters
]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("planted", PLANTED)
def test_an_error_that_is_planted_in_the_loop_is_found_with_each_strategy(planted: str, strategy: str) -> None:
    right, wrong = PLANTED[planted]
    assert SOURCE.count(right) == 1
    module = types.ModuleType(commit_loop.__name__)
    exec(compile(SOURCE.replace(right, wrong), "planted", "exec"), module.__dict__)  # noqa: S102 our own text
    module_run = module.run

    def is_found(scenario: Callable[[World], None]) -> bool:
        try:
            scenario(World(strategy, module_run))
        except (Exception, Died):
            return True
        return False

    is_harmless = (planted, strategy) == ("the claim of another is taken for ours", "lance, fence first")  # it fences in any case
    assert any(is_found(scenario) for scenario in SCENARIOS) is not is_harmless


def test_without_a_planted_error_each_scenario_passes_also_outside_of_the_runner() -> None:
    for scenario in SCENARIOS:
        scenario(World(STRATEGIES[0]))
