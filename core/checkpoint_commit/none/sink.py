"""No table: the steps run for what they do, and there is never anything to commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkpoint_commit.changes import Change, StagedChange, refused_file
from checkpoint_commit.outcomes import BlockOutcome, CommitOutcome, Former, Presence
from checkpoint_commit.ports import Sink
from checkpoint_commit.results import Results
from checkpoint_commit.sinks.port import SinkFormat, TargetSeen
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import NoTarget, Operation, Output, StagedFile, Target
from checkpoint_protocol.tables.none import NoSink

if TYPE_CHECKING:
    import pyarrow as pa

    from checkpoint_commit.catalogs.named import CatalogBook


def format_of(_spec: SinkSpec, _named: NoSink) -> SinkFormat:
    return NoFormat()


@dataclass(frozen=True, slots=True)
class NoFormat:
    version_word: str = "version"

    @property
    def output(self) -> Output | None:
        return None

    @property
    def title(self) -> str:
        return NoTarget().title

    @property
    def field(self) -> str:
        return "spec.sink.none"

    @property
    def needs_settings(self) -> bool:
        return False

    def examine(self, settings: Settings) -> TargetSeen:
        return TargetSeen(self.title, exists=True)

    def notes_on(self, schema: pa.Schema) -> tuple[str, ...]:
        return ()

    def check_schema(self, schema: pa.Schema) -> None:
        pass

    def open(self, settings: Settings, catalogs: CatalogBook | None, written_by: str) -> Sink:
        return NothingStaged()

    def find_committed(self, settings: Settings, key: EpochKey, identity: str, commit_id: int) -> Presence:
        return Presence.HERE

    def find_former(self, settings: Settings, name: str, uid: str | None) -> Former | None:
        return None

    def how_to_read(self, settings: Settings) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class NothingStaged:
    """The port of a sink for which nothing is staged, so that nothing is committed."""

    title: str = "(no table)"
    output: Output | None = None

    def describe(self, key: EpochKey) -> Target:
        return NoTarget()

    def create(self, arrow_schema: str) -> Target:
        return NoTarget()

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        for file in files:
            raise refused_file(file, self.title)
        return StagedChange(operation, ())

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        raise AssertionError("a write without a table has no files to commit")

    def block_commit(self, ledger: Ledger) -> BlockOutcome:
        raise AssertionError("a write without a table claims nothing")

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        return 0
