"""Tombstones in a dataset, and commits that Lance refuses: one suite for real datasets and for the fakes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from checkpoint_commit.changes import Change, StagedChange
from checkpoint_commit.lance import commit as lance_protocol
from checkpoint_commit.lance.port import LanceState
from checkpoint_commit.lance.table import PylanceTable
from checkpoint_commit.outcomes import CommitBlocked, Committed, Landed, Refused, Rejected
from checkpoint_commit.results import Results
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import Append, ClaimRecord, LanceBase, LanceTarget, OverwriteAll
from tests.contract.lance_tables.worlds import (
    OTHER,
    SECOND,
    RealWorld,
    World,
    changed,
)
from tests.support.records import KEY, TOKEN, appended, ledger_over
from tests.support.stores import MemoryStore
from tests.support.writes import SCHEMA, rows_of


def test_a_tombstone_is_found_as_one_by_every_later_look_of_that_epoch_and_of_no_other(world: World) -> None:
    base = world.latest
    landed = world.port().block_commit(base, KEY)
    assert isinstance(landed, Landed)

    world.append_as_stranger()
    state = world.loaded(since=base)
    assert (state.committed, state.is_tombstone, state.history_reaches_back) == (landed.commit_id, True, True)
    assert world.loaded(OTHER, since=base).committed is None
    assert world.loaded(SECOND, since=base).committed is None


def test_an_append_or_a_fence_that_was_prepared_before_a_tombstone_is_refused_after_it(world: World) -> None:
    based_on = world.latest
    assert isinstance(world.port().block_commit(based_on, KEY), Landed)
    world.append_as_stranger()

    assert isinstance(world.append(based_on, 1), Refused)
    assert isinstance(world.port().fence(based_on), Refused)
    assert isinstance(world.port().block_commit(based_on, KEY), Refused)
    if isinstance(world, RealWorld):
        assert world.ids() == [1_000_000]


def test_an_append_that_is_based_on_a_fence_is_refused_after_a_tombstone(world: World) -> None:
    fence = world.port().fence(world.latest)
    assert isinstance(fence, Landed)
    assert isinstance(world.port().block_commit(fence.commit_id, KEY), Landed)

    assert isinstance(world.append(fence.commit_id, 1), Refused)


def test_a_tombstone_that_was_prepared_before_the_commit_landed_is_refused(world: World) -> None:
    base = world.latest
    landed = world.append(base, 1)
    assert isinstance(landed, Landed)

    assert isinstance(world.port().block_commit(base, KEY), Refused)
    state = world.loaded(since=base)
    assert (state.committed, state.is_tombstone) == (landed.commit_id, False)


def test_a_real_commit_goes_before_a_tombstone_that_is_newer(world: World) -> None:
    base = world.latest
    landed = world.append(base, 1)
    assert isinstance(landed, Landed)
    assert isinstance(world.port().block_commit(landed.commit_id, KEY), Landed)

    state = world.loaded(since=base)
    assert (state.committed, state.is_tombstone) == (landed.commit_id, False)


def claimed_ledger(state: LanceState) -> Ledger:
    ledger = ledger_over(MemoryStore())
    base = LanceBase(identity=state.identity or "", at_version=state.at_version)
    ledger.commits.put_claim(ClaimRecord(token=new_token(), index=0, base=base))
    return ledger


def test_the_protocol_buries_a_claimed_epoch_once_and_readers_see_no_change(world: World) -> None:
    world.append_as_stranger()
    base = world.loaded()
    files, ledger = world.stage(1), claimed_ledger(base)

    for _ in range(2):
        assert lance_protocol.block_commit(world.port(), ledger, lambda _: None) == CommitBlocked(base.identity)

    assert world.latest == base.at_version + 1
    assert isinstance(world.port().append(base.at_version, KEY, appended(files)), Refused)
    if isinstance(world, RealWorld):
        assert world.ids() == [1_000_000]
        target = world.target()
        assert world.port().find_incompatibility(world.loaded(), [target], appended(files)) is None
        assert world.port().find_schema_change(world.latest, [target]) is None
        properties = world.place.dataset().read_transaction(world.latest).transaction_properties
        assert properties["checkpointed-write.key"] == str(KEY)
        assert properties["checkpointed-write.tombstone"] == "true"


def test_the_protocol_finds_a_commit_that_has_landed_and_does_not_bury_it(world: World) -> None:
    base = world.loaded()
    landed = world.append(base.at_version, 1, 2)
    assert isinstance(landed, Landed)
    world.append_as_stranger()
    before = world.latest

    outcome = lance_protocol.block_commit(world.port(), claimed_ledger(base), lambda _: None)

    assert outcome == Committed(base.identity or "", landed.commit_id, by_us=False)
    assert world.latest == before
    if isinstance(world, RealWorld):
        assert world.ids() == [1, 2, 1_000_000]


def test_a_strangers_append_lands_after_a_tombstone_and_another_writes_commit_too(world: World) -> None:
    world.port().block_commit(world.latest, KEY)
    world.append_as_stranger()

    assert isinstance(world.append(world.latest, 2, key=OTHER), Landed)
    if isinstance(world, RealWorld):
        assert world.ids() == [2, 1_000_000]


class Unchecked(PylanceTable):
    """Asks Lance for whatever is staged, so that only Lance finds what is wrong with it."""

    def find_incompatibility(self, state: LanceState, targets: Sequence[LanceTarget], change: Change) -> None:
        return None


@pytest.mark.parametrize("is_claimed", [False, True], ids=["the first committer", "a later committer"])
@pytest.mark.parametrize("operation", [Append(), OverwriteAll(base=None)], ids=["append", "overwrite"])
def test_a_commit_that_lance_never_takes_is_refused_by_name_and_not_tried_again(
    real: RealWorld, operation: Append | OverwriteAll, is_claimed: bool
) -> None:
    files = tuple(changed(fragment, major_version=9) for fragment in real.stage(1))
    change = StagedChange(operation, files)
    results = Results(change, (real.target(),), rows_read=1, rows_written=1, attempts=1, code_digests=())
    ledger = claimed_ledger(real.loaded()) if is_claimed else ledger_over(MemoryStore())
    pauses: list[float] = []
    before = real.latest

    outcome = lance_protocol.commit(Unchecked(real.place.uri, real.place.settings), ledger, results, pauses.append)

    assert isinstance(outcome, Rejected), outcome
    assert outcome.reason == reasons.STAGED_RESULT_REFUSED
    assert "Lance does not take the commit into the dataset" in outcome.message
    assert "Unknown Lance storage version: 9" in outcome.message
    assert pauses == []
    # Whoever comes after a claim does not know what the one before has sent, and fences it once.
    assert real.latest == before + (is_claimed and operation == Append())
    assert real.ids() == []


def test_a_schema_that_lance_never_takes_is_refused_by_name(real: RealWorld) -> None:
    twice = pa.schema([("id", pa.int64()), ("id", pa.int64())])

    with pytest.raises(NeedsChange, match='Duplicate field name "id"') as refused:
        real.port()._request(real.latest, lance.LanceOperation.Overwrite(twice, []), {})

    assert refused.value.reason == reasons.STAGED_RESULT_REFUSED


def test_a_dataset_that_a_later_lance_has_written_is_refused_by_name(tmp_path: Path) -> None:
    """Lance writes which of its features a writer has to know: here one that no Lance knows yet."""
    uri = tmp_path / "rows.lance"
    dataset = lance.write_dataset(SCHEMA.empty_table(), uri, enable_stable_row_ids=True)
    fragments = lance.fragment.write_fragments(rows_of([1]), uri)
    (manifest,) = (uri / "_versions").glob("*.manifest")
    features, and_another = b"\x48\x02\x50\x02", b"\x48\x02\x50\x40"
    written = manifest.read_bytes()
    assert written.count(features) == 1
    manifest.write_bytes(written.replace(features, and_another))

    with pytest.raises(NeedsChange, match="cannot be written by this version of Lance") as refused:
        PylanceTable(str(uri), Settings())._request(dataset.version, lance.LanceOperation.Append(fragments), {})

    assert refused.value.reason == reasons.STAGED_RESULT_REFUSED


def test_no_dataset_has_nothing_to_bury(bare: RealWorld) -> None:
    ledger = claimed_ledger(LanceState(TOKEN, 3, None, True))

    assert lance_protocol.block_commit(bare.port(), ledger, lambda _: None) == CommitBlocked(None)


def test_data_files_of_a_deleted_write_are_left_to_lances_own_cleaner(real: RealWorld) -> None:
    files = real.stage(1)

    assert real.port().discard(KEY, [real.target()], files) == 0
    assert isinstance(real.port().append(real.latest, KEY, appended(files)), Landed)
    assert real.ids() == [1]
