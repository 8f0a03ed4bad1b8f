"""The loop of every commit, whatever the format: look, claim, and one request at a time.

    read the claim, where the look goes by it           none = nothing was ever sent to the table
    loop, bounded:
        load the table: is the key there?               yes: committed (or a tombstone: the write was deleted)
        can all that came after the claim be seen?      no: a staged file in the table is evidence, or nobody knows
        does what was staged still fit?
        no claim yet: put it, naming what was loaded    unless it does not fit: then nothing is claimed
                                                        another's claim: load again, as it may have landed since
        was the write deleted?                          yes: rejected
        did it not fit? what the store tells of that    rejected
        ONE request                                     refused, or no believable answer: load again

The order is what makes it safe. The claim stands before the first request, and names what was loaded before it: so "no claim"
means that no request was sent, and what landed under a claim lies after its base. Whether the write was deleted is asked after
the claim and before each request; the other half is in `Commits.is_deleted`. That not all can be seen goes before that the write
was deleted, as "nothing of it is in the table" would not be known, and before what does not fit, as "a staged file is gone" would
be said of a commit that landed, and was compacted and forgotten since.

Why a request can be sent again is the strategy's: a *swap* lands only on the very state that was loaded, so that a late one of a
dead committer is refused once anything has landed after it. A *fence* refuses late requests where the table has no swap.

Clocks, locks and leases have no part in it. The deletion of a write whose commit may be on its way goes the same way
(`BlockStrategy`): its request puts a tombstone, which changes no row and carries the key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from checkpoint_commit.changes import Change
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
    Unanswered,
    Unknown,
)
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import Base, ClaimRecord

#: So often the table is loaded and asked before the rest is left to a later call.
ROUNDS: Final = 12
_FIRST_PAUSE_S: Final = 0.1
_MOST_PAUSE_S: Final = 5.0


class TableState(Protocol):
    """The table as it was loaded, as far as the loop depends on it.

    `committed` is the snapshot or version that carries the key, if one does; `is_tombstone` if a deletion has put it there, with
    no rows. A real commit goes before a tombstone, should both be there. `is_current`: as in Committed. `identity`: which table
    it is; None where it has none (any more). `seen`: the snapshot or version that was loaded. `base`: what a claim says of it.
    """

    @property
    def committed(self) -> int | None: ...
    @property
    def is_tombstone(self) -> bool: ...
    @property
    def is_current(self) -> bool: ...
    @property
    def identity(self) -> str | None: ...
    @property
    def seen(self) -> int | None: ...
    @property
    def base(self) -> Base: ...

    def why_unseen(self, base: Base) -> str | None:
        """Say why not all that was committed since the base can be seen: where a commit was tried, and what became of that."""


_State = TypeVar("_State", bound=TableState)
_End = TypeVar("_End")


@dataclass(slots=True)
class Strategy(ABC, Generic[_State, _End]):
    """One way to bring an epoch into a table. A subclass knows the format and the request; `run` calls it in its order."""

    #: What people call the target.
    noun: ClassVar[str] = "table"

    ledger: Ledger

    @property
    def key(self) -> EpochKey:
        return self.ledger.key

    @property
    def goal(self) -> str:
        """What is not yet so while the loop goes on, for people."""
        return f"the commit of {self.key} is not in the {self.noun}"

    # --- the claim ------------------------------------------------------------------------------------------------------------

    def read_claim(self) -> ClaimRecord | None:
        return self.ledger.commits.read_claim(0)

    def claim_to_look_by(self) -> ClaimRecord | None:
        """Return the claim that the first look goes by. None too where the look shows all: then putting ours tells of one."""
        return self.read_claim()

    def put_claim(self, base: Base) -> tuple[ClaimRecord, bool]:
        """Put the claim unless one is there. Return the one that stands, and whether it is ours."""
        ours = ClaimRecord(token=new_token(), index=0, base=base)
        claim = self.ledger.commits.put_claim(ours)
        return claim, claim.token == ours.token

    def why_unseen(self, state: _State, claim: ClaimRecord | None) -> str | None:
        """Say why it cannot be seen whether a commit landed. None where it can, or where none was tried."""
        return None if claim is None else state.why_unseen(claim.base)

    def identity_of(self, state: _State) -> str:
        """Return which table it is; where it does not say so any more, the one that was claimed."""
        if state.identity is not None:
            return state.identity
        claim = self.read_claim()
        assert claim is not None
        return claim.base.table_identity

    # --- the look -------------------------------------------------------------------------------------------------------------

    @abstractmethod
    def load(self, claim: ClaimRecord | None) -> _State | None:
        """Load the table anew. None: it does not exist. Raises Retryable where it does not answer."""

    @abstractmethod
    def gone(self) -> _End:
        """Return how it ends where there is no table."""

    @abstractmethod
    def find_end(self, state: _State, claim: ClaimRecord | None) -> _End | Refused | Unanswered | None:
        """Return how it ends, where the state tells. None: the request is still to be sent. Refused, Unanswered: look again."""

    @abstractmethod
    def find_problem(self, state: _State) -> _End | None:
        """Return why the request cannot be sent to that state; asked before each. What it raises is such a reason, too.

        It is asked before the claim is put, so that what is refused leaves none, and can be deleted without the table.
        """

    def find_conflict(self, state: _State) -> _End | None:
        """As `find_problem`, where it takes requests to know: asked after the claim, beside whether the write was deleted."""
        return None

    def is_deleted(self) -> bool:
        return self.ledger.commits.is_deleted()

    # --- the request ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def send(self, state: _State, claim: ClaimRecord, is_first: bool) -> RequestOutcome | _End:
        """Send one request, based on that state; or say how it ends where nothing is to be sent. Never retries.

        `is_first`: no other request of the epoch was ever sent, and none will be by a committer that does not know of ours.
        """

    @abstractmethod
    def landed(self, state: _State, commit_id: int) -> _End | Refused | Unanswered | None:
        """Return how it ends where a request has landed. None: only another look at the table tells. Else as `find_end`."""


def run(strategy: Strategy[_State, _End], pause: Callable[[float], None]) -> _End | Rejected | TryLater:
    """Do what the module says, until it has ended or must be tried later. To be called again after a death at any point."""
    return outcome_of(lambda: _run(strategy, pause))


def outcome_of(do: Callable[[], _End]) -> _End | Rejected | TryLater:
    """Return what is done, or as an outcome why it cannot be."""
    try:
        return do()
    except NeedsChange as error:
        return Rejected(error.reason, error.message)
    except Retryable as error:
        return TryLater(error.reason, error.message)


def _run(strategy: Strategy[_State, _End], pause: Callable[[float], None]) -> _End | Rejected | TryLater:
    claim, said = strategy.claim_to_look_by(), f"the {strategy.noun} kept moving"
    for number in range(ROUNDS):
        state = strategy.load(claim)
        if state is None:
            return strategy.gone()
        answer: _End | RequestOutcome | None = strategy.find_end(state, claim)
        if answer is None:
            problem = _problem(strategy.find_problem, state)
            is_first = False
            if claim is None and problem is None:
                # The state from before the claim is good for the first request: a table that has moved meanwhile refuses it.
                claim, is_first = strategy.put_claim(state.base)
                if not is_first:
                    continue  # another committer's, on a state that this one may not show yet; it may have landed
            elif claim is None and (claim := strategy.read_claim()) is not None:
                continue  # "the files are there already" is no problem then
            is_deleted, conflict = strategy.ledger.read_both(
                strategy.is_deleted, partial(_problem, strategy.find_conflict, state)
            )
            if is_deleted:
                return deleted(strategy)
            problem = problem or conflict
            if isinstance(problem, CheckpointError):
                raise problem
            if problem is not None:
                return problem
            assert claim is not None
            answer = strategy.send(state, claim, is_first)
        if isinstance(answer, Landed):
            answer = strategy.landed(state, answer.commit_id)
        if isinstance(answer, Refused | Unanswered):
            said = answer.message
            pause(pause_s(number))
        elif answer is not None:
            return answer
    return TryLater(reasons.COMMIT_CONTENDED, f"after {ROUNDS} tries {strategy.goal}: {said}")


def _problem(find: Callable[[_State], _End | None], state: _State) -> _End | CheckpointError | None:
    """Return what is found or raised: that the write was deleted, or its key forgotten, goes before either."""
    try:
        return find(state)
    except CheckpointError as error:
        return error


def pause_s(round_number: int) -> float:
    """Return how long is waited before the table is loaded again."""
    return min(_MOST_PAUSE_S, _FIRST_PAUSE_S * 2.0**round_number)


def deleted(strategy: Strategy[_State, _End]) -> Rejected:
    """The write was deleted, and nothing of the epoch may land."""
    return Rejected(
        reasons.WRITE_DELETED,
        f"the write of {strategy.key} was deleted before its commit; nothing of it is in the {strategy.noun}",
    )


@dataclass(slots=True)
class CommitStrategy(Strategy[_State, CommitOutcome]):
    """What the commits of all formats have in common. `name`: the target, as the manifest names it."""

    change: Change
    name: str
    pause: Callable[[float], None]

    @abstractmethod
    def references_any(self, state: _State) -> bool:
        """Whether the table in that state names one of the staged files."""

    def committed(self, state: _State, commit_id: int, by_us: bool, is_current: bool = True) -> CommitOutcome:
        """Return that the key is in the table."""
        return Committed(self.identity_of(state), commit_id, by_us, is_current)

    def gone(self) -> CommitOutcome:
        return Rejected(
            reasons.TABLE_MISSING,
            f"the {self.noun} {self.name} does not exist any more; staged results cannot go anywhere else",
        )

    def find_end(self, state: _State, claim: ClaimRecord | None) -> CommitOutcome | Refused | Unanswered | None:
        if state.committed is not None:
            if state.is_tombstone:
                return deleted(self)
            return self.committed(state, state.committed, by_us=False, is_current=state.is_current)
        if (unseen := self.why_unseen(state, claim)) is None:
            return None
        if self.references_any(state):
            assert state.seen is not None
            return Committed(self.identity_of(state), state.seen, by_us=False)
        return Unknown(
            f"a commit of {self.key} was tried {unseen}, and neither the key nor a staged file is in the {self.noun}; "
            "check whether the rows are there"
        )

    def landed(self, state: _State, commit_id: int) -> CommitOutcome | Refused | Unanswered | None:
        return self.committed(state, commit_id, by_us=True)

    def commit(self) -> CommitOutcome:
        """Put the change into the table, once, whoever else tries."""
        return run(self, self.pause)


@dataclass(slots=True)
class BlockStrategy(Strategy[_State, BlockOutcome]):
    """See to it that nothing of a claimed epoch lands any more, unless it has landed: then say so.

    To be called after the note of the deletion was put (`put_deleted`) and for an epoch with a claim only: without one, nothing
    was ever sent to the table, and nothing needs to be. A committer that has loaded the table before the tombstone is refused,
    and finds it when it loads again; one that has not yet sent anything finds the note. Calling it again finds the tombstone.
    Unknown: whether the commit landed cannot be seen any more; nothing is sent.
    """

    @property
    def goal(self) -> str:
        return f"the tombstone of {self.key} is not in the {self.noun}"

    def gone(self) -> BlockOutcome:
        return CommitBlocked(table_identity=None)

    def find_end(self, state: _State, claim: ClaimRecord | None) -> BlockOutcome | None:
        if state.committed is not None:
            return self.blocked(state) if state.is_tombstone else Committed(self.identity_of(state), state.committed, by_us=False)
        if (unseen := self.why_unseen(state, claim)) is None:
            return None
        return Unknown(
            f"a commit of {self.key} was tried {unseen}, and the key is not in the {self.noun}; check whether the rows are there"
        )

    def blocked(self, state: _State) -> CommitBlocked:
        """Return that nothing lands any more in the table that was claimed, if it is this one."""
        first = self.ledger.commits.read_claim(0)
        assert first is not None
        claimed = first.base.table_identity
        return CommitBlocked(claimed if state.identity == claimed else None)

    def find_problem(self, state: _State) -> None:
        return None

    def is_deleted(self) -> bool:
        return False  # it is; that is why the tombstone is put
