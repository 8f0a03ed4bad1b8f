"""A folder of Parquet files: a commit is a list of files, put under the name of its epoch if none is there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from checkpoint_protocol.records.formats.plain import PlainTarget
from checkpoint_protocol.tables.plain import PlainSink

from checkpoint_commit.changes import Change, StagedChange
from checkpoint_commit.outcomes import BlockOutcome, CommitBlocked, CommitOutcome, Committed, Former, Presence
from checkpoint_commit.ports import Sink
from checkpoint_commit.results import Results
from checkpoint_commit.sinks.port import SinkFormat, TargetSeen
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import Operation, Output, StagedFile, Target

if TYPE_CHECKING:
    import pyarrow as pa

    from checkpoint_commit.catalogs.named import CatalogBook


def format_of(spec: SinkSpec, named: PlainSink) -> SinkFormat:
    return PlainFormat(named)


@dataclass(frozen=True, slots=True)
class PlainFormat:
    named: PlainSink
    version_word: str = "list"

    @property
    def output(self) -> Output:
        return Output("the sink's folder", self.named.uri, ("0.parquet",))

    @property
    def title(self) -> str:
        return self.named.uri

    @property
    def field(self) -> str:
        return "spec.sink.plain.uri"

    @property
    def needs_settings(self) -> bool:
        return False

    def examine(self, settings: Settings) -> TargetSeen:
        return TargetSeen(self.title, exists=Path(self.named.uri).is_dir(), outputs=(self.output,))

    def notes_on(self, schema: pa.Schema) -> tuple[str, ...]:
        return ()

    def check_schema(self, schema: pa.Schema) -> None:
        pass

    def open(self, settings: Settings, catalogs: CatalogBook | None, written_by: str) -> Sink:
        return _Folder(self.named.uri, self.output)

    def find_committed(self, settings: Settings, key: EpochKey, identity: str, commit_id: int) -> Presence:
        return Presence.HERE if _list_of(self.named.uri, key).exists() else Presence.GONE

    def find_former(self, settings: Settings, name: str, uid: str | None) -> Former | None:
        return None

    def how_to_read(self, settings: Settings) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class _Folder:
    title: str
    output: Output

    def describe(self, key: EpochKey) -> Target | None:
        schema = Path(self.title, "_schema")
        return PlainTarget(uri=self.title, arrow_schema=schema.read_text()) if schema.exists() else None

    def create(self, arrow_schema: str) -> Target:
        Path(self.title).mkdir(parents=True, exist_ok=True)
        Path(self.title, "_schema").write_text(arrow_schema)
        return PlainTarget(uri=self.title, arrow_schema=arrow_schema)

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        return StagedChange(operation, tuple(files))

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        assert isinstance(results.change, StagedChange)
        try:
            with _list_of(self.title, ledger.key).open("x") as file:
                json.dump(sorted(results.change.paths), file)
        except FileExistsError:
            return Committed(self.title, 1, by_us=False)
        return Committed(self.title, 1, by_us=True)

    def block_commit(self, ledger: Ledger) -> BlockOutcome:
        return CommitBlocked(None)

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        return 0


def _list_of(uri: str, key: EpochKey) -> Path:
    return Path(uri, f"_{key.uid}-{key.epoch}.json")
