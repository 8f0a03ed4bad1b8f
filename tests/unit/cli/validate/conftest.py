"""Ground that `checkpointed-write validate` looks at."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from devtools.s3_server import S3Server
from tests.support.grounds import Ground, Look
from tests.support.places import on_s3
from tests.support.writes import manifest_for, rows_of


@pytest.fixture
def bare_ground(tmp_path: Path) -> Ground:
    """No table, no catalog, no checkpoint folder yet."""
    return Ground(tmp_path)


@pytest.fixture
def ground(bare_ground: Ground) -> Ground:
    """Everything is right: the table and the checkpoint folder exist."""
    bare_ground.see(Look())
    return bare_ground


@pytest.fixture(autouse=True)
def _imports_nothing_of_the_user() -> Iterator[None]:
    before = set(sys.modules)
    yield
    assert not {"steps", "nested", "nested.deep"} & (set(sys.modules) - before)


@pytest.fixture
def on_a_server(s3_server: S3Server, bare_ground: Ground) -> Ground:
    """The checkpoints and the target, a dataset, are on an object store."""
    place = on_s3(bare_ground.folder, "lance", s3_server)
    place.create(rows_of([]).schema)
    filesystem = pa.fs.S3FileSystem(
        access_key=s3_server.access_key,
        secret_key=s3_server.secret_key,
        region=s3_server.region,
        endpoint_override=s3_server.endpoint,
    )
    bucket = place.base_uri.removeprefix("s3://")
    pq.write_table(rows_of(range(7)), f"{bucket}/in/a.parquet", filesystem=filesystem)
    pq.write_table(rows_of(range(5)), f"{bucket}/in/_hidden.parquet", filesystem=filesystem)
    bare_ground.document = json.loads(manifest_for(place, f"{place.base_uri}/in").model_dump_json(by_alias=True))
    storage = place.settings.for_drivers().model_dump(mode="json")["storage"]
    bare_ground.settings.write_text(yaml.safe_dump({"storage": storage}))
    return bare_ground
