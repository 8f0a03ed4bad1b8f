"""Which data files of a pinned Iceberg table an epoch reads: from its metadata and manifests, without opening a data file.

Called once for each epoch, by its first driver. Files and whole manifests whose partition values or statistics say that
`where` takes no row of them are left out.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyiceberg.expressions
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, Or
from pyiceberg.expressions.visitors import ResidualEvaluator, UnpartitionedResidualEvaluator
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import FileScanTask, ManifestGroupPlanner
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import UnknownType

from checkpoint_formats.failures import moved
from checkpoint_formats.iceberg.file_io import manifests_of, open_file_io
from checkpoint_formats.iceberg.manifests_3 import first_row_id_of_file, read_manifests
from checkpoint_formats.port import Described
from checkpoint_formats.rows.plain_types import plain_schema
from checkpoint_formats.rows.where import Filter
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable, one_line
from checkpoint_protocol.manifest.where import AllOf, AnyOf, BeginsWith, Compare, Condition, IsIn, IsNan, IsNull, value_for
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import DeleteFile, IcebergSourceFile, PinnedIceberg
from checkpoint_protocol.records.inputs import SourceFile

_KEEP: Final = "keep the table's snapshots until its writes have committed"


def columns_of(table: PinnedIceberg) -> pa.Schema:
    """Return all columns of the table, in plain Arrow types."""
    return plain_schema(schema_to_pyarrow(Schema.model_validate_json(table.table_schema_json), include_field_ids=False))


def described(table: PinnedIceberg, files: tuple[SourceFile, ...], columns: Sequence[str] | None) -> Described:
    """Return these files of the table, with those of the columns that it has (None: all)."""
    schema = columns_of(table)
    chosen = pa.schema([schema.field(name) for name in columns or schema.names if name in schema.names])
    return Described(files, chosen, f"source table {table.table}", tuple(schema.names))


def find_files(
    table: PinnedIceberg,
    condition: Condition | None,
    storage: StorageSettings,
    earlier: PinnedIceberg | None,
    on_replaced: str,
    *,
    with_row_ids: bool = False,
) -> tuple[SourceFile, ...]:
    """Return the data files whose rows the epoch takes, sorted by path.

    `earlier` is the table as the epoch before this one had it: then only files that came since are taken. A compaction in between
    does not matter. NeedsChange(SourceChanged) if more happened, unless `on_replaced` says what to do: Skip takes what was
    appended, as it was appended, and passes over all other snapshots; Process takes each data file that the table has now and had
    not then.

    `with_row_ids`: say which ids the rows of the files have, if the table has format 3.
    """
    if table.snapshot_id is None:
        return ()
    plan = _Plan(table, condition, storage, with_row_ids=with_row_ids)
    try:
        if earlier is None or earlier.snapshot_id is None:  # nothing was taken
            tasks = plan.all_files()
        else:
            since = _since(plan.metadata, table, earlier)
            strange = [one for one in since if _operation(one) not in (Operation.APPEND, Operation.REPLACE)]
            # A compaction moves rows that were taken together with those that were not: these are read where they were appended.
            is_moved = any(_operation(one) == Operation.REPLACE for one in since)
            if strange and on_replaced == "Fail":
                raise moved(
                    f"snapshot {strange[0].snapshot_id} of the table {table.table} is no append ({_name(strange[0])}), and came "
                    f"after snapshot {earlier.snapshot_id}, which an earlier epoch has taken: its files may hold rows that are "
                    "done already",
                    "set source.changes: Upserts if rows are upserted, for a table of format version 3 (it takes changed rows "
                    "and passes over deleted ones), onReplaced: Skip to take only what was appended since (rows that were "
                    "changed or deleted are passed over), or Process to take each file that came since as new rows",
                )
            as_appended = on_replaced == "Skip" or (is_moved and on_replaced == "Fail")
            tasks = plan.appended_files(since) if as_appended else plan.files_of(since)
        files = [plan.described(task) for task in tasks]
    except CheckpointError:
        raise
    except FileNotFoundError as error:
        raise Retryable(
            reasons.SOURCE_CHANGED,
            f"source: a metadata file of snapshot {table.snapshot_id} of the table {table.table} is gone before its data files "
            f"were listed ({error}); the next attempt loads the table again; {_KEEP}",
        ) from error
    except OSError as error:
        raise Retryable(
            reasons.STORE_UNAVAILABLE, f"source: the manifests of the table {table.table} cannot be read: {one_line(error)}"
        ) from error
    except (ValueError, TypeError, NotImplementedError, struct.error) as error:
        raise NeedsChange(
            reasons.SOURCE_UNREADABLE,
            f"source: snapshot {table.snapshot_id} of the table {table.table} cannot be read: {one_line(error)}",
        ) from error
    return tuple(sorted(files, key=lambda file: file.path))


class _Planner(ManifestGroupPlanner):
    """Finds files, and not what is left of the condition in each of them: every row that is read is judged by it anyhow.

    pyiceberg 0.12 cannot tell what is left where a partition value is NULL and the condition compares its column: TypeError.
    Position deletes are never left out: they are of rows of any values.
    """

    def _build_metrics_evaluator(self) -> Callable[[DataFile], bool]:
        evaluate = super()._build_metrics_evaluator()
        return lambda file: file.content == DataFileContent.POSITION_DELETES or evaluate(file)

    def _build_residual_evaluator(self, spec_id: int) -> Callable[[DataFile], ResidualEvaluator]:
        evaluator = UnpartitionedResidualEvaluator(schema=self.table_metadata.schema(), expr=AlwaysTrue())
        return lambda _: evaluator


class _Plan:
    """The table's metadata, bound to the schema that is read."""

    def __init__(
        self, table: PinnedIceberg, condition: Condition | None, storage: StorageSettings, *, with_row_ids: bool = False
    ) -> None:
        self._table = table
        self._with_row_ids = with_row_ids and table.format_version >= 3
        self._sequence_numbers: dict[str, int | None] = {}
        self._schema = Schema.model_validate_json(table.table_schema_json)
        self._io = open_file_io(table.metadata_location, storage, most_metadata_bytes=None)
        self._expression: BooleanExpression = AlwaysTrue()
        if condition is not None:
            arrow = plain_schema(schema_to_pyarrow(self._schema, include_field_ids=False))
            Filter(condition, arrow)
            self._expression = to_pyiceberg(condition, arrow)
        self._metadata: TableMetadata | None = None

    @property
    def metadata(self) -> TableMetadata:
        if self._metadata is None:
            self._metadata = FromInputFile.table_metadata(self._io.new_input(self._table.metadata_location))
        return self._metadata

    def all_files(self) -> list[FileScanTask]:
        return self._tasks(self._manifests(self._table.snapshot_id), lambda entry: True)

    def files_of(self, snapshots: Iterable[Snapshot]) -> list[FileScanTask]:
        """Return the files that the table has now and that these snapshots have added, with all deletes that apply to them."""
        added = {snapshot.snapshot_id for snapshot in snapshots}
        is_data = DataFileContent.DATA
        return self._tasks(
            self._manifests(self._table.snapshot_id),
            lambda entry: entry.data_file.content != is_data or entry.snapshot_id in added,
        )

    def appended_files(self, snapshots: Iterable[Snapshot]) -> list[FileScanTask]:
        """Return the files that the appends among these snapshots have added, as they were then."""
        tasks: list[FileScanTask] = []
        for snapshot in snapshots:
            if _operation(snapshot) == Operation.APPEND:
                own = snapshot.snapshot_id
                manifests = [manifest for manifest in self._manifests(own) if manifest.added_snapshot_id == own]
                tasks += self._tasks(manifests, lambda entry, own=own: entry.snapshot_id == own)  # type: ignore[misc]
        return tasks

    def _manifests(self, snapshot_id: int | None) -> list[ManifestFile]:
        snapshot = self.metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
        if snapshot is None:
            raise FileNotFoundError(f"snapshot {snapshot_id} is not in {self._table.metadata_location}")
        return list((read_manifests if self.metadata.format_version >= 3 else manifests_of)(snapshot, self._io))

    def _tasks(self, manifests: list[ManifestFile], is_wanted: Callable[[ManifestEntry], bool]) -> list[FileScanTask]:
        # The names in `where` are those of the schema that is read, which is not the current one under a named snapshot.
        metadata = self.metadata.model_copy(
            update={"current_schema_id": self._schema.schema_id, "schemas": [*_others(self.metadata, self._schema), self._schema]}
        )
        planner = _Planner(metadata, self._io, self._expression)

        def wanted(entry: ManifestEntry) -> bool:
            if not is_wanted(entry):
                return False
            self._refuse_unreadable(entry.data_file)
            if self._with_row_ids:
                self._sequence_numbers[entry.data_file.file_path] = entry.sequence_number
            return True

        return list(planner.plan_files(manifests, wanted))

    def _refuse_unreadable(self, file: DataFile) -> None:
        self._io.check(file.file_path)
        if file.content == DataFileContent.EQUALITY_DELETES:
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"source: snapshot {self._table.snapshot_id} of the table {self._table.table} has equality deletes "
                f"({file.file_path}), which cannot be read here; rewrite its data files (rewrite_data_files of Spark or Flink "
                "applies them), and read a snapshot after that",
            )
        allowed = (FileFormat.PARQUET,) if file.content == DataFileContent.DATA else (FileFormat.PARQUET, FileFormat.PUFFIN)
        if file.file_format not in allowed:
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"source: the table {self._table.table} has the {file.file_format.value} file {file.file_path}, and Parquet "
                "files are read; rewrite its data files as Parquet",
            )

    def described(self, task: FileScanTask) -> SourceFile:
        file = task.file
        deletes = sorted(task.delete_files, key=lambda delete: delete.file_path)
        return SourceFile(
            path=file.file_path,
            etag="",  # an Iceberg data file never changes; its size is compared
            size_bytes=file.file_size_in_bytes,
            unit="rows",
            end=file.record_count,
            iceberg=IcebergSourceFile(
                spec_id=file.spec_id,
                partition=self._partition(file),
                deletes=tuple(
                    DeleteFile(
                        path=delete.file_path,
                        format="parquet" if delete.file_format == FileFormat.PARQUET else "puffin",
                    )
                    for delete in deletes
                ),
                first_row_id=first_row_id_of_file(file) if self._with_row_ids else None,
                sequence_number=self._sequence_numbers.get(file.file_path),
            ),
        )

    def _partition(self, file: DataFile) -> tuple[str | None, ...]:
        """Return the values; None for a column that the table has no more, which nobody asks for and whose type is not known."""
        spec: PartitionSpec = self.metadata.specs()[file.spec_id]
        types = [field.field_type for field in spec.partition_type(self._schema).fields]
        values = [file.partition[number] for number in range(len(types))]
        return tuple(
            None if value is None or isinstance(kind, UnknownType) else base64.b64encode(to_bytes(kind, value)).decode()  # type: ignore[arg-type]
            for kind, value in zip(types, values, strict=True)
        )


