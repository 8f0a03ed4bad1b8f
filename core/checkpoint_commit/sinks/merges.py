"""Merges of upserts as stages of an epoch: who asks for them, their manifests, what their drivers stage for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from typing import Final as Constant

from checkpoint_commit.changes import Change, StagedChange, as_staged
from checkpoint_commit.outcomes import BlockOutcome, CommitOutcome, Final, Rejected
from checkpoint_commit.ports import NeedsStage, PinSource, Stage
from checkpoint_commit.results import Results, gather
from checkpoint_commit.sinks.table_sink import Table, TableSink
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sections import Quarantine
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import Merge, Operation, Output, StagedFile, Target, Upsert
from checkpoint_protocol.store.parts import Input

#: Merges that one process asks for, for one commit: each has read all that the table had when it began.
_MOST_MERGES: Constant = 8

_TableT = TypeVar("_TableT", bound=Table)


def spec_of_merge(source: Source, spec: Spec) -> Spec:
    """Return the manifest of a merge: its source is the sink's table, and it has no steps."""
    changed = {
        "source": source,
        "steps": (),
        "checkpoint": spec.checkpoint.model_copy(update={"maximum_rows": None}),
        "on_replaced": "Fail",
        "on_row_error": "Fail",
        "quarantine": Quarantine(),
    }
    return spec.model_copy(update=changed)


def name_of_rest(found_by: Iterable[str]) -> str:
    """Return the name of the stage that writes staged files anew without the rows that these stages have named.

    The names are in it by their hash: what other stages have found is left out by another one.
    """
    digest = hashlib.sha256("\n".join(found_by).encode()).hexdigest()
    return f"rewrite-staged-{digest[:32]}"


@dataclass(frozen=True, slots=True)
class Rest:
    """What the stage has made that writes staged files anew. `key` names it."""

    key: EpochKey
    read: Input
    results: Results
    files: Sequence[StagedFile]


def read_rest(ledger: Ledger, found_by: Iterable[str]) -> Rest | None:
    """Return what was made for these stages; None if it is not done."""
    stage = replace(ledger, key=ledger.key.of_stage(name_of_rest(found_by)))
    if (record := stage.commits.read_commit()) is None:
        return None
    results = gather(stage, record.attempts, as_staged)
    read = stage.inputs.read_input(results.input_since)
    assert read is not None
    assert isinstance(results.change, StagedChange)
    return Rest(stage.key, read, results, results.change.files)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A merge that a commit needs before it can be made.

    `since`: what an earlier merge has read, on which it goes on. `derive` and `pin_source` are the stage's. `moved` and `last`
    say that the table has moved since the last merge, and by what, in case it does so again and again. `rewrites`: data files
    with rows that go are written anew (copy-on-write). `found_by`: see Merge.
    """

    name: str
    since: int | None
    derive: Callable[[Spec], Spec]
    pin_source: PinSource
    moved: str
    last: str
    rewrites: bool = False
    found_by: tuple[str, ...] = ()


@dataclass(slots=True)
class MergingSink(Generic[_TableT]):
    """What sinks of tables have in common that are upserted into: a format says in `commit` which merge is needed."""

    inner: TableSink[_TableT]
    _asked: dict[EpochKey, set[str]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.inner.title

    @property
    def output(self) -> Output | None:
        return self.inner.output

    def describe(self, key: EpochKey) -> Target | None:
        return self.inner.describe(key)

    def create(self, arrow_schema: str) -> Target:
        return self.inner.create(arrow_schema)

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        return self.inner.pack(operation, key, targets, files)

    def ask(self, ledger: Ledger, results: Results, upsert: Upsert, wanted: Wanted) -> NeedsStage | Rejected:
        """Ask for a merge; or say that the table has moved after too many of them."""
        asked = self._asked.setdefault(ledger.key, set())
        # One that searches nothing follows on a merge, and is none by itself.
        if not wanted.found_by and wanted.name not in asked and len(asked) >= _MOST_MERGES:
            return Rejected(
                reasons.COMMIT_CONTENDED,
                f"{wanted.moved} after each of {_MOST_MERGES} merges, at last {wanted.last}: stop for a while what appends to it "
                "or rewrites its files, and have the commit tried again",
            )
        if not wanted.found_by:
            asked.add(wanted.name)
        launch = ledger.attempts.read_launch(results.attempts)
        assert launch is not None
        merge = Merge(
            keys=upsert.keys,
            when_matched=upsert.when_matched,
            on_duplicate=self.inner.spec.on_duplicate,
            order_by=self.inner.spec.order_by,
            attempts=(*launch.counted, results.attempts),
            since=wanted.since,
            rewrites=wanted.rewrites,
            found_by=wanted.found_by,
        )
        return NeedsStage(Stage(wanted.name, wanted.derive, MergeSink(self.inner), wanted.pin_source, operation=merge))

    def block_commit(self, ledger: Ledger) -> BlockOutcome:
        return self.inner.block_commit(ledger)

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        return self.inner.discard(key, targets, files)


@dataclass(frozen=True, slots=True)
class MergeSink:
    """What a merge stages for: delete files, which the commit of the epoch takes."""

    inner: TableSink[Any]

    @property
    def title(self) -> str:
        return self.inner.title

    @property
    def output(self) -> Output | None:
        return self.inner.output

    def describe(self, key: EpochKey) -> Target | None:
        target: Target | None = self.inner.table.describe()
        return target

    def create(self, arrow_schema: str) -> Target:
        raise AssertionError("a merge reads a table that is there")

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        return as_staged(operation, key, targets, files)

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        return Final()
