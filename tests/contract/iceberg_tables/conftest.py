"""Worlds with a table of Iceberg, or with none yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.iceberg_tables.worlds import (
    REAL,
    WORLDS,
    RealWorld,
    World,
    make_world,
)
from tests.support.writes import SCHEMA


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Each world, with an empty table."""
    made = make_world(request.param, tmp_path, request)
    if isinstance(made, RealWorld):
        made.place.create(SCHEMA)
    return made


@pytest.fixture(params=REAL)
def real(request: pytest.FixtureRequest, tmp_path: Path) -> RealWorld:
    """Each real world, with an empty table."""
    made = make_world(request.param, tmp_path, request)
    assert isinstance(made, RealWorld)
    made.place.create(SCHEMA)
    return made


@pytest.fixture(params=["sql-disk", "rest-disk"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> RealWorld:
    """A real world under each catalog, without a table."""
    made = make_world(request.param, tmp_path, request)
    assert isinstance(made, RealWorld)
    return made


@pytest.fixture
def on_rest(tmp_path: Path, request: pytest.FixtureRequest) -> RealWorld:
    """A REST catalog, whose server is Java: what pyiceberg's own catalog refuses to make can be made here."""
    made = make_world("rest-disk", tmp_path, request)
    assert isinstance(made, RealWorld)
    return made