def _others(metadata: TableMetadata, schema: Schema) -> list[Schema]:
    return [other for other in metadata.schemas if other.schema_id != schema.schema_id]


def _since(metadata: TableMetadata, table: PinnedIceberg, earlier: PinnedIceberg) -> list[Snapshot]:
    """Return the snapshots after the one that an earlier epoch has taken, oldest first."""
    if table.table_uuid != earlier.table_uuid:
        raise moved(
            f"the table {table.table} was dropped and made again since the last epoch (its uuid was {earlier.table_uuid})",
            "start a new write for it",
        )
    found: list[Snapshot] = []
    at = table.snapshot_id
    while at != earlier.snapshot_id:
        snapshot = metadata.snapshot_by_id(at) if at is not None else None
        if snapshot is None:
            raise moved(
                f"the history of the table {table.table} no longer reaches from snapshot {table.snapshot_id} back to "
                f"{earlier.snapshot_id}, which the last epoch has taken: what came since cannot be told (snapshots were expired, "
                "or the table was rolled back)",
                "start a new write, and keep snapshots until the next run",
            )
        found.append(snapshot)
        at = snapshot.parent_snapshot_id
    return found[::-1]


def _operation(snapshot: Snapshot) -> Operation | None:
    return snapshot.summary.operation if snapshot.summary is not None else None


