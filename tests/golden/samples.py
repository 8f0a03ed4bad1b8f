"""One record of each kind and union member, with every field said. Their stored forms lie in records/.

    python -m tests.golden.samples      writes the files that are not there; it never changes one

A file that no longer matches is a change of the stored format: readers of older stores break. Make a new version of the record
and keep this one readable, rather than changing the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from checkpoint_protocol.manifest import Quarantine
from checkpoint_protocol.positions import Range
from checkpoint_protocol.records import (
    BundleRecord,
    CheckedBundle,
    ClaimRecord,
    ClosedRecord,
    CommitRecord,
    DeletedRecord,
    DeleteFile,
    FailureRecord,
    FieldMetrics,
    IcebergBase,
    IcebergFile,
    IcebergSourceFile,
    IcebergTarget,
    InputIndexRecord,
    InputPartRecord,
    InputRecord,
    InputTotals,
    KeyColumn,
    KeysCovered,
    KeySet,
    KeysObject,
    LanceBase,
    LanceDataFile,
    LanceField,
    LanceFragment,
    LanceTarget,
    LaunchRecord,
    NameRecord,
    NoTarget,
    OutputRecord,
    PinnedIceberg,
    PinnedLance,
    PlanPartRecord,
    PlanRecord,
    PositionsCovered,
    Quarantined,
    QuarantinedRow,
    QuarantineObject,
    QuarantineRecord,
    Record,
    Retried,
    RowKey,
    RowPosition,
    Seal,
    SourceFile,
    StoredPart,
    TargetRecord,
    WriteRecord,
    encode,
)
from checkpoint_protocol.source import (
    CsvOptions,
    FilesSource,
    IcebergSource,
    LanceSource,
    ProgramSource,
    Source,
    SparkSource,
    UnionMember,
)
from checkpoint_protocol.steps import Step

FOLDER: Final = Path(__file__).with_name("records")
#: What releases before stored of kinds that have another version by now.
VERSION_1: Final = FOLDER / "version-1"

_TOKEN = "00112233445566778899aabbccddeeff"
_OTHER = "ffeeddccbbaa99887766554433221100"
_CODE = "c0de" * 16
_MENDED = "beef" * 16
_SCHEMA = "aGVsbG8gc2NoZW1h"

_ICEBERG = IcebergTarget(
    table="local.db.flüge",
    table_uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1",
    data_location="s3://lake/db/flüge/data",
    table_schema_json='{"type":"struct","schema-id":0,"fields":[]}',
    partition_spec_json='{"spec-id":0,"fields":[]}',
    codec="zstd",
    codec_level=3,
)
_LANCE = LanceTarget(
    uri="s3://lake/flights.lance",
    identity=_OTHER,
    at_version=7,
    fields=(
        LanceField(id=0, path="id", type="int64", nullable=False),
        LanceField(id=2, path="place.lat", type="double", nullable=True),
    ),
    arrow_schema=_SCHEMA,
    storage_version="2.1",
)
_PINNED = PinnedIceberg(
    table="local.db.quelle",
    table_uuid="7d1c3f4e-03fe-4693-9a96-a0705ddf69c1",
    location="s3://lake/db/quelle",
    metadata_location="s3://lake/db/quelle/metadata/00003-7d1c.metadata.json",
    snapshot_id=9223372036854775807,
    format_version=2,
    table_schema_json='{"type":"struct","schema-id":0,"fields":[]}',
    partition_specs_json=('{"spec-id":0,"fields":[]}', '{"spec-id":1,"fields":[]}'),
    name_mapping_json='[{"field-id":1,"names":["id"]}]',
)
_LAUNCH = LaunchRecord(
    token=_TOKEN,
    attempt=2,
    run_nonce="2026-01-02",
    source=Source(
        files=FilesSource(
            format="csv",
            paths=("s3://in/a/*.csv", "/in/größe.csv"),
            csv=CsvOptions(header=False, delimiter=";", quote="'", escape="\\", null_values=("", "-"), multi_line=True),
            compression="Gzip",
            types={"id": "int64"},
            split_size="64Mi",  # type: ignore[arg-type]
        ),
        columns=("id", "text"),
    ),
    steps=(
        Step(call="code.flights:Model", input="row", name="predict", arguments={"size": 3, "rate": 0.5, "on": ["a", None, True]}),
        Step(call="code.flights:clean"),
    ),
    code_digest=_CODE,
    target=_ICEBERG,
    sink_format="iceberg",
    target_file_size_bytes=268435456,
    interval_s=90.5,
    minimum_bytes=8388608,
    counted=(1,),
    recorded_by="some-machine",
    code="a5c1" * 16,
    on_replaced="Process",
)
_SEAL = Seal(
    token=_TOKEN,
    attempt=2,
    task=11,
    link=3,
    covered=PositionsCovered(ranges=(Range(file=0, start=100, end=250), Range(file=4, start=0, end=None))),
    rows_read=1150,
    rows_written=1149,
    code_digest=_CODE,
    files=(
        IcebergFile(
            path="s3://lake/db/flüge/data/cw-0123456789abcdef/1-2-11-00112233445566778899aabbccddeeff.parquet",
            size_bytes=123456,
            rows=1149,
            schema_id=4,
            spec_id=1,
            partition=("AQAAAA==", None),
            metrics=(
                FieldMetrics(
                    field_id=1, column_size=900, value_count=1149, null_count=0, nan_count=2, lower="AAAAAA==", upper="/////w=="
                ),
                FieldMetrics(field_id=2),
            ),
            split_offsets=(4, 70000),
        ),
    ),
    last=True,
)
_ROW = QuarantinedRow(
    row=RowPosition(range=Range(file=4, start=17, end=39)),
    step="predict",
    error="json.decoder.JSONDecodeError",
    message="Expecting value: line 1 column 1 (char 0)",
    traceback='Traceback (most recent call last):\n  File "/code/größe.py", line 3, in work\n',
)

SAMPLES: Final[dict[str, Record]] = {
    "name": NameRecord(token=_TOKEN, uid="0123456789abcdef"),
    "write": WriteRecord(
        token=_TOKEN,
        uid="0123456789abcdef",
        namespace="default",
        name="flights",
        identity={
            "source": {"format": "csv", "path": "/in/*.csv"},
            "sink": {"iceberg": {"catalog": "local", "table": "db.flüge"}},
            "checkpoint": {"uri": "s3://lake/checkpoints"},
        },
        identity_digest="1d" * 32,
    ),
    "deleted": DeletedRecord(token=_TOKEN, uid="0123456789abcdef"),
    "input": InputRecord(
        token=_TOKEN,
        files=(
            SourceFile(path="/in/a.parquet", etag="abc-1", size_bytes=1000, unit="rows", start=0, end=500, cuts=(0, 250)),
            SourceFile(path="s3://in/b.csv", etag='"def"', size_bytes=2000, unit="bytes", start=17, end=2000, cuts=()),
            SourceFile(path="/in/größe 100 %.csv.gz", etag="", size_bytes=0, unit="records", start=1, end=None, cuts=()),
        ),
        arrow_schema=_SCHEMA,
    ),
    "input-in-parts": InputIndexRecord(
        token=_TOKEN,
        parts=(StoredPart(token=_TOKEN, count=2, digest="3a" * 32), StoredPart(token=_TOKEN[::-1], count=1, digest="4b" * 32)),
        totals=InputTotals(files=3, size_bytes=3000, rows=None, retried=0),
        arrow_schema=_SCHEMA,
        tables=(),
    ),
    "input-of-a-table-in-parts": InputIndexRecord(
        token=_TOKEN,
        parts=(StoredPart(token=_TOKEN, count=2, digest="3a" * 32),),
        totals=InputTotals(files=2, size_bytes=3000, rows=700, retried=5),
        arrow_schema=_SCHEMA,
        tables=(PinnedLance(uri="s3://lake/größe.lance", at_version=8),),
    ),
    "input-part": InputPartRecord(
        token=_TOKEN,
        files=(SourceFile(path="/in/größe.parquet", etag="abc-1", size_bytes=1000, unit="rows", end=500, cuts=(0, 250)),),
    ),
    "input-keys": InputRecord(
        token=_TOKEN,
        files=(),
        arrow_schema=_SCHEMA,
        keys=(KeyColumn(name="größe", type="decimal(38,10)"), KeyColumn(name="id", type="bigint")),
    ),
    "input-keys-tried-again": InputRecord(
        token=_TOKEN,
        files=(),
        arrow_schema=_SCHEMA,
        keys=(KeyColumn(name="id", type="bigint"),),
        retried=Retried(retry="Only", rows=12),
    ),
    "input-iceberg": InputRecord(
        token=_TOKEN,
        files=(
            SourceFile(
                path="s3://lake/db/quelle/data/a.parquet",
                etag="",
                size_bytes=1000,
                unit="rows",
                end=500,
                iceberg=IcebergSourceFile(
                    spec_id=1,
                    partition=("AQAAAA==", None),
                    deletes=(
                        DeleteFile(path="s3://lake/db/quelle/data/a-deletes.parquet", format="parquet"),
                        DeleteFile(path="s3://lake/db/quelle/data/a.puffin", format="puffin"),
                    ),
                ),
            ),
        ),
        arrow_schema=_SCHEMA,
        tables=(_PINNED,),
    ),
    "input-lance": InputRecord(
        token=_TOKEN,
        files=(
            SourceFile(
                path="s3://lake/in.lance fragment 0", etag="00ff.lance|3-17", size_bytes=77, unit="rows", end=9, fragment=0
            ),
        ),
        arrow_schema=_SCHEMA,
        tables=(PinnedLance(uri="s3://lake/in.lance", at_version=4),),
    ),
    "launch-from-iceberg": _LAUNCH.model_copy(
        update={
            "source": Source(
                iceberg=IcebergSource(catalog="local", table="db.quelle", snapshot_id=9223372036854775807),
                where="größe >= 1 and x = 'a'",
            ),
            "source_tables": (_PINNED.model_copy(update={"snapshot_id": None, "name_mapping_json": None}),),
        }
    ),
    "launch-from-lance": _LAUNCH.model_copy(update={"source": Source(lance=LanceSource(uri="s3://lake/in.lance", version=4))}),
    "launch-iceberg": _LAUNCH,
    "input-with-rows-tried-again": InputRecord(
        token=_TOKEN,
        files=(
            SourceFile(
                path="/in/a.parquet", etag="abc-1", size_bytes=1000, unit="rows", start=0, end=500, only=((3, 4), (17, 18))
            ),
        ),
        arrow_schema=_SCHEMA,
    ),
    "launch-with-quarantine": _LAUNCH.model_copy(
        update={
            "on_row_error": "Quarantine",
            "quarantine": Quarantine(max_rows=20, max_share="0.25%", retry="Also"),  # type: ignore[arg-type]
        }
    ),
    "launch-with-output": _LAUNCH.model_copy(
        update={"steps": (Step(call="code.flights:clean", output={"größe": "decimal(10,2)", "id": "int64"}),)}
    ),
    "launch-lance": _LAUNCH.model_copy(update={"target": _LANCE, "sink_format": "lance"}),
    "launch-none": _LAUNCH.model_copy(
        update={
            "target": NoTarget(),
            "sink_format": "none",
            "attempt": 1,
            "counted": (),
            "source": Source(files=FilesSource(format="parquet", paths=("/in",))),
            "steps": (),
            "run_nonce": "",
            "code": None,
        }
    ),
    "launch-dataframe": _LAUNCH.model_copy(
        update={
            "source": Source(
                spark=SparkSource(
                    format="jdbc",
                    sql="SELECT id, upper(text) AS text FROM input",
                    options={"url": "jdbc:sqlite:/in.db", "dbtable": "rows", "password": "${env:PASSWORD}"},
                    key_columns=("id",),
                )
            ),
        }
    ),
    "launch-program": _LAUNCH.model_copy(
        update={"source": Source(program=ProgramSource(call="jobs.nightly:main", key_columns=("id", "day")))}
    ),
    "launch-table": _LAUNCH.model_copy(
        update={
            "source": Source(
                spark=SparkSource(table="lake.db.größe", key_columns=("id",)),
                columns=("id", "text"),
            )
        }
    ),
    "launch-of-a-union": _LAUNCH.model_copy(
        update={
            "source": Source(
                union=(
                    UnionMember(files=FilesSource(format="json", paths=("/in/*.json",), schema_rule="Same")),
                    UnionMember(iceberg=IcebergSource(catalog="local", table="db.quelle", branch="audit")),
                    UnionMember(lance=LanceSource(uri="s3://lake/in.lance")),
                ),
                where="id > 7",
            ),
            "source_tables": (None, _PINNED, None),
        }
    ),
    "input-of-a-union": InputRecord(
        token=_TOKEN,
        files=(
            SourceFile(path="/in/a.json", etag="abc-1", size_bytes=1000, unit="bytes", end=1000),
            SourceFile(path="s3://lake/in.lance fragment 0", etag="00ff.lance|", size_bytes=77, unit="rows", end=9, source=2),
        ),
        arrow_schema=_SCHEMA,
        tables=(None, _PINNED, PinnedLance(uri="s3://lake/in.lance", at_version=4)),
    ),
    "launch-before-the-table": _LAUNCH.model_copy(update={"target": None}),
    "output": OutputRecord(token=_TOKEN, arrow_schema=_SCHEMA),
    "target-iceberg": TargetRecord(token=_TOKEN, target=_ICEBERG.model_copy(update={"codec_level": None})),
    "target-lance": TargetRecord(token=_TOKEN, target=_LANCE),
    "target-none": TargetRecord(token=_TOKEN, target=NoTarget()),
    "plan": PlanRecord(
        token=_TOKEN,
        attempt=2,
        tasks=((Range(file=0, start=0, end=100), Range(file=1, start=50, end=70)), (Range(file=2, start=0, end=None),)),
        done_files=3,
        done_rows=12345,
    ),
    "plan-in-parts": PlanRecord(
        token=_TOKEN,
        attempt=2,
        tasks=(),
        done_files=3,
        done_rows=12345,
        parts=(StoredPart(token=_TOKEN, count=2, digest="3a" * 32), StoredPart(token=_TOKEN[::-1], count=1, digest="4b" * 32)),
    ),
    "plan-part": PlanPartRecord(
        token=_TOKEN,
        tasks=((Range(file=0, start=0, end=100), Range(file=1, start=50, end=70)), (Range(file=2, start=0, end=None),)),
    ),
    "plan-keys": PlanRecord(
        token=_TOKEN,
        attempt=2,
        tasks=(),
        done_files=0,
        done_rows=12345,
        partitions=7,
        skipped=KeySet(rows=12345, fingerprint="00000000000000ffffeeddccbbaa9988"),
    ),
    "plan-empty": PlanRecord(token=_TOKEN, attempt=1, tasks=(), done_files=0, done_rows=0),
    "failure": FailureRecord(
        token=_TOKEN,
        attempt=1,
        family="NeedsChange",
        reason="CodeFailed",
        message="step 'größe' raised on row 7: KeyError: \"x\"\n",
    ),
    "seal-iceberg": _SEAL,
    "seal-keys": _SEAL.model_copy(
        update={
            "covered": KeysCovered(
                objects=(
                    KeysObject(
                        path="staged/0123456789abcdef/1/2/keys/11-ffeeddccbbaa99887766554433221100.parquet",
                        rows=1150,
                        size_bytes=9876,
                    ),
                ),
                keys=KeySet(rows=1150, fingerprint="0123456789abcdef00000000000000ff"),
            )
        }
    ),
    "seal-lance": _SEAL.model_copy(
        update={
            "link": 0,
            "last": False,
            "files": (
                LanceFragment(
                    files=(
                        LanceDataFile(
                            path="00ff.lance",
                            size_bytes=777,
                            fields=(0, 2),
                            column_indices=(0, 1),
                            major_version=2,
                            minor_version=1,
                        ),
                    ),
                    rows=9,
                ),
            ),
        }
    ),
    "seal-without-files": _SEAL.model_copy(update={"files": (), "rows_written": 0}),
    "seal-with-rows-that-failed": _SEAL.model_copy(
        update={"quarantined": Quarantined(rows=(_ROW,), objects=(QuarantineObject(token=_OTHER, rows=12),))}
    ),
    "seal-keys-with-digest": _SEAL.model_copy(
        update={
            "covered": KeysCovered(
                objects=(
                    KeysObject(
                        path="staged/0123456789abcdef/1/2/keys/11-00.parquet", rows=1150, size_bytes=9876, digest="0f" * 32
                    ),
                ),
                keys=KeySet(rows=1150, fingerprint="0123456789abcdef00000000000000ff"),
            )
        }
    ),
    "seal-with-keys-that-failed": _SEAL.model_copy(
        update={
            "covered": KeysCovered(
                objects=(
                    KeysObject(path="staged/0123456789abcdef/1/2/keys/11-00.parquet", rows=1149, size_bytes=9876),
                    KeysObject(path="staged/0123456789abcdef/1/2/keys/11-01.parquet", rows=1, size_bytes=321, quarantined=True),
                ),
                keys=KeySet(rows=1150, fingerprint="0123456789abcdef00000000000000ff"),
                quarantined=KeySet(rows=1, fingerprint="00000000000000010000000000000002"),
            ),
            "quarantined": Quarantined(rows=(_ROW.model_copy(update={"row": RowKey(source=1, values=("größe", "17"))}),)),
        }
    ),
    "quarantine": QuarantineRecord(token=_TOKEN, rows=(_ROW,)),
    "closed": ClosedRecord(token=_TOKEN, attempt=2, plan_token=_OTHER, chain_lengths=(3, 0, 1), complete=False),
    "closed-complete": ClosedRecord(token=_TOKEN, attempt=2, plan_token=_OTHER, chain_lengths=(4,), complete=True),
    "closed-without-plan": ClosedRecord(token=_TOKEN, attempt=1, plan_token=None, chain_lengths=(), complete=False),
    "closed-with-bundles": ClosedRecord(
        token=_TOKEN,
        attempt=2,
        plan_token=_OTHER,
        chain_lengths=(1_000, 4),
        complete=True,
        bundles=(CheckedBundle(number=0, digest="b" * 64), CheckedBundle(number=2, digest="c" * 64)),
    ),
    "bundle": BundleRecord(
        token=_TOKEN,
        attempt=2,
        plan_token=_OTHER,
        seals=(
            (0, 0, 812, '"9e107d9d372bb6826bd81d3542a419d6"'),
            (3, 17, 640, "1a2b3c-5f-280"),
        ),
    ),
    "claim-iceberg": ClaimRecord(
        token=_TOKEN,
        index=0,
        base=IcebergBase(table_uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1", snapshot_id=9223372036854775807),
    ),
    "claim-iceberg-empty-table": ClaimRecord(
        token=_TOKEN, index=0, base=IcebergBase(table_uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1", snapshot_id=None)
    ),
    "claim-lance": ClaimRecord(token=_TOKEN, index=3, base=LanceBase(identity=_OTHER, at_version=8)),
    "mark": CommitRecord(
        token=_TOKEN,
        key="0123456789abcdef/1",
        target="local.db.flüge",
        table_identity="9c12d441-03fe-4693-9a96-a0705ddf69c1",
        commit_id=9223372036854775807,
        rows_read=1000000,
        rows_written=999999,
        files=12,
        attempts=2,
        code_digests=(_CODE, _MENDED),
    ),
    "mark-with-rows-that-failed": CommitRecord(
        token=_TOKEN,
        key="0123456789abcdef/1",
        target="local.db.flüge",
        table_identity="9c12d441-03fe-4693-9a96-a0705ddf69c1",
        commit_id=7,
        rows_read=1000000,
        rows_written=999986,
        files=12,
        attempts=2,
        code_digests=(_CODE,),
        rows_quarantined=13,
    ),
    "mark-of-what-was-rolled-back": CommitRecord(
        token=_TOKEN,
        key="0123456789abcdef/1",
        target="local.db.flüge",
        table_identity="9c12d441-03fe-4693-9a96-a0705ddf69c1",
        commit_id=7,
        rows_read=13,
        rows_written=13,
        files=1,
        attempts=2,
        code_digests=(_CODE,),
        was_rolled_back=True,
    ),
    "seal-of-text": _SEAL.model_copy(update={"read_digest": _MENDED}),
    "launch-of-an-edited-source": _LAUNCH.model_copy(update={"counted": (2,), "input_since": 2}),
    "launch-with-maximum-rows": _LAUNCH.model_copy(update={"maximum_rows": 500}),
    "mark-of-text-read-in-two-ways": CommitRecord(
        token=_TOKEN,
        key="0123456789abcdef/1",
        target="local.db.flüge",
        table_identity="9c12d441-03fe-4693-9a96-a0705ddf69c1",
        commit_id=7,
        rows_read=1000000,
        rows_written=1000000,
        files=12,
        attempts=3,
        code_digests=(_CODE,),
        read_digests=(_CODE, _MENDED),
        input_since=2,
    ),
    "mark-of-a-deleted-epoch": CommitRecord(
        token=_TOKEN,
        key="0123456789abcdef/2",
        target="db.rows",
        table_identity=None,
        commit_id=None,
        rows_read=0,
        rows_written=0,
        files=0,
        attempts=3,
        code_digests=(),
        was_deleted=True,
    ),
    "mark-of-nothing": CommitRecord(
        token=_TOKEN,
        key="0123456789abcdef/2",
        target="(no table)",
        table_identity=None,
        commit_id=None,
        rows_read=0,
        rows_written=0,
        files=0,
        attempts=1,
        code_digests=(),
    ),
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, record in SAMPLES.items():
        path = FOLDER / f"{name}.json"
        if not path.exists():
            path.write_bytes(encode(record))


if __name__ == "__main__":
    main()
