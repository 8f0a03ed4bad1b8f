"""What is read or removed lies in the folders of the write, and not where a symbolic link below them leads."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint_commit.staged_files import Tails, find_missing, remove_files
from checkpoint_control.writes.cleaning import CleanedEpoch, Cleaner, KeptEpoch
from checkpoint_control.writes.deletion import Deleted, Kept, delete_write
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import ObjectStore, open_store
from checkpoint_protocol.store.plain_files import remove_below
from tests.contract.test_deletion import World
from tests.support.no_plain_files import OTHERS, Put
from tests.support.places import on_disk
from tests.support.records import KEY

AT = layout.EpochLayout(KEY)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    (folder / "0").mkdir(parents=True)
    (folder / "precious.json").write_text("{}")
    (folder / "0" / "0.json").write_text("{}")
    return folder


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.fixture
def store(folder: Path) -> ObjectStore:
    return open_store(str(folder), StorageSettings())


def link(folder: Path, path: str, to: Path) -> Path:
    made = folder / path
    made.parent.mkdir(parents=True, exist_ok=True)
    made.symlink_to(to)
    return made


def test_a_store_removes_nothing_behind_a_link(store: ObjectStore, folder: Path, elsewhere: Path) -> None:
    made = link(folder, "staged/u/1", elsewhere)
    found = [stored.path for stored in store.list("staged/u/")]
    assert found, "such as a listing gives"

    for path in (*found, "staged/u/1/0/0.json", "staged/u/1/not-there.json"):
        with pytest.raises(NeedsChange, match=f"{made} is a symbolic link") as caught:
            store.delete([path])
        assert caught.value.reason == reasons.STORE_UNAVAILABLE
    assert files_in(elsewhere) == ["0/0.json", "precious.json"]


def test_a_link_that_is_named_itself_is_removed_and_not_what_it_names(store: ObjectStore, folder: Path, elsewhere: Path) -> None:
    made = link(folder, "staged/u/1/x.json", elsewhere / "precious.json")

    store.delete(["staged/u/1/x.json", "staged/u/1/x.json", "staged/none/x.json"])

    assert not made.is_symlink()
    assert files_in(elsewhere) == ["0/0.json", "precious.json"]


@pytest.mark.parametrize("at", ["control/u/1", "control/u/1/launch.json"])
@pytest.mark.parametrize(("put", "what"), OTHERS)
def test_a_store_reads_no_record_from_what_is_no_folder_and_no_file_until_it_is_replaced_by_one(
    store: ObjectStore, folder: Path, elsewhere: Path, put: Put, what: str, at: str
) -> None:
    (elsewhere / "token").write_text("{}")
    (elsewhere / "launch.json").write_text("{}")
    (folder / at).parent.mkdir(parents=True)
    put(folder / at, elsewhere)

    with pytest.raises(NeedsChange, match=f"{folder / at} is {what}.* put a copy of what it stands for in its place") as caught:
        store.get("control/u/1/launch.json", 100)
    assert caught.value.reason == reasons.STORE_UNAVAILABLE

    (folder / at).unlink()
    store.put_if_absent("control/u/1/launch.json", b"{}")
    assert store.get("control/u/1/launch.json", 100) == b"{}"


@pytest.mark.parametrize(("put", "what"), OTHERS)
def test_a_staged_file_that_has_become_something_else_is_missing_and_its_end_is_not_read(
    folder: Path, elsewhere: Path, put: Put, what: str
) -> None:
    (elsewhere / "token").write_text("{}")
    put(folder / "x.parquet", elsewhere)

    rejected = find_missing(str(folder), {"x.parquet": 2}, StorageSettings())

    assert rejected is not None
    assert "x.parquet is gone" in rejected.message
    with pytest.raises(NeedsChange, match=f"x.parquet is {what}"):
        Tails(StorageSettings()).read(f"{folder}/x.parquet", 8)


def test_a_store_that_is_reached_by_a_link_is_as_any(tmp_path: Path, folder: Path) -> None:
    by_link = open_store(str(link(tmp_path, "linked", folder)), StorageSettings())
    by_link.put_if_absent("staged/u/1/x.json", b"{}")
    assert by_link.get("staged/u/1/x.json", 100) == b"{}"

    by_link.delete(["staged/u/1/x.json"])

    assert files_in(folder) == []


def test_a_file_in_the_place_of_a_folder_is_nothing_to_remove(folder: Path) -> None:
    (folder / "file").write_text("x")

    remove_below(folder, "file/x.json")
    remove_below(folder / "none", "x.json")

    assert files_in(folder) == ["file"]


def test_data_files_behind_a_link_stay(tmp_path: Path, elsewhere: Path) -> None:
    made = link(tmp_path, "table/data/cw-u", elsewhere)

    with pytest.raises(NeedsChange, match="symbolic link"):
        remove_files(str(made), ["precious.json"], StorageSettings())

    assert files_in(elsewhere) == ["0/0.json", "precious.json"]


def forget(world: World) -> Any:
    return delete_write(world.store, KEY.uid, world.sink)


def clean(world: World) -> Any:
    (epoch,) = Cleaner(world.store, world.place.settings, datetime.datetime.max.replace(tzinfo=datetime.UTC)).clean(KEY.uid)
    return epoch


@pytest.mark.parametrize(
    ("remove", "is_kept", "is_done"),
    [
        (forget, lambda told: isinstance(told, Kept), lambda told: isinstance(told, Deleted)),
        (clean, lambda told: isinstance(told, KeptEpoch), lambda told: isinstance(told, CleanedEpoch)),
    ],
    ids=["deletion", "clean-up"],
)
@pytest.mark.parametrize("path", [f"{AT.staged}/1/quarantine", f"{AT.staged}/stages", f"{AT.staged}/x"])
def test_what_a_link_in_a_write_leads_to_stays_and_the_rest_goes_once_the_link_is_removed(
    tmp_path: Path, elsewhere: Path, path: str, remove: Callable[[World], Any], is_kept: Any, is_done: Any
) -> None:
    world = World(on_disk(tmp_path / "place", "iceberg"))
    world.stage(1, 2)
    folder = Path(world.place.checkpoint_uri.removeprefix("file://"))
    made = link(folder, path, elsewhere)
    if remove is clean:
        Ledger(world.store, KEY).commits.put_deleted()  # it has ended

    told = remove(world)

    assert is_kept(told)
    assert "remove it, or put a copy of what it stands for in its place" in getattr(told, "message", getattr(told, "why", ""))
    assert files_in(elsewhere) == ["0/0.json", "precious.json"]

    made.unlink()
    assert is_done(remove(world))
    assert files_in(elsewhere) == ["0/0.json", "precious.json"]
    assert files_in(folder / "staged") == []
