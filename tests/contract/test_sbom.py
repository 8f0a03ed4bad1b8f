"""`make sbom` lists what the images have: each package with the version and the hashes of constraints.txt, and no other."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import patience
from tests.unit.project.test_dependencies import ENTRIES, HASH, normalized, pinned

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HASHES = {normalized(entry.split("==")[0].partition("[")[0]): set(HASH.findall(entry)) for entry in ENTRIES}


@pytest.fixture(scope="module")
def lists() -> dict[str, dict[str, Any]]:
    made = subprocess.run(
        ["make", "--silent", "sbom"], cwd=ROOT, capture_output=True, text=True, timeout=patience(280), check=False
    )
    assert made.returncode == 0, made.stderr
    assert made.stderr == ""
    return {Path(line).name.partition(".")[0]: json.loads((ROOT / line).read_text()) for line in made.stdout.splitlines()}


def test_each_image_has_its_list_with_the_project_and_its_pinned_packages(lists: dict[str, dict[str, Any]]) -> None:
    assert set(lists) == {"operator", "spark_app"}
    for found in lists.values():
        assert found["bomFormat"] == "CycloneDX"
        assert found["metadata"]["component"]["name"] == "checkpointed-writes"
        versions = {normalized(one["name"]): one["version"] for one in found["components"]}
        assert versions.items() <= pinned().items()


def test_packages_of_an_image_are_those_that_it_needs(lists: dict[str, dict[str, Any]]) -> None:
    operator, spark = ({normalized(one["name"]) for one in lists[image]["components"]} for image in ("operator", "spark_app"))
    assert {"kopf", "kubernetes", "pyiceberg", "pylance"} <= operator
    assert {"pyspark", "py4j", "pyarrow"} <= spark
    assert not {"kopf", "kubernetes", "pytest"} & spark
    assert not {"pyspark", "pytest"} & operator


def test_each_package_is_listed_with_hashes_of_its_files(lists: dict[str, dict[str, Any]]) -> None:
    for found in lists.values():
        for one in found["components"]:
            listed = {entry["content"] for place in one["externalReferences"] for entry in place.get("hashes", ())}
            assert listed
            assert {f"--hash=sha256:{digest}" for digest in listed} <= HASHES[normalized(one["name"])], one["name"]
