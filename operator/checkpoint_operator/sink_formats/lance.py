"""A Lance dataset."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkpoint_operator.commit.presence import Former, Presence
from checkpoint_operator.ports import Sink
from checkpoint_operator.sink_formats.seen import TargetSeen, folder_problems
from checkpoint_operator.sink_formats.table_sink import TableSink
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.lance_places import refuse_bases_elsewhere
from checkpoint_protocol.records import Output, lance_output
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.sink import LanceSink
from checkpoint_protocol.sink import Sink as SinkSpec
from checkpoint_protocol.storage import lance_options
from checkpoint_protocol.store import local_path

if TYPE_CHECKING:
    import pyarrow as pa

    from checkpoint_operator.catalogs import CatalogBook


@dataclass(frozen=True, slots=True)
class LanceFormat:
    spec: SinkSpec
    named: LanceSink
    version_word: str = "version"

    @property
    def uris(self) -> Mapping[str, str]:
        return {"spec.sink.lance.uri": self.named.uri}

    @property
    def output(self) -> Output:
        return lance_output(self.named.uri)

    @property
    def title(self) -> str:
        return self.named.uri.rstrip("/")

    @property
    def field(self) -> str:
        return "spec.sink.lance.uri"

    @property
    def needs_settings(self) -> bool:
        return local_path(self.named.uri) is None

    def look(self, settings: Settings) -> TargetSeen:
        """Not by `describe`, which gives a dataset its identity at first touch."""
        import lance

        folder, problems = local_path(self.title), folder_problems(self.field, self.title)
        if folder is not None and not folder.exists():
            return TargetSeen(self.title, exists=False, outputs=(self.output,), problems=problems)
        try:
            dataset = lance.dataset(self.title, storage_options=lance_options(self.title, settings) or None)
            refuse_bases_elsewhere(dataset, self.title, settings)
        except CheckpointError as error:
            return TargetSeen(self.title, exists=None, outputs=(self.output,), problems=((self.field, error),))
        except (ValueError, OSError) as error:
            text = " ".join(str(error).split())[:400]
            if "not found" in text.lower():
                return TargetSeen(self.title, exists=False, outputs=(self.output,), problems=problems)
            trouble = f"the Lance dataset {self.title} cannot be opened: {text}; check {settings.place.name('storage')}"
            unavailable = Retryable(reasons.STORE_UNAVAILABLE, trouble)
            return TargetSeen(self.title, exists=None, outputs=(self.output,), problems=(*problems, (self.field, unavailable)))
        columns = {field.name: not field.nullable for field in dataset.schema}
        return TargetSeen(self.title, exists=True, columns=columns, outputs=(self.output,), problems=problems)

    def notes_on(self, schema: pa.Schema) -> tuple[str, ...]:
        return ()

    def check_schema(self, schema: pa.Schema) -> None:
        from checkpoint_operator.table_types import lance_schema

        lance_schema(schema)

    def open(self, settings: Settings, catalogs: CatalogBook | None, written_by: str) -> Sink:
        from checkpoint_operator.commit import lance
        from checkpoint_operator.commit.lance_probe import refuse_lance_without_fences
        from checkpoint_operator.commit.lance_table import PylanceTable

        refuse_lance_without_fences()
        return TableSink(
            PylanceTable(self.named.uri, settings, written_by), self.spec, self.output, lance.commit, lance.block_commit
        )

    def find_committed(self, settings: Settings, key: EpochKey, identity: str, commit_id: int) -> Presence:
        from checkpoint_operator.commit.lance_table import PylanceTable

        return PylanceTable(self.named.uri, settings).find_committed(key, identity, commit_id)

    def find_former(self, settings: Settings, name: str, uid: str | None) -> Former | None:
        from checkpoint_operator.commit.lance_table import PylanceTable

        return PylanceTable(self.named.uri, settings).find_former(name, uid)

    def how_to_read(self, settings: Settings) -> str | None:
        return f"""{sys.executable} -c "import lance; print(lance.dataset('{self.named.uri}').head(10).to_pandas())\""""
