"""An upsert of an Iceberg table as the reconcile loop knows it: a commit that needs merges, and what these are as stages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from checkpoint_commit.commit_loop import outcome_of
from checkpoint_commit.iceberg.changes import merges as iceberg_merges
from checkpoint_commit.iceberg.changes.upsert import IcebergUpsert
from checkpoint_commit.iceberg.target import refuse_columns_of_upsert
from checkpoint_commit.outcomes import CommitOutcome, Rejected, TryLater
from checkpoint_commit.ports import NeedsStage, StageOutdated
from checkpoint_commit.results import Results
from checkpoint_commit.sinks.merges import MergingSink, Wanted, name_of_rest, spec_of_merge
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.manifest.sources.source import IcebergSource, Source
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import IcebergTarget, PinnedIceberg, Target
from checkpoint_protocol.tables.iceberg import IcebergSink

if TYPE_CHECKING:
    from checkpoint_commit.iceberg.table import PyicebergTable

_TableT = TypeVar("_TableT", bound="PyicebergTable")


@dataclass(slots=True)
class UpsertSink(MergingSink[_TableT]):
    """A Sink of one table, for writes that upsert."""

    def describe(self, key: EpochKey) -> Target | None:
        return _checked(self.inner.describe(key), self.inner.spec)

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome | NeedsStage:
        """Commit with what merges have found. Another one is asked for where the table has data files that none has read."""
        change = results.change
        if not isinstance(change, IcebergUpsert):  # the table does not fit what was staged: the commit says why
            return self.inner.commit(ledger, results)
        if (asked := outcome_of(lambda: self._missing(ledger, results, change))) is not None:
            return asked
        outcome = self.inner.commit(ledger, results)
        # Moved since: what to do is known now.
        if isinstance(outcome, TryLater) and (asked := outcome_of(lambda: self._missing(ledger, results, change))) is not None:
            return asked
        return outcome

    def _missing(self, ledger: Ledger, results: Results, change: IcebergUpsert) -> NeedsStage | Rejected | None:
        """Return the merge that is needed; None, and what merges have found in the change, if none is."""
        table = self.inner.table
        state = table.load(ledger.key)
        if state is None or state.committed is not None:
            return None
        seen = table.see_merges(state, ledger)
        change.merged = seen.merged
        rewrites = table.rewrites(state, change.operation)
        found_by: tuple[str, ...] = ()
        if seen.unread is None:
            assert seen.merged is not None
            named = iceberg_merges.named_staged(seen.merged, change.staged.names) if rewrites else {}
            if not named:
                return None
            if (rest := iceberg_merges.with_rest(ledger, seen.merged, named)) is not None:
                change.merged = rest
                return None
            found_by = seen.merged.stages
        # What rows are ordered by may have been edited since they were staged.
        _checked(table.describe(), self.inner.spec)
        # Rows of staged files are named by their positions first: many data files may have the keys of one.
        at_once = rewrites and change.operation.when_matched != "Ignore"
        name = name_of_rest(found_by) if found_by else iceberg_merges.stage_name(seen.head, seen.since, rewrites=at_once)
        wanted = Wanted(
            name=name,
            since=seen.since,
            derive=partial(_spec_of_merge, seen.head),
            pin_source=partial(_pinned, table, seen.head),
            moved=f"the table {self.title} had new data files",
            last=f"by {seen.moved_by}",
            rewrites=at_once or bool(found_by),
            found_by=found_by,
        )
        return self.ask(ledger, results, change.operation, wanted)


def _checked(target: Target | None, spec: SinkSpec) -> Target | None:
    """NeedsChange(ManifestInvalid) if the table has not the columns that the upsert goes by."""
    if isinstance(target, IcebergTarget):
        refuse_columns_of_upsert(target, spec)
    return target


def _pinned(table: PyicebergTable, head: int | None) -> tuple[PinnedIceberg]:
    """Return the table as the merge reads it. Where that snapshot has expired, the commit says which merge is needed now."""
    pinned = table.pin(head)
    if pinned is None:
        raise StageOutdated
    return (pinned,)


def _spec_of_merge(head: int | None, spec: Spec) -> Spec:
    """Return the manifest of a merge, which reads the table at that head."""
    named = spec.sink.named
    assert isinstance(named, IcebergSink)
    return spec_of_merge(Source(iceberg=IcebergSource(catalog=named.catalog, table=named.table, snapshot_id=head)), spec)
