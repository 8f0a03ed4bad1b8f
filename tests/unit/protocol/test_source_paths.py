"""What the paths of a source mean."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

import pytest

from checkpoint_formats.files.source_files import SourceFiles, for_each, streamed_each
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.patterns import split
from checkpoint_protocol.places.source_paths import Location, locate
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records.inputs import SourceFile
from tests.support.privileges import without_privileges
from tests.support.waiting import patience

FILES = SourceFiles(StorageSettings())


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def found(folder: Path, *paths: str) -> list[str]:
    return [os.path.relpath(file.path, folder) for file in FILES.expand([str(folder / path) for path in paths])]


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("a/*.csv", "x.csv", True),
        ("a/*.csv", "x.csv.gz", False),
        ("a/*.csv", "b/x.csv", False),
        ("a/?.csv", "é.csv", True),
        ("a/?.csv", "xy.csv", False),
        ("a/**/*.csv", "x.csv", True),
        ("a/**/*.csv", "b/c/x.csv", True),
        ("a/**", "b/c/x.csv", True),
        ("a/*", "b/c/x.csv", True),  # what is below a folder that matches
        ("a/year=*/x.csv", "year=2024/x.csv", True),
        ("a/year=*/x.csv", "year=2024/y.csv", False),
        ("a/*.csv", "_x.csv", False),
        ("a/_*.csv", "_x.csv", True),
        ("a/*.csv", ".x.csv", False),
        ("a/**/x.csv", "_temporary/x.csv", False),
        ("a/**/_x.csv", "b/_x.csv", True),
        ("a/*", "_year=2025/x.csv", True),
        ("a/**/*.csv", "b/_year=2025/x.csv", True),
        ("a/*", "_year=2025/_SUCCESS", False),
        ("a/*", ".year=2025/x.csv", False),
        ("a/*", "b/_SUCCESS", False),
        ("a/x[1]+*", "x[1]+.csv", True),
        ("a/x[1]*", "x1.csv", False),
        ("a/*\n*", "x\ny", True),
    ],
)
def test_pattern_matches(pattern: str, name: str, matches: bool) -> None:
    folder, compiled = split(pattern)
    assert folder == "a"
    assert compiled.matches(name.split("/")) is matches


def test_path_without_wildcards_is_a_folder_with_all_that_is_below() -> None:
    folder, pattern = split("data/in/")
    assert (folder, pattern.matches(["x"]), pattern.matches(["b", "x"]), pattern.matches(["_b", "x"])) == (
        "data/in",
        True,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("s3://bucket/a b/é#x%20?.csv", Location("s3://bucket", "a b/é#x%20?.csv")),
        ("abfss://c@account.dfs.core.windows.net/x", Location("abfss://c@account.dfs.core.windows.net", "x")),
        ("gs://bucket", Location("gs://bucket", "")),
        ("/a b/é#x%20.csv", Location("", "/a b/é#x%20.csv")),
        ("/a/../b/./c", Location("", "/b/c")),
        ("file:/a%20b/x#y?.csv", Location("", "/a%20b/x#y?.csv")),
        ("file:///a/é b", Location("", "/a/é b")),
        ("file://localhost/a", Location("", "/a")),
        ("/odd://name", Location("", "/odd:/name")),
    ],
)
def test_location_of(path: str, location: Location) -> None:
    assert locate(path) == location


def test_relative_path_is_recorded_as_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "x.csv")
    monkeypatch.chdir(tmp_path)
    assert [file.path for file in FILES.expand(["x.csv", "./x.csv", "*"])] == [str(tmp_path / "x.csv")]


@pytest.mark.parametrize("path", ["hdfs://host/x", "s3://", "http://host/x", "s3://bucket//x", "s3://bucket/a//b"])
def test_path_that_cannot_be_read_is_refused_before_any_store_is_asked(path: str) -> None:
    with pytest.raises(NeedsChange) as refused:
        FILES.expand([path])
    assert refused.value.reason == reasons.MANIFEST_INVALID
    assert path in refused.value.message


def test_folder_means_all_files_below_but_hidden_ones(tmp_path: Path) -> None:
    make(tmp_path, "b.csv", "a/é #%20.csv", "a/b/c/d.csv", "_SUCCESS", ".crc", "_temporary/x.csv", "a/.hidden/x.csv")
    make(tmp_path, "a/_year=2025/x.csv", "a/.year=2025/x.csv", "a/_year=2025/_temporary/x.csv")
    assert found(tmp_path, "") == ["a/_year=2025/x.csv", "a/b/c/d.csv", "a/é #%20.csv", "b.csv"]


def test_hidden_file_that_is_named_is_taken(tmp_path: Path) -> None:
    make(tmp_path, "_x.csv", ".y/z.csv")
    assert found(tmp_path, "_x.csv", ".y") == [".y/z.csv", "_x.csv"]


def test_overlapping_paths_give_each_file_once_sorted(tmp_path: Path) -> None:
    make(tmp_path, "b.csv", "a.csv", "c/d.csv")
    assert found(tmp_path, "*.csv", "b.csv", "", "**/d.csv") == ["a.csv", "b.csv", "c/d.csv"]


def test_pattern_over_folders_takes_what_is_in_them(tmp_path: Path) -> None:
    make(tmp_path, "day=1/x.csv", "day=2/y/z.csv", "night/x.csv")
    assert found(tmp_path, "day=*") == ["day=1/x.csv", "day=2/y/z.csv"]


@pytest.mark.parametrize("path", ["nothing.csv", "no*", "only_hidden", "x.csv/y", "empty/"])
def test_path_that_means_no_file_is_named(tmp_path: Path, path: str) -> None:
    make(tmp_path, "x.csv", "only_hidden/_SUCCESS")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NeedsChange) as missing:
        FILES.expand([str(tmp_path / "x.csv"), str(tmp_path / path)])
    assert missing.value.reason == reasons.SOURCE_MISSING
    assert str(tmp_path / path) in missing.value.message


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    make(tmp_path, "data/x.csv", "elsewhere/y.csv")
    (tmp_path / "data/loop").symlink_to(tmp_path / "data")
    (tmp_path / "data/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data/to_nothing").symlink_to(tmp_path / "nothing")
    (tmp_path / "data/to_itself").symlink_to(tmp_path / "data/to_itself")
    os.mkfifo(tmp_path / "data/pipe")
    assert found(tmp_path, "data") == ["data/link/y.csv", "data/x.csv"]


def test_name_that_is_not_utf8_is_refused_by_name(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff.csv", "wb"):
        pass
    with pytest.raises(NeedsChange, match="not UTF-8"):
        FILES.expand([str(tmp_path)])


def test_unreadable_folder_is_an_error_not_an_empty_folder() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, "open/x.csv", "closed/y.csv")
        folder.chmod(0o755)
        (folder / "closed").chmod(0)
        with without_privileges(), pytest.raises(NeedsChange) as refused:
            FILES.expand([name])
        (folder / "closed").chmod(0o755)
    assert refused.value.reason == reasons.CREDENTIALS_REFUSED
    assert f"{name}/closed" in refused.value.message


def described(path: Path) -> SourceFile:
    file = FILES.head(str(path))
    assert file is not None
    return SourceFile(path=file.path, etag=file.etag, size_bytes=file.size_bytes, unit="bytes", end=file.size_bytes)


def test_file_that_was_not_touched_is_unchanged(tmp_path: Path) -> None:
    make(tmp_path, "x.csv")
    before = described(tmp_path / "x.csv")
    (tmp_path / "x.csv").rename(tmp_path / "y.csv")
    (tmp_path / "y.csv").rename(tmp_path / "x.csv")
    FILES.check_unchanged(before)


def test_file_replaced_by_one_of_the_same_size_and_time_is_noticed(tmp_path: Path) -> None:
    make(tmp_path, "x.csv")
    before = described(tmp_path / "x.csv")
    (tmp_path / "new").write_text("X.csv")
    status = os.stat(tmp_path / "x.csv")
    os.utime(tmp_path / "new", ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / "new").rename(tmp_path / "x.csv")
    with pytest.raises(NeedsChange) as noticed:
        FILES.check_unchanged(before)
    assert noticed.value.reason == reasons.SOURCE_CHANGED
    for part in (before.path, before.etag, described(tmp_path / "x.csv").etag):
        assert part in noticed.value.message


def test_file_that_is_gone_is_noticed(tmp_path: Path) -> None:
    make(tmp_path, "x.csv")
    before = described(tmp_path / "x.csv")
    (tmp_path / "x.csv").unlink()
    for use in (
        lambda: FILES.check_unchanged(before),
        lambda: FILES.read_range(before.path, 0, 1),
        lambda: FILES.open_arrow(before.path),
    ):
        with pytest.raises(NeedsChange) as noticed:
            use()
        assert noticed.value.reason == reasons.SOURCE_CHANGED
        assert before.path in noticed.value.message


def test_ranges_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "é #%20.csv").write_bytes(b"0123456789")
    path = str(tmp_path / "é #%20.csv")
    assert FILES.read_range(path, 2, 5) == b"234"
    assert FILES.read_range(path, 8, 50) == b"89"
    assert FILES.read_range(path, 3, 3) == b""
    with FILES.open_arrow(path) as opened:
        opened.seek(4)
        assert opened.read(3) == b"456"


def test_work_on_many_files_keeps_their_order_and_ends_with_the_first_error() -> None:
    assert for_each(lambda number: number * 2, range(100)) == list(range(0, 200, 2))
    started = []

    def work(number: int) -> None:
        started.append(number)
        time.sleep(0.002)
        raise ValueError(number)

    with pytest.raises(ValueError, match=r"^0$"):
        for_each(work, range(10_000))
    assert len(started) < 10_000


# --- many files -------------------------------------------------------------------------------------------------------------


def looked_at_by(seconds_a_look: float, count: int = 300) -> tuple[list[int], set[int]]:
    """Look at so many files, each of which takes so long; return what was found and the threads that did it."""
    now, threads = 0.0, set[int]()

    def look(number: int) -> int:
        nonlocal now
        now += seconds_a_look
        threads.add(threading.get_ident())
        return number * 2

    return list(streamed_each(look, range(count), lambda: now)), threads


def test_files_that_answer_at_once_are_looked_at_one_by_one() -> None:
    assert looked_at_by(0.00001) == ([number * 2 for number in range(300)], {threading.get_ident()})


def test_files_that_answer_at_once_are_looked_at_one_by_one_on_a_machine_that_has_much_else_to_do() -> None:
    now, threads = 0.0, set[int]()

    def look(number: int) -> int:
        nonlocal now
        now += 0.1 if number % 5 == 0 else 0.00001
        threads.add(threading.get_ident())
        return number * 2

    assert list(streamed_each(look, range(300), lambda: now)) == [number * 2 for number in range(300)]
    assert threads == {threading.get_ident()}


def test_files_that_let_wait_are_looked_at_side_by_side_and_given_in_their_order() -> None:
    found, threads = looked_at_by(0.05)

    assert found == [number * 2 for number in range(300)]
    assert threads - {threading.get_ident()}


def test_64_files_of_a_store_that_lets_wait_are_looked_at_side_by_side() -> None:
    now, together = 0.0, threading.Barrier(64)

    def look(number: int) -> int:
        nonlocal now
        now += 0.05
        if 100 <= number < 164:
            together.wait(patience(20))
        return number

    assert list(streamed_each(look, range(200), lambda: now)) == list(range(200))
    assert not together.broken


def test_a_disk_that_let_wait_for_a_while_is_looked_at_one_by_one_again() -> None:
    now, by_threads = 0.0, 0

    def look(number: int) -> int:
        nonlocal now, by_threads
        now += 0.05 if number < 100 else 0.00001
        by_threads += threading.get_ident() != here
        return number * 2

    here = threading.get_ident()
    assert list(streamed_each(look, range(50_000), lambda: now)) == list(range(0, 100_000, 2))
    assert 0 < by_threads < 5_000


def test_a_store_that_lets_wait_is_hardly_ever_asked_one_by_one() -> None:
    now, one_by_one = 0.0, 0

    def look(number: int) -> int:
        nonlocal now, one_by_one
        now += 0.05
        one_by_one += threading.get_ident() == here
        return number

    here = threading.get_ident()
    assert list(streamed_each(look, range(20_000), lambda: now)) == list(range(20_000))
    assert one_by_one < 20


@pytest.mark.parametrize("seconds", [0.00001, 0.05])
def test_the_first_file_that_cannot_be_read_is_the_one_that_is_named(seconds: float) -> None:
    now = 0.0

    def look(number: int) -> int:
        nonlocal now
        now += seconds
        if number in (70, 71):
            raise ValueError(number)
        return number

    with pytest.raises(ValueError, match="70"):
        list(streamed_each(look, range(300), lambda: now))
