"""Real datasets: how they are described and made, and what readers see."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from checkpoint_commit.outcomes import Landed
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.tables.lance import LanceSink
from devtools.s3_server import S3Server
from tests.contract.lance_tables.worlds import (
    RealWorld,
    add_column,
)
from tests.support.places import LancePlace, on_s3
from tests.support.records import KEY, appended
from tests.support.writes import SCHEMA

# --- describing and making ------------------------------------------------------------------------------------------------


def test_a_dataset_gets_an_identity_at_first_touch_and_keeps_it(bare: RealWorld) -> None:
    bare.place.create(SCHEMA)
    first = bare.target()
    bare.append_as_stranger()
    second = bare.target()

    assert first.identity == second.identity
    assert second.at_version == first.at_version + 1
    assert bare.loaded().identity == first.identity


def test_of_many_that_touch_a_dataset_first_all_see_one_identity(bare: RealWorld) -> None:
    bare.place.create(SCHEMA)
    with ThreadPoolExecutor(4) as describers:
        identities = set(describers.map(lambda _: bare.target().identity, range(8)))

    assert len(identities) == 1


def test_a_dataset_is_made_once_and_found_by_whoever_comes_later(bare: RealWorld) -> None:
    sink = Sink(lance=LanceSink(uri=bare.place.uri), create=True)
    first = bare.port().create(encode_schema(SCHEMA), sink)
    bare.append(bare.latest, 1)
    second = bare.port().create(encode_schema(SCHEMA), sink)

    assert second.identity == first.identity
    assert bare.ids() == [1]


def test_a_dataset_that_cannot_be_made_of_the_output_says_why(bare: RealWorld) -> None:
    sink = Sink(lance=LanceSink(uri=bare.place.uri), create=True)
    unsupported = pa.schema([("x", pa.month_day_nano_interval())])

    with pytest.raises(NeedsChange) as caught:
        bare.port().create(encode_schema(unsupported), sink)
    assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG
    assert bare.port().describe() is None


# --- real datasets: what readers see --------------------------------------------------------------------------------------


def test_rows_of_strangers_and_ours_are_all_there(real: RealWorld) -> None:
    real.append_as_stranger()
    assert isinstance(real.append(real.latest, *range(50)), Landed)
    real.append_as_stranger()

    assert real.ids() == [*range(50), 1_000_000, 1_000_000]
    assert {row["text"] for row in real.place.rows() if row["id"] < 50} == {f"zeile {number}" for number in range(50)}
    assert real.place.keys() == [str(KEY)]


def test_a_column_that_was_added_after_staging_reads_as_null(real: RealWorld) -> None:
    files = real.stage(1)
    add_column(real)
    assert isinstance(real.port().append(real.latest, KEY, appended(files)), Landed)

    assert real.place.rows() == [{"id": 1, "text": "zeile 1", "more": None}]


def test_a_dataset_in_a_bucket_below_an_awkward_name_takes_our_files(s3_server: S3Server, tmp_path: Path) -> None:
    """But for %, which Lance takes for the beginning of %20 and the like, and which the manifest refuses."""
    name = "größe & maß+"
    place = on_s3(tmp_path, "lance", s3_server)
    world = RealWorld(LancePlace(tmp_path, place.settings, place.checkpoint_uri, f"{place.base_uri}/{name}"))
    world.place.create(SCHEMA)
    target, files = world.target(), world.stage(1, 2)

    assert world.port().find_incompatibility(world.loaded(), [target], appended(files)) is None
    assert isinstance(world.port().append(world.latest, KEY, appended(files)), Landed)
    assert world.ids() == [1, 2]
