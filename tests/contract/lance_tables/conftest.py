"""Worlds with a dataset of Lance, or with none yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.lance_tables.worlds import (
    REAL,
    WORLDS,
    RealWorld,
    World,
    make_world,
)
from tests.support.writes import SCHEMA


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Each world, with an empty dataset that has its identity."""
    made = make_world(request.param, tmp_path, request)
    if isinstance(made, RealWorld):
        made.place.create(SCHEMA)
        made.target()
    return made


@pytest.fixture(params=REAL)
def real(request: pytest.FixtureRequest, tmp_path: Path) -> RealWorld:
    """Each real world, with an empty dataset that has its identity."""
    made = make_world(request.param, tmp_path, request)
    assert isinstance(made, RealWorld)
    made.place.create(SCHEMA)
    made.target()
    return made


@pytest.fixture(params=REAL)
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> RealWorld:
    """Each real world, without a dataset."""
    made = make_world(request.param, tmp_path, request)
    assert isinstance(made, RealWorld)
    return made
