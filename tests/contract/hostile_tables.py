"""Lists of manifests and manifests that somebody could put where a write names a table: measured by test_memory_of_tables.py."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, NestedField

from checkpoint_formats.iceberg.bounded.avro import measure

_IO: Final = PyArrowFileIO({})
_SCHEMA: Final = Schema(NestedField(1, "id", IntegerType()))
_ENTRY: Final[dict[str, Any]] = {
    "content": DataFileContent.DATA,
    "file_format": FileFormat.PARQUET,
    "partition": Record(),
    "record_count": 1,
    "file_size_in_bytes": 1,
    "key_metadata": None,
    "equality_ids": None,
    "sort_order_id": None,
}


def _manifest_of(path: str, **more: Any) -> ManifestFile:
    counts = {f"{which}_{what}_count": 0 for which in ("added", "existing", "deleted") for what in ("files", "rows")}
    fixed = {"manifest_length": 1, "partition_spec_id": 0, "sequence_number": 1, "min_sequence_number": 1}
    return ManifestFile.from_args(
        _table_format_version=2,
        manifest_path=path,
        content=ManifestContent.DATA,
        added_snapshot_id=1,
        **fixed,
        **counts,
        **{"partitions": [], "key_metadata": None} | more,
    )


def _list(path: str, manifests: int, summaries: int) -> Callable[[], int]:
    one = PartitionFieldSummary(False, False, None, None)
    with write_manifest_list(2, _IO.new_output(path), 1, None, 1, "deflate") as writer:
        writer.add_manifests([_manifest_of(f"m{number}", partitions=[one] * summaries) for number in range(manifests)])
    return lambda: len(list(read_manifest_list(_IO.new_input(path))))


def _manifest(path: str, files: int, columns: int, bound: bytes) -> Callable[[], int]:
    counts, bounds = dict.fromkeys(range(columns), 1 << 40), dict.fromkeys(range(columns), bound)
    maps = {f"{name}_counts": counts for name in ("value", "null_value", "nan_value")} | {"column_sizes": counts}
    writer = write_manifest(2, UNPARTITIONED_PARTITION_SPEC, _SCHEMA, _IO.new_output(path), 1, "deflate")
    with writer:
        for number in range(files):
            file = DataFile.from_args(
                _table_format_version=2,
                file_path=f"f{number}",
                lower_bounds=bounds,
                upper_bounds=bounds,
                split_offsets=[4],
                **_ENTRY,
                **maps,
            )
            entry = ManifestEntry.from_args(
                _table_format_version=2, status=ManifestEntryStatus.ADDED, snapshot_id=1, data_file=file
            )
            writer.add_entry(entry)
    manifest = writer.to_manifest_file()
    return lambda: len(manifest.fetch_manifest_entry(_IO))


def _read(path: str, read: Callable[[], int]) -> str:
    held = measure(Path(path).read_bytes(), 1 << 30, 250_000, 1 << 30)
    assert read()
    return str(held >> 20)


#: How each is made at a path. Whoever reads it is forked, and takes what is made with it.
SHAPES: Final[Mapping[str, Callable[[str], Callable[[], int]]]] = {
    "summaries": partial(_list, manifests=50, summaries=4_000),
    "manifests": partial(_list, manifests=10_000, summaries=0),
    "files": partial(_manifest, files=10_000, columns=0, bound=b""),
    "columns": partial(_manifest, files=50, columns=1_500, bound=b""),
    "bounds": partial(_manifest, files=50, columns=1_000, bound=b"x" * 60),
    "a usual manifest": partial(_manifest, files=2_000, columns=8, bound=b"x" * 16),
}
_FOLDER: Final = tempfile.mkdtemp()
CASES: Final[Mapping[str, Callable[[], str]]] = {
    name: partial(_read, path := f"{_FOLDER}/{number}.avro", make(path)) for number, (name, make) in enumerate(SHAPES.items())
}
