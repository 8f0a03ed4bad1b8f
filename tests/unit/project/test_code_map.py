"""docs/design/code-map.md names every folder of the product, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
MAP: Final = ROOT / "docs" / "design" / "code-map.md"
ROOTS: Final = (
    "protocol/checkpoint_protocol",
    "formats/checkpoint_formats",
    "operator/checkpoint_operator",
    "spark_app/checkpoint_spark",
    "spark_app/checkpointed_writes",
)


def test_every_folder_is_in_the_map_once() -> None:
    packages = {file.parent.relative_to(ROOT).as_posix() for root in ROOTS for file in (ROOT / root).rglob("__init__.py")}
    rows = re.findall(r"^\| `([^`]+)` \| [^|]+ \|$", MAP.read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(rows) == sorted(packages)


def test_every_path_in_the_map_is_there() -> None:
    named = {text for text in re.findall(r"`([a-z_]+/[^`<>*]*)`", MAP.read_text(encoding="utf-8")) if " " not in text}

    assert named
    places = [ROOT, *(ROOT / root for root in ROOTS)]
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_a_folder_has_a_dozen_modules_at_the_most() -> None:
    """What is longer is not read, but searched."""
    folders = {file.parent for root in ROOTS for file in (ROOT / root).rglob("__init__.py")}
    modules = {folder.relative_to(ROOT).as_posix(): len([*folder.glob("*.py")]) - 1 for folder in folders}

    assert {name: count for name, count in modules.items() if count > 12} == {}
