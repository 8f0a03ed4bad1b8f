"""Which stage of an epoch is next, asked before each attempt; and the sink of a stage that is not the last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from checkpoint_commit.changes import Change, StagedChange, refused_file
from checkpoint_commit.outcomes import CommitOutcome, Final
from checkpoint_commit.ports import PinSource, Stage
from checkpoint_commit.results import Results, target_of
from checkpoint_control.pipelines.decisions import Decision
from checkpoint_control.pipelines.results import DigestOf, decide, spec_up_to
from checkpoint_formats.rows.plain_types import decode_schema, encode_schema
from checkpoint_formats.stage_results.group_keys import refuse_keys
from checkpoint_formats.stage_results.reader import stored_schema
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.pipelines import parts_of
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import (
    Grouping,
    Operation,
    Output,
    StagedFile,
    StageFile,
    StageIdentity,
    StageTarget,
    Target,
    operation_of,
    takes_the_whole_source,
)


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


@dataclass(frozen=True, slots=True)
class NextStage:
    """What is to be done now. `stage`: None where all stages but the last one, which is the write itself, are done."""

    identity: StageIdentity
    stage: Stage | None
    decisions: tuple[Decision, ...]


def next_stage(ledger: Ledger, spec: Spec, digest_of: DigestOf, pin_source: PinSource) -> NextStage:
    """Return the first stage of an epoch that is not done. `ledger` is the epoch's."""
    decisions = decide(ledger, spec, digest_of)
    number = next((number for number, one in enumerate(decisions[:-1]) if one.what != "keep"), len(decisions) - 1)
    reads = decisions[number - 1].folder if number else ""
    run_nonce = spec.run_nonce if not number else _nonce_of_the_first(ledger, decisions, spec)
    part = parts_of(spec.stages)[number]
    identity = StageIdentity(
        name=decisions[number].name,
        reads=reads,
        hash_in=decisions[number].hash_in,
        algorithm=decisions[number].algorithm,
        run_nonce=run_nonce,
        takes_all=takes_the_whole_source(operation_of(spec.sink, None)),
        shuffles=part.shuffles,
        groups=part.groups,
    )
    if number == len(decisions) - 1:
        return NextStage(identity, None, decisions)
    stage = _stage(ledger, spec, number, decisions[number], identity, pin_source if not number else tuple)
    return NextStage(identity, stage, decisions)


def _stage(ledger: Ledger, spec: Spec, number: int, decision: Decision, identity: StageIdentity, pin_source: PinSource) -> Stage:
    own = spec_up_to(spec, parts_of(spec.stages)[number])
    sink = spec.sink.model_copy(update={"create": True})
    return Stage(
        name=decision.folder,
        derive=lambda _: own.model_copy(update={"sink": sink}),
        sink=StageSink(replace(ledger, key=ledger.key.of_stage(decision.folder)), decision.name, identity.shuffles),
        pin_source=pin_source,
        runs_code=True,
        identity=identity,
    )


def _nonce_of_the_first(ledger: Ledger, decisions: tuple[Decision, ...], spec: Spec) -> str:
    """Return what the epoch was asked for by when its source was read: what came after that is the next epoch's."""
    first = replace(ledger, key=ledger.key.of_stage(decisions[0].folder)).attempts.read_launch(1)
    return first.stage.run_nonce if first is not None and first.stage is not None else spec.run_nonce