def _name(snapshot: Snapshot) -> str:
    operation = _operation(snapshot)
    return operation.value if operation is not None else "it does not say what it is"


def to_pyiceberg(condition: Condition, schema: pa.Schema) -> BooleanExpression:
    """Return the condition for pruning: what it says no to has no row that our own filter takes."""
    match condition:
        case AllOf(parts):
            return And(*(to_pyiceberg(part, schema) for part in parts))
        case AnyOf(parts):
            return Or(*(to_pyiceberg(part, schema) for part in parts))
    made: BooleanExpression
    match condition:
        case Compare(column, operator, value):
            made = _COMPARISONS[operator](column, _literal(column, value, schema))
        case IsIn(column, values, negated):
            literals = [_literal(column, value, schema) for value in values]
            made = _MAKERS.NotIn(column, literals) if negated else _MAKERS.In(column, literals)
        case IsNull(column, negated):
            made = _MAKERS.NotNull(column) if negated else _MAKERS.IsNull(column)
        case IsNan(column, negated):
            made = _MAKERS.NotNaN(column) if negated else _MAKERS.IsNaN(column)
        case BeginsWith(column, beginning, negated):
            made = _MAKERS.NotStartsWith(column, beginning) if negated else _MAKERS.StartsWith(column, beginning)
    return made


#: pyiceberg's unbound predicates. Their constructors promise less than they take.
_MAKERS: Final[Any] = pyiceberg.expressions
_COMPARISONS: Final[dict[str, Any]] = {
    "=": _MAKERS.EqualTo,
    "!=": _MAKERS.NotEqualTo,
    "<": _MAKERS.LessThan,
    "<=": _MAKERS.LessThanOrEqual,
    ">": _MAKERS.GreaterThan,
    ">=": _MAKERS.GreaterThanOrEqual,
}


def _literal(column: str, given: Any, schema: pa.Schema) -> Any:
    """Return a literal that pyiceberg takes as exactly the value that our own filter compares with."""
    kind = schema.field(column).type
    value = value_for(column, given, str(kind))
    if pa.types.is_floating(kind):
        return pa.scalar(value, kind).as_py()
    return value.isoformat() if pa.types.is_temporal(kind) else value  # type: ignore[union-attr]
