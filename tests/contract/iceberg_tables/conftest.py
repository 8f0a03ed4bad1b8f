"""Worlds with a table of Iceberg, or with none yet."""

from __future__ import annotations

import base64
import datetime
import itertools
import re
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import ManifestEntry
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_commit.iceberg import commit as iceberg
from checkpoint_commit.iceberg.commit import IcebergState, IcebergTable
from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_commit.outcomes import CommitBlocked, Committed, Landed, Refused, Rejected
from checkpoint_commit.staged_files import sizes_in
from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.settings import Settings, SqlCatalogSettings
from checkpoint_protocol.records import Append, ClaimRecord, IcebergBase, IcebergFile, IcebergTarget
from checkpoint_protocol.store.object_store import open_raw_store
from checkpoint_protocol.store.parallel import in_threads
from devtools.s3_server import S3Server
from tests.simulation.iceberg_port import IcebergPort
from tests.simulation.iceberg_table import SimulatedIceberg
from tests.simulation.scheduler import Scheduler
from tests.simulation.tables import DataFiles
from tests.support.places import IcebergPlace, on_disk, on_glue, on_s3
from tests.support.records import KEY, appended, iceberg_file, ledger_over
from tests.support.rest_tables import ask
from tests.support.slow import slow_except
from tests.support.stores import MemoryStore
from tests.support.tables import FakeIceberg
from tests.support.writes import SCHEMA, rows_of
from tests.contract.iceberg_tables.worlds import FLAT, OTHER, REAL, SECOND, WORLDS, FakeWorld, RealWorld, World, changed, make_world, refused


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
