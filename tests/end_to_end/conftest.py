"""Where writes go in these tests: every combination of format, store and catalog that is supported and can be run here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.places import DISK_PLACES, PLACES, Place, on_disk, on_gcs, on_s3


def make_place(name: str, folder: Path, request: pytest.FixtureRequest) -> Place:
    kind = name.split("-")[0]
    if name.endswith("-s3"):
        return on_s3(folder, kind, request.getfixturevalue("s3_server"))
    if name.endswith("-gcs"):
        return on_gcs(folder, kind, request.getfixturevalue("gcs_server"))
    rest = request.getfixturevalue("rest_catalog") if "-rest-" in name else None
    return on_disk(folder, kind, rest)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Each place, servers included."""
    return make_place(request.param, tmp_path, request)


@pytest.fixture
def iceberg_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """For what the format plays no part in."""
    return make_place("iceberg-sql-disk", tmp_path, request)


@pytest.fixture
def lance_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """For what the format plays no part in."""
    return make_place("lance-disk", tmp_path, request)


@pytest.fixture(params=DISK_PLACES)
def disk_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Both formats on disk, for what does not depend on the store."""
    return make_place(request.param, tmp_path, request)
