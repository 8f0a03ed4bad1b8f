"""Command blocks of the documents for one machine, run where they belong: in a clone, after `make setup`, with what they print.

tests/unit/project/test_documented_commands.py lists who runs each block.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_local.cli.files import find_settings, load_settings
from examples.prepare_data import packaged
from tests.support.waiting import patience, until

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
FLIGHTS = 2_000
MADE = shutil.ignore_patterns("data", "output", "airports.csv", "model.onnx", "characters.txt", "__pycache__")


class Clone:
    """A clone with few flights, and with the environment of the tests as its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=MADE)
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, folder)
        (folder / ".venv").mkdir()
        for name in ("bin", "lib", "pyvenv.cfg"):
            (folder / ".venv" / name).symlink_to(Path(sys.prefix) / name)
        # What `make setup` makes, and then takes as done.
        (folder / ".venv" / ".ready").touch()
        self.put_flights()

    def put_flights(self) -> None:
        """As examples/prepare_data.py does, which leaves a file that is there."""
        (self.folder / "examples" / "data").mkdir(exist_ok=True)
        with zipfile.ZipFile(packaged("flights.csv.zip")) as archive, archive.open("flights.csv") as packed:
            lines = [packed.readline() for _ in range(FLIGHTS + 1)]
        (self.folder / "examples" / "data" / "flights.csv").write_bytes(b"".join(lines))

    @property
    def environment(self) -> dict[str, str]:
        # Columns of what is shown are not to be cut.
        return {**os.environ, "COLUMNS": "300", "HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder / ".state")}

    def run(self, line: str) -> str:
        """Run a line of a block with a shell; return what it printed."""
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=self.folder,
            env=self.environment,
            input="y\n",  # `forget` asks whether it may
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=patience(90),
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}"
        return done.stdout

    def follow(self, document: str, *beginning: str) -> str:
        """Run the block whose first command begins so, line by line; return what it printed."""
        return "".join(self.run(line) for line in commands(document, *beginning))


