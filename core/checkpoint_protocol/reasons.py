"""The reasons an error or a condition can carry, each with its meaning in one line."""

from __future__ import annotations

from typing import Final

# the manifest and the settings
MANIFEST_INVALID: Final = "ManifestInvalid"  # a field of the manifest or settings file is wrong
IDENTITY_CHANGED: Final = "IdentityChanged"  # source, sink or checkpoint changed under an existing name
WRITE_UNKNOWN: Final = "WriteUnknown"  # the store has no write of that name or uid
NAME_AMBIGUOUS: Final = "NameAmbiguous"  # writes of several namespaces have that name
WRITE_AT_WORK: Final = "WriteAtWork"  # a run of the write is at work, so that it cannot be forgotten
ACCESS_NOT_GRANTED: Final = "AccessNotGranted"  # a catalog, table or storage prefix is not granted to the write's namespace
# the store
STORE_UNAVAILABLE: Final = "StoreUnavailable"  # the object store did not answer
CREDENTIALS_REFUSED: Final = "CredentialsRefused"  # the store or catalog refused our credentials
STORE_UNSAFE: Final = "StoreUnsafe"  # the store ignores put-if-absent
FOLDER_NOT_LISTED: Final = "FolderNotListed"  # an object whose name is no path hides the others of its folder from listings
RECORD_UNREADABLE: Final = "RecordUnreadable"  # an object exists but is not a record we can read
RECORD_FORGED: Final = "RecordForged"  # a record was put by somebody who does not have the write's key
DISK_FULL: Final = "DiskFull"  # a disk or a quota of this machine has no room left
RECORD_TOO_LARGE: Final = "RecordTooLarge"  # a record would be larger than any that is read: nothing was put
# the source
SOURCE_MISSING: Final = "SourceMissing"  # a path or topic of the source does not exist or matches nothing
SOURCE_CHANGED: Final = "SourceChanged"  # a file or topic was replaced, or is gone, while rows of it are missing
SOURCE_MOVED: Final = "SourceMoved"  # a file that an earlier epoch has taken has another name now
SOURCE_LOST: Final = "SourceLost"  # records of a topic were removed before they were read
SOURCE_UNAVAILABLE: Final = "SourceUnavailable"  # a Kafka broker did not answer
SOURCE_EDITED: Final = "SourceEdited"  # an attempt was given up, as the source was edited before anything was sealed
SOURCE_UNREADABLE: Final = "SourceUnreadable"  # a file is not of the declared format
KEYS_UNSUITABLE: Final = "KeysUnsuitable"  # a key column is missing, of a wrong type, NULL, or not the source's own
KEYS_NOT_UNIQUE: Final = "KeysNotUnique"  # two rows of the source have one key
PLAN_NOT_MAP_ONLY: Final = "PlanNotMapOnly"  # between source and sink there is more than row by row work
ORDER_CHANGED: Final = "OrderChanged"  # a second try of a task met its rows in another order
STREAM_REFUSED: Final = "StreamRefused"  # a query that is handed to job.stream cannot be replayed exactly, or not be committed
STREAM_ENDED: Final = "StreamEnded"  # the query of a stream has done all that was there, and has ended
CHECKPOINT_LOST: Final = "CheckpointLost"  # Spark's own checkpoint of a stream is not the one that the table's rows come from
# the user's code
CODE_FAILED: Final = "CodeFailed"  # a step raised
CODE_CHANGED: Final = "CodeChanged"  # with onCodeChange: Ask, a person is to say what becomes of results of other code
CODE_MISSING: Final = "CodeMissing"  # a step cannot be imported
SERVICE_UNAVAILABLE: Final = "ServiceUnavailable"  # a service that a step calls does not answer, or refuses most calls
TOO_MANY_ROW_ERRORS: Final = "TooManyRowErrors"  # more rows failed than spec.quarantine allows
OUTPUT_SCHEMA_WRONG: Final = "OutputSchemaWrong"  # the steps' output does not fit the table
OUTPUT_OUTSIDE_WHERE: Final = "OutputOutsideWhere"  # a row of the output is not one that sink.where replaces
OUTPUT_KEY_NULL: Final = "OutputKeyNull"  # a row of the output has NULL in a column of sink.upsertKeys
OUTPUT_KEY_REPEATED: Final = "OutputKeyRepeated"  # several rows of the output have one key of sink.upsertKeys
# the table
CATALOG_UNAVAILABLE: Final = "CatalogUnavailable"  # the catalog did not answer
TABLE_MISSING: Final = "TableMissing"  # the target does not exist and create is not set
TABLE_REPLACED: Final = "TableReplaced"  # the target was dropped and made again after staging
FORMER_WRITE_FOUND: Final = "FormerWriteFound"  # the target has rows of a write of this name that the store does not know
TABLE_UNSUPPORTED: Final = "TableUnsupported"  # the target has a feature that we refuse
SCHEMA_CHANGED: Final = "SchemaChanged"  # a column was dropped, re-added or retyped after staging
TABLE_WRITTEN_MEANWHILE: Final = "TableWrittenMeanwhile"  # others have put rows where an overwrite was to put its own
TAG_EXISTS: Final = "TagExists"  # the tag that the commit is to set is on another snapshot
AUDIT_REFUSED: Final = "AuditRefused"  # sink.audit says that the rows must not be published
AUDIT_BRANCH_TAKEN: Final = "AuditBranchTaken"  # others have moved the branch on which rows wait for their audit, or have made it
STAGED_FILE_MISSING: Final = "StagedFileMissing"  # a staged file is gone or has another size
STAGED_RESULT_REFUSED: Final = "StagedResultRefused"  # a seal names a file that it must not name
COMMIT_OUTCOME_UNKNOWN: Final = "CommitOutcomeUnknown"  # whether the commit landed cannot be known any more
COMMIT_CONTENDED: Final = "CommitContended"  # other writers kept moving the table
WRITE_DELETED: Final = "WriteDeleted"  # the write was deleted before it was committed: its results are thrown away
COMMIT_QUEUED: Final = "CommitQueued"  # as many commits as allowed are at work already
# the cluster
API_UNAVAILABLE: Final = "ApiUnavailable"  # the Kubernetes API server did not answer
OPERATOR_DEFECT: Final = "OperatorDefect"  # the operator did not foresee something; its log says what
API_FORBIDDEN: Final = "ApiForbidden"  # a role of the operator is missing
API_CONFLICT: Final = "ApiConflict"  # an object was changed since it was read
# the driver
DRIVER_FAILED: Final = "DriverFailed"  # a driver ended without telling why
DRIVER_OUT_OF_MEMORY: Final = "DriverOutOfMemory"  # the kernel ended a driver that took more memory than its limit
DRIVER_EVICTED: Final = (
    "DriverEvicted"  # the driver's pod was evicted: its node is drained, shut down, or short of memory or disk
)
DRIVER_PREEMPTED: Final = "DriverPreempted"  # the scheduler took the driver's place for a pod of higher priority
DRIVER_DELETED: Final = "DriverDeleted"  # somebody, or something, deleted the driver's pod
NODE_LOST: Final = "NodeLost"  # the driver's node does not answer any more, or was removed
DRIVER_REPLACED: Final = "DriverReplaced"  # a driver that could not start was given up for one of a changed manifest
IMAGE_UNAVAILABLE: Final = "ImageUnavailable"  # the driver's image cannot be pulled, or has no such command
POD_UNSCHEDULABLE: Final = "PodUnschedulable"  # no node has room for the driver
POD_INCOMPLETE: Final = "PodIncomplete"  # a Secret, ConfigMap or volume that the driver's pod names is not there
POD_REFUSED: Final = "PodRefused"  # the API server does not admit the driver's pod: quota, security level, a wrong template
EXECUTORS_PENDING: Final = "ExecutorsPending"  # no node has room for the executors of a driver, or they cannot start
EXECUTORS_REFUSED: Final = "ExecutorsRefused"  # the API server does not admit a driver's executors: quota, security level
DRIVER_QUEUED: Final = "DriverQueued"  # as many drivers are at work in the namespace as the operator's settings allow
NO_PROGRESS: Final = "NoProgress"  # a driver sealed nothing for too long
WRITE_SUSPENDED: Final = "WriteSuspended"  # spec.suspend is set
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"  # the epoch has taken longer than spec.activeDeadlineSeconds
BACKOFF_LIMIT_EXCEEDED: Final = "BackoffLimitExceeded"  # too many attempts failed
FAILURE_UNKNOWN: Final = "FailureUnknown"  # a driver ended for a reason that this release does not know
JAVA_UNSUITABLE: Final = "JavaUnsuitable"  # no Java, or not one that Spark runs on (local runner)

