"""An upsert of a Lance dataset as the reconcile loop knows it: a commit that needs merges, and what these are as stages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from checkpoint_commit.lance.changes.merges import DoneMerges, read_merges, stage_name
from checkpoint_commit.lance.changes.upsert import LanceUpsert, MergeMissing
from checkpoint_commit.outcomes import CommitOutcome, Rejected, TryLater
from checkpoint_commit.ports import NeedsStage, StageOutdated
from checkpoint_commit.results import Results
from checkpoint_commit.sinks.merges import MergingSink, Wanted, spec_of_merge
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sources.source import LanceSource, Source
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import PinnedIceberg
from checkpoint_protocol.tables.lance import LanceSink

if TYPE_CHECKING:
    from checkpoint_commit.lance.table import PylanceTable


@dataclass(slots=True)
class LanceUpsertSink(MergingSink["PylanceTable"]):
    """A Sink of one dataset, for writes that upsert."""

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome | NeedsStage:
        """Commit with what merges have found. Another one is asked for where the dataset has fragments that none has read."""
        change = results.change
        assert isinstance(change, LanceUpsert)
        try:
            done = read_merges(ledger)
            change.merged = done.merged
            return self.inner.commit(ledger, results)
        except MergeMissing as missing:
            return self._ask(ledger, results, change, done, missing.at_version)
        except NeedsChange as error:
            return Rejected(error.reason, error.message)
        except Retryable as error:
            return TryLater(error.reason, error.message)

    def _ask(
        self, ledger: Ledger, results: Results, change: LanceUpsert, done: DoneMerges, at_version: int
    ) -> NeedsStage | Rejected:
        name = stage_name(at_version)
        if at_version in done.versions:
            raise Corrupt(
                reasons.RECORD_UNREADABLE,
                f"{ledger.store.uri}: the stage {name} of {ledger.key} is done, but did not read all fragments of the version",
            )
        wanted = Wanted(
            name=name,
            since=done.versions[-1] if done.versions else None,
            derive=partial(_spec_of_merge, at_version),
            pin_source=partial(_refuse_gone, self.inner.table, at_version),
            moved=f"the Lance dataset {self.title} had new or changed fragments",
            last=f"in version {at_version}",
        )
        return self.ask(ledger, results, change.operation, wanted)


def _refuse_gone(table: PylanceTable, version: int) -> tuple[PinnedIceberg | None, ...]:
    """Pin nothing. Where the version was cleaned up, the commit says which merge is needed now."""
    if not table.has_version(version):
        raise StageOutdated
    return ()


def _spec_of_merge(at_version: int, spec: Spec) -> Spec:
    """Return the manifest of a merge, which reads the dataset at that version."""
    named = spec.sink.named
    assert isinstance(named, LanceSink)
    return spec_of_merge(Source(lance=LanceSource(uri=named.uri, version=at_version)), spec)
