"""The documentation builds without a warning, and its reference knows all that the product has."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

from checkpoint_operator.cli.main import main as command_line
from checkpoint_protocol import reasons
from checkpoint_protocol.manifest import Spec
from devtools.documentation import reference

ROOT = Path(__file__).parents[2]


def test_every_reason_has_its_page_and_no_other_has(tmp_path: Path) -> None:
    known = {value for name, value in vars(reasons).items() if name.isupper()}
    described = [reason for members in reference.reasons().values() for reason in members]
    assert sorted(described) == sorted(known)
    for members in reference.reasons().values():
        assert all(set(texts) == {"seen", "why", "do"} for texts in members.values())


def test_the_site_builds_strictly_with_all_its_pages(tmp_path: Path) -> None:
    # The site's own links, anchors and navigation: strict makes an error of each warning.
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))

    assert {str(path.relative_to(tmp_path)) for path in tmp_path.glob("reference/*.html")} == {
        path.replace(".md", ".html") for path in reference.pages()
    }


def test_the_reference_has_each_field_and_command() -> None:
    pages = reference.pages()
    assert command_line.commands.keys() == set(re.findall(r"^## (.*)$", pages["reference/commands.md"], re.MULTILINE))
    for name, field in Spec.model_fields.items():
        assert f"`{field.alias or name}" in pages["reference/manifest.md"]
    assert "`checkpoint.interval`" in pages["reference/manifest.md"]
    assert "checkpointed_writes_committed_rows_total" in pages["reference/metrics.md"]