#: What drivers find out themselves. All else a controller sees, such as who has ended a driver, or decides.
_of_drivers: Final = frozenset(
    {
        ACCESS_NOT_GRANTED,
        AUDIT_REFUSED,
        CHECKPOINT_LOST,
        CODE_FAILED,
        CODE_MISSING,
        CREDENTIALS_REFUSED,
        DISK_FULL,
        DRIVER_FAILED,
        DRIVER_OUT_OF_MEMORY,
        FOLDER_NOT_LISTED,
        KEYS_NOT_UNIQUE,
        KEYS_UNSUITABLE,
        MANIFEST_INVALID,
        NO_PROGRESS,
        ORDER_CHANGED,
        OUTPUT_KEY_NULL,
        OUTPUT_KEY_REPEATED,
        OUTPUT_OUTSIDE_WHERE,
        OUTPUT_SCHEMA_WRONG,
        PLAN_NOT_MAP_ONLY,
        RECORD_FORGED,
        RECORD_TOO_LARGE,
        RECORD_UNREADABLE,
        SCHEMA_CHANGED,
        SERVICE_UNAVAILABLE,
        SOURCE_CHANGED,
        SOURCE_LOST,
        SOURCE_MISSING,
        SOURCE_MOVED,
        SOURCE_UNAVAILABLE,
        SOURCE_UNREADABLE,
        STAGED_FILE_MISSING,
        STAGED_RESULT_REFUSED,
        STORE_UNAVAILABLE,
        STORE_UNSAFE,
        STREAM_REFUSED,
        TABLE_MISSING,
        TABLE_REPLACED,
        TABLE_UNSUPPORTED,
        TOO_MANY_ROW_ERRORS,
    }
)


def is_of_drivers(reason: str, of_stream: bool = False) -> bool:
    """Whether a driver can end with a reason. What drivers say is text of others, and may be of a later release."""
    return reason in _of_drivers or (of_stream and reason == STREAM_ENDED)
