"""Lance datasets that are made as the manifest wants them, and the tags of commits, on disk and S3."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pydantic import SecretStr

from checkpoint_commit.lance import tags as lance_tags
from checkpoint_commit.lance.table import PylanceTable
from checkpoint_commit.outcomes import CommitOutcome, Committed, Rejected
from checkpoint_commit.results import Results
from checkpoint_commit.sinks.registry import format_of
from checkpoint_formats.lance.reader import LanceReader, find_fragments
from checkpoint_formats.lance.stager import LanceStager
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.plain_types import decode_schema, encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.manifest.sources.source import LanceSource
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import StorageEntry
from checkpoint_protocol.records import Append, LanceTarget, StagedFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_work.steps.values.schema_cast import fit_array
from tests.support.http_server import serving_by
from tests.support.places import LancePlace, on_disk, on_s3
from tests.support.records import DIGEST, KEY, ledger_over
from tests.support.stores import MemoryStore
from tests.support.writes import SCHEMA, rows_of

SECOND = EpochKey(KEY.uid, 2)
OTHER = EpochKey("fedcba9876543210", 1)
IMAGES = pa.schema([("id", pa.int64()), ("image", pa.binary()), ("embedding", pa.list_(pa.float64()))])


class Died(BaseException):
    """The committer dies here."""


class DiesBeforeTheTag(PylanceTable):
    def set_tag(self, key: EpochKey, version: int) -> None:
        raise Died


class DiesAfterTheTag(PylanceTable):
    def set_tag(self, key: EpochKey, version: int) -> None:
        super().set_tag(key, version)
        raise Died


@dataclass
class World:
    place: LancePlace
    tag: str | None = "run"

    def port(self, kind: type[PylanceTable] = PylanceTable) -> PylanceTable:
        return kind(self.place.uri, self.place.settings, tag=self.tag)

    def target(self) -> LanceTarget:
        target = self.port().describe()
        assert target is not None
        return target

    def stage(self, rows: pa.Table) -> tuple[StagedFile, ...]:
        return tuple(LanceStager(self.target(), 1 << 20, self.place.settings.for_drivers()).stage(iter(rows.to_batches())))

    def commit(
        self,
        files: tuple[StagedFile, ...],
        ledger: Ledger | None = None,
        port: PylanceTable | None = None,
        key: EpochKey = KEY,
    ) -> CommitOutcome:
        port, target = port or self.port(), self.target()
        change = port.pack(Append(), key, [target], files)
        results = Results(change, (target,), rows_read=0, rows_written=0, attempts=1, code_digests=(DIGEST,))
        return lance_tags.commit(port, ledger or ledger_over(MemoryStore(), key=key), results)

    def write(self, *numbers: int, key: EpochKey = KEY) -> CommitOutcome:
        return self.commit(self.stage(rows_of(numbers)), key=key)

    def tags(self) -> dict[str, int]:
        return {name: tag["version"] for name, tag in self.place.dataset().tags.list().items()}

    def ids(self, version: Any = None) -> list[int]:
        dataset = lance.dataset(self.place.uri, version, storage_options=self.place.options)
        return sorted(dataset.to_table(columns=["id"]).column("id").to_pylist())


@pytest.fixture(params=["disk", "s3"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    is_on_disk = request.param == "disk"
    place = on_disk(tmp_path, "lance") if is_on_disk else on_s3(tmp_path, "lance", request.getfixturevalue("s3_server"))
    assert isinstance(place, LancePlace)
    return World(place)


@pytest.fixture
def world(bare: World) -> World:
    bare.place.create(SCHEMA)
    bare.target()
    return bare


# --- tags -----------------------------------------------------------------------------------------------------------------


def test_each_epoch_has_a_tag_of_its_own_on_the_version_that_its_commit_made(world: World) -> None:
    world.tag = "run-{epoch}"

    first = world.write(1)
    world.place.append(rows_of([1_000_000]))
    second = world.write(2, key=SECOND)

    assert isinstance(first, Committed)
    assert isinstance(second, Committed)
    assert world.tags() == {"run-1": first.commit_id, "run-2": second.commit_id}
    assert (world.ids("run-1"), world.ids("run-2")) == ([1], [1, 2, 1_000_000])


@pytest.mark.parametrize("dying", [DiesBeforeTheTag, DiesAfterTheTag])
def test_a_committer_that_dies_beside_the_tag_is_followed_by_one_that_sets_it_on_the_same_version(
    world: World, dying: type[PylanceTable]
) -> None:
    files, ledger = world.stage(rows_of([1])), ledger_over(MemoryStore())
    with pytest.raises(Died):
        world.commit(files, ledger, world.port(dying))
    version = world.place.dataset().version
    world.place.append(rows_of([1_000_000]))

    assert world.commit(files, ledger) == Committed(world.target().identity, version, by_us=False)
    assert world.commit(files, ledger) == Committed(world.target().identity, version, by_us=False)
    assert world.tags() == {"run": version}
    assert world.ids() == [1, 1_000_000]


def test_a_tag_whose_name_is_taken_is_refused_before_the_work_and_before_the_commit(world: World) -> None:
    files, ledger = world.stage(rows_of([1])), ledger_over(MemoryStore())
    world.place.dataset().tags.create("run", 1)

    with pytest.raises(NeedsChange, match="has a tag 'run' already, on version 1") as caught:
        world.port().refuse_operation(Append(), KEY)
    outcome = world.commit(files, ledger)

    assert caught.value.reason == reasons.TAG_EXISTS
    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.TAG_EXISTS
    assert "sink.lance.tag ({epoch} in it stands for the epoch)" in outcome.message
    assert world.ids() == []
    assert ledger.commits.read_claim(0) is None
    assert world.tags() == {"run": 1}


def test_a_tag_that_others_set_between_look_and_commit_is_not_moved_and_the_rows_are_said_to_be_there(world: World) -> None:
    class LosesTheName(PylanceTable):
        def set_tag(self, key: EpochKey, version: int) -> None:
            world.place.dataset().tags.create("run", 1)
            super().set_tag(key, version)

    files, ledger = world.stage(rows_of([1])), ledger_over(MemoryStore())

    outcome = world.commit(files, ledger, world.port(LosesTheName))

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.TAG_EXISTS
    assert f"the rows are in the dataset, in version {world.place.dataset().version}" in outcome.message
    assert world.tags() == {"run": 1}
    world.tag = "another"
    assert isinstance(world.commit(files, ledger), Committed)
    assert world.tags() == {"run": 1, "another": world.place.dataset().version}
    assert world.ids() == [1]


def test_a_tag_on_the_version_of_that_very_epoch_stops_nothing(world: World) -> None:
    world.write(1)

    world.port().refuse_operation(Append(), KEY)
    with pytest.raises(NeedsChange, match="already"):
        world.port().refuse_operation(Append(), SECOND)


def test_a_version_that_was_cleaned_up_before_its_tag_is_named_and_the_tag_is_not_set_elsewhere(world: World) -> None:
    class IsSlow(PylanceTable):
        def set_tag(self, key: EpochKey, version: int) -> None:
            world.place.append(rows_of([1_000_000]))
            world.place.dataset().cleanup_old_versions(older_than=datetime.timedelta(0), delete_unverified=False)
            super().set_tag(key, version)

    outcome = world.commit(world.stage(rows_of([1])), port=world.port(IsSlow))

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.TABLE_UNSUPPORTED
    assert "was cleaned up before it could get the tag 'run'" in outcome.message
    assert world.tags() == {}


def test_validate_says_that_a_tag_is_there_already(world: World) -> None:
    world.write(1)
    spec = Sink.model_validate({"lance": {"uri": world.place.uri, "tag": "run"}})

    (note,) = format_of(spec).examine(world.place.settings).notes

    assert "there is a tag 'run' already: unless this write has made it, the write stops" in note


# --- datasets that are made -----------------------------------------------------------------------------------------------


def sink(world: World, **layout: Any) -> Sink:
    return Sink.model_validate_json(json.dumps({"lance": {"uri": world.place.uri, "layout": layout}, "create": True}))


def fitted(rows: pa.Table, target: LanceTarget) -> Iterator[pa.RecordBatch]:
    schema = decode_schema(target.arrow_schema)
    for batch in rows.to_batches():
        columns = [fit_array(batch.column(field.name), field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_a_dataset_is_made_in_the_storage_version_that_is_asked_for_and_its_rows_read_back(bare: World, version: str) -> None:
    bare.port().create(encode_schema(SCHEMA), sink(bare, dataStorageVersion=version))

    assert isinstance(bare.write(1, 2), Committed)
    assert bare.place.dataset().data_storage_version == version
    assert bare.ids() == [1, 2]


def test_rows_keep_their_ids_over_a_compaction_where_that_is_asked_for(bare: World) -> None:
    bare.port().create(encode_schema(SCHEMA), sink(bare, enableStableRowIds=True))
    bare.tag = None
    bare.write(1)
    bare.write(2, key=OTHER)

    def ids() -> list[tuple[int, int]]:
        rows = bare.place.dataset().to_table(columns=["id"], with_row_id=True).to_pylist()
        return sorted((row["id"], row["_rowid"]) for row in rows)

    before = ids()
    bare.place.dataset().optimize.compact_files()

    assert bare.place.dataset().has_stable_row_ids
    assert len(bare.place.dataset().get_fragments()) == 1
    assert ids() == before


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_blobs_and_vectors_are_stored_as_such_and_read_back(bare: World, version: str) -> None:
    vectors = {"embedding": {"dimension": 3}}
    made = sink(bare, dataStorageVersion=version, blobColumns=["image"], vectorColumns=vectors)
    bare.port().create(encode_schema(IMAGES), made)
    large = b"\x00\xff" * (3 << 20)
    rows = pa.table([[1, 2, 3], [large, None, b"small"], [[1.5, 2, 3], [4, 5, 6], None]], schema=IMAGES)

    files = bare.stage(pa.Table.from_batches(list(fitted(rows, bare.target()))))
    assert isinstance(bare.commit(files), Committed)

    dataset = bare.place.dataset()
    assert dataset.schema.field("embedding").type == pa.list_(pa.float32(), 3)
    assert dataset.schema.field("image").metadata == {b"lance-encoding:blob": b"true"}
    assert dataset.to_table(columns=["embedding"]).column(0).to_pylist() == [[1.5, 2, 3], [4, 5, 6], None]
    first, last = dataset.take_blobs("image", indices=[0, 2])
    assert (first.readall(), last.readall()) == (large, b"small")
    assert sorted(bare.place.data_files()) == sorted(path for file in files for path in file.paths)


def test_blobs_of_a_source_are_read_as_bytes(tmp_path: Path) -> None:
    uri = str(tmp_path / "source.lance")
    schema = pa.schema([pa.field("image", pa.large_binary(), metadata={"lance-encoding:blob": "true"})])
    rows = pa.table([pa.array([b"one", None, b"three"], pa.large_binary())], schema=schema)
    lance.write_dataset(rows, uri, data_storage_version="2.1")
    described, pinned = find_fragments(LanceSource(uri=uri), None, Settings(), (), "Fail")
    whole = Range(file=0, start=0, end=None)

    chunks = list(LanceReader(pinned, Settings()).read(described.files[0], whole, described.schema, BatchSizing(5.0)))

    assert [value for chunk in chunks for value in chunk.batch.column(0).to_pylist()] == [b"one", None, b"three"]


@pytest.mark.parametrize(
    ("create", "said"),
    [
        ({"dataStorageVersion": "2.1", "blobColumns": ["id"]}, "blobColumns names 'id', which has int64 and not bytes"),
        ({"dataStorageVersion": "2.1", "blobColumns": ["photo"]}, "blobColumns names 'photo', and the output has id, image"),
        ({"vectorColumns": {"id": {"dimension": 3}}}, "vectorColumns names 'id', which has int64 and not a list of numbers"),
        ({"vectorColumns": {"vector": {"dimension": 3}}}, "vectorColumns names 'vector', and the output has id, image"),
        ({"vectorColumns": {"embedding": {"dimension": 3, "type": "int8"}}}, "says int8 for 'embedding'"),
    ],
)
def test_a_column_that_cannot_be_made_so_is_named_and_nothing_is_made(tmp_path: Path, create: dict[str, Any], said: str) -> None:
    place = on_disk(tmp_path, "lance")
    assert isinstance(place, LancePlace)
    world = World(place)

    with pytest.raises(NeedsChange, match=said) as caught:
        world.port().create(encode_schema(IMAGES), sink(world, **create))

    assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG
    with pytest.raises(NeedsChange, match=said):
        format_of(sink(world, **create)).check_schema(IMAGES)
    assert not place.exists()


class Full(BaseHTTPRequestHandler):
    """A bucket without objects, which takes none."""

    LISTING = b"<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.LISTING)))
        self.end_headers()
        self.wfile.write(self.LISTING)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_dataset_that_the_store_does_not_take_is_tried_again_and_nothing_is_said_against_the_schema() -> None:
    key = SecretStr("x")
    with serving_by(Full) as url:
        entry = StorageEntry(prefix="s3://bucket", endpoint=url, region="us-east-1", access_key_id=key, secret_access_key=key)
        port = PylanceTable("s3://bucket/rows.lance", Settings(storage=(entry,)))

        with pytest.raises(Retryable, match=r"could not be made: .* PUT") as caught:
            port.create(encode_schema(SCHEMA), Sink.model_validate({"lance": {"uri": "s3://bucket/rows.lance"}, "create": True}))

    assert caught.value.reason == reasons.STORE_UNAVAILABLE


def test_a_dataset_whose_blobs_may_lie_in_objects_of_their_own_is_refused_by_the_column(tmp_path: Path) -> None:
    place = on_disk(tmp_path, "lance")
    assert isinstance(place, LancePlace)
    schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("image")])
    lance.write_dataset(schema.empty_table(), place.uri, schema=schema, data_storage_version="2.2")

    with pytest.raises(NeedsChange, match="has blobs of version 2 in the column 'image'") as caught:
        World(place).target()

    assert caught.value.reason == reasons.TABLE_UNSUPPORTED
    ((field, problem),) = format_of(Sink.model_validate({"lance": {"uri": place.uri}})).examine(place.settings).problems
    assert field == "spec.sink.lance.uri"
    assert "'image'" in str(problem)


def test_validate_says_that_a_dataset_which_exists_stays_as_it_was_made(world: World) -> None:
    (note,) = format_of(sink(world, enableStableRowIds=True)).examine(world.place.settings).notes

    assert "exists, so that it stays as it was made" in note
