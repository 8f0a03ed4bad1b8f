"""Manifest entries are the very bytes that pyiceberg's own writer makes of the same files, and are read as such."""

from __future__ import annotations

import base64
import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.io import load_file_io
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record as PartitionRecord
from pyiceberg.types import LongType, NestedField, StringType

from checkpoint_commit.iceberg.changes.append import StagedFor, pack
from checkpoint_commit.iceberg.changes.change import TableVersion
from checkpoint_commit.iceberg.metadata.metadata_files import put_all
from checkpoint_formats.iceberg.file_io import open_file_io
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, Retryable
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import FieldMetrics, IcebergFile
from tests.support.records import KEY

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(20_000, "late", LongType(), required=False),
)
PLAIN = PartitionSpec(spec_id=0)
BY_KIND = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="kind"), spec_id=0)
BIG = (0, 1, 63, 64, 127, 128, 8_191, 8_192, 16_383, 16_384, 1 << 20, (1 << 20) - 1, (1 << 21) + 5, 1 << 40, (1 << 63) - 1)


def table(folder: Path, version: int, spec: PartitionSpec, **properties: str) -> TableMetadata:
    made = new_table_metadata(
        SCHEMA, spec, SortOrder(SortField(source_id=1)), f"file://{folder}", {"format-version": str(version), **properties}
    )
    assert made.format_version == version
    return made


def wanted(folder: Path, metadata: TableMetadata) -> StagedFor:
    return StagedFor(frozenset({(f"file://{folder}/data", 0)}), {0: metadata.schema()})


def long(number: int) -> str:
    return base64.b64encode(struct.pack("<q", number)).decode()


def metrics_of(number: int) -> tuple[FieldMetrics, ...]:
    count = BIG[number % len(BIG)]
    return (
        FieldMetrics(field_id=1, column_size=count, value_count=count, null_count=0, lower=long(-number), upper=long(number)),
        FieldMetrics(field_id=2, column_size=7, nan_count=number % 2 or None, upper=base64.b64encode(b"z" * 200).decode()),
        FieldMetrics(field_id=20_000),
    )


def data_file(folder: Path, number: int, kind: str | None = None) -> IcebergFile:
    encoded = None if kind is None else base64.b64encode(kind.encode()).decode()
    count = BIG[number % len(BIG)]
    return IcebergFile(
        path=f"file://{folder}/data/cw-{KEY.uid}/{KEY.epoch}-1-{number}.parquet",
        size_bytes=count,
        rows=count,
        schema_id=0,
        spec_id=0,
        partition=() if kind is None else (encoded,),
        metrics=metrics_of(number),
        split_offsets=(4, count) if number % 3 else (),
        sort_order_id=1 if number % 2 else None,
    )


def as_pyiceberg_writes_it(file: IcebergFile, metadata: TableMetadata) -> bytes:
    def metric(name: str) -> dict[int, Any]:
        return {m.field_id: value for m in map(FieldMetrics._make, file.metrics) if (value := getattr(m, name)) is not None}

    def bounds(name: str) -> dict[int, bytes]:
        return {field_id: base64.b64decode(value) for field_id, value in metric(name).items()}

    version = metadata.format_version
    made = DataFile.from_args(
        _table_format_version=version,
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=PartitionRecord(*(None if value is None else base64.b64decode(value).decode() for value in file.partition)),
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        block_size_in_bytes=64 << 20,
        column_sizes=metric("column_size"),
        value_counts=metric("value_count"),
        null_value_counts=metric("null_count"),
        nan_value_counts=metric("nan_count"),
        lower_bounds=bounds("lower"),
        upper_bounds=bounds("upper"),
        key_metadata=None,
        split_offsets=list(file.split_offsets) or None,
        equality_ids=None,
        sort_order_id=file.sort_order_id,
    )
    entry = ManifestEntry.from_args(
        _table_format_version=version,
        status=ManifestEntryStatus.ADDED,
        snapshot_id=KEY.snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=made,
    )
    partition_type = metadata.spec().partition_type(metadata.schema())
    schema = manifest_entry_schema_with_data_file(version, data_file_with_partition(partition_type, version))
    written = BytesIO()
    construct_writer(schema).write(BinaryEncoder(written), entry)
    return written.getvalue()


def version_of(metadata: TableMetadata) -> TableVersion:
    return TableVersion("db.rows", metadata, None, open_file_io(metadata.location, Settings(), None), Settings())


def manifests_of(folder: Path, metadata: TableMetadata, files: list[IcebergFile]) -> list[ManifestFile]:
    packed = pack(metadata, KEY, KEY.snapshot_id, None, files)
    assert packed.incompatibility is None
    made, waiting = packed.manifests(version_of(metadata))
    put_all(waiting)
    return made


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("kinds", [(), ("a", "größe")], ids=["plain", "partitioned"])
def test_entries_are_the_bytes_that_pyiceberg_writes(tmp_path: Path, version: int, kinds: tuple[str, ...]) -> None:
    metadata = table(tmp_path, version, BY_KIND if kinds else PLAIN)
    files = [data_file(tmp_path, number, kinds[number % 2] if kinds else None) for number in range(len(BIG))]

    packed = pack(metadata, KEY, KEY.snapshot_id, None, files)

    (block,) = packed.by_spec[0].blocks
    assert zlib.decompress(block.data, wbits=-zlib.MAX_WBITS) == b"".join(
        as_pyiceberg_writes_it(file, metadata) for file in files
    )


