"""Code that lies in an archive, from where it lies to the processes that run it, on disk and on a real S3 server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import obstore
import pytest

from checkpoint_protocol.store.object_store import open_raw_store
from tests.end_to_end.conftest import make_place
from tests.support.archives import HOSTILE, zip_of
from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine
from tests.support.places import Place
from tests.support.slow import slow_except
from tests.support.writes import SCHEMA, manifest_for, write_inputs

#: A package that needs a file of its own beside it, as models and word lists are.
PACKAGE = """
from importlib.resources import files

class Work:
    def setup(self):
        self.word = files(__package__).joinpath("word.txt").read_text(encoding="utf-8")
    def __call__(self, row):
        if row["id"] == 399 and self.word == "falsch":
            raise ValueError("the word is wrong")
        return {**row, "text": f"{row['text']} {self.word}"}
"""


def package(word: str) -> bytes:
    return zip_of({"shape/__init__.py": "", "shape/shaping.py": PACKAGE, "shape/word.txt": word})


def put(place: Place, folder: Path, data: bytes, name: str = "code.zip") -> str:
    """Put code where the place's objects lie, and return its URI."""
    if "://" not in place.base_uri:
        (folder / name).write_bytes(data)
        return str(folder / name)
    obstore.put(open_raw_store(f"{place.base_uri}/code", place.settings), name, data)
    return f"{place.base_uri}/code/{name}"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", ["iceberg-sql-disk", "lance-s3"])
def test_a_changed_archive_is_what_the_next_attempt_runs_and_the_one_before_keeps_its_own(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    temp = tmp_path / "temp"
    temp.mkdir()
    monkeypatch.setenv("TMPDIR", str(temp))
    place = make_place(name, tmp_path, request)
    place.create(SCHEMA)
    uri = put(place, tmp_path, package("falsch"))
    steps = [{"call": "shape.shaping:Work", "input": "row"}]
    manifest = manifest_for(place, write_inputs(tmp_path / "in"), steps=steps, code={"uri": uri})
    command = CommandLine(tmp_path / "cli", place, manifest)
    code, output = command.run()
    assert code == 1, output
    assert "the word is wrong" in output

    put(place, tmp_path, package("größe"))
    code, output = command.run()

    assert code == 0, output
    ledger = command.ledger()
    assert ledger is not None
    launches = [ledger.attempts.read_launch(attempt) for attempt in ledger.attempts.list_attempts()]
    codes = [launch.code for launch in launches if launch is not None]
    assert len(codes) >= 2
    assert None not in codes
    assert len(set(codes[:-1])) == 1
    assert codes[-1] != codes[0]
    assert {stored.path.rpartition("/")[2] for stored in ledger.store.list(f"control/{ledger.key.uid}/code/")} == {
        f"{digest}.zip" for digest in codes
    }
    rows = place.rows()
    assert sorted(row["id"] for row in rows) == list(range(400))
    words = {row["id"]: row["text"].split()[-1] for row in rows}
    assert words[399] == "größe"
    assert set(words.values()) <= {"falsch", "größe"}
    # Driver and tasks unpacked each archive once between them.
    (folder,) = temp.glob("checkpointed-write-code-*")
    assert sorted(path.name for path in folder.iterdir()) == sorted(digest for digest in set(codes) if digest)


@pytest.mark.spark
def test_a_single_module_is_enough_also_for_the_driver_that_proposes_the_table(lance_place: Place, tmp_path: Path) -> None:
    uri = put(lance_place, tmp_path, b"def work(rows):\n    return rows\n", "flights.py")
    more: dict[str, Any] = {"code": {"uri": uri}, "sink": {"create": True}}
    manifest = manifest_for(lance_place, write_inputs(tmp_path / "in"), steps=[{"call": "flights:work"}], **more)

    code, output = CommandLine(tmp_path / "cli", lance_place, manifest).run()

    assert code == 0, output
    assert_exactly_once(lance_place, range(400))


def test_a_hostile_archive_ends_the_run_before_any_attempt(lance_place: Place, tmp_path: Path) -> None:
    lance_place.create(SCHEMA)
    uri = put(lance_place, tmp_path, HOSTILE["a name that climbs out"][0]())
    manifest = manifest_for(lance_place, write_inputs(tmp_path / "in"), steps=[{"call": "evil:work"}], code={"uri": uri})
    command = CommandLine(tmp_path / "cli", lance_place, manifest)

    code, output = command.run()

    assert code == 2
    assert "CodeMissing" in output
    assert "../evil.py" in output
    ledger = command.ledger()
    assert ledger is None or ledger.attempts.list_attempts() == []


@pytest.mark.parametrize("name", slow_except(["iceberg-sql-disk", "lance-s3"], "lance-s3"))
def test_an_archive_that_is_not_there_is_named(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = make_place(name, tmp_path, request)
    place.create(SCHEMA)
    uri = put(place, tmp_path, b"").replace("code.zip", "cdoe.zip")
    manifest = manifest_for(place, write_inputs(tmp_path / "in"), steps=[{"call": "a:b"}], code={"uri": uri})

    code, output = CommandLine(tmp_path / "cli", place, manifest).run()

    assert code == 2
    assert "CodeMissing" in output
    assert uri in output


@pytest.mark.parametrize(
    ("spec", "reason", "remedy"),
    [
        ({"suspend": True}, "WriteSuspended", "take it out"),
        ({"code": {"configMap": {"name": "flights"}}}, "ManifestInvalid", "code.path"),
    ],
)
def test_what_is_for_a_cluster_is_refused_with_a_way_out(
    spec: dict[str, Any], reason: str, remedy: str, lance_place: Place, tmp_path: Path
) -> None:
    lance_place.create(SCHEMA)
    manifest = manifest_for(lance_place, write_inputs(tmp_path / "in"), **spec)
    command = CommandLine(tmp_path / "cli", lance_place, manifest)

    code, output = command.run()

    assert code == 2
    assert reason in output
    assert remedy in output
    assert command.ledger() is None
