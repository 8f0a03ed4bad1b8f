"""Worlds with a dataset of Lance, or with none yet."""

from __future__ import annotations

import datetime
import itertools
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from checkpoint_commit.changes import Change, StagedChange
from checkpoint_commit.footers import Footers
from checkpoint_commit.lance import commit as lance_protocol
from checkpoint_commit.lance.files.footers import LanceFooters
from checkpoint_commit.lance.port import LanceState, LanceTable
from checkpoint_commit.lance.probe import refuse_lance_without_fences
from checkpoint_commit.lance.table import PylanceTable
from checkpoint_commit.outcomes import CommitBlocked, Committed, Landed, Refused, Rejected, RequestOutcome
from checkpoint_commit.results import Results
from checkpoint_commit.staged_files import Tails
from checkpoint_formats.lance.stager import LanceStager
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import StorageSettings, lance_options
from checkpoint_protocol.records import Append, ClaimRecord, LanceBase, LanceFragment, LanceTarget, OverwriteAll
from checkpoint_protocol.tables.lance import LanceSink
from devtools.s3_server import S3Server
from tests.simulation.lance_table import SimulatedLance
from tests.simulation.scheduler import Scheduler
from tests.simulation.tables import DataFiles
from tests.support.places import LancePlace, on_disk, on_s3
from tests.support.records import KEY, TOKEN, appended, lance_fragment, ledger_over
from tests.support.stores import MemoryStore
from tests.support.tables import FakeLance
from tests.support.waiting import patience
from tests.support.writes import SCHEMA, rows_of

from tests.contract.lance_tables.worlds import OTHER, REAL, SECOND, WORLDS, FakeWorld, RealWorld, SimulatedWorld, World, make_world


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