def fenced(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def commands(document: str, beginning: str, language: str = "console") -> list[str]:
    """Return the commands of the first block that begins so."""
    block = next(text for text in fenced(document, language) if text.removeprefix("$ ").startswith(beginning))
    if language == "console":
        return re.findall(r"^\$ (.*)$", block, re.MULTILINE)
    return block.splitlines()


def shown_after(document: str, beginning: str) -> list[str]:
    """Return what a block itself shows beside its commands."""
    block = next(text for text in fenced(document, "console") if text.removeprefix("$ ").startswith(beginning))
    return [line for line in block.splitlines() if not line.startswith("$ ")]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    folder = tmp_path / "clone"
    folder.mkdir()
    return Clone(folder)


def test_the_first_example_from_its_run_to_its_removal(clone: Clone) -> None:
    installed = clone.follow("docs/operations/install.md", "make setup")
    assert f"committed {FLIGHTS:,} rows to local.travel.flights" in installed
    assert f"already committed: local.travel.flights has {FLIGHTS:,} rows" in clone.follow("docs/quick-start.md", "make run")

    for document in ("docs/quick-start.md", "docs/operations/troubleshooting.md"):
        looked = clone.follow(document, ".venv/bin/checkpointed-write status")
        assert "default/flights-iceberg: Committed" in looked
        assert "the commit was seen in the table" in looked
        assert f"sealed     {FLIGHTS:,} rows read, {FLIGHTS:,} written" in looked
    clone.follow("docs/operations/upgrade.md", "make setup")

    for line in commands("docs/operations/clean-up.md", "checkpointed-write clean", "sh"):
        clone.run(".venv/bin/" + line.replace("s3://bucket/checkpoints", "examples/output/checkpoints"))

    clone.follow("docs/operations/uninstall.md", ".venv/bin/checkpointed-write forget")
    assert not (clone.folder / "examples" / "output").exists()
    assert not (clone.folder / "examples" / "code" / "airports.csv").exists()


def test_the_second_example_is_run_and_started_over(clone: Clone) -> None:
    clone.run(".venv/bin/python examples/prepare_data.py")
    first = clone.follow("docs/quick-start.md", ".venv/bin/checkpointed-write run examples/flights-lance.yaml")
    assert f"committed {FLIGHTS:,} rows to {clone.folder}/examples/output/flights.lance" in first

    clone.follow("docs/quick-start.md", ".venv/bin/checkpointed-write forget")

    clone.put_flights()
    assert f"committed {FLIGHTS:,} rows" in clone.run("make run-lance")


def test_the_airports_are_upserted_as_the_guide_shows(clone: Clone) -> None:
    guide, run = "docs/guides/upsert.md", ".venv/bin/checkpointed-write run examples/airports-upsert.yaml"
    first = clone.follow(guide, ".venv/bin/python examples/prepare_data.py")
    for line in shown_after(guide, ".venv/bin/python examples/prepare_data.py"):
        assert line in first
    (added,) = (text for text in fenced(guide, "text") if text.startswith("faa,"))
    (clone.folder / "examples" / "data" / "airports-2014.csv").write_text(added)

    second = clone.follow(guide, run)

    for line in shown_after(guide, run):
        # The name of a stage has digits of its own.
        assert re.sub(r"\d+$", "", line) in second
    settings = load_settings(find_settings(None, clone.folder / "examples" / "airports-upsert.yaml"))
    rows = open_catalog("local", settings).load_table("travel.airports").scan().to_arrow()
    names = dict(zip(rows["faa"].to_pylist(), rows["name"].to_pylist(), strict=True))
    assert (len(rows), len(names), names["JFK"], names["XNY"]) == (1_459, 1_459, "Kennedy", "A new airport")


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def test_the_service_is_asked_as_the_guide_shows(clone: Clone, tmp_path: Path) -> None:
    guide, manifest, port = "docs/guides/services.md", clone.folder / "examples" / "answers-iceberg.yaml", free_port()
    # Other tests, and other people, may have the port of the example.
    manifest.write_text(manifest.read_text().replace("8750", str(port)))
    prepare, serve = commands(guide, ".venv/bin/python examples/prepare_data.py")
    clone.run(prepare)
    output = tmp_path / "service.txt"
    with output.open("wb") as file:
        service = subprocess.Popen(
            [*serve.split(), "--port", str(port)], cwd=clone.folder, env=clone.environment, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        until(lambda: "serving on" in output.read_text(), "the service", 60)
        asked = clone.follow(guide, ".venv/bin/checkpointed-write preview")
        service.send_signal(signal.SIGTERM)
        service.wait(patience(30))
    finally:
        service.kill()
        service.wait()

    assert "2 rows read, 2 rows given" in asked
    assert "committed 1,458 rows to local.travel.answers" in asked
    assert re.search(r"[\d,]+ calls, [\d,]+ of them refused, [\d,]+ answered from memory", output.read_text())


@pytest.mark.slow
def test_the_images_are_searched_as_the_guide_shows(clone: Clone) -> None:
    guide = "docs/guides/images.md"
    printed = clone.follow(guide, "make run-images")
    (shown,) = (text for text in fenced(guide, "text") if "committed" in text)
    for line in shown.splitlines():
        assert line.replace("/home/me/clone", str(clone.folder)) in printed
    (search,) = (text for text in fenced(guide, "python") if text.startswith("table ="))
    *lines, last = search.splitlines()
    (clone.folder / "search.py").write_text("\n".join(["import lance", *lines, f"print({last}.num_rows, 'found')"]))
    assert "5 found" in clone.run(".venv/bin/python search.py")


def test_the_python_of_the_guide_previews_and_runs_a_write(tmp_path: Path) -> None:
    (text,) = (text for text in fenced("docs/guides/commands.md", "python") if "preview, run" in text)
    pq.write_table(pa.table({"id": range(40)}), tmp_path / "in.parquet")
    (tmp_path / "write.yaml").write_text(
        "apiVersion: checkpointed.dev/v1alpha1\nkind: CheckpointedWrite\nmetadata: {name: w}\nspec:\n"
        "  source: {files: {format: parquet, paths: [in.parquet]}}\n"
        "  sink: {lance: {uri: out.lance}, create: true}\n  checkpoint: {uri: checkpoints}\n"
    )
    (tmp_path / "script.py").write_text(f"{text}assert found.rows.num_rows == 5 and not found.failed\n")

    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / ".state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(90),
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" 40\n")
    assert lance.dataset(tmp_path / "out.lance").count_rows() == 40


def test_a_settings_file_that_takes_what_is_mine_is_allowed_as_the_guide_shows(clone: Clone) -> None:
    entry = "storage:\n  - {prefix: 's3://bucket/', credentials: ambient}\n"
    (clone.folder / "checkpointed-write.settings.yaml").write_text(entry)

    (line,) = commands("docs/guides/settings.md", "checkpointed-write allow")
    clone.run(f".venv/bin/{line}")

    assert len(list((clone.folder / ".config" / "checkpointed-write" / "allowed").iterdir())) == 1


def test_the_benchmarks_are_listed() -> None:
    (line,) = (line for line in commands("benchmarks/README.md", "make bench") if "--list" in line)
    words = line.partition("#")[0].split()
    done = subprocess.run([sys.executable, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "append-iceberg" in done.stdout
