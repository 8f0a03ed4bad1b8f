"""What is installed is what constraints.txt names, with versions and hashes; and what drivers import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution, distributions, packages_distributions
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from checkpoint_protocol.code.hiding import LIBRARIES

ROOT: Final = Path(__file__).parents[3]
#: Each entry begins a line; what belongs to it is indented.
ENTRIES: Final = re.findall(r"^([^\s#]\S*==[^\n]*(?:\n[ \t]+[^\n]*)*)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
HASH: Final = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")
_DRIVER: Final = Requirement("checkpointed-writes[spark]")
#: What the metadata of cel-expr-python names, and its wheel does not have.
_NO_MODULES: Final = {"build_area", "build_deps", "dist", "kokoro", "tmp"}
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


def test_what_runs_in_drivers_imports_no_catalog() -> None:
    # import-linter knows external packages as a whole only, and readers and stagers need others of pyiceberg's modules.
    for root in ("core/checkpoint_protocol", "core/checkpoint_formats", "core/checkpoint_work", "spark_app"):
        for file in (ROOT / root).rglob("*.py"):
            imported = {name for name in _imports(ast.parse(file.read_text())) if name.startswith("pyiceberg.catalog")}
            assert not imported, f"{file.relative_to(ROOT)} imports {imported}"


#: Imports modules as in the operator's image, where packages of drivers and of one machine are not installed.
_AS_IN_THE_IMAGE: Final = """
import importlib, sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, NotInstalled())
for module in {modules}:
    importlib.import_module(module)
"""
_NOT_THERE: Final = (
    "duckdb",
    "confluent_kafka",
    "fastavro",
    "pyspark",
    "pandas",
    "anyio",
    "aiolimiter",
    "click",
    "rich",
    "psutil",
    "pathspec",
    "jinja2",
)


def test_the_operator_imports_nothing_that_its_image_does_not_have() -> None:
    modules = set()
    for package in ("core/checkpoint_commit", "core/checkpoint_control", "operator/checkpoint_operator"):
        for file in (ROOT / package).rglob("*.py"):
            parts = file.relative_to((ROOT / package).parent).with_suffix("").parts
            # One machine has both; `validate`, and looks at Kafka, are of one machine.
            if parts[1] == "validation":
                continue
            modules |= {".".join(parts).removesuffix(".__init__")}
            # Also where a function does.
            imports = (node.module for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom))
            modules |= {name for name in imports if name is not None and name.startswith("checkpoint_formats")}
    code = _AS_IN_THE_IMAGE.format(packages=_NOT_THERE, modules=sorted(modules))

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def _imports(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


#: Those with a Dockerfile; the example's is for images FROM Spark's.
FOLDERS: Final = ("operator", "spark_app", "examples/image")


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_stage_of_an_image_is_from_one_before_or_from_the_base_image_with_its_digest(folder: str) -> None:
    text = (ROOT / folder / "Dockerfile").read_text()
    (base,) = re.findall(r"^ARG BASE_IMAGE=(\S+)$", text, re.MULTILINE)
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", text, re.MULTILINE)

    assert re.fullmatch(r"python:[0-9.]+-\S+@sha256:[0-9a-f]{64}", base)
    known = {"${BASE_IMAGE}", "${SPARK_IMAGE}", *(name for _, name in stages if name)}
    assert {source for source, _ in stages} <= known
    assert set(re.findall(r"--from=(\w+)|from=(\w+),", text)) <= {(name, "") for name in known} | {("", name) for name in known}
    assert len(stages) == len(re.findall(r"^FROM ", text, re.MULTILINE))


def test_no_image_is_built_that_the_rules_for_base_images_do_not_know() -> None:
    found = {path.parent for path in ROOT.rglob("*Dockerfile*") if path.is_file() and ".venv" not in path.parts}

    assert {folder.relative_to(ROOT).as_posix() for folder in found} == set(FOLDERS)


def test_images_that_the_documentation_builds_are_from_a_digest_or_from_an_image_of_the_project() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    bases = [base for page in pages for base in re.findall(r"^FROM (\S+)", page.read_text(), re.MULTILINE)]

    assert bases, "the guide to images of one's own has some"
    fixed = r"@sha256:[0-9a-f]{64}$|^registry\.example\.com/checkpointed-writes/"
    assert [base for base in bases if not re.search(fixed, base)] == []


def test_all_images_have_one_base() -> None:
    bases = {re.findall(r"BASE_IMAGE=\S+", (ROOT / folder / "Dockerfile").read_text())[0] for folder in FOLDERS}

    assert len(bases) == 1


def test_the_example_installs_the_uv_of_the_project_by_the_same_hashes() -> None:
    (pinned_uv,) = [entry for entry in ENTRIES if entry.startswith("uv==")]
    text = (ROOT / "examples" / "image" / "uv.txt").read_text()

    assert text.partition("\n")[2].strip() == pinned_uv.strip()
    assert "--require-hashes --requirement=/context/uv.txt" in (ROOT / "examples" / "image" / "Dockerfile").read_text()


def needed_by(requirement: Requirement, known: set[str]) -> set[str]:
    """Return the names of a distribution and of all that it depends on here; `known` are followed already."""
    found = {normalized(requirement.name)}
    for text in distribution(requirement.name).requires or ():
        other = Requirement(text)
        extras = [{"extra": extra} for extra in ("", *requirement.extras)]
        is_needed = other.marker is None or any(other.marker.evaluate(extra) for extra in extras)
        if is_needed and normalized(other.name) not in known | found:
            found |= needed_by(other, known | found)
    return found


def test_code_may_hide_no_module_of_a_package_that_drivers_are_made_of() -> None:
    needed = needed_by(_DRIVER, set()) - {"checkpointed-writes"}

    found = {name for name, of in packages_distributions().items() if needed & set(map(normalized, of))}
    assert found - _NO_MODULES == LIBRARIES