def test_files_with_few_metrics_or_other_columns_are_the_bytes_that_pyiceberg_writes(tmp_path: Path) -> None:
    """What is remembered of one file must not show in the next."""
    metadata = table(tmp_path, 2, PLAIN)
    first, *others = metrics_of(3)
    all_metrics: list[tuple[FieldMetrics, ...]] = [
        (),
        (first, *others),
        (*others, first),
        (first._replace(null_count=5), *others),
        (first._replace(null_count=None), *others),
        (first._replace(field_id=20_000),),
        (FieldMetrics(field_id=1),),
        (FieldMetrics(field_id=1, lower="", upper=base64.b64encode(b"z" * 20_000).decode()),),
        (FieldMetrics(field_id=2_147_483_546, null_count=1, nan_count=1),),
        (FieldMetrics(field_id=-1, null_count=1),),
        (),
    ]
    plain = [data_file(tmp_path, number) for number in range(len(all_metrics))]
    files = [file.model_copy(update={"metrics": metrics}) for file, metrics in zip(plain, all_metrics, strict=True)]

    packed = pack(metadata, KEY, KEY.snapshot_id, None, files)

    (block,) = packed.by_spec[0].blocks
    assert zlib.decompress(block.data, wbits=-zlib.MAX_WBITS) == b"".join(
        as_pyiceberg_writes_it(file, metadata) for file in files
    )


def test_manifests_roll_at_the_target_size_and_hold_every_file_once(tmp_path: Path) -> None:
    metadata = table(tmp_path, 2, BY_KIND, **{"commit.manifest.target-size-bytes": "20000"})
    files = [data_file(tmp_path, number, f"{number // 1000}") for number in range(4_500)]
    io = load_file_io({}, metadata.location)

    manifests = manifests_of(tmp_path, metadata, files)

    entries = [entry.data_file for manifest in manifests for entry in manifest.fetch_manifest_entry(io)]
    assert [entry.file_path for entry in entries] == [file.path for file in files]
    assert [entry.partition[0] for entry in entries] == [f"{number // 1000}" for number in range(4_500)]
    assert len(manifests) > 1
    assert all(manifest.manifest_length <= 20_000 + 60_000 for manifest in manifests)
    assert sum(manifest.added_files_count or 0 for manifest in manifests) == 4_500
    first = manifests[0].partitions
    assert first is not None
    # Of its own files only, so that a reader that filters passes over the others.
    assert (first[0].lower_bound, first[0].upper_bound) != (b"0", b"4")


def test_a_second_request_takes_the_same_manifests(tmp_path: Path) -> None:
    metadata = table(tmp_path, 2, PLAIN)
    packed = pack(metadata, KEY, KEY.snapshot_id, None, [data_file(tmp_path, 1)])

    first, waiting = packed.manifests(version_of(metadata))
    put_all(waiting)
    again, waiting = packed.manifests(version_of(metadata))
    put_all(waiting)

    assert [manifest.manifest_path for manifest in again] == [manifest.manifest_path for manifest in first]
    assert len(list((tmp_path / "metadata").iterdir())) == 1


def test_a_manifest_that_could_not_be_put_is_put_with_the_next_request(tmp_path: Path) -> None:
    metadata = table(tmp_path, 2, PLAIN)
    packed = pack(metadata, KEY, KEY.snapshot_id, None, [data_file(tmp_path, 1)])
    (tmp_path / "metadata").write_text("a file where the folder should be")

    _, waiting = packed.manifests(version_of(metadata))
    with pytest.raises(Retryable):
        put_all(waiting)
    (tmp_path / "metadata").unlink()
    (manifest,), waiting = packed.manifests(version_of(metadata))
    put_all(waiting)

    (entry,) = manifest.fetch_manifest_entry(load_file_io({}, metadata.location))
    assert entry.data_file.file_path == data_file(tmp_path, 1).path


@pytest.mark.parametrize("name", ["elsewhere.parquet", f"{KEY.epoch + 1}-1-1.parquet", f"{KEY.epoch}-../x.parquet"])
def test_a_file_that_this_epoch_has_not_staged_is_no_fit(tmp_path: Path, name: str) -> None:
    metadata = table(tmp_path, 2, PLAIN)
    foreign = data_file(tmp_path, 1).model_copy(update={"path": f"file://{tmp_path}/data/cw-{KEY.uid}/{name}"})

    packed = pack(metadata, KEY, KEY.snapshot_id, wanted(tmp_path, metadata), [data_file(tmp_path, 2), foreign])

    assert packed.incompatibility is not None
    assert packed.incompatibility.reason == reasons.STAGED_RESULT_REFUSED


def test_a_partition_value_of_another_type_is_corrupt(tmp_path: Path) -> None:
    metadata = table(tmp_path, 2, BY_KIND)
    wrong = data_file(tmp_path, 1, "a").model_copy(update={"partition": ("", "")})

    with pytest.raises(Corrupt, match="partition"):
        pack(metadata, KEY, KEY.snapshot_id, None, [wrong])
