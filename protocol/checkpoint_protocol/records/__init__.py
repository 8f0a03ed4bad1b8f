"""The records of the checkpoint store: versioned, strict JSON, put once, never changed.

A record is plain data. An unknown version or an unreadable record is Corrupt and names the object; it is never taken for
"not there". Records that a put may race for carry a token: whoever reads its own token back has won, even if the answer to
its put was lost.

One module for each family of records. Others import them from here: which family a record belongs to is nothing that they
have to know.
"""

from checkpoint_protocol.records.attempts import (
    CheckedBundle,
    ClosedRecord,
    FailureRecord,
    LaunchRecord,
    OutputRecord,
    TargetRecord,
)
from checkpoint_protocol.records.base import MAX_RECORD_BYTES, MAX_TASKS, Count, Number, Part, Record
from checkpoint_protocol.records.commits import ClaimRecord, CommitRecord
from checkpoint_protocol.records.coverage import KeysCovered, KeySet, KeysObject, PositionsCovered
from checkpoint_protocol.records.formats import Base, PinnedTable, StagedFile, Target
from checkpoint_protocol.records.iceberg import (
    DeleteFile,
    FieldMetrics,
    IcebergBase,
    IcebergFile,
    IcebergSourceFile,
    IcebergTarget,
    PinnedIceberg,
)
from checkpoint_protocol.records.inputs import (
    PART_BYTES,
    InputIndexRecord,
    InputPartRecord,
    InputRecord,
    InputTotals,
    KeyColumn,
    Retried,
    SourceFile,
    StoredPart,
)
from checkpoint_protocol.records.lance import (
    LanceBase,
    LanceDataFile,
    LanceField,
    LanceFragment,
    LanceTarget,
    PinnedLance,
    lance_output,
)
from checkpoint_protocol.records.no_table import NoTarget
from checkpoint_protocol.records.operations import Append, Operation, operation_of
from checkpoint_protocol.records.output_places import Output
from checkpoint_protocol.records.plans import PlanPartRecord, PlanRecord
from checkpoint_protocol.records.quarantine import (
    MAX_ERROR_MESSAGE_LENGTH,
    MAX_ERROR_TYPE_LENGTH,
    MAX_KEY_LENGTH,
    MAX_STEP_LENGTH,
    MAX_TRACEBACK_LENGTH,
    Quarantined,
    QuarantinedRow,
    QuarantineObject,
    QuarantineRecord,
    RowKey,
    RowPosition,
)
from checkpoint_protocol.records.seals import BundleRecord, Seal
from checkpoint_protocol.records.stored_form import decode, decode_one_of, encode, most_bytes_of, refuse_too_large
from checkpoint_protocol.records.writes import DeletedRecord, NameRecord, WriteRecord

__all__ = [
    "MAX_ERROR_MESSAGE_LENGTH",
    "MAX_ERROR_TYPE_LENGTH",
    "MAX_KEY_LENGTH",
    "MAX_RECORD_BYTES",
    "MAX_STEP_LENGTH",
    "MAX_TASKS",
    "MAX_TRACEBACK_LENGTH",
    "PART_BYTES",
    "Append",
    "Base",
    "BundleRecord",
    "CheckedBundle",
    "ClaimRecord",
    "ClosedRecord",
    "CommitRecord",
    "Count",
    "DeleteFile",
    "DeletedRecord",
    "FailureRecord",
    "FieldMetrics",
    "IcebergBase",
    "IcebergFile",
    "IcebergSourceFile",
    "IcebergTarget",
    "InputIndexRecord",
    "InputPartRecord",
    "InputRecord",
    "InputTotals",
    "KeyColumn",
    "KeySet",
    "KeysCovered",
    "KeysObject",
    "LanceBase",
    "LanceDataFile",
    "LanceField",
    "LanceFragment",
    "LanceTarget",
    "LaunchRecord",
    "NameRecord",
    "NoTarget",
    "Number",
    "Operation",
    "Output",
    "OutputRecord",
    "Part",
    "PinnedIceberg",
    "PinnedLance",
    "PinnedTable",
    "PlanPartRecord",
    "PlanRecord",
    "PositionsCovered",
    "QuarantineObject",
    "QuarantineRecord",
    "Quarantined",
    "QuarantinedRow",
    "Record",
    "Retried",
    "RowKey",
    "RowPosition",
    "Seal",
    "SourceFile",
    "StagedFile",
    "StoredPart",
    "Target",
    "TargetRecord",
    "WriteRecord",
    "decode",
    "decode_one_of",
    "encode",
    "lance_output",
    "most_bytes_of",
    "operation_of",
    "refuse_too_large",
]
