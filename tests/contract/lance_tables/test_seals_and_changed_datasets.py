"""Real datasets: seals that lie, staged files that are not as sealed, and datasets that have changed since."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from checkpoint_commit.footers import Footers
from checkpoint_commit.lance.files.footers import LanceFooters
from checkpoint_commit.outcomes import Landed, Rejected
from checkpoint_commit.staged_files import Tails
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.places.storage import StorageSettings, lance_options
from checkpoint_protocol.records import Append, LanceFragment, LanceTarget
from tests.contract.lance_tables.worlds import (
    OTHER,
    RealWorld,
    SimulatedWorld,
    World,
    add_column,
    changed,
    make_world,
)
from tests.support.records import KEY, appended
from tests.support.writes import SCHEMA


def incompatibility(world: RealWorld, target: LanceTarget, *files: LanceFragment) -> Rejected:
    found = world.port().find_incompatibility(world.loaded(), [target], appended(files))
    assert isinstance(found, Rejected), found
    return found


def test_staged_fragments_fit_the_dataset_that_they_were_staged_for(world: World) -> None:
    if isinstance(world, SimulatedWorld):
        return  # its sizes are its own
    targets = [world.target()] if isinstance(world, RealWorld) else []

    assert world.port().find_incompatibility(world.loaded(), targets, appended(world.stage(1))) is None


def test_what_is_staged_for_a_dataset_of_the_first_storage_version_is_packed_by_its_seals(bare: RealWorld) -> None:
    """Its data files have no footer that tells rows."""
    world, options = bare, lance_options(bare.place.uri, bare.place.settings)
    lance.write_dataset(SCHEMA.empty_table(), world.place.uri, schema=SCHEMA, data_storage_version="0.1", storage_options=options)
    files, port = world.stage(1, 2), world.port()
    footers = Footers("Footers", port.count_rows, lambda below: 0)

    change = port.pack(Append(), KEY, [world.target()], files, footers)

    assert port.find_incompatibility(world.loaded(), [world.target()], change) is None
    assert isinstance(port.append(world.latest, KEY, change), Landed)
    assert world.ids() == [1, 2]


def renamed(form: str) -> Callable[[LanceFragment], LanceFragment]:
    return lambda fragment: changed(fragment, path=form.format(fragment.files[0].path))


HOSTILE: dict[str, Callable[[LanceFragment], LanceFragment]] = {
    "another folder": renamed("../data/{}"),
    "another dataset": renamed("../../other.lance/data/{}"),
    "a folder below": renamed("deeper/{}"),
    "an absolute path": renamed("/tmp/{}"),
    "another store": renamed("s3://another-bucket/{}"),
    "two dots": renamed(".."),
    "dots at the beginning": renamed(".{}"),
    "no data file": renamed("{}.txt"),
    "a manifest": renamed("../_versions/1.manifest"),
    "an empty name": renamed(""),
    "a backslash": renamed("a\\{}"),
    "a line break": renamed("{}\n"),
    "percent signs": renamed("%2e%2e%2f{}"),
    "a field that staging did not know": lambda fragment: changed(fragment, fields=(0, 1, 99), column_indices=(0, 1, 2)),
    "a field that is none": lambda fragment: changed(fragment, fields=(0, -2)),
}


@pytest.mark.parametrize("lie", HOSTILE)
def test_a_seal_that_names_what_it_must_not_name_is_refused(real: RealWorld, lie: str) -> None:
    (honest,) = real.stage(1)

    assert incompatibility(real, real.target(), honest, HOSTILE[lie](honest)).reason == reasons.STAGED_RESULT_REFUSED


def test_a_fragment_without_a_data_file_is_refused(real: RealWorld) -> None:
    assert incompatibility(real, real.target(), LanceFragment(files=(), rows=5)).reason == reasons.STAGED_RESULT_REFUSED


def test_a_fragment_that_is_in_the_dataset_already_is_refused(real: RealWorld) -> None:
    """Of a stranger, or of another write."""
    theirs = real.stage(1)
    real.port().append(real.latest, OTHER, appended(theirs))

    assert incompatibility(real, real.target(), *theirs).reason == reasons.STAGED_RESULT_REFUSED


def test_a_staged_file_that_is_gone_or_has_another_size_is_named(real: RealWorld) -> None:
    (honest,) = real.stage(1)
    size_bytes = honest.files[0].size_bytes
    for lie in (renamed("gone-{}")(honest), changed(honest, size_bytes=size_bytes + 1)):
        missing = incompatibility(real, real.target(), lie)
        assert missing.reason == reasons.STAGED_FILE_MISSING
        assert lie.files[0].path in missing.message


def test_a_store_that_is_gone_while_a_staged_file_is_looked_at_is_worth_another_try(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Lance asks another endpoint than we do, and nobody listens there."""
    world = make_world("s3", tmp_path, request)
    assert isinstance(world, RealWorld)
    world.place.create(SCHEMA)
    (staged,) = world.stage(1)
    (entry,) = world.place.settings.storage
    nobody = StorageSettings(storage=(entry.model_copy(update={"endpoint": "http://127.0.0.1:1"}),))
    footers = LanceFooters(world.place.uri, nobody, Tails(world.place.settings))

    with pytest.raises(Retryable, match=r"could not be read: .*http://127\.0\.0\.1:1/") as caught:
        footers.count_rows(staged.files[0].path, staged.files[0].fields)

    assert caught.value.reason == reasons.STORE_UNAVAILABLE


