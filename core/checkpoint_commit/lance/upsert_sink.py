"""An upsert of a Lance dataset: the commit that needs merges, and these as stages of the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from checkpoint_commit.changes import StagedChange, as_staged
from checkpoint_commit.commit_loop import outcome_of
from checkpoint_commit.lance.changes.upsert import LanceUpsert, Merged, MergeMissing
from checkpoint_commit.outcomes import CommitOutcome, Rejected
from checkpoint_commit.ports import NeedsStage, StageOutdated
from checkpoint_commit.results import Results, gather
from checkpoint_commit.sinks.merges import MergingSink, Wanted, spec_of_merge
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sources.source import LanceSource, Source
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import LanceDeletes, PinnedIceberg
from checkpoint_protocol.tables.lance import LanceSink

if TYPE_CHECKING:
    from checkpoint_commit.lance.table import PylanceTable

# The merges of an upsert into a Lance dataset: stages of its epoch, each of which has read the dataset at one version.
#
# merge-<version>     reads the fragments of that version; `since` names the version of an earlier merge, whose fragments are
#                         left out: they were merged by it, or by the one that it goes on from.


_PREFIX: Final = "merge-"


def stage_name(at_version: int) -> str:
    return f"{_PREFIX}{at_version}"


@dataclass(frozen=True, slots=True)
class DoneMerges:
    """What the merges of an epoch that are done have found, and the versions that they have read. `merged`: None if none is."""

    merged: Merged | None
    versions: tuple[int, ...]


def read_merges(ledger: Ledger) -> DoneMerges:
    """Return what is known by now. What one merge has found of a fragment holds also where a later one begins anew."""
    merged, versions = Merged(), []
    for key in writes.list_stages(ledger.store, ledger.key):
        number = key.stage.removeprefix(_PREFIX)
        if not key.stage.startswith(_PREFIX) or not number.isdecimal():
            continue
        stage = Ledger(ledger.store, key, ledger.pause, ledger.map_all)
        if (record := stage.commits.read_commit()) is None:
            continue
        results = gather(stage, record.attempts, as_staged)
        read = stage.inputs.read_input(results.input_since)
        assert isinstance(results.change, StagedChange)
        if read is None:
            raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: the input of the stage {key} is gone")
        merged.add(read.files, [_deletes(file, key.stage) for file in results.change.files])
        versions.append(int(number))
    return DoneMerges(merged if versions else None, tuple(sorted(versions)))


def _deletes(file: object, stage: str) -> LanceDeletes:
    if not isinstance(file, LanceDeletes):
        raise NeedsChange(
            reasons.STAGED_RESULT_REFUSED, f"a seal of the stage {stage} names {file!r:.200}, which says of no fragment what goes"
        )
    return file


@dataclass(slots=True)
class LanceUpsertSink(MergingSink["PylanceTable"]):
    """A Sink of one dataset, for writes that upsert."""

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome | NeedsStage:
        """Commit with what merges have found. Another one is asked for where the dataset has fragments that none has read."""
        change = results.change
        assert isinstance(change, LanceUpsert)

        def do() -> CommitOutcome | NeedsStage:
            done = read_merges(ledger)
            change.merged = done.merged
            try:
                return self.inner.commit(ledger, results)
            except MergeMissing as missing:
                return self._ask(ledger, results, change, done, missing.at_version)

        return outcome_of(do)

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
    return spec_of_merge(Source(lance=LanceSource(uri=named.location, version=at_version)), spec)
