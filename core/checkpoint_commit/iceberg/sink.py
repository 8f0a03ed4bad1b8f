"""An Iceberg table of a catalog."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from checkpoint_commit.catalogs.sqlite_files import sqlite_file
from checkpoint_commit.outcomes import BlockOutcome, CommitOutcome, Former, Presence
from checkpoint_commit.ports import Sink
from checkpoint_commit.results import Results
from checkpoint_commit.sinks.port import SinkFormat, TargetSeen, folder_problems, why_not_writable
from checkpoint_commit.sinks.table_sink import TableSink
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import IcebergTarget, Output, operation_of
from checkpoint_protocol.tables.iceberg import MAIN_BRANCH, IcebergSink, title_of

if TYPE_CHECKING:
    import pyarrow as pa

    from checkpoint_commit.catalogs.named import CatalogBook
    from checkpoint_commit.iceberg.table import PyicebergTable

_TableT = TypeVar("_TableT", bound="PyicebergTable")


def format_of(spec: SinkSpec, named: IcebergSink) -> SinkFormat:
    return IcebergFormat(spec, named)


@dataclass(frozen=True, slots=True)
class IcebergFormat:
    spec: SinkSpec
    named: IcebergSink
    version_word: str = "snapshot"

    @property
    def output(self) -> Output | None:
        return None

    @property
    def title(self) -> str:
        return title_of(self.named.catalog, self.named.table, self.named.branch)

    @property
    def field(self) -> str:
        return "spec.sink.iceberg.table"

    @property
    def needs_settings(self) -> bool:
        return True

    def examine(self, settings: Settings) -> TargetSeen:
        of_catalog = "spec.sink.iceberg.catalog"
        entry = settings.catalogs.get(self.named.catalog)
        file = sqlite_file(entry.uri) if entry is not None else None
        if file is not None and (why := why_not_writable(file) or why_not_writable(file.parent)) is not None:
            problem = f"the SQLite file {file} of the catalog {self.named.catalog!r} cannot be used: {why}"
            return TargetSeen(self.title, exists=None, problems=((of_catalog, problem),))
        if file is not None and not file.exists():
            # Opening it would make it.
            return TargetSeen(self.title, exists=False)
        try:
            table = self._table(settings)
            target = table.describe()
        except CheckpointError as error:
            is_table = error.reason == reasons.TABLE_UNSUPPORTED
            field = self.field if is_table else of_catalog
            return TargetSeen(self.title, exists=True if is_table else None, problems=((field, error),))
        if target is None:
            problems = folder_problems(of_catalog, entry.warehouse if entry is not None else None)
            return TargetSeen(self.title, exists=False, problems=problems)
        fields = json.loads(target.table_schema_json)["fields"]
        return TargetSeen(
            target.title,
            exists=True,
            # What is left out has the default, where the table has one.
            columns={field["name"]: field["required"] and field.get("write-default") is None for field in fields},
            is_partitioned=bool(json.loads(target.partition_spec_json)["fields"]),
            file_size_bytes=target.target_file_size_bytes,
            outputs=target.outputs,
            problems=(*folder_problems(self.field, target.data_location), *self._problems_of_operation(table, target)),
            notes=self._notes_on_refs(table),
        )

    def _notes_on_refs(self, table: PyicebergTable) -> tuple[str, ...]:
        known, notes = table.list_refs(), []
        if self.named.branch not in (MAIN_BRANCH, *known):
            notes.append(
                f"spec.sink.iceberg.branch: there is no branch {self.named.branch!r}: the commit makes it from main's head"
            )
        if self.named.tag in known:
            notes.append(
                f"spec.sink.iceberg.tag: there is a branch or tag {self.named.tag!r} already: unless this write has made it, the "
                "write stops"
            )
        return tuple(notes)

    def _problems_of_operation(self, table: PyicebergTable, target: IcebergTarget) -> tuple[tuple[str, CheckpointError], ...]:
        from checkpoint_commit.iceberg.target import refuse_columns_of_upsert

        try:
            table.refuse_operation(operation_of(self.spec, target.base))
            refuse_columns_of_upsert(target, self.spec)
        except CheckpointError as error:
            field = error.message.partition(": ")[0] if error.reason == reasons.MANIFEST_INVALID else self.field
            return ((field, error),)
        return ()

    def notes_on(self, schema: pa.Schema) -> tuple[str, ...]:
        from checkpoint_commit.sinks.table_types import finer_than_iceberg

        return tuple(
            f"spec.source: the column {name!r} has {schema.field(name).type}, and Iceberg keeps microseconds: a row with a finer "
            "time fails, and is not cut off; round it in a step"
            for name in finer_than_iceberg(schema)
        )

    def check_schema(self, schema: pa.Schema) -> None:
        from checkpoint_commit.iceberg.target import new_table

        new_table(schema, self.spec)

    def open(self, settings: Settings, catalogs: CatalogBook | None, written_by: str) -> Sink:
        from checkpoint_commit.iceberg.upsert_sink import UpsertSink

        if self.spec.audit is None:
            sink: TableSink[Any] = _TableSink(self._table(settings, catalogs, written_by), self.spec, self.output)
        else:
            from checkpoint_commit.iceberg.audit_stage import AuditedSink, PyicebergAuditedTable

            sink = AuditedSink(self._table_as(PyicebergAuditedTable, settings, catalogs, written_by), self.spec, self.output)
        return UpsertSink(sink) if self.spec.mode == "Upsert" else sink

    def find_committed(self, settings: Settings, key: EpochKey, identity: str, commit_id: int) -> Presence:
        table = self._existing(settings)
        return Presence.GONE if table is None else table.find_committed(key, identity, commit_id)

    def find_former(self, settings: Settings, name: str, uid: str | None) -> Former | None:
        table = self._existing(settings)
        return None if table is None else table.find_former(name, uid)

    def how_to_read(self, settings: Settings) -> str | None:
        catalog = settings.catalogs[self.named.catalog]
        # A uri with a user in it may hold a password, which belongs on no screen.
        uri = "..." if "@" in catalog.uri else catalog.uri
        at = f"**{{'glue.region': '{catalog.region}'}}" if catalog.type == "glue" else f"uri='{uri}'"
        more = f", warehouse='{catalog.warehouse}'" if catalog.warehouse else ""
        loaded = f"load_catalog('{self.named.catalog}', type='{catalog.type}', {at}{more})"
        of_branch = f".use_ref({self.named.branch!r})" if self.named.branch != MAIN_BRANCH else ""
        scan = f"{loaded}.load_table('{self.named.table}').scan(limit=10){of_branch}.to_arrow()"
        return f"""{sys.executable} -c "from pyiceberg.catalog import load_catalog; print({scan}.to_pandas())\""""

    def _existing(self, settings: Settings) -> PyicebergTable | None:
        """Return the table, there or not; None where to open its catalog would make it."""
        from checkpoint_commit.catalogs.named import is_unmade

        return None if is_unmade(self.named.catalog, settings) else self._table(settings)

    def _table(self, settings: Settings, catalogs: CatalogBook | None = None, written_by: str = "") -> PyicebergTable:
        from checkpoint_commit.iceberg.table import PyicebergTable

        return self._table_as(PyicebergTable, settings, catalogs, written_by)

    def _table_as(
        self, kind: type[_TableT], settings: Settings, catalogs: CatalogBook | None = None, written_by: str = ""
    ) -> _TableT:
        from checkpoint_commit.iceberg.refs import Refs

        return kind(
            self.named.catalog,
            self.named.table,
            settings,
            catalogs,
            written_by=written_by,
            overwrites=self.spec.mode != "Append",
            replaces_others=self.spec.on_concurrent == "Replace",
            refs=Refs(self.named.branch, self.named.tag),
            snapshot_properties=self.named.snapshot_properties,
        )


class _TableSink(TableSink["PyicebergTable"]):
    """A Sink of one table."""

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        from checkpoint_commit.iceberg import commit as iceberg

        return iceberg.commit(self.table, ledger, results)

    def block_commit(self, ledger: Ledger) -> BlockOutcome:
        from checkpoint_commit.iceberg import commit as iceberg

        return iceberg.block_commit(self.table, ledger)
