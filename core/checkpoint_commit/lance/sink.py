"""A Lance dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from checkpoint_commit.outcomes import BlockOutcome, CommitOutcome, Former, Presence
from checkpoint_commit.ports import Sink
from checkpoint_commit.results import Results
from checkpoint_commit.sinks.port import SinkFormat, TargetSeen, folder_problems
from checkpoint_commit.sinks.table_sink import TableSink
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.lance_schema import fields_of
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.manifest.where import SINK_FIELD, as_of_the_sink, check_where, parse_where
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import Output, lance_output
from checkpoint_protocol.store.object_store import local_path
from checkpoint_protocol.tables.lance import LanceSink

if TYPE_CHECKING:
    import pyarrow as pa

    from checkpoint_commit.catalogs.named import CatalogBook


def format_of(spec: SinkSpec, named: LanceSink) -> SinkFormat:
    return LanceFormat(spec, named)


@dataclass(frozen=True, slots=True)
class LanceFormat:
    spec: SinkSpec
    named: LanceSink
    version_word: str = "version"

    @property
    def output(self) -> Output:
        return lance_output(self.named.location)

    @property
    def title(self) -> str:
        return str(self.named.name) if self.named.uri is None else self.named.uri.rstrip("/")

    @property
    def field(self) -> str:
        return "spec.sink.lance.uri" if self.named.name is None else "spec.sink.lance.table"

    @property
    def needs_settings(self) -> bool:
        return self.named.uri is None or local_path(self.named.uri) is None

    def examine(self, settings: Settings) -> TargetSeen:
        """Not by `describe`, which gives a dataset its identity at first touch."""
        from checkpoint_formats.lance.datasets import open_dataset

        if self.named.uri is None:
            return TargetSeen(self.title, exists=False, outputs=(), problems=())
        folder, problems = local_path(self.title), folder_problems(self.field, self.title)
        if folder is not None and not folder.exists():
            return TargetSeen(self.title, exists=False, outputs=(self.output,), problems=problems)
        try:
            dataset = open_dataset(self.title, self._with_keys(settings))
        except CheckpointError as error:
            return TargetSeen(self.title, exists=None, outputs=(self.output,), problems=(*problems, (self.field, error)))
        if dataset is None:
            return TargetSeen(self.title, exists=False, outputs=(self.output,), problems=problems)
        columns = {field.name: not field.nullable for field in dataset.schema}
        return TargetSeen(
            self.title,
            exists=True,
            columns=columns,
            outputs=(self.output,),
            problems=(*problems, *self._problems_of_columns(dataset), *self._problems_of_where(dataset.schema)),
            notes=self._notes_on(dataset),
        )

    def _notes_on(self, dataset: Any) -> tuple[str, ...]:
        notes = []
        if self.named.layout is not None and self.spec.mode != "AddColumns":
            notes.append(f"spec.sink.lance.layout: {self.title} exists, so that it stays as it was made")
        if self.named.tag is not None and self.named.tag in dataset.tags.list():
            notes.append(
                f"spec.sink.lance.tag: there is a tag {self.named.tag!r} already: unless this write has made it, the write stops"
            )
        return tuple(notes)

    def _problems_of_columns(self, dataset: Any) -> tuple[tuple[str, CheckpointError], ...]:
        from checkpoint_commit.lance.columns import refuse_blobs_beside, refuse_blobs_left_out, refuse_keys

        title = f"the Lance dataset {self.title}"
        try:
            refuse_blobs_beside(title, fields_of(dataset))
            if self.spec.when_matched == "Ignore" or self.spec.on_duplicate == "Last":
                refuse_blobs_left_out(title, dataset.schema)
        except CheckpointError as error:
            return ((self.field, error),)
        try:
            refuse_keys(title, dataset.schema, self.spec.upsert_keys or ())
        except CheckpointError as error:
            return ((SINK_FIELD, error),)
        return ()

    def _problems_of_where(self, schema: pa.Schema) -> tuple[tuple[str, CheckpointError], ...]:
        if self.spec.where is None:
            return ()
        try:
            with as_of_the_sink():
                check_where(parse_where(self.spec.where), {field.name: str(field.type) for field in schema})
        except CheckpointError as error:
            return ((SINK_FIELD, error),)
        return ()

    def notes_on(self, schema: pa.Schema) -> tuple[str, ...]:
        from checkpoint_commit.lance.columns import lists_that_may_be_vectors, note_on_vectors

        layout = self.named.layout
        named = set(layout.vector_columns) if layout is not None else set()
        return tuple(note_on_vectors(name, "N") for name in lists_that_may_be_vectors(schema) if name not in named)

    def check_schema(self, schema: pa.Schema) -> None:
        from checkpoint_commit.lance.columns import refuse_keys, schema_of_new

        refuse_keys("it", schema_of_new(schema, self.named.layout), self.spec.upsert_keys or ())

    def open(self, settings: Settings, catalogs: CatalogBook | None, written_by: str) -> Sink:
        from checkpoint_commit.lance.probe import refuse_lance_without_fences
        from checkpoint_commit.lance.table import PylanceTable
        from checkpoint_commit.lance.upsert_sink import LanceUpsertSink

        refuse_lance_without_fences()
        settings = self._with_keys(settings)
        if self.spec.mode != "Append":
            settings.check_overwrites(self.title)
        if self.spec.mode == "AddColumns":
            return self._open_columns(settings, written_by)
        table = PylanceTable(
            self.named.location,
            settings,
            written_by,
            replaces_others=self.spec.on_concurrent == "Replace",
            tag=self.named.tag,
            why_elsewhere=self._why_elsewhere(settings),
        )
        sink = _DatasetSink(table, self.spec, self.output)
        return LanceUpsertSink(sink) if self.spec.mode == "Upsert" else sink

    def _open_columns(self, settings: Settings, written_by: str) -> Sink:
        from checkpoint_commit.lance.added.sink import ColumnsSink
        from checkpoint_commit.lance.added.table import PylanceColumns
        from checkpoint_commit.lance.probe import refuse_lance_that_replaces_twice

        refuse_lance_that_replaces_twice()
        table = PylanceColumns(
            self.named.location, settings, written_by, tag=self.named.tag, why_elsewhere=self._why_elsewhere(settings)
        )
        return ColumnsSink(table, self.spec, self.output)

    def _with_keys(self, settings: Settings) -> Settings:
        from checkpoint_commit.lance.namespaces import with_keys_of_table

        return with_keys_of_table(self.named, settings)

    def _why_elsewhere(self, settings: Settings) -> Callable[[], str | None]:
        from checkpoint_commit.lance.namespaces import why_led_elsewhere

        return partial(why_led_elsewhere, self.named, settings)

    def find_committed(self, settings: Settings, key: EpochKey, identity: str, commit_id: int) -> Presence:
        from checkpoint_commit.lance.table import PylanceTable

        return PylanceTable(self.named.location, self._with_keys(settings)).find_committed(key, identity, commit_id)

    def find_former(self, settings: Settings, name: str, uid: str | None) -> Former | None:
        from checkpoint_commit.lance.table import PylanceTable

        return PylanceTable(self.named.location, self._with_keys(settings)).find_former(name, uid)

    def how_to_read(self, settings: Settings) -> str | None:
        return f"""{sys.executable} -c "import lance; print(lance.dataset('{self.named.location}').head(10).to_pandas())\""""


class _DatasetSink(TableSink[Any]):
    """A Sink of one dataset."""

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        from checkpoint_commit.lance import tags

        return tags.commit(self.table, ledger, results)

    def block_commit(self, ledger: Ledger) -> BlockOutcome:
        from checkpoint_commit.lance import commit as lance

        return lance.block_commit(self.table, ledger)
