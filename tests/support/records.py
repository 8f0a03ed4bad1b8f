"""Records for tests, each with as little said as the test needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from checkpoint_commit.changes import StagedChange
from checkpoint_commit.results import Results
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import (
    Append,
    CommitRecord,
    IcebergFile,
    IcebergTarget,
    InputRecord,
    LanceDataFile,
    LanceField,
    LanceFragment,
    LanceTarget,
    LaunchRecord,
    PlanRecord,
    PositionsCovered,
    QuarantinedRow,
    RowPosition,
    Seal,
    StagedFile,
    Target,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.object_store import ObjectStore
from tests.support.sources import source_of

KEY = EpochKey("0123456789abcdef", 1)
TOKEN = "0" * 31 + "1"
DIGEST = "d" * 64
ICEBERG = IcebergTarget(
    table="db.rows",
    table_uuid="the-table",
    data_location="/tables/rows/data",
    table_schema_json="{}",
    partition_spec_json="{}",
    codec="zstd",
)
LANCE = LanceTarget(
    uri="/tables/rows.lance",
    identity=TOKEN,
    at_version=1,
    fields=(LanceField(id=0, path="id", type="int64", nullable=True),),
    arrow_schema="",
    storage_version="2.0",
)


def ledger_over(store: ObjectStore, pauses: list[float] | None = None, key: EpochKey = KEY) -> Ledger:
    """Return a fresh ledger, as another process would have it; it never sleeps."""
    return Ledger(store, key, pause=pauses.append if pauses is not None else lambda _: None)


def position_of(row: QuarantinedRow) -> Range:
    """Return where a row that failed lies."""
    assert isinstance(row.row, RowPosition)
    return row.row.range


def seal(
    task: int = 0,
    link: int = 0,
    covers: Iterable[tuple[int, int, int | None]] = (),
    *,
    attempt: int = 1,
    last: bool = False,
    files: Sequence[StagedFile] = (),
    rows: int = 0,
    code_digest: str = DIGEST,
    token: str | None = None,
) -> Seal:
    return Seal(
        token=token or new_token(),
        attempt=attempt,
        task=task,
        link=link,
        covered=PositionsCovered(ranges=tuple(Range(file=file, start=start, end=end) for file, start, end in covers)),
        rows_read=rows,
        rows_written=sum(file.rows for file in files),
        code_digest=code_digest,
        files=tuple(files),
        last=last,
    )


def plan(*tasks: Sequence[tuple[int, int, int | None]], attempt: int = 1, token: str | None = None) -> PlanRecord:
    return PlanRecord(
        token=token or new_token(),
        attempt=attempt,
        tasks=tuple(tuple(Range(file=file, start=start, end=end) for file, start, end in task) for task in tasks),
        done_files=0,
        done_rows=0,
    )


def put_chains(store: ObjectStore, *lengths: tuple[int, bool]) -> None:
    """Put a plan of as many tasks, and for each a chain of seals of a length, that ends in `last` or not."""
    ledger = ledger_over(store)
    ledger.plans.put_plan(plan(*([(task, 0, 10)] for task in range(len(lengths)))))
    for task, (length, is_whole) in enumerate(lengths):
        for link in range(length):
            ledger.seals.put_seal(seal(task, link, last=is_whole and link == length - 1))


def seals_shown(ledger: Ledger, attempt: int) -> list[Seal]:
    """Return the seals of an attempt that a listing shows, by task and link."""
    lengths = ledger.seals.list_links(attempt)
    return list(ledger.seals.read_links(attempt, [(task, link) for task, length in lengths.items() for link in range(length)]))


def launch(
    attempt: int = 1, counted: tuple[int, ...] = (), target: Target | None = ICEBERG, code_digest: str = DIGEST
) -> LaunchRecord:
    return LaunchRecord(
        token=new_token(),
        attempt=attempt,
        run_nonce="",
        source=source_of({"files": {"format": "parquet", "paths": ["/in"]}}),
        steps=(),
        code_digest=code_digest,
        target=target,
        sink_format=target.format if target else "iceberg",
        target_file_size_bytes=1 << 20,
        interval_s=60.0,
        minimum_bytes=0,
        counted=counted,
        on_replaced="Fail",
    )


def end_epoch(ledger: Ledger, orders: LaunchRecord | None = None, was_deleted: bool = False, offsets: str | None = None) -> None:
    """Record that an epoch has ended: with the commit of what its first attempt has read, or by a deletion."""
    ledger.attempts.put_launch(orders or launch())
    ledger.commits.put_commit(
        CommitRecord(
            token=new_token(),
            key=str(ledger.key),
            target="t",
            table_identity=None,
            commit_id=None,
            rows_read=0,
            rows_written=0,
            files=0,
            attempts=1,
            code_digests=(),
            was_deleted=was_deleted,
            offsets=offsets,
        )
    )


def rows_file(end: int | None, start: int = 0, path: str = "/in/part-0.parquet") -> SourceFile:
    return SourceFile(path=path, etag="e", size_bytes=1_000, unit="rows", start=start, end=end)


def input_of(*files: SourceFile) -> InputRecord:
    return InputRecord(token=new_token(), files=files, arrow_schema="")


def appended(files: Iterable[StagedFile]) -> StagedChange:
    return StagedChange(Append(), tuple(files))


def staged_files(results: Results) -> tuple[StagedFile, ...]:
    assert isinstance(results.change, StagedChange)
    return results.change.files


def iceberg_file(name: str = "a.parquet", rows: int = 1) -> IcebergFile:
    return IcebergFile(
        path=f"{ICEBERG.data_location}/cw-{KEY.uid}/{name}",
        size_bytes=100,
        rows=rows,
        schema_id=0,
        spec_id=0,
        partition=(),
        metrics=(),
        split_offsets=(),
    )


def lance_fragment(*names: str, rows: int = 1) -> LanceFragment:
    return LanceFragment(
        files=tuple(
            LanceDataFile(path=name, size_bytes=100, fields=(0,), column_indices=(0,), major_version=2, minor_version=0)
            for name in names or ("a.lance",)
        ),
        rows=rows,
    )
