"""What the documents tell people to type is taken by the commands, and `validate` finds nothing wrong with their manifests."""

from __future__ import annotations

import re
import shlex
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pyarrow.csv as pc
import pytest
import yaml
from click.testing import CliRunner

from checkpoint_operator.catalogs.named import open_catalog
from checkpoint_operator.cli.files import find_settings, load_settings
from checkpoint_operator.cli.main import main as command_line
from examples.prepare_data import packaged
from tests.unit.project.test_documentation import DOCUMENTS, ROOT, blocks

_PROGRAM: Final = "checkpointed-write"
_EXAMPLES: Final = ROOT / "examples"
_SAMPLE_BYTES: Final = 100_000


def typed() -> Iterator[tuple[str, list[str]]]:
    """Give each call of the program, in consoles and within sentences, with the words behind its name."""
    for where, text in blocks("console"):
        for line in re.findall(rf"^\$ (?:\.venv/bin/)?{_PROGRAM} (.*)$", text, re.MULTILINE):
            yield where, shlex.split(line, comments=True)
    for document in DOCUMENTS:
        for line in re.findall(rf"`(?:\.venv/bin/)?{_PROGRAM} ([^`\n]+)`", document.read_text()):
            yield str(document.relative_to(ROOT)), shlex.split(line)


@pytest.mark.parametrize("words", [pytest.param(words, id=f"{where}: {' '.join(words)}") for where, words in typed()])
def test_a_command_line_of_the_documents_is_taken_with_its_options(words: list[str]) -> None:
    name, *given = words
    assert isinstance(command_line, click.Group)
    command = command_line.commands[name]

    # Within a sentence, a name may stand for the command.
    if given:
        command.make_context(name, given)


@pytest.mark.parametrize("name", sorted(command_line.commands))
def test_a_command_explains_itself(name: str) -> None:
    answer = CliRunner().invoke(command_line, [name, "--help"])

    assert answer.exit_code == 0
    assert answer.output.startswith(f"Usage: main {name}")


def of_writes() -> Iterator[tuple[str, str]]:
    """Give the manifests for one machine. Those for brokers and buckets are parsed, with all other YAML of the documents."""
    for where, text in blocks("yaml"):
        if "kind: CheckpointedWrite" in text and len(list(yaml.safe_load_all(text))) == 1:
            spec = yaml.safe_load(text)["spec"]
            is_of_files = "files" in spec.get("source", {}) and "://" not in str(spec)
            if is_of_files and spec["sink"].get("iceberg", {}).get("catalog") == "local":
                yield where, text


def test_the_documents_show_manifests_for_one_machine() -> None:
    assert len(list(of_writes())) >= 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the documents' relative paths lead somewhere: code, settings and a catalog as the examples have them."""
    shutil.copytree(_EXAMPLES / "code", tmp_path / "code")
    shutil.copy(_EXAMPLES / "checkpointed-write.settings.yaml", tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "output").mkdir()
    shutil.copy(packaged("airports.csv"), tmp_path / "code")
    return tmp_path


def put_flights(path: Path) -> None:
    with zipfile.ZipFile(packaged("flights.csv.zip")) as archive, archive.open("flights.csv") as packed:
        beginning = packed.read(_SAMPLE_BYTES)
    path.write_bytes(beginning[: beginning.rindex(b"\n") + 1])


@pytest.mark.parametrize("text", [pytest.param(text, id=where) for where, text in of_writes()])
def test_a_manifest_of_the_documents_has_no_problem(text: str, folder: Path) -> None:
    (folder / "write.yaml").write_text(text)
    spec = yaml.safe_load(text)["spec"]
    files = [folder / path for path in spec["source"]["files"]["paths"]]
    for path in files:
        put_flights(path)
    sink = spec["sink"]
    if not sink.get("create"):
        catalog = open_catalog(sink["iceberg"]["catalog"], load_settings(find_settings(None, folder / "write.yaml")))
        catalog.create_namespace(sink["iceberg"]["table"].partition(".")[0])
        catalog.create_table(sink["iceberg"]["table"], pc.read_csv(files[0]).schema)

    answer = CliRunner().invoke(command_line, ["validate", str(folder / "write.yaml")], catch_exceptions=False)

    assert answer.exit_code == 0, answer.output
