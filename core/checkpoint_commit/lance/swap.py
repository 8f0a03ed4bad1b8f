"""The Lance commit of an overwrite of all: claim, then one compare-and-swap at a time, loading the dataset before each.

    load: is the key in the history since the base of the claim?   yes: already committed
    does it fit? claim-0, naming the version that was loaded       another's claim: load again, as it may have landed since
    loop, bounded:
        was the write deleted? does it still fit?                  deleted, or no fit: rejected
        ONE request that the loaded version be followed by ours
        landed, refused, or no believable answer                   load, as above, and loop

Lance's Overwrite with retries, or after a fence, lands on whatever is there and drops it unseen. Without retries it is an atomic
put of the one version that follows the one it is based on: whatever landed there before refuses it. So a late request of a
committer that died lands only on the version that it had loaded; then ours is refused, and the next load finds its key. No fence
is needed, nor any conflict rule of Lance's.

One thing that put does not see: where the version that follows was cleaned up, ours takes its place, below the latest one, and no
reader sees it (a version is kept that a tag names, while the next is cleaned up). `load` does not take such a version for a
commit, and for that the dataset is loaded also after a request that landed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from checkpoint_commit.changes import Change
from checkpoint_commit.lance.port import LanceState, LanceTable, deleted, gone, without_evidence
from checkpoint_commit.outcomes import (
    CommitOutcome,
    Committed,
    Landed,
    Refused,
    Rejected,
    RequestOutcome,
    TryLater,
    Unknown,
)
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import ClaimRecord, LanceBase, LanceTarget

_ROUNDS: Final = 12
_FIRST_PAUSE_S: Final = 0.1
_MOST_PAUSE_S: Final = 5.0


def commit(
    table: LanceTable,
    ledger: Ledger,
    change: Change,
    targets: Sequence[LanceTarget],
    pause: Callable[[float], None],
    send: Callable[[int, EpochKey, Change], RequestOutcome] | None = None,
    find_problem: Callable[[LanceState], CommitOutcome | None] = lambda state: None,
) -> CommitOutcome:
    """Put the change into the dataset, once, whoever else tries. Raises what the ports raise; see the module for the protocol.

    `send`: another request than the atomic put of a version, of which Lance refuses the second, too. `find_problem`: why the
    change does not go with a state in which it is not committed.
    """
    send = send or table.swap
    key = ledger.key
    claim, said, landed = ledger.commits.read_claim(0), "the dataset kept moving", None
    for number in range(_ROUNDS):
        state = _load(table, key, claim)
        if state is None:
            return gone(targets)
        if state.committed is not None:
            # One that was claimed and made since we asked for the claim is found without it.
            return _found(state, key, claim or ledger.commits.read_claim(0), landed)
        if claim is not None and (known := _without_history(table, state, key, claim, change)) is not None:
            return known
        incompatibility = table.find_incompatibility(state, targets, change) or find_problem(state)
        if claim is None:
            if incompatibility is not None and (claim := ledger.commits.read_claim(0)) is None:
                return incompatibility
            ours = new_token()
            claim = claim or ledger.commits.put_claim(ClaimRecord(token=ours, index=0, base=_base_of(state)))
            if claim.token != ours:
                continue  # another committer's, on a version before this one, perhaps; it may have landed since
        # After the claim, before the request, and anew each round: the other half is in `Commits.is_deleted`.
        if ledger.commits.is_deleted():
            return deleted(key)
        if incompatibility is not None:
            return incompatibility
        match send(state.at_version, key, change):
            case Landed(version):
                landed, said = version, "it took the place of a version that was cleaned up, below the latest one"
                found = _load(table, key, claim)
                if found is not None and found.committed is not None:
                    return _found(found, key, claim, landed)
            case Refused(message):
                said = message
            case unanswered:
                said = unanswered.message
        pause(min(_MOST_PAUSE_S, _FIRST_PAUSE_S * 2**number))
    return TryLater(reasons.COMMIT_CONTENDED, f"after {_ROUNDS} tries the commit of {key} is not in the dataset: {said}")


def _load(table: LanceTable, key: EpochKey, claim: ClaimRecord | None) -> LanceState | None:
    if claim is None:
        # Nobody has claimed, so nobody has committed: there is no history to search.
        latest = table.latest_version()
        return None if latest is None else table.load(key, since=latest)
    return table.load(key, since=_base(claim).at_version)


def _base_of(state: LanceState) -> LanceBase:
    assert state.identity is not None  # it is the one that was staged for
    return LanceBase(identity=state.identity, at_version=state.at_version)


def _base(claim: ClaimRecord) -> LanceBase:
    assert isinstance(claim.base, LanceBase)
    return claim.base


def _found(state: LanceState, key: EpochKey, claim: ClaimRecord | None, landed: int | None) -> Committed | Rejected:
    """The key is in the dataset: our commit, or the tombstone of a deletion."""
    assert state.committed is not None
    if state.is_tombstone:
        return deleted(key)
    assert claim is not None
    return Committed(_base(claim).identity, state.committed, state.committed == landed, state.is_current)


def _without_history(
    table: LanceTable, state: LanceState, key: EpochKey, claim: ClaimRecord, change: Change
) -> Committed | Unknown | None:
    """Return the outcome where versions after the claim's base were cleaned up; None where all can be seen.

    Before the incompatibility: "a staged file is gone" would be said of a commit that landed, and was compacted and forgotten.
    """
    base = _base(claim)
    if state.identity != base.identity or state.history_reaches_back:
        return None
    if table.references_any(state, change):
        return Committed(base.identity, state.at_version, by_us=False)
    return Unknown(without_evidence(key, base.at_version))
