"""What is installed is what constraints.txt names: each package with its version, and the hashes of its files."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
#: Each entry begins a line; what belongs to it is indented.
ENTRIES: Final = re.findall(r"^([^\s#]\S*==[^\n]*(?:\n[ \t]+[^\n]*)*)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
HASH: Final = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")
#: Of the environment itself: what Python makes it with, and the project.
_NOT_PINNED: Final = {"pip", "setuptools", "wheel", "checkpointed-writes"}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> dict[str, str]:
    found = (re.match(r"([A-Za-z0-9_.-]+)==(\S+)", entry) for entry in ENTRIES)
    return {normalized(match[1]): match[2] for match in found if match}


@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry.split("==")[0]) for entry in ENTRIES])
def test_a_package_is_pinned_with_the_hashes_of_its_files(entry: str) -> None:
    assert HASH.search(entry)


def test_every_installed_package_is_pinned() -> None:
    installed = {normalized(each.metadata["Name"]): each.version for each in distributions()}
    others = {name: version for name, version in installed.items() if name not in _NOT_PINNED}

    assert others
    assert {name: version for name, version in others.items() if pinned().get(name) != version} == {}


def test_what_builds_the_project_and_its_packages_is_pinned() -> None:
    assert {"hatchling", "setuptools", "wheel", "uv"} <= pinned().keys()
    assert f"hatchling=={pinned()['hatchling']}" in (ROOT / "pyproject.toml").read_text()
