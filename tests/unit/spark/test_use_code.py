"""A process takes its code from the store: verified, unpacked once per host, in front of everything else."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from checkpoint_control.code.archive import CodeArchive, put_archive
from checkpoint_protocol.code import archives
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import ObstoreStore, open_store
from checkpoint_work.process.code import FOLDER_VARIABLE, have_code, private_folder, use_code
from tests.support.archives import HOSTILE, zip_of

PACKAGE = zip_of({"shape/__init__.py": "import json", "shape/data.txt": "größe", "shape/deep/__init__.py": ""})


class Counting(ObstoreStore):
    gets = 0

    def get(self, path: str, most_bytes: int) -> bytes | None:
        self.gets += 1
        return super().get(path, most_bytes)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    inner = open_store(str(tmp_path / "store"), StorageSettings())
    return Counting(inner.uri, inner._store)


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def put(store: ObstoreStore, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    put_archive(store, "u", CodeArchive(digest, data))
    return digest


def test_an_archive_is_unpacked_whole_and_fetched_once(store: Counting, temp: Path) -> None:
    digest = put(store, PACKAGE)

    folder = have_code(store, "u", digest, temp)

    assert (folder / "shape" / "data.txt").read_text() == "größe"
    assert have_code(store, "u", digest, temp) == folder
    assert store.gets == 1
    assert [path.name for path in temp.iterdir()] == [digest]


def test_many_at_once_end_with_one_whole_folder(store: Counting, temp: Path) -> None:
    digest = put(store, PACKAGE)
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(have_code(store, "u", digest, temp))) for _ in range(8)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert len(set(found)) == 1
    assert (found[0] / "shape" / "data.txt").read_text() == "größe"
    assert [path.name for path in temp.iterdir()] == [digest]


@pytest.mark.parametrize("lost", ["shape/data.txt", "shape/__init__.py", "../sizes.json"])
def test_a_folder_that_a_cleaner_has_taken_files_from_is_made_anew(store: Counting, temp: Path, lost: str) -> None:
    digest = put(store, PACKAGE)
    folder = have_code(store, "u", digest, temp)
    (folder / lost).unlink()

    assert have_code(store, "u", digest, temp) == folder

    assert (folder / "shape" / "data.txt").read_text() == "größe"
    assert json.loads((folder.parent / "sizes.json").read_text())["shape/data.txt"] == len("größe".encode())
    assert [path.name for path in temp.iterdir()] == [digest]


def test_an_archive_that_is_not_what_its_name_says_is_corrupt_and_leaves_nothing(store: Counting, temp: Path) -> None:
    store.put_if_absent(layout.code_path("u", "0" * 64), PACKAGE)

    with pytest.raises(Corrupt, match="not what its name says"):
        have_code(store, "u", "0" * 64, temp)
    assert list(temp.iterdir()) == []


def test_an_archive_that_is_not_there_is_tried_again(store: Counting, temp: Path) -> None:
    with pytest.raises(Retryable, match="the next attempt"):
        have_code(store, "u", "0" * 64, temp)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_in_the_store_is_not_unpacked(kind: str, store: Counting, temp: Path) -> None:
    with pytest.raises(NeedsChange, match="cannot be used"):
        have_code(store, "u", put(store, HOSTILE[kind][0]()), temp)
    assert list(temp.iterdir()) == []


def test_a_crash_while_unpacking_leaves_no_half_of_it(store: Counting, temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = put(store, PACKAGE)

    def die(data: bytes, folder: Path) -> dict[str, int]:
        (folder / "shape").mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(archives, "unpack", die)
        with pytest.raises(KeyboardInterrupt):
            have_code(store, "u", digest, temp)

    assert (have_code(store, "u", digest, temp) / "shape" / "data.txt").exists()


# --- where ----------------------------------------------------------------------------------------------------------------


def test_the_folder_is_this_users_alone_and_the_same_for_all_processes(temp: Path) -> None:
    folder = private_folder()

    assert folder.parent == temp
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_folder() == folder


@pytest.mark.parametrize("trap", ["a folder for everybody", "a link", "a file"])
def test_a_folder_that_others_may_write_to_is_not_used(trap: str, temp: Path) -> None:
    name = temp / f"checkpointed-write-code-{os.getuid()}"
    if trap == "a file":
        name.touch()
    elif trap == "a link":
        (temp / "elsewhere").mkdir(mode=0o700)
        name.symlink_to(temp / "elsewhere")
    else:
        name.mkdir()
        name.chmod(0o777)

    folder = private_folder()

    assert folder != name
    assert folder.stat().st_mode & 0o777 == 0o700


# --- in a process of its own ----------------------------------------------------------------------------------------------

USE = """
import sys
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.store.object_store import open_store
from checkpoint_work.process.code import use_code
uri, digest, other = sys.argv[1:]
store = open_store(uri, StorageSettings())
use_code(store, "u", None)
before = list(sys.path)
use_code(store, "u", digest); use_code(store, "u", digest)
assert sys.path[1:] == before, sys.path
import shape
from importlib.resources import files
assert files(shape).joinpath("data.txt").read_text(encoding="utf-8") == "größe"
try:
    use_code(store, "u", other)
except Retryable as error:
    print("refused:", error.message)
"""


def test_a_process_imports_from_it_before_all_else_and_uses_one_only(store: Counting, temp: Path) -> None:
    files = {"shape/__init__.py": "", "shape/data.txt": "größe", "colour.py": "ours = True"}
    digest, other = put(store, zip_of({**files})), put(store, PACKAGE)

    done = subprocess.run(
        [sys.executable, "-c", USE, store.uri, digest, other],
        env={**os.environ, "TMPDIR": str(temp)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "refused" in done.stdout


FOLDER = """
import os, sys
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.store.object_store import open_store
from checkpoint_work.process.code import use_code
uri, folder = sys.argv[1:]
store = open_store(uri, StorageSettings())
try:
    use_code(store, "u", None); use_code(store, "u", None)
except NeedsChange as error:
    assert folder not in sys.path and "PYTHONPATH" not in os.environ
    import email.message
    print("refused:", error.message)
else:
    assert sys.path.count(folder) == 1 and sys.path[0] == folder and os.environ["PYTHONPATH"] == folder
    import shape
    print("imported")
"""


@pytest.mark.parametrize(("module", "said"), [("shape.py", "imported"), ("email.py", "email.py hides 'email'")])
def test_a_code_folder_comes_first_unless_it_hides_what_the_process_needs(
    store: Counting, tmp_path: Path, module: str, said: str
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / module).write_text("")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    done = subprocess.run(
        [sys.executable, "-P", "-c", FOLDER, store.uri, str(folder)],
        env={**environment, FOLDER_VARIABLE: f"{folder}/"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_an_archive_that_hides_what_the_process_needs_is_refused(store: Counting, temp: Path) -> None:
    digest = put(store, zip_of({"queue.py": ""}))
    before = list(sys.path)

    with pytest.raises(NeedsChange, match=r"queue\.py hides 'queue' of Python's standard library"):
        use_code(store, "u", digest)

    assert sys.path == before
