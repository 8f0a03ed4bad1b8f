"""One record of each kind and union member, with every field said. Their stored forms lie in records/.

    python -m tests.golden.samples      writes the files that are not there; it never changes one

A file that no longer matches is a change of the stored format: readers of older stores break. Make a new version of the record
and keep this one readable, rather than changing the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.manifest.sources.source import (
    CsvOptions,
    FilesSource,
    IcebergSource,
    LanceSource,
    ProgramSource,
    Source,
    SparkSource,
    UnionMember,
)
from checkpoint_protocol.manifest.sources.stream_source import ProgramStream
from checkpoint_protocol.manifest.spec import Quarantine
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.manifest.trigger import AtMost
from checkpoint_protocol.records import (
    Began,
    BundleRecord,
    CheckedBundle,
    ClaimRecord,
    CleanedRecord,
    ClosedRecord,
    ColumnRows,
    CommitRecord,
    CsvDialect,
    DeletedRecord,
    DeleteFile,
    DrivenBy,
    FailureRecord,
    FieldMetrics,
    FileColumns,
    GivenUp,
    Grouping,
    IcebergBase,
    IcebergDeletes,
    IcebergFile,
    IcebergRewrite,
    IcebergSourceFile,
    IcebergTarget,
    InheritedAttempt,
    InheritedRecord,
    InputIndexRecord,
    InputPartRecord,
    InputRecord,
    InputTotals,
    KafkaPartition,
    KeyColumn,
    KeysCovered,
    KeySet,
    KeysObject,
    LanceBase,
    LanceColumnFile,
    LanceDataFile,
    LanceDeletes,
    LanceField,
    LanceFragment,
    LanceOrigin,
    LancePack,
    LancePackTarget,
    LanceRewrite,
    LanceTarget,
    LaunchRecord,
    Merge,
    MergeKeysPart,
    MergeKeysRecord,
    NameRecord,
    NoTarget,
    OutputRecord,
    OutstandingRows,
    OverwriteAll,
    OverwritePartitions,
    OverwriteWhere,
    PackedColumns,
    PackedPiece,
    PinnedIceberg,
    PinnedKafka,
    PinnedSchema,
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
    StagedColumns,
    StageFile,
    StageIdentity,
    StageTarget,
    StoredPart,
    TakenFile,
    TakenKeys,
    TakenPartition,
    TakenPartRecord,
    TakenRecord,
    TargetRecord,
    Upsert,
    WriteRecord,
    encode,
)
from checkpoint_protocol.records.formats.lance import ChangedRows, PinnedLance
from checkpoint_protocol.records.formats.operations import AddColumns
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

FOLDER: Final = Path(__file__).with_name("records")

_TOKEN = "00112233445566778899aabbccddeeff"
_OTHER = "ffeeddccbbaa99887766554433221100"
_CODE = "c0de" * 16
_MENDED = "beef" * 16
_SCHEMA = "aGVsbG8gc2NoZW1h"
_COLUMNS = FileColumns(digest="0123456789abcdef", read_as="parquet", arrow_schema=_SCHEMA)

_ICEBERG = IcebergTarget(
    table="local.db.flüge",
    table_uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1",
    data_location="s3://lake/db/flüge/data",
    table_schema_json='{"type":"struct","schema-id":0,"fields":[]}',
    partition_spec_json='{"spec-id":0,"fields":[]}',
    codec="zstd",
    codec_level=3,
)
_STAGE_RESULT = StageTarget(
    folder="s3://b/cw/staged/0123456789abcdef/1/stages/parse-0123456789abcdef-1/rows", arrow_schema=_SCHEMA
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
_EMPTY_BASE = IcebergBase(table_uuid=_ICEBERG.table_uuid, snapshot_id=None)
_CHANGED = ChangedRows(since=4, transaction="0c6357f4-3d55-4a8d-99a3-eba3ed4a3f16", given_at=6, columns=("id", "text"))
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
    "input-of-whole-files": InputRecord(
        token=_TOKEN,
        files=(
            SourceFile(path="/in/a.png", etag="abc-1", size_bytes=0, unit="rows", end=1, modified_us=-1),
            SourceFile(path="s3://in/größe.pdf", etag="d", size_bytes=9, unit="rows", end=1, modified_us=1_764_000_000_123_456),
        ),
        arrow_schema=_SCHEMA,
    ),
    "input-with-columns": InputRecord(
        token=_TOKEN,
        files=(
            SourceFile(path="/in/a.parquet", etag="abc-1", size_bytes=1000, unit="rows", end=500, columns="0123456789abcdef"),
        ),
        arrow_schema=_SCHEMA,
        file_columns=(_COLUMNS,),
    ),
    "input-with-columns-in-parts": InputIndexRecord(
        token=_TOKEN,
        parts=(StoredPart(token=_TOKEN, count=1, digest="3a" * 32),),
        totals=InputTotals(files=1, size_bytes=1000, rows=500, retried=0),
        arrow_schema=_SCHEMA,
        tables=(),
        file_columns=(_COLUMNS,),
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
    "input-iceberg-of-a-merge-that-rewrites": InputRecord(
        token=_TOKEN,
        files=(
            SourceFile(
                path="s3://lake/db/quelle/data/a.parquet",
                etag="",
                size_bytes=1000,
                unit="rows",
                end=500,
                iceberg=IcebergSourceFile(spec_id=1, partition=(), deletes=(), first_row_id=7_000, sequence_number=3),
            ),
        ),
        arrow_schema=_SCHEMA,
        tables=(_PINNED,),
    ),
    "input-kafka": InputRecord(
        token=_TOKEN,
        files=(
            SourceFile(
                path="topic orders partition 0",
                etag="sF6/J+aAT1SleBWWyJAywg",
                size_bytes=7700,
                unit="rows",
                start=17,
                end=94,
                kafka=KafkaPartition(topic="orders", partition=0),
            ),
        ),
        arrow_schema=_SCHEMA,
        tables=(PinnedKafka(cluster_id="M6B28QcOzXTu5IgMwxVgQg"),),
    ),
    "input-kafka-avro": InputRecord(
        token=_TOKEN,
        files=(
            SourceFile(
                path="topic orders partition 0",
                etag="sF6/J+aAT1SleBWWyJAywg",
                size_bytes=7700,
                unit="rows",
                start=17,
                end=94,
                kafka=KafkaPartition(topic="orders", partition=0),
            ),
        ),
        arrow_schema=_SCHEMA,
        tables=(PinnedKafka(cluster_id="M6B28QcOzXTu5IgMwxVgQg", schemas=(PinnedSchema(topic="orders", schema_id=7),)),),
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
    "input-lance-compacted": InputRecord(
        token=_TOKEN,
        files=(
            SourceFile(path="s3://lake/in.lance fragment 2", etag="11ff.lance|", size_bytes=99, unit="rows", end=9, fragment=2),
        ),
        arrow_schema=_SCHEMA,
        tables=(
            PinnedLance(
                uri="s3://lake/in.lance", at_version=8, transaction="0c6357f4-3d55-4a8d-99a3-eba3ed4a3f16", after_version=4
            ),
        ),
    ),
    "inherited": InheritedRecord(
        token=_TOKEN,
        uid="0123456789abcdef",
        stage="parse-0123456789abcdef-1",
        attempts=(
            InheritedAttempt(attempt=1, plan_token=None, chain_lengths=()),
            InheritedAttempt(attempt=2, plan_token=_TOKEN, chain_lengths=(3, 0, 1)),
        ),
        is_done=False,
    ),
    "input-lance-changed": InputRecord(
        token=_TOKEN,
        files=(
            SourceFile(path="s3://lake/in.lance fragment 2", etag="11ff.lance|", size_bytes=99, unit="rows", end=9, fragment=2),
        ),
        arrow_schema=_SCHEMA,
        tables=(
            PinnedLance(
                uri="s3://lake/in.lance",
                at_version=8,
                null_in=("vektor",),
                transaction="0c6357f4-3d55-4a8d-99a3-eba3ed4a3f16",
                changed=_CHANGED,
            ),
        ),
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
    "launch-from-kafka": _LAUNCH.model_copy(
        update={
            "source": Source(
                kafka=KafkaSource(
                    bootstrap_servers=("broker-1:9092",),
                    topics=("orders",),
                    starting_offsets="Latest",
                    format="json",
                    types={"at": "timestamp[us]"},
                    metadata=("offset",),
                    max_offsets=1000,
                    on_lost="Skip",
                )
            )
        }
    ),
    "launch-audit": _LAUNCH.model_copy(
        update={
            "source": Source(iceberg=IcebergSource(catalog="local", table="db.flüge", snapshot_id=7)),
            "steps": (),
            "target": NoTarget(),
            "audit": "checks.flights:no_gaps",
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
    "launch-of-a-stream": _LAUNCH.model_copy(
        update={
            "source": Source(
                program=ProgramSource(call="jobs.stream:main", stream=ProgramStream(output_mode="Update", update_as="Append"))
            ),
            "driven_by": DrivenBy(epoch=3, attempt=2),
        }
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
    "target-iceberg-sorted": TargetRecord(
        token=_TOKEN,
        target=_ICEBERG.model_copy(
            update={
                "sort_order_json": '{"order-id":1,"fields":[]}',
                "write_properties": (("write.metadata.metrics.default", "counts"),),
                "target_file_size_bytes": 536870912,
            }
        ),
    ),
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
    "plan-of-a-micro-batch": PlanRecord(
        token=_TOKEN, attempt=2, tasks=(), done_files=0, done_rows=0, partitions=6, offsets="ab" * 32
    ),
    "input-of-a-micro-batch": InputRecord(token=_TOKEN, files=(), arrow_schema=_SCHEMA, batch=7),
    "plan-empty": PlanRecord(token=_TOKEN, attempt=1, tasks=(), done_files=0, done_rows=0),
    "failure": FailureRecord(
        token=_TOKEN,
        attempt=1,
        family="NeedsChange",
        reason="CodeFailed",
        message="step 'größe' raised on row 7: KeyError: \"x\"\n",
    ),
    "seal-iceberg": _SEAL,
    "seal-iceberg-sorted": _SEAL.model_copy(
        update={"files": tuple(file.model_copy(update={"sort_order_id": 1}) for file in _SEAL.files)}
    ),
    "seal-keys": _SEAL.model_copy(
        update={
            "covered": KeysCovered(
                objects=(
                    KeysObject(
                        path="staged/0123456789abcdef/1/2/keys/11-ffeeddccbbaa99887766554433221100.parquet",
                        rows=1150,
                        size_bytes=9876,
                        values_bytes=13800,
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
                        path="staged/0123456789abcdef/1/2/keys/11-00.parquet",
                        rows=1150,
                        size_bytes=9876,
                        values_bytes=13800,
                        digest="0f" * 32,
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
                    KeysObject(
                        path="staged/0123456789abcdef/1/2/keys/11-00.parquet", rows=1149, size_bytes=9876, values_bytes=13788
                    ),
                    KeysObject(
                        path="staged/0123456789abcdef/1/2/keys/11-01.parquet",
                        rows=1,
                        size_bytes=321,
                        values_bytes=12,
                        quarantined=True,
                    ),
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
    "closed-for-a-lost-node": ClosedRecord(
        token=_TOKEN,
        attempt=1,
        plan_token=None,
        chain_lengths=(),
        complete=False,
        given_up=GivenUp(family="Retryable", reason="NodeLost", message="the driver's node does not answer any more"),
    ),
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
    "claim-iceberg-missing-branch": ClaimRecord(
        token=_TOKEN, index=0, base=IcebergBase(table_uuid=_ICEBERG.table_uuid, snapshot_id=7, has_branch=False)
    ),
    "claim-iceberg-for-an-audit": ClaimRecord(
        token=_TOKEN, index=0, base=IcebergBase(table_uuid=_ICEBERG.table_uuid, snapshot_id=7), for_audit=True
    ),
    "claim-lance": ClaimRecord(token=_TOKEN, index=3, base=LanceBase(identity=_OTHER, at_version=8)),
    "cleaned": CleanedRecord(token=_TOKEN, key="0123456789abcdef/1"),
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
    "mark-of-a-micro-batch": CommitRecord(
        token=_TOKEN,
        key="0123456789abcdef/4",
        target="local.db.flüge",
        table_identity=None,
        commit_id=None,
        rows_read=0,
        rows_written=0,
        files=0,
        attempts=1,
        code_digests=(_CODE,),
        offsets="ab" * 32,
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
    "mark-with-rows-that-failed-in-stages-before": CommitRecord(
        token=_TOKEN,
        key="0123456789abcdef/1",
        target="local.db.flüge",
        table_identity="9c12d441-03fe-4693-9a96-a0705ddf69c1",
        commit_id=7,
        rows_read=999990,
        rows_written=999986,
        files=12,
        attempts=2,
        code_digests=(_CODE,),
        rows_quarantined=4,
        rows_quarantined_before=10,
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
    "seal-before-the-end-of-an-executor": _SEAL.model_copy(update={"last": False, "left_by_try": 1}),
    "seal-that-tells-rows-of-rows": _SEAL.model_copy(update={"lineage": ((1, 2, 0), (1148, 1, 1))}),
    "launch-of-an-edited-source": _LAUNCH.model_copy(update={"counted": (2,), "input_since": 2}),
    "launch-that-overwrites-all": _LAUNCH.model_copy(
        update={
            "target": _ICEBERG.model_copy(update={"snapshot_id": 7}),
            "operation": OverwriteAll(base=IcebergBase(table_uuid=_ICEBERG.table_uuid, snapshot_id=7)),
        }
    ),
    "launch-that-overwrites-all-of-no-table": _LAUNCH.model_copy(update={"target": None, "operation": OverwriteAll(base=None)}),
    "launch-that-overwrites-where": _LAUNCH.model_copy(
        update={"operation": OverwriteWhere(base=_EMPTY_BASE, where="day = '2026-11-24' and land = 'Österreich'")}
    ),
    "launch-that-overwrites-where-in-no-table": _LAUNCH.model_copy(
        update={"target": None, "operation": OverwriteWhere(base=None, where="day = '2026-11-24'")}
    ),
    "launch-that-overwrites-where-in-a-dataset": _LAUNCH.model_copy(
        update={
            "target": _LANCE,
            "sink_format": "lance",
            "operation": OverwriteWhere(base=_LANCE.base, where="day = '2026-11-24'"),
        }
    ),
    "launch-that-overwrites-partitions": _LAUNCH.model_copy(update={"operation": OverwritePartitions(base=_EMPTY_BASE)}),
    "launch-that-overwrites-partitions-of-no-table": _LAUNCH.model_copy(
        update={"target": None, "operation": OverwritePartitions(base=None)}
    ),
    "launch-that-upserts": _LAUNCH.model_copy(update={"operation": Upsert(keys=("id", "straße"))}),
    "launch-that-deletes-by-key": _LAUNCH.model_copy(update={"operation": Upsert(keys=("id",), when_matched="Delete")}),
    "launch-of-a-merge": _LAUNCH.model_copy(
        update={
            "operation": Merge(
                keys=("id",), when_matched="Update", on_duplicate="Fail", order_by=None, attempts=(1, 3), since=None
            )
        }
    ),
    "launch-of-a-second-merge": _LAUNCH.model_copy(
        update={
            "operation": Merge(
                keys=("id",), when_matched="Ignore", on_duplicate="Last", order_by="changed", attempts=(1,), since=7
            )
        }
    ),
    "launch-of-a-merge-that-rewrites": _LAUNCH.model_copy(
        update={
            "operation": Merge(
                keys=("id",), when_matched="Update", on_duplicate="Fail", order_by=None, attempts=(1,), since=7, rewrites=True
            )
        }
    ),
    "launch-that-rewrites-staged-files": _LAUNCH.model_copy(
        update={
            "operation": Merge(
                keys=("id",),
                when_matched="Ignore",
                on_duplicate="Fail",
                order_by=None,
                attempts=(1,),
                since=7,
                rewrites=True,
                found_by=("merge-5", "merge-7-5"),
            )
        }
    ),
    "seal-of-a-merge-that-rewrites": _SEAL.model_copy(
        update={
            "files": (
                IcebergRewrite(
                    rows=7,
                    data_file="/lake/flüge/data/0.parquet",
                    files=(
                        IcebergFile(
                            path="/lake/flüge/data/cw-0123456789abcdef/1-1-0-0123456789abcdef0123456789abcdef.parquet",
                            size_bytes=1234,
                            rows=5,
                            schema_id=1,
                            spec_id=0,
                            partition=(None,),
                            metrics=((1, 40, 5, 0, None, "AQAAAA==", "BQAAAA=="),),
                            split_offsets=(4,),
                        ),
                    ),
                ),
                IcebergRewrite(rows=3, data_file="/lake/flüge/data/1.parquet", files=()),
            )
        }
    ),
    "seal-of-a-merge": _SEAL.model_copy(
        update={
            "files": (
                IcebergDeletes(
                    path="/lake/flüge/data/cw-0123456789abcdef/1-1-0-0123456789abcdef0123456789abcdef-deletes.parquet",
                    size_bytes=1234,
                    rows=7,
                    data_file="/lake/flüge/data/0.parquet",
                ),
            )
        }
    ),
    "seal-of-a-merge-with-deletion-vectors": _SEAL.model_copy(
        update={
            "files": (
                IcebergDeletes(
                    path="/lake/flüge/data/cw-0123456789abcdef/1-1-0-0123456789abcdef0123456789abcdef-deletes.puffin",
                    size_bytes=400,
                    rows=7,
                    data_file="/lake/flüge/data/0.parquet",
                    content_offset=4,
                    content_size_bytes=50,
                    cardinality=9,
                ),
            )
        }
    ),
    "seal-of-a-merge-lance": _SEAL.model_copy(
        update={
            "files": (
                LanceDeletes(
                    path="0123456789abcdef0123456789abcdef.lance",
                    size_bytes=1234,
                    rows=7,
                    source="/lake/flüge.lance fragment 3",
                ),
            )
        }
    ),
    "seal-of-staged-fragments-that-are-written-anew": _SEAL.model_copy(
        update={
            "files": (
                LanceRewrite(
                    rows=7,
                    source="0123456789abcdef0123456789abcdef.lance",
                    fragments=(
                        LanceFragment(
                            files=(
                                LanceDataFile(
                                    path="00112233445566778899aabbccddeeff.lance",
                                    size_bytes=1234,
                                    fields=(0, 1),
                                    column_indices=(0, 1),
                                    major_version=2,
                                    minor_version=1,
                                ),
                            ),
                            rows=5,
                        ),
                    ),
                ),
                LanceRewrite(rows=3, source="ffeeddccbbaa99887766554433221100.lance", fragments=()),
            )
        }
    ),
    "merge-keys": MergeKeysRecord(
        token=_TOKEN,
        keys=("id", "straße"),
        rows=2,
        parts=(MergeKeysPart(token=_TOKEN, rows=2, size_bytes=1234, digest=_CODE),),
        bounds="AAAA",
        where='"id" >= 1 and "id" <= 2',
    ),
    "merge-keys-with-places": MergeKeysRecord(
        token=_TOKEN, keys=("id",), rows=0, parts=(), bounds="AAAA", where=None, files=("/lake/0.parquet",), repeated=3
    ),
    "launch-that-adds-columns": _LAUNCH.model_copy(
        update={"target": _LANCE, "sink_format": "lance", "operation": AddColumns(columns=("vektor", "länge"), only="Null")}
    ),
    "launch-of-a-pack": _LAUNCH.model_copy(
        update={
            "target": LancePackTarget(
                uri="s3://lake/größe.lance",
                identity=_TOKEN,
                at_version=9,
                arrow_schema=_LANCE.arrow_schema,
                columns=("vektor", "länge"),
                replaces=True,
                attempt=2,
            ),
            "sink_format": "lance",
            "steps": (),
        }
    ),
    "input-of-null-rows": InputRecord(
        token=_TOKEN,
        files=(),
        arrow_schema=_LANCE.arrow_schema,
        tables=(PinnedLance(uri="s3://lake/größe.lance", at_version=8, null_in=("vektor",)),),
    ),
    "input-of-a-pack": InputRecord(
        token=_TOKEN,
        files=(
            SourceFile(
                path="s3://lake/größe.lance fragment 7",
                etag="",
                size_bytes=4096,
                unit="rows",
                end=90,
                fragment=7,
                pack=LancePack(
                    origin=LanceOrigin(
                        fragment=7,
                        rows=90,
                        skip=3,
                        made_of=(
                            LanceOrigin(fragment=1, rows=50, is_input=True, live_at=8),
                            LanceOrigin(fragment=5, rows=50, live_at=8),
                        ),
                    ),
                    pieces=(
                        PackedPiece(
                            path="cw-0123456789abcdef/1/2-0-a.lance", skip=4, part=ColumnRows(fragment=1, rows=2, first=5, last=9)
                        ),
                    ),
                ),
            ),
        ),
        arrow_schema=_LANCE.arrow_schema,
        tables=(
            PinnedLance(uri="s3://lake/größe.lance", at_version=9, packed=PackedColumns(columns=("vektor",), replaces=False)),
        ),
    ),
    "input-pack-of-changed-rows": InputRecord(
        token=_TOKEN,
        files=(),
        arrow_schema=_LANCE.arrow_schema,
        tables=(
            PinnedLance(
                uri="s3://lake/größe.lance",
                at_version=9,
                packed=PackedColumns(
                    columns=("vektor",),
                    replaces=False,
                    changed=_CHANGED.model_copy(update={"given_at": None}),
                    input_at=8,
                ),
            ),
        ),
    ),
    "seal-of-columns": _SEAL.model_copy(
        update={
            "files": (
                StagedColumns(
                    path="cw-0123456789abcdef/1/2-0-a.lance",
                    size_bytes=512,
                    rows=6,
                    parts=(
                        ColumnRows(fragment=0, rows=4, first=0, last=7),
                        ColumnRows(fragment=1, rows=2, first=5, last=9),
                    ),
                ),
            ),
            "rows_written": 6,
        }
    ),
    "seal-of-column-files": _SEAL.model_copy(
        update={
            "files": (
                LanceColumnFile(
                    fragment=7,
                    file=LanceDataFile(
                        path="0101.lance", size_bytes=2048, fields=(4,), column_indices=(0,), major_version=2, minor_version=1
                    ),
                    rows=90,
                    beside=("1010.lance", "0110.lance"),
                ),
            ),
            "rows_written": 90,
        }
    ),
    "launch-of-a-stage": _LAUNCH.model_copy(
        update={
            "target": _STAGE_RESULT,
            "stage": StageIdentity(name="embed", reads="parse-0123456789abcdef-1", hash_in="ab" * 32, algorithm=1, run_nonce="2"),
        }
    ),
    "launch-of-an-aggregate": _LAUNCH.model_copy(
        update={
            "stage": StageIdentity(
                name="sum",
                reads="sum-shuffle-0123456789abcdef-1",
                hash_in="ab" * 32,
                algorithm=1,
                groups=Grouping(by=("author", "year"), buckets=200),
            ),
        }
    ),
    "launch-of-a-shuffle": _LAUNCH.model_copy(
        update={
            "target": _STAGE_RESULT.model_copy(update={"shuffles": Grouping(by=("author", "year"), buckets=200)}),
            "stage": StageIdentity(
                name="sum-shuffle",
                reads="embed-0123456789abcdef-1",
                hash_in="cd" * 32,
                algorithm=1,
                shuffles=Grouping(by=("author", "year"), buckets=200),
            ),
        }
    ),
    "target-in-buckets": TargetRecord(
        token=_TOKEN, target=_STAGE_RESULT.model_copy(update={"shuffles": Grouping(by=("author",), buckets=200)})
    ),
    "seal-in-buckets": _SEAL.model_copy(
        update={"files": (StageFile(name="1-0-00ff.arrow", size_bytes=777, rows=300, batches=(200, 100), buckets=(3, 17)),)}
    ),
    "target-of-a-stage": TargetRecord(token=_TOKEN, target=_STAGE_RESULT),
    "seal-of-a-stage": _SEAL.model_copy(
        update={"files": (StageFile(name="1-0-00ff.arrow", size_bytes=777, rows=300, batches=(200, 100)),)}
    ),
    "launch-with-maximum-rows": _LAUNCH.model_copy(update={"maximum_rows": 500}),
    "launch-by-a-trigger": _LAUNCH.model_copy(
        update={
            "began": Began(why="Trigger", at="2026-11-24T10:03:11.000001+00:00", files=3, size_bytes=1000),
            "at_most": AtMost(files=10, bytes=1 << 30),
        }
    ),
    "launch-for-a-driver-that-waits": _LAUNCH.model_copy(update={"driver_digest": "ab" * 32}),
    "launch-in-a-session": _LAUNCH.model_copy(update={"driver_digest": "ab" * 32, "session_code": "cd" * 32}),
    "input-with-more-to-come": InputRecord(
        token=_TOKEN,
        files=(SourceFile(path="/in/a.parquet", etag="abc-1", size_bytes=1000, unit="rows", end=500),),
        arrow_schema=_SCHEMA,
        left=7,
    ),
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
    "taken": TakenRecord(
        token=_TOKEN,
        epoch=10_000,
        files=(
            TakenFile(path="s3://in/größe.csv", etag='"def"', size_bytes=2000, source=1),
            TakenFile(path="s3://in/d.lance fragment 3", etag="a.lance|", size_bytes=0, fragment=3),
        ),
        parts=(StoredPart(token=_TOKEN, count=30_000, digest="ab" * 32),),
        tables=(None, PinnedLance(uri="s3://in/d.lance", at_version=7)),
        outstanding=(OutstandingRows(path="s3://in/größe.csv", etag='"def"', source=1, rows=((7, 8), (9, 10))),),
        outstanding_parts=(StoredPart(token=_TOKEN, count=2, digest="cd" * 32),),
        partitions=(
            TakenPartition(
                partition=KafkaPartition(topic="clicks", partition=3), topic_id="AAAAAAAAAAAAAAAAAAAAAA", end=7, epoch=9_998
            ),
        ),
        dialects=(CsvDialect(source=1, delimiter=";", quote="'"),),
        in_table=(9_999, 1000),
        not_committed=(17,),
    ),
    "taken-of-changed-columns": TakenRecord(
        token=_TOKEN,
        epoch=2,
        tables=(PinnedLance(uri="s3://in/d.lance", at_version=7, transaction="0c6357f4-3d55-4a8d-99a3-eba3ed4a3f16"),),
        tables_committed_at=9,
    ),
    "taken-with-columns": TakenRecord(
        token=_TOKEN,
        epoch=2,
        files=(TakenFile(path="/in/a.parquet", etag="abc-1", size_bytes=1000, columns="0123456789abcdef"),),
        file_columns=(_COLUMNS,),
    ),
    "taken-without-what-failed": TakenRecord(token=_TOKEN, epoch=24, unread=(23,)),
    "taken-of-keys": TakenRecord(
        token=_TOKEN,
        epoch=2,
        keys=TakenKeys(
            columns=(KeyColumn(name="id", type="bigint"),),
            objects=(
                KeysObject(path="control/u/index-parts/x.parquet", rows=3, size_bytes=100, values_bytes=36, digest="ef" * 32),
            ),
            with_result=KeySet(rows=2, fingerprint="0" * 32),
            quarantined=KeySet(rows=1, fingerprint="1" * 32),
            was_retried=True,
        ),
    ),
    "taken-part": TakenPartRecord(
        token=_TOKEN,
        epoch=3,
        files=(TakenFile(path="/in/a.parquet", etag="abc-1", size_bytes=1000),),
        outstanding=(OutstandingRows(path="/in/a.parquet", etag="abc-1", rows=((0, 1),)),),
    ),
    "input-iceberg-of-changed-rows": InputRecord(
        token=_TOKEN,
        files=(),
        arrow_schema=_SCHEMA,
        tables=(_PINNED.model_copy(update={"format_version": 3, "sequence_number": 9, "changed_after": 7}),),
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
