"""Real tables: seals that lie or are broken, staged files that are not as sealed, and what is discarded of a deleted write."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    IdentityTransform,
    Transform,
)
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_commit.outcomes import Rejected
from checkpoint_commit.staged_files import sizes_in
from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.places.settings import Settings, SqlCatalogSettings
from checkpoint_protocol.records import Append, IcebergFile
from checkpoint_protocol.store.object_store import open_raw_store
from checkpoint_protocol.store.parallel import in_threads
from devtools.s3_server import S3Server
from tests.contract.iceberg_tables.worlds import (
    OTHER,
    SECOND,
    RealWorld,
    changed,
)
from tests.support.places import IcebergPlace, on_s3
from tests.support.records import KEY, appended
from tests.support.slow import slow_except
from tests.support.writes import SCHEMA, rows_of


def elsewhere(path: str) -> Callable[[IcebergFile], IcebergFile]:
    def change(file: IcebergFile) -> IcebergFile:
        folder, _, name = file.path.rpartition("/")
        data, _, staged = folder.rpartition("/")
        table = data.rpartition("/")[0]
        return changed(file, path=path.format(folder=folder, name=name, data=data, table=table, staged=staged))

    return change


HOSTILE: dict[str, Callable[[IcebergFile], IcebergFile]] = {
    "beside the staging folder": elsewhere("{data}/{name}"),
    "a file of the table's own": elsewhere("{data}/00000-0-abc.parquet"),
    "the table's metadata": elsewhere("{table}/metadata/{name}"),
    "another table": elsewhere("{table}/../other/data/{staged}/{name}"),
    "out by dots": elsewhere("{folder}/../{name}"),
    "out by dots within the folder": elsewhere("{data}/{staged}/../../{staged}/{name}"),
    "a folder below": elsewhere("{folder}/deeper/{name}"),
    "an empty name": elsewhere("{folder}/"),
    "a dot": elsewhere("{folder}/."),
    "two dots": elsewhere("{folder}/.."),
    "two slashes": elsewhere("{folder}//{name}"),
    "a relative path": elsewhere("{staged}/{name}"),
    "another bucket": elsewhere("s3://another-bucket/{staged}/{name}"),
    "another scheme": elsewhere("http://host/{staged}/{name}"),
    "a folder that only begins like the table's": elsewhere("{data}2/{staged}/{name}"),
    "another epoch of the write": elsewhere("{folder}/2-{name}"),
    "an epoch whose number begins alike": elsewhere("{folder}/1{name}"),
    "a name with a percent sign": elsewhere("{folder}/1-%2e%2e%2f{name}"),
    "a spec that the table does not have": lambda file: changed(file, spec_id=7),
}
#: Lies that are not about the name.
_OF_ANOTHER_KIND = {"a spec that the table does not have"}


@pytest.mark.parametrize("lie", HOSTILE)
def test_a_seal_that_names_what_it_must_not_name_is_refused(real: RealWorld, lie: str) -> None:
    (honest,) = real.stage(1)
    port, state = real.loaded()

    refused = port.find_incompatibility(state, [real.target()], appended([honest, HOSTILE[lie](honest)]))

    assert isinstance(refused, Rejected)
    assert refused.reason == reasons.STAGED_RESULT_REFUSED


def test_a_seal_that_names_a_file_of_another_write_is_refused(real: RealWorld) -> None:
    """Both writes would commit it, and its rows would be there twice."""
    (honest,) = real.stage(1)
    stager = IcebergStager(real.target(), OTHER, "1-0", 1 << 20, real.place.settings.for_drivers())
    theirs = stager.stage(iter([rows_of([2]).to_batches()[0].cast(stager.arrow_schema)]))
    port, state = real.loaded()

    assert isinstance(port.find_incompatibility(state, [real.target()], appended([honest, *theirs])), Rejected)


def test_a_staged_file_that_is_gone_or_has_another_size_is_named(real: RealWorld) -> None:
    (honest,) = real.stage(1)
    port, state = real.loaded()
    gone = changed(honest, path=honest.path.replace(".parquet", "-gone.parquet"))
    longer = changed(honest, size_bytes=honest.size_bytes + 1)

    for lie, says in ((gone, "is gone"), (longer, f"and not {longer.size_bytes}")):
        missing = port.find_incompatibility(state, [real.target()], appended([lie]))
        assert isinstance(missing, Rejected)
        assert missing.reason == reasons.STAGED_FILE_MISSING
        assert lie.path in missing.message
        assert says in missing.message


def test_many_staged_files_are_checked_by_one_listing(real: RealWorld) -> None:
    files = [file for number in range(40) for file in real.stage(number)]
    port, state = real.loaded()
    target = real.target()

    assert port.find_incompatibility(state, [target], appended(files)) is None
    gone = changed(files[-1], path=files[-1].path.replace(".parquet", "-gone.parquet"))
    missing = port.find_incompatibility(state, [target], appended([*files, gone]))
    assert isinstance(missing, Rejected)
    assert missing.reason == reasons.STAGED_FILE_MISSING


@pytest.mark.parametrize(("age_s", "sees_the_stranger"), [(1.0, False), (60.0, True)])
def test_the_look_after_packing_takes_the_table_as_it_was_loaded_unless_that_is_long_ago(
    real: RealWorld, age_s: float, sees_the_stranger: bool
) -> None:
    """A claim should not name a head that the table has left, and may have expired."""
    now = [100.0]
    port = PyicebergTable(real.place.catalog, real.place.name, real.place.settings, clock=lambda: now[0])
    before = real.port().load(KEY)
    assert before is not None
    port.pack(Append(), KEY, [real.target()], real.stage(1))
    real.append_as_stranger()
    now[0] += age_s

    state, after = port.load(KEY), real.port().load(KEY)

    assert state is not None
    assert after is not None
    assert state.head == (after if sees_the_stranger else before).head
    assert before.head != after.head
    assert port.load(KEY) == after


@pytest.mark.parametrize("names", slow_except([999, 1_000, 2_500], 1_000))
def test_however_many_files_are_looked_for_each_that_is_there_is_found_with_its_size(real: RealWorld, names: int) -> None:
    """A listing of many names is cut in parts from its beginning."""
    folder = f"{real.target().data_location}/many"
    store = open_raw_store(folder, real.place.settings)
    expected = {f"1-{number}.parquet": number % 7 + 1 for number in range(names)}
    others = {f"0-{number}": 1 for number in range(1_200)}
    in_threads(lambda item: obstore.put(store, item[0], b"x" * item[1]), list((expected | others).items()))
    gone = "1-5x.parquet"

    assert sizes_in(folder, [*expected, gone], real.place.settings) == expected


def partitioned(bare: RealWorld, transform: Transform[Any, Any], column: int = 1) -> RealWorld:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()), NestedField(3, "n", IntegerType()))
    bare.create(schema, PartitionSpec(PartitionField(source_id=column, field_id=1000, transform=transform, name="p")))
    return bare


@pytest.mark.parametrize(
    "partition",
    [
        (),
        (None, None),
        (base64.b64encode(b"abc").decode(),),
        (base64.b64encode(b"").decode(),),
        (base64.b64encode(b"12345678x").decode(),),
    ],
    ids=["none", "too many", "too short", "empty", "too long"],
)
def test_a_partition_that_is_not_of_the_specs_types_is_corrupt_and_nothing_lands(
    bare: RealWorld, partition: tuple[str | None, ...]
) -> None:
    world = partitioned(bare, IdentityTransform())
    (honest,) = world.stage_batch(pa.record_batch({"id": [1], "text": ["x"], "n": pa.array([1], pa.int32())}))
    port, state = world.loaded()

    with pytest.raises(Corrupt) as caught:
        port.swap(state, KEY, appended([changed(honest, partition=partition)]))

    assert caught.value.reason == reasons.STAGED_RESULT_REFUSED
    assert world.loaded()[1].head is None


def test_a_partition_text_that_is_no_text_is_corrupt(bare: RealWorld) -> None:
    world = partitioned(bare, IdentityTransform(), column=2)
    (honest,) = world.stage_batch(pa.record_batch({"id": [1], "text": ["x"], "n": pa.array([1], pa.int32())}))
    port, state = world.loaded()

    with pytest.raises(Corrupt):
        port.swap(state, KEY, appended([changed(honest, partition=(base64.b64encode(b"\xff").decode(),))]))


# --- data files of a deleted write ------------------------------------------------------------------------------------------


def exists(world: RealWorld, *files: IcebergFile) -> list[bool]:
    io = world.place.table().io
    return [io.new_input(file.path).exists() for file in files]


def test_only_files_that_are_surely_the_epochs_own_are_discarded(real: RealWorld) -> None:
    mine, also_mine = *real.stage(1), *real.stage(2)
    others = [
        stager.stage(iter([rows_of([3]).to_batches()[0].cast(stager.arrow_schema)]))[0]
        for key in (OTHER, SECOND, EpochKey(KEY.uid, 11))
        for stager in [IcebergStager(real.target(), key, "1-0", 1 << 20, real.place.settings.for_drivers())]
    ]
    real.append_as_stranger()
    lies = [HOSTILE[lie](mine) for lie in HOSTILE if lie not in _OF_ANOTHER_KIND]
    before = real.port().discard(KEY, [], [mine])

    gone = real.port().discard(KEY, [real.target()], [mine, *others, *lies])

    assert (before, gone) == (0, 1)
    assert exists(real, mine, also_mine, *others) == [False, True, True, True, True]
    assert real.ids() == [1_000_000]
    assert real.port().discard(KEY, [real.target()], [mine]) == 1, "again: what is not there is passed over"


def test_files_below_an_awkward_name_in_a_bucket_are_discarded(s3_server: S3Server, tmp_path: Path) -> None:
    place = on_s3(tmp_path, "iceberg", s3_server)
    catalog = SqlCatalogSettings(uri=f"sqlite:///{tmp_path}/other.db", warehouse=f"{place.base_uri}/größe & maß %20+/w")
    settings = Settings(catalogs={"test": catalog}, storage=place.settings.storage)
    world = RealWorld(IcebergPlace(tmp_path, settings, place.checkpoint_uri, place.base_uri))
    world.place.create(SCHEMA)
    mine, other = *world.stage(1), *world.stage(2)

    assert world.port().discard(KEY, [world.target()], [mine]) == 1
    assert exists(world, mine, other) == [False, True]
