"""The documentation builds without a warning, and its reference knows all that the product has."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

from checkpoint_control.views.reason_texts import reason_texts
from checkpoint_control.yaml_documents import parse_documents
from checkpoint_local.cli.main import main as command_line
from checkpoint_protocol import reasons
from checkpoint_protocol.manifest.spec import API_VERSION, KIND, Spec, parse_manifest, validate_model
from checkpoint_protocol.places.settings import Settings
from devtools.documentation import reference

ROOT = Path(__file__).parents[3]


def test_every_reason_has_its_page_and_no_other_has(tmp_path: Path) -> None:
    known = {value for name, value in vars(reasons).items() if name.isupper()}
    assert sorted(text.reason for text in reason_texts()) == sorted(known)


def test_the_site_builds_strictly_with_all_its_pages(tmp_path: Path) -> None:
    # The site's own links, anchors and navigation: strict makes an error of each warning.
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))

    assert all((tmp_path / path.replace(".md", ".html")).is_file() for path in reference.pages())
    page = (tmp_path / "reference" / "reasons.html").read_text()
    for text in reason_texts():
        assert f'id="{text.reason.lower()}"' in page


def test_the_page_of_reasons_is_what_their_file_says() -> None:
    assert reference.REASONS_PAGE.read_text() == reference.reasons_page(), "say: make docs"


def test_tests_that_the_documents_name_exist() -> None:
    existing = [str(file.relative_to(ROOT).with_suffix("")) for file in (ROOT / "tests").rglob("test_*.py")]
    for document in DOCUMENTS:
        for named in re.findall(r"`((?:[\w-]+/)*test_\w+)(?:\.py)?`", document.read_text()):
            assert any(path.endswith(f"/{named}") or path == named for path in existing), (
                f"{named} of {document.relative_to(ROOT)}"
            )


def test_links_between_files_of_the_repository_lead_somewhere() -> None:
    # mkdocs sees those within docs/ only.
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text()):
            is_made = target.startswith(("http", "../reference/", "../guides/chart.md", "reference/"))
            assert is_made or (document.parent / target).exists(), f"{target} of {document.relative_to(ROOT)}"


def test_the_reference_has_each_field_and_command() -> None:
    pages = reference.pages()
    assert command_line.commands.keys() == set(re.findall(r"^## (.*)$", pages["reference/commands.md"], re.MULTILINE))
    for name, field in Spec.model_fields.items():
        assert f'<a id="{field.alias or name}" href="#{field.alias or name}">' in pages["reference/manifest.md"]
    assert (
        '<a id="checkpoint.interval" href="#checkpoint.interval"><code>checkpoint.<wbr>interval</code></a>'
        in pages["reference/manifest.md"]
    )
    assert "checkpointed_writes_committed_rows_total" in pages["reference/metrics.md"]


DOCUMENTS = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "charts/checkpointed-write-operator/README.md"])
SMALLEST = {
    "source": {"files": {"format": "parquet", "paths": ["in"]}},
    "sink": {"lance": {"uri": "out.lance"}},
    "checkpoint": {"uri": "checkpoints"},
}


def blocks(language: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of a language, each with where it stands."""
    return [
        (f"{document.relative_to(ROOT)} {number}", text)
        for document in DOCUMENTS
        for number, text in enumerate(re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.DOTALL))
    ]


@pytest.mark.parametrize("text", [pytest.param(text, id=where) for where, text in blocks("yaml")])
def test_yaml_in_the_documents_is_taken(text: str) -> None:
    for data in parse_documents(text):
        if data.get("kind") == "CheckpointedWrite":
            parse_manifest(data)
        elif data.get("kind") in FOLDERS_OF:
            # Their own models are not ours; what they lead to is.
            assert (ROOT / FOLDERS_OF[data["kind"]](data["spec"])).is_dir()
        elif data.keys() <= spec_fields():
            parse_manifest({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "x"}, "spec": SMALLEST | data})
        elif data.keys() <= Settings.model_fields.keys():
            validate_model(Settings, data)
        else:
            assert unknown_values(data, yaml.safe_load(reference.VALUES.read_text())) == [], (
                "it is a manifest, a part of one, settings, or values of the chart"
            )


def test_what_the_guide_adds_to_retry_is_taken_with_and_without_quotes() -> None:
    (shown,) = re.findall(r"`retry: (\{.*?\})`", (ROOT / "docs/guides/services.md").read_text())
    for text in (shown, shown.replace('"on"', "on")):
        (step,) = validate_model(Spec, SMALLEST | {"steps": [{"call": "m:f", "retry": parse_documents(text)[0]}]}).steps
        assert step.retry is not None
        assert step.retry.on == ("APIError", "425")


def unknown_values(data: dict[str, Any], values: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the values that the chart does not have. Below one whose default is empty, nothing is known."""
    found = [f"{prefix}{name}" for name in data if name not in values]
    for name, value in data.items():
        if isinstance(value, dict) and isinstance(values.get(name), dict) and values[name]:
            found += unknown_values(value, values[name], f"{prefix}{name}.")
    return found


FOLDERS_OF: dict[str, Callable[[Any], str]] = {
    "Application": lambda spec: spec["source"]["path"],
    "HelmRelease": lambda spec: spec["chart"]["spec"]["chart"],
    "Kustomization": lambda spec: spec["path"],
}


def spec_fields() -> set[str]:
    return {field.alias or name for name, field in Spec.model_fields.items()}


#: What commands of the documents make, and what users have outside of the clone.
MADE = ("examples/output/", "examples/data/", "examples/code/airports.csv", "../release_key", "../allowed_signers")


@pytest.mark.parametrize("text", [pytest.param(text, id=where) for where, text in blocks("console")])
def test_commands_in_the_documents_exist(text: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
        command = line.partition("#")[0].split()
        for word in command:
            # What an example writes is there after the command before.
            if (ROOT / word.partition("/")[0]).is_dir() and not word.startswith(MADE):
                assert (ROOT / word).exists(), f"{word} of {line}"
        if command[0] == "make":
            assert command[1] in targets
        if command[0].endswith("checkpointed-write"):
            assert command[1] in command_line.commands


def test_the_dockerfile_in_the_guide_is_the_one_that_is_built_in_the_tests() -> None:
    ((_, shown),) = blocks("dockerfile")
    text = (ROOT / "examples" / "image" / "Dockerfile").read_text()
    body = text.partition("\nFROM")[2]
    for name, value in re.findall(r"^ARG (\w+)=(\S+)\n", text, re.MULTILINE):
        body = body.replace(f"${{{name}}}", value)

    assert body == shown.removeprefix("FROM")
