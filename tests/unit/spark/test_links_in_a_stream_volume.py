"""Pods of others have the volume of a stream, too: what they put there leads a driver nowhere else, and holds none up."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.records import DrivenBy
from checkpoint_protocol.store.plain_files import Folder
from checkpoint_spark.streams.checkpoint import Checkpoint, Known
from checkpoint_spark.streams.volume import StreamVolume
from tests.support.no_plain_files import OTHERS, Put, a_link_to_a_folder, a_named_pipe
from tests.unit.spark.test_stream_checkpoint import UID, spark_runs

SECRET = "of the driver's own disk"
DELTA = "state/0/4.delta"


def volume_of(mount: Path, epoch: int) -> StreamVolume:
    return StreamVolume(mount, UID, DrivenBy(epoch=epoch, attempt=1))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder of the driver's own disk, which is none of the volume's."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "token").write_text(SECRET)
    return folder


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    (tmp_path / "volume").mkdir()
    return tmp_path / "volume"


@pytest.fixture
def first(mount: Path) -> Checkpoint:
    """The folder of the first driver, whose micro-batches 0 to 3 are committed, with state."""
    found = volume_of(mount, 1).begin(Known(0, None))
    spark_runs(found, *range(4))
    (found.folder / "state" / "0").mkdir(parents=True)
    (found.folder / DELTA).write_text("sums")
    return found


@pytest.fixture
def known(first: Checkpoint) -> Known:
    return Known(4, first.digest_of(3))


def aside(path: Path) -> Path:
    return path.rename(path.with_name(f".{path.name}.aside"))


def assert_nothing_left_or_came_in(mount: Path, elsewhere: Path) -> None:
    assert [path.name for path in elsewhere.rglob("*")] == ["token"]
    held = [path for path in mount.rglob("*") if path.is_file() and not path.is_symlink()]
    assert all(SECRET not in path.read_text() for path in held)


@pytest.mark.parametrize("at", [DELTA, "state/0", "state", "offsets/3", "offsets", "commits", "metadata", ""])
@pytest.mark.parametrize(("put", "what"), OTHERS)
def test_what_is_no_folder_and_no_file_is_refused_by_its_path_until_it_is_removed(
    first: Checkpoint, known: Known, mount: Path, elsewhere: Path, put: Put, what: str, at: str
) -> None:
    path = first.folder / at
    was = aside(path)
    put(path, elsewhere)

    with pytest.raises(NeedsChange, match=f"{path} is {what}.* remove it, or put a copy of what it stands for") as refused:
        volume_of(mount, 5).begin(known)

    assert refused.value.reason == reasons.STORE_UNAVAILABLE
    assert not [name for name in os.listdir(first.folder.parent) if "5-1-" in name], "no part of a copy is left"
    assert_nothing_left_or_came_in(mount, elsewhere)
    path.unlink()
    was.rename(path)
    following = volume_of(mount, 5).begin(known)
    assert (following.folder / DELTA).read_text() == "sums"


@pytest.mark.parametrize("at", ["streams", f"streams/{UID}"])
def test_a_link_on_the_way_to_the_folders_of_drivers_is_not_gone(
    first: Checkpoint, known: Known, mount: Path, elsewhere: Path, at: str
) -> None:
    own = volume_of(mount, 5)
    mine = own.begin(known)
    shutil.copytree(mount / at, elsewhere / "copy")
    before = sorted(elsewhere.rglob("*"))
    aside(mount / at)
    (mount / at).symlink_to(elsewhere / "copy")

    for use in (lambda: volume_of(mount, 6).begin(known), lambda: own.remove_older(mine), lambda: mine.digest_of(3)):
        with pytest.raises(NeedsChange, match=f"{mount / at} is a symbolic link"):
            use()
    assert sorted(elsewhere.rglob("*")) == before


def test_a_volume_that_is_reached_by_a_link_is_as_any(first: Checkpoint, known: Known, mount: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(mount)

    assert volume_of(tmp_path / "linked", 5).begin(known).digest_of(3) == known.offsets


def test_what_has_the_name_of_a_later_driver_stops_nobody_who_has_the_folder_of_the_table(
    first: Checkpoint, known: Known, mount: Path, elsewhere: Path
) -> None:
    a_link_to_a_folder(first.folder.with_name("9-1-link"), elsewhere)
    a_named_pipe(first.folder.with_name("9-1-pipe"), elsewhere)

    assert volume_of(mount, 5).begin(known).digest_of(3) == known.offsets


def swap_after_a_look(monkeypatch: pytest.MonkeyPatch, name: str, elsewhere: Path) -> None:
    """Put a link in the place of what has this name as soon as it was looked at."""
    look = Folder.has_folder

    def look_and_swap(folder: Folder, looked_at: str) -> bool:
        found = look(folder, looked_at)
        if looked_at == name and not (folder.path / name).is_symlink():
            aside(folder.path / name)
            (folder.path / name).symlink_to(elsewhere if found else elsewhere / "token")
        return found

    monkeypatch.setattr(Folder, "has_folder", look_and_swap)


@pytest.mark.parametrize("name", ["0", "4.delta"])
def test_what_becomes_a_link_after_it_was_looked_at_is_not_copied(
    first: Checkpoint, known: Known, mount: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    swap_after_a_look(monkeypatch, name, elsewhere)

    with pytest.raises(NeedsChange, match=f"/{name} is a symbolic link"):
        volume_of(mount, 5).begin(known)

    assert_nothing_left_or_came_in(mount, elsewhere)


@pytest.mark.parametrize("has_hard_links", [True, False])
def test_a_file_that_becomes_a_link_when_it_is_open_is_copied_as_it_was(
    first: Checkpoint,
    known: Known,
    mount: Path,
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_hard_links: bool,
) -> None:
    link = os.link

    def swap_and_link(source: str, name: str, *, dst_dir_fd: int, follow_symlinks: bool) -> None:
        if name == "4.delta":
            aside(first.folder / DELTA)
            (first.folder / DELTA).symlink_to(elsewhere / "token")
        if not has_hard_links:
            raise PermissionError(1, "Operation not permitted")
        link(source, name, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "link", swap_and_link)

    copied = volume_of(mount, 5).begin(known).folder / DELTA

    assert not copied.is_symlink()
    assert copied.read_text() == "sums"
    assert (copied.stat().st_nlink > 1) is has_hard_links


@pytest.mark.parametrize(("put", "_what"), OTHERS)
@pytest.mark.parametrize("at", ["4-1-old", "4-1-old/x", "4-1-old/state/x"])
def test_of_what_is_removed_with_the_folder_of_an_older_driver_nothing_is_followed(
    first: Checkpoint, known: Known, mount: Path, elsewhere: Path, put: Put, _what: str, at: str
) -> None:
    own = volume_of(mount, 5)
    mine = own.begin(known)
    path = first.folder.parent / at
    path.parent.mkdir(parents=True, exist_ok=True)
    put(path, elsewhere)

    own.remove_older(mine)

    assert os.listdir(first.folder.parent) == [mine.folder.name]
    assert (elsewhere / "token").read_text() == SECRET


def test_a_folder_that_becomes_a_link_while_it_is_removed_is_left(
    first: Checkpoint, known: Known, mount: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = volume_of(mount, 5)
    mine = own.begin(known)
    swap_after_a_look(monkeypatch, "state", elsewhere)

    own.remove_older(mine)

    assert (first.folder / "state").is_symlink()
    assert (elsewhere / "token").read_text() == SECRET


@pytest.mark.parametrize(("put", "what"), OTHERS)
@pytest.mark.parametrize("at", ["offsets/3", "metadata"])
def test_on_one_machine_nothing_else_is_read_either(tmp_path: Path, elsewhere: Path, put: Put, what: str, at: str) -> None:
    checkpoint = Checkpoint.below(str(tmp_path), UID)
    checkpoint.prepare(Known(0, None))
    spark_runs(checkpoint, *range(4))
    now = Known(4, checkpoint.digest_of(3))
    (checkpoint.folder / at).unlink()
    put(checkpoint.folder / at, elsewhere)

    with pytest.raises(NeedsChange, match=f"{checkpoint.folder / at} is {what}"):
        checkpoint.prepare(now)
