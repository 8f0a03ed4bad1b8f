"""The sink of a stage that is not the last: its result, which is in no table and is final once all of it is sealed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from checkpoint_commit.changes import Change, StagedChange, refused_file
from checkpoint_commit.outcomes import BlockOutcome, CommitOutcome, Final
from checkpoint_commit.results import Results, target_of
from checkpoint_formats.arrow_schema import decode_schema, encode_schema
from checkpoint_formats.stage_results.group_keys import refuse_keys
from checkpoint_formats.stage_results.schemas import stored_schema
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import Grouping, Operation, Output, StagedFile, StageFile, StageTarget, Target


@dataclass(frozen=True, slots=True)
class StageSink:
    """The result of one stage. `ledger` is the stage's own."""

    ledger: Ledger
    name: str
    shuffles: Grouping | None = None
    output: Output | None = None

    @property
    def title(self) -> str:
        return f"the result of the stage {self.name}"

    def describe(self, key: EpochKey) -> Target | None:
        """Return the result as the first attempt that gave any rows began it: all attempts give the same columns."""
        for number in self.ledger.attempts.list_attempts():
            if (target := target_of(self.ledger, number)) is not None:
                return target
        return None

    def create(self, arrow_schema: str) -> Target:
        """Begin the result with these columns, unless an attempt has begun it."""
        folder = f"{self.ledger.store.uri}/{self.ledger.at.rows}"
        schema = stored_schema(decode_schema(arrow_schema))
        if self.shuffles is not None:
            refuse_keys(schema, self.shuffles.by)
        given = StageTarget(folder=folder, arrow_schema=encode_schema(schema), shuffles=self.shuffles)
        return self.describe(self.ledger.key) or given

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        return StagedChange(operation, tuple(self._own(files)))

    def _own(self, files: Iterable[StagedFile]) -> Iterable[StagedFile]:
        for file in files:
            if not isinstance(file, StageFile):
                raise refused_file(file, self.title)
            yield file

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        return Final()

    def block_commit(self, ledger: Ledger) -> BlockOutcome:
        raise AssertionError("a stage claims nothing")

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        """Remove nothing: the result lies below the stage's records, and goes with them."""
        return 0