def test_a_dataset_that_was_made_again_is_replaced_although_all_else_fits(real: RealWorld) -> None:
    target = real.target()
    files = real.stage(1)
    state = real.loaded()
    other = state.__class__("f" * 32, state.at_version, None, True)

    found = real.port().find_incompatibility(other, [target], appended(files))
    assert isinstance(found, Rejected)
    assert found.reason == reasons.TABLE_REPLACED


@pytest.mark.parametrize("replaced", [0, 1])
def test_a_dataset_that_one_of_several_attempts_staged_for_is_replaced_whichever_that_is(real: RealWorld, replaced: int) -> None:
    targets = [real.target(), real.target()]
    targets[replaced] = targets[replaced].model_copy(update={"identity": "f" * 32})

    found = real.port().find_incompatibility(real.loaded(), targets, appended(real.stage(1)))

    assert isinstance(found, Rejected)
    assert found.reason == reasons.TABLE_REPLACED


def drop_column(world: RealWorld) -> None:
    world.place.dataset().drop_columns(["text"])


def drop_and_add_again(world: RealWorld) -> None:
    drop_column(world)
    world.place.dataset().add_columns(pa.schema([("text", pa.string())]))


def drop_add_and_append(world: RealWorld) -> None:
    drop_and_add_again(world)
    world.append_as_stranger()


def retype(world: RealWorld) -> None:
    world.place.dataset().alter_columns({"path": "id", "data_type": pa.int32()})


def rename(world: RealWorld) -> None:
    world.place.dataset().alter_columns({"path": "text", "name": "words"})


CHANGES: dict[str, tuple[Callable[[RealWorld], None], str | None]] = {
    "a column was added": (add_column, None),
    "a column was renamed": (rename, None),
    "a column was dropped": (drop_column, "'text'"),
    "a column was dropped and made again": (drop_and_add_again, "'text'"),
    "a column was dropped and made again, and rows came": (drop_add_and_append, "'text'"),
    "a column was retyped": (retype, "'id'"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_the_moment_of_the_append_shows_at_the_version_that_it_made(real: RealWorld, change: str) -> None:
    """Where Lance lets the append land at all: it refuses it after some of these changes."""
    real.append_as_stranger()
    target, files, before = real.target(), real.stage(1), real.latest
    alter, column = CHANGES[change]
    alter(real)

    landed = real.port().append(before, KEY, appended(files))

    if isinstance(landed, Landed):
        found = real.port().find_schema_change(landed.commit_id, [target])
        assert (found is None) == (column is None)
        assert column is None or (found is not None and column in found)


@pytest.mark.parametrize("change", CHANGES)
def test_what_staged_fragments_fit_after_a_change_of_the_dataset(real: RealWorld, change: str) -> None:
    """Lance itself takes all of these, and reads NULL for what does not fit."""
    real.append_as_stranger()
    target, files = real.target(), real.stage(1)
    alter, column = CHANGES[change]
    alter(real)

    found = real.port().find_incompatibility(real.loaded(), [target], appended(files))

    if column is None:
        assert found is None
        assert isinstance(real.port().append(real.latest, KEY, appended(files)), Landed)
        assert real.ids() == [1, 1_000_000]
    else:
        assert isinstance(found, Rejected)
        assert found.reason == reasons.SCHEMA_CHANGED
        assert column in found.message


def test_a_dataset_that_vanished_between_look_and_incompatibility_is_looked_at_again_and_not_committed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    world = make_world("disk", tmp_path, request)
    assert isinstance(world, RealWorld)
    world.place.create(SCHEMA)
    target, files, state = world.target(), world.stage(1), world.loaded()
    shutil.rmtree(world.place.uri)

    with pytest.raises(Retryable):
        world.port().find_incompatibility(state, [target], appended(files))
    assert world.port().load(KEY, 1) is None
