"""The conflict rules of Lance that the protocol leans on, and looks: one suite for real datasets and for the fakes."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lance
import pytest

from checkpoint_commit.lance.probe import refuse_lance_without_fences
from checkpoint_commit.outcomes import Landed, Refused
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from tests.contract.lance_tables.worlds import (
    OTHER,
    SECOND,
    RealWorld,
    World,
)
from tests.support.records import KEY, appended
from tests.support.waiting import patience

# --- the conflict rules that the protocol leans on ------------------------------------------------------------------------


def test_an_append_lands_after_a_strangers_append(world: World) -> None:
    based_on = world.latest
    world.append_as_stranger()

    landed = world.append(based_on, 1)

    assert landed == Landed(world.latest)
    if isinstance(world, RealWorld):
        assert world.ids() == [1, 1_000_000]


def test_two_appends_from_one_version_both_land_which_is_why_there_is_a_fence(world: World) -> None:
    based_on = world.latest

    assert isinstance(world.append(based_on, 1), Landed)
    assert isinstance(world.append(based_on, 1), Landed)
    if isinstance(world, RealWorld):
        assert world.ids() == [1, 1]


def test_an_append_that_is_older_than_a_fence_is_refused_and_one_based_on_it_lands(world: World) -> None:
    based_on = world.latest
    fence = world.port().fence(based_on)
    assert isinstance(fence, Landed)

    assert isinstance(world.append(based_on, 1), Refused)
    assert isinstance(world.append(fence.commit_id, 2), Landed)
    if isinstance(world, RealWorld):
        assert world.ids() == [2]


def test_an_append_that_is_older_than_a_fence_is_refused_also_after_later_versions(world: World) -> None:
    based_on = world.latest
    assert isinstance(world.port().fence(based_on), Landed)
    world.append_as_stranger()
    world.append_as_stranger()

    assert isinstance(world.append(based_on, 1), Refused)


def test_a_fence_after_an_append_that_it_has_not_seen_is_refused(world: World) -> None:
    based_on = world.latest
    world.append_as_stranger()

    assert isinstance(world.port().fence(based_on), Refused)


def test_a_fence_after_another_fence_that_it_has_not_seen_is_refused(world: World) -> None:
    based_on = world.latest
    assert isinstance(world.port().fence(based_on), Landed)

    assert isinstance(world.port().fence(based_on), Refused)


def test_a_strangers_append_lands_after_a_fence(world: World) -> None:
    assert isinstance(world.port().fence(world.latest), Landed)
    world.append_as_stranger()

    if isinstance(world, RealWorld):
        assert world.ids() == [1_000_000]


def test_a_fence_changes_neither_rows_nor_columns_nor_identity(real: RealWorld) -> None:
    real.append(real.latest, 1, 2)
    before = real.target()

    fence = real.port().fence(real.latest)

    after = real.target()
    assert fence == Landed(after.at_version)
    assert (after.identity, after.fields, after.arrow_schema) == (before.identity, before.fields, before.arrow_schema)
    assert real.ids() == [1, 2]
    state = real.loaded()
    assert real.port().find_incompatibility(state, [before], appended(real.stage(3))) is None


def test_of_many_committers_that_fence_and_append_at_once_one_copy_lands(real: RealWorld) -> None:
    """The takeover of the protocol, by hand: fence, look up to the fence, append based on it."""
    since = real.latest
    files = real.stage(1, 2)

    def take_over(_: int) -> bool:
        port = real.port()
        fence = port.fence(real.latest)
        if not isinstance(fence, Landed):
            return False
        state = port.load(KEY, since, fence.commit_id)
        assert state is not None
        return state.committed is None and isinstance(port.append(fence.commit_id, KEY, appended(files)), Landed)

    with ThreadPoolExecutor(4) as committers:
        landed = sum(committers.map(take_over, range(8)))

    assert landed <= 1
    assert real.ids() == [1, 2] * landed


# --- looks ----------------------------------------------------------------------------------------------------------------


def test_no_dataset_is_none(bare: RealWorld) -> None:
    assert bare.port().latest_version() is None
    assert bare.port().load(KEY, 0) is None
    assert bare.port().describe() is None


def test_a_dataset_without_a_commit_of_ours_has_none(world: World) -> None:
    base = world.latest
    world.append_as_stranger()

    state = world.loaded(since=base)
    assert (state.at_version, state.committed, state.history_reaches_back) == (base + 1, None, True)


def test_a_commit_is_found_at_its_version_by_every_later_look(world: World) -> None:
    base = world.latest
    landed = world.append(base, 1)
    assert isinstance(landed, Landed)
    for _ in range(3):
        world.append_as_stranger()

    state = world.loaded(since=base)
    assert state.committed == landed.commit_id
    assert state.at_version == landed.commit_id + 3
    assert state.history_reaches_back


def test_a_look_sees_only_the_versions_after_since_and_up_to_its_end(world: World) -> None:
    base = world.latest
    world.append_as_stranger()
    landed = world.append(world.latest, 1)
    assert isinstance(landed, Landed)
    world.append_as_stranger()

    assert world.loaded(since=base, up_to=landed.commit_id - 1).committed is None
    assert world.loaded(since=base, up_to=landed.commit_id).committed == landed.commit_id
    assert world.loaded(since=base, up_to=landed.commit_id).at_version == landed.commit_id
    assert world.loaded(since=landed.commit_id).committed is None


def test_another_writes_key_and_a_later_epoch_are_not_found(world: World) -> None:
    base = world.latest
    world.append(base, 1)

    assert world.loaded(OTHER, since=base).committed is None
    assert world.loaded(SECOND, since=base).committed is None
    assert isinstance(world.append(world.latest, 2, key=SECOND), Landed)
    assert world.loaded(SECOND, since=base).committed == base + 2
    assert world.loaded(since=base).committed == base + 1


def test_versions_that_were_cleaned_up_after_the_base_are_no_knowledge(world: World) -> None:
    base = world.latest
    for _ in range(3):
        world.append_as_stranger()
    world.clean_all_but_the_latest()

    assert not world.loaded(since=base).history_reaches_back
    assert world.loaded(since=world.latest).history_reaches_back
    assert world.loaded(since=world.latest - 1).history_reaches_back, "the latest version is never cleaned up"


def test_a_staged_file_is_referenced_after_the_append_and_not_before(world: World) -> None:
    files = world.stage(1)
    assert not world.port().references_any(world.loaded(), appended(files))
    before = world.latest
    world.port().append(before, KEY, appended(files))
    world.append_as_stranger()

    assert world.port().references_any(world.loaded(), appended(files))
    assert not world.port().references_any(world.loaded(), appended(world.stage(2)))
    assert not world.port().references_any(world.loaded(up_to=before), appended(files))


# --- the rule that all of this rests on ------------------------------------------------------------------------------------


def test_the_installed_lance_keeps_the_rules_and_says_nothing_of_the_trials() -> None:
    trials = (
        "from checkpoint_commit.lance import probe\n"
        "probe.refuse_lance_without_fences()\n"
        "probe.refuse_lance_that_replaces_twice()\n"
    )

    done = subprocess.run([sys.executable, "-c", trials], capture_output=True, text=True, timeout=patience(120), check=False)

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_lance_in_which_a_fence_stops_nothing_is_refused() -> None:
    def harmless(dataset: Any) -> Any:
        return lance.LanceOperation.UpdateConfig()

    with pytest.raises(NeedsChange) as refused:
        refuse_lance_without_fences(harmless)
    assert refused.value.reason == reasons.STORE_UNSAFE
    assert lance.__version__ in refused.value.message


def test_a_lance_in_which_an_overwrite_lands_on_what_it_has_not_seen_is_refused() -> None:
    with pytest.raises(NeedsChange, match="an overwrite without retries land") as refused:
        refuse_lance_without_fences(retries=5)
    assert refused.value.reason == reasons.STORE_UNSAFE
