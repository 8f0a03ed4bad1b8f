"""docs/design/code-map.md shows the packages as the contracts of the imports order them, and names nothing that is not there."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
MAP: Final = (ROOT / "docs" / "design" / "code-map.md").read_text(encoding="utf-8")
CONTRACTS: Final = tomllib.loads((ROOT / "devtools" / "imports.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
#: What users import is in no layer: no package of ours imports it.
FOR_USERS: Final = "checkpointed_writes"


def packages() -> list[str]:
    """Return the packages of the product, from those that know the others down to the one that knows none."""
    (layers,) = (each["layers"] for each in CONTRACTS["contracts"] if each["type"] == "layers" and "containers" not in each)
    return [name.strip() for layer in layers for name in layer.split("|")]


def shown() -> dict[str, str]:
    """Return the folder at the top of each package in the picture, in the picture's order."""
    folders, folder = {}, ""
    for line in MAP.partition("```text\n")[2].partition("\n```")[0].splitlines():
        found = re.match(r"(\w+/)? +(\w+) ", line)
        assert found, line
        folder = found[1] or folder
        folders[found[2]] = folder
    return folders


def test_the_picture_has_the_packages_in_the_order_of_the_contract() -> None:
    core = [name for name in packages() if (ROOT / "core" / name).is_dir()]
    programs = [name for name in packages() if name not in core]

    assert [name for name in shown() if name != FOR_USERS] == [*programs, *core]
    assert {name: folder for name, folder in shown().items() if not (ROOT / folder / name / "__init__.py").exists()} == {}
    assert {*shown(), "devtools"} == {*CONTRACTS["root_packages"]}


def test_every_path_in_the_map_is_there() -> None:
    named = {text for text in re.findall(r"`([a-z_]+/[^`<>*]*)`", MAP) if " " not in text}

    assert named
    places = [ROOT, *(ROOT / folder for folder in shown().values())]
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_each_folder_says_what_is_in_it() -> None:
    files = [file for name, folder in shown().items() for file in (ROOT / folder / name).rglob("__init__.py")]

    assert files
    assert [file for file in files if not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))] == []
