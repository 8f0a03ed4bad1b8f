"""A world of each kind of table, and 200 rows for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controller.harness import World
from tests.support.places import KINDS, on_disk
from tests.support.writes import SCHEMA, write_inputs


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    place = on_disk(tmp_path, request.param)
    place.create(SCHEMA)
    return World(place)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_inputs(tmp_path / "input", files=4, rows=50)
