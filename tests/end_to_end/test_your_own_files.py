"""The pages for the first own job, followed word by word in an empty folder: their files, commands, and what they print."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import pytest
import yaml

from tests.support.waiting import patience, until

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
PAGE = GUIDES / "your-own-files.md"
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
_FAILS = "preview write.yaml --rows 10"  # a row of the page fails, which it says

pytestmark = pytest.mark.spark


PROGRAMS = {"python": [sys.executable], "checkpointed-write": [sys.executable, "-m", "checkpoint_local.cli.entry"]}


def environment_in(folder: Path) -> dict[str, str]:
    # Columns of what is shown are not to be cut.
    return {**os.environ, "COLUMNS": "300", "XDG_STATE_HOME": str(folder / ".state")}


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the page with the programs of this environment."""
    return subprocess.run(
        [*PROGRAMS[words[0]], *words[1:]],
        cwd=folder,
        env=environment_in(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=patience(300),
    )


@pytest.mark.parametrize(("page", "lines"), [("your-own-files.md", 10), ("python.md", 2)])
def test_the_page_is_followed_word_by_word(tmp_path: Path, page: str, lines: int) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    printed = ""
    checked = 0
    for language, text in _BLOCK.findall((GUIDES / page).read_text()):
        if named := re.match(r"# (\S+\.(?:py|yaml))\n", text):
            (folder / named[1]).write_text(text)
        elif language == "console":
            printed = ""
            for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
                done = run(shlex.split(line), folder)
                assert done.returncode == (1 if _FAILS in line else 0), f"{line}\n{done.stdout}"
                printed += done.stdout
        elif language == "text" and "pip install" not in text:
            for line in text.replace("{folder}", str(folder)).splitlines():
                assert line in " ".join(printed.split()) or line in printed, f"{line!r} is not in\n{printed}"
                checked += 1
    assert checked >= lines


def own_folder(folder: Path) -> Path:
    """Make a folder with the files of the page."""
    folder.mkdir()
    for _, text in _BLOCK.findall(PAGE.read_text()):
        if named := re.match(r"# (\S+\.(?:py|yaml))\n", text):
            (folder / named[1]).write_text(text)
    assert run(["python", "make_input.py"], folder).returncode == 0
    return folder


def with_source(folder: Path, kind: str) -> dict[str, Any]:
    """Return the manifest of the page with one of the other sources of the page."""
    (source,) = [
        parsed["source"]
        for language, text in _BLOCK.findall(PAGE.read_text())
        if language == "yaml" and (parsed := yaml.safe_load(text)).get("source", {}).get("files", {}).get("format") == kind
    ]
    manifest: dict[str, Any] = yaml.safe_load((folder / "write.yaml").read_text())
    manifest["spec"]["source"] = source
    return manifest


def test_the_step_of_the_page_takes_the_same_rows_from_csv_files(tmp_path: Path) -> None:
    folder = own_folder(tmp_path / "own")
    lines = [f"{number},the text of number {number}" for number in range(40)]
    (folder / "texts" / "first.csv").write_text("\n".join(["id,text", *lines]) + "\n")
    (folder / "write.yaml").write_text(yaml.safe_dump(with_source(folder, "csv")))

    done = run(["checkpointed-write", "preview", "write.yaml", "--rows", "10"], folder)

    assert done.returncode == 0, done.stdout
    assert "10 rows read, 10 rows given" in done.stdout


def test_a_step_reads_the_content_of_images_as_the_page_says(tmp_path: Path) -> None:
    folder = own_folder(tmp_path / "own")
    (folder / "images").mkdir()
    for number in range(3):
        (folder / "images" / f"{number}.png").write_bytes(b"picture" * (number + 1))
    manifest = with_source(folder, "binary")
    (folder / "steps.py").write_text(
        'def embed(row):\n    assert len(row["content"]) == row["size"]\n'
        '    return {"path": row["path"], "vector": [float(byte) for byte in row["content"][:5]]}\n'
    )
    (folder / "write.yaml").write_text(yaml.safe_dump(manifest))

    done = run(["checkpointed-write", "preview", "write.yaml", "--rows", "10"], folder)

    assert done.returncode == 0, done.stdout
    assert "3 rows read, 3 rows given" in done.stdout


# The step of the page, which begins and then waits until it may go on.
_WAITING_STEP = """
from pathlib import Path
from time import sleep

_embed = embed


def embed(row):
    Path({begun!r}).touch()
    while not Path({may_end!r}).exists():
        sleep(0.05)
    return _embed(row)
"""


def test_a_run_of_the_page_that_is_interrupted_goes_on_with_the_same_command(tmp_path: Path) -> None:
    folder = own_folder(tmp_path / "own")
    begun, may_end = tmp_path / "begun", tmp_path / "may-end"
    with (folder / "steps.py").open("a") as file:
        file.write(_WAITING_STEP.format(begun=str(begun), may_end=str(may_end)))
    output = folder / "first-run.txt"
    with output.open("wb") as file:
        first = subprocess.Popen(
            [*PROGRAMS["checkpointed-write"], "run", "write.yaml"],
            cwd=folder,
            env=environment_in(folder),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        until(begun.exists, "the first row of the step", report=output.read_text)
        first.send_signal(signal.SIGINT)
        assert first.wait(patience(60)) == 130, output.read_text()
    finally:
        first.kill()
        first.wait()

    may_end.touch()
    second = run(["checkpointed-write", "run", "write.yaml"], folder)

    assert second.returncode == 0, second.stdout
    assert f"committed 39 rows to {folder}/texts.lance" in second.stdout
    assert lance.dataset(folder / "texts.lance").count_rows() == 39
