"""The records of the checkpoint store: versioned, strict JSON, put once, never changed.

A record is plain data. An unknown version or an unreadable record is Corrupt and names the object; it is never taken for
"not there". Records that a put may race for carry a token: whoever reads its own token back has won, even if the answer to
its put was lost.

One module for each family of records. Others import them from here: which family a record belongs to is nothing that they
have to know.
"""

from checkpoint_protocol.records.attempts import (
    Began,
    CheckedBundle,
    ClosedRecord,
    DrivenBy,
    FailureRecord,
    GivenUp,
    InheritedAttempt,
    InheritedRecord,
    LaunchRecord,
    OutputRecord,
    TargetRecord,
)
from checkpoint_protocol.records.base import (
    MAX_RECORD_BYTES,
    MAX_SEALS,
    MAX_TASKS,
    MOST_COUNTED,
    Count,
    Number,
    Output,
    Part,
    Record,
)
from checkpoint_protocol.records.commits import (
    ClaimRecord,
    CleanedRecord,
    CommitRecord,
    DeletedRecord,
    MergeKeysPart,
    MergeKeysRecord,
    NameRecord,
    WriteRecord,
)
from checkpoint_protocol.records.formats.iceberg import (
    DeleteFile,
    FieldMetrics,
    IcebergBase,
    IcebergDeletes,
    IcebergFile,
    IcebergRewrite,
    IcebergSourceFile,
    IcebergTarget,
    PinnedIceberg,
)
from checkpoint_protocol.records.formats.kafka import KafkaPartition, PinnedKafka, PinnedSchema
from checkpoint_protocol.records.formats.lance import (
    ColumnRows,
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
    PackedColumns,
    PackedPiece,
    PinnedLance,
    StagedColumns,
    lance_output,
)
from checkpoint_protocol.records.formats.no_table import NoTarget
from checkpoint_protocol.records.formats.operations import (
    AddColumns,
    Append,
    Merge,
    Operation,
    Overwrite,
    OverwriteAll,
    OverwritePartitions,
    OverwriteWhere,
    Upsert,
    base_of,
    operation_of,
    takes_the_whole_source,
)
from checkpoint_protocol.records.formats.stage_results import (
    HASH_ALGORITHM,
    MOST_BUCKETS,
    Grouping,
    StageFile,
    StageIdentity,
    StageTarget,
)
from checkpoint_protocol.records.formats.union import Base, PinnedTable, StagedFile, Target
from checkpoint_protocol.records.inputs import (
    PART_BYTES,
    FileColumns,
    InputIndexRecord,
    InputPartRecord,
    InputRecord,
    InputTotals,
    KeyColumn,
    Retried,
    SourceFile,
    StoredPart,
)
from checkpoint_protocol.records.plans import KeysCovered, KeySet, KeysObject, PlanPartRecord, PlanRecord, PositionsCovered
from checkpoint_protocol.records.seals import (
    MAX_ERROR_MESSAGE_LENGTH,
    MAX_ERROR_TYPE_LENGTH,
    MAX_KEY_LENGTH,
    MAX_STEP_LENGTH,
    MAX_TRACEBACK_LENGTH,
    BundleRecord,
    Quarantined,
    QuarantinedRow,
    QuarantineObject,
    QuarantineRecord,
    RowKey,
    RowPosition,
    Seal,
)
from checkpoint_protocol.records.stored_form import decode, decode_one_of, encode, most_bytes_of, refuse_too_large
from checkpoint_protocol.records.taken import (
    CsvDialect,
    OutstandingRows,
    TakenFile,
    TakenKeys,
    TakenPartition,
    TakenPartRecord,
    TakenRecord,
)
