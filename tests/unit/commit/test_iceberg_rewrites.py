"""What a commit believes of files that seals of a merge put in the place of data files, and which merge counts."""

from __future__ import annotations

import pytest
from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from checkpoint_commit.iceberg.changes.append import OwnFiles
from checkpoint_commit.iceberg.changes.merges import done_merges, stage_name
from checkpoint_commit.iceberg.changes.rewrites import Rewritten, _applies, find_problem, rewritten_in
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.records import DeleteFile, IcebergFile, IcebergRewrite, IcebergSourceFile, InputRecord
from checkpoint_protocol.records.inputs import SourceFile
from tests.support.records import KEY, ledger_over
from tests.support.stores import MemoryStore
from tests.unit.commit.test_iceberg_upsert import done_merge

DATA = "/lake/rows/data"
OWN = f"{DATA}/cw-{KEY.uid}/{KEY.epoch}-1-0-0.parquet"
METADATA: TableMetadata = new_table_metadata(
    Schema(NestedField(1, "id", LongType(), required=False)), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///lake"
)


def staged(path: str = OWN, rows: int = 6, schema_id: int = 0) -> IcebergFile:
    return IcebergFile(
        path=path, size_bytes=100, rows=rows, schema_id=schema_id, spec_id=0, partition=(), metrics=(), split_offsets=(4,)
    )


def input_with(*deletes: str) -> InputRecord:
    known = IcebergSourceFile(spec_id=0, partition=(), deletes=tuple(DeleteFile(path=path, format="parquet") for path in deletes))
    file = SourceFile(path=f"{DATA}/a.parquet", etag="", size_bytes=100, unit="rows", end=10, iceberg=known)
    return InputRecord(token=new_token(), files=(file,), arrow_schema="")


def anew(rows: int, *files: IcebergFile, path: str = f"{DATA}/a.parquet") -> IcebergRewrite:
    return IcebergRewrite(data_file=path, rows=rows, files=files)


def test_what_several_segments_have_kept_takes_the_place_of_one_file() -> None:
    first, second = staged(), staged(path=f"{OWN}2", rows=1)

    found = rewritten_in("merge", input_with(), [anew(7, first), anew(2, second), anew(1)])

    assert found == {f"{DATA}/a.parquet": Rewritten(f"{DATA}/a.parquet", (first, second), frozenset())}


def test_rows_that_were_deleted_before_are_not_missed() -> None:
    found = rewritten_in("merge", input_with("/lake/deletes.parquet"), [anew(8, staged())])

    assert found[f"{DATA}/a.parquet"].deletes == {"/lake/deletes.parquet"}


@pytest.mark.parametrize(
    ("deletes", "given"),
    [
        ((), [anew(9, staged())]),
        ((), [anew(11, staged())]),
        (("/lake/deletes.parquet",), [anew(6, staged()), anew(5, staged())]),
        ((), [anew(5, staged()), anew(5)]),
        ((), [anew(10, staged()), anew(10, path=f"{DATA}/b.parquet")]),
    ],
    ids=["too few", "too many", "too many of several", "more than were looked at", "a file that is no input"],
)
def test_seals_that_would_lose_or_double_rows_are_refused(deletes: tuple[str, ...], given: list[IcebergRewrite]) -> None:
    with pytest.raises(NeedsChange) as refused:
        rewritten_in("merge", input_with(*deletes), given)

    assert refused.value.reason == reasons.STAGED_RESULT_REFUSED


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((staged(),), None),
        ((staged(f"{DATA}/a.parquet"),), "is not one that the epoch has staged"),
        ((staged(f"{DATA}/cw-{KEY.uid}/{KEY.epoch + 1}-1-0-0.parquet"),), "is not one that the epoch has staged"),
        ((staged(), staged()), "is named twice"),
        ((staged(f"{OWN}-of-the-epoch"),), "is named twice"),
        ((staged(schema_id=9),), "unknown schema 9"),
    ],
)
def test_files_that_are_not_surely_the_merges_own_are_refused(files: tuple[IcebergFile, ...], said: str | None) -> None:
    given = [Rewritten(f"{DATA}/a.parquet", files, frozenset())]

    problem = find_problem(given, METADATA, OwnFiles(KEY, [DATA]), f"{OWN}-of-the-epoch".__eq__)

    assert (problem is None) == (said is None)
    assert said is None or (problem is not None and said in problem.message)


@pytest.mark.parametrize(
    ("number", "spec_id", "value", "applies"),
    [(5, 1, 7, True), (4, 1, 7, False), (5, 1, 8, False), (5, 2, 7, False), (5, 0, None, True)],
    ids=["later", "of the same snapshot", "of another partition", "of another spec", "of all partitions"],
)
def test_equality_deletes_apply_to_earlier_files_of_their_partition(
    number: int, spec_id: int, value: object, applies: bool
) -> None:
    by_id = [PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"), spec_id=each) for each in (1, 2)]
    metadata = METADATA.model_copy(update={"partition_specs": [UNPARTITIONED_PARTITION_SPEC, *by_id]})
    file, deletes = DataFile.from_args(partition=Record(7)), DataFile.from_args(partition=Record(value))
    file.spec_id, deletes.spec_id = 1, spec_id

    assert _applies(ManifestEntry.from_args(sequence_number=number, data_file=deletes), 4, file, metadata) is applies


@pytest.mark.parametrize("rewrites", [False, True])
def test_of_the_merges_of_one_snapshot_one_that_has_read_all_of_it_counts(rewrites: bool) -> None:
    """One that has gone on from another merge may be out of date, as the other one is: nothing else could ever be asked for."""
    store = MemoryStore()
    for name in (stage_name(7, since=6), stage_name(7, since=6, rewrites=True), stage_name(7, rewrites=rewrites)):
        done_merge(store, since=None, name=name)

    assert {number: found.key.stage for number, found in done_merges(ledger_over(store)).items()} == {
        7: stage_name(7, rewrites=rewrites)
    }
