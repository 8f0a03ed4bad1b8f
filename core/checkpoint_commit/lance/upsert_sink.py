"""An upsert of a Lance dataset: the commit that needs merges, and these as stages of the epoch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from checkpoint_commit.changes import StagedChange, as_staged
from checkpoint_commit.commit_loop import outcome_of
from checkpoint_commit.lance.changes import append as lance_append
from checkpoint_commit.lance.changes.append import LanceAppend
from checkpoint_commit.lance.changes.upsert import LanceUpsert, Merged, MergeMissing, RestMissing
from checkpoint_commit.lance.columns import refuse_blobs_left_out
from checkpoint_commit.outcomes import CommitOutcome, Rejected
from checkpoint_commit.ports import NeedsStage, StageOutdated
from checkpoint_commit.results import Results, gather
from checkpoint_commit.sinks import merges
from checkpoint_commit.sinks.merges import MergingSink, Wanted, name_of_rest, spec_of_merge
from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sources.source import LanceSource, Source
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import LanceDeletes, LanceFragment, LanceRewrite, LanceTarget, PinnedIceberg, Target
from checkpoint_protocol.tables.lance import LanceSink

if TYPE_CHECKING:
    from checkpoint_commit.lance.table import PylanceTable

# The merges of an upsert into a Lance dataset: stages of its epoch, each of which has read the dataset at one version.
#
# merge-<version>     reads the fragments of that version; `since` names the version of an earlier merge, whose fragments are
#                         left out: they were merged by it, or by the one that it goes on from.
# rewrite-staged-<hash>   writes the staged fragments anew without the rows that all merges have named, whose names are hashed.


_PREFIX: Final = "merge-"


def stage_name(at_version: int) -> str:
    return f"{_PREFIX}{at_version}"


@dataclass(frozen=True, slots=True)
class DoneMerges:
    """What the merges of an epoch that are done have found, and the versions that they have read. `merged`: None if none is."""

    merged: Merged | None
    versions: tuple[int, ...]

    @property
    def stages(self) -> tuple[str, ...]:
        return tuple(stage_name(version) for version in self.versions)


def read_merges(ledger: Ledger, staged: LanceAppend) -> DoneMerges:
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
        merged.add(read.files, [_deletes(file, key.stage) for file in results.change.files], staged.sizes)
        versions.append(int(number))
    done = DoneMerges(merged if versions else None, tuple(sorted(versions)))
    if merged.left_out:
        merged.rest = read_rest(ledger, done, merged, staged)
    return done


def read_rest(ledger: Ledger, done: DoneMerges, merged: Merged, staged: LanceAppend) -> LanceAppend | None:
    """Return what takes the place of staged fragments with rows to leave out; None if it is not written yet.

    NeedsChange if it is not without all of the rows that merges have named, and only these, as far as the seals tell.
    """
    if (made := merges.read_rest(ledger, done.stages)) is None:
        return None
    looked_at, stay = Counter[str](), Counter[str]()
    fragments: list[LanceFragment] = []
    rewrites = [file for file in made.files if isinstance(file, LanceRewrite)]
    for rewrite in rewrites:
        looked_at[rewrite.source] += rewrite.rows
        stay[rewrite.source] += sum(fragment.rows for fragment in rewrite.fragments)
        fragments += rewrite.fragments
    rows = {file.path: each.physical_rows for each in staged.fragments for file in each.files if file.path in merged.left_out}
    wanted = {path: {deletes.path for deletes in found} for path, found in merged.left_out.items()}
    is_right = len(rewrites) == len(made.files) and {file.path: {*file.left_out} for file in made.read.files} == wanted
    for path, found in merged.left_out.items():
        gone = rows[path] - stay[path]
        # Several merges may have named one row.
        is_right &= looked_at[path] == rows[path]
        is_right &= max(deletes.rows for deletes in found) <= gone <= sum(deletes.rows for deletes in found)
    if not is_right or looked_at.keys() != rows.keys():
        raise NeedsChange(
            reasons.STAGED_RESULT_REFUSED,
            f"the seals of the stage {made.key} do not take the place of the staged fragments that have rows to leave out",
        )
    targets = [target for target in made.results.targets if isinstance(target, LanceTarget)]
    return lance_append.pack(targets[0].uri, targets, fragments)


def _deletes(file: object, stage: str) -> LanceDeletes:
    if not isinstance(file, LanceDeletes):
        raise NeedsChange(
            reasons.STAGED_RESULT_REFUSED, f"a seal of the stage {stage} names {file!r:.200}, which says of no fragment what goes"
        )
    return file


@dataclass(slots=True)
class LanceUpsertSink(MergingSink["PylanceTable"]):
    """A Sink of one dataset, for writes that upsert."""

    def describe(self, key: EpochKey) -> Target | None:
        return self._checked(self.inner.describe(key))

    def create(self, arrow_schema: str) -> Target:
        target = self._checked(self.inner.create(arrow_schema))
        assert target is not None
        return target

    def _checked(self, target: Target | None) -> Target | None:
        """NeedsChange(TableUnsupported) if staged rows may have to be written a second time, and cannot."""
        spec = self.inner.spec
        if isinstance(target, LanceTarget) and (spec.when_matched == "Ignore" or spec.on_duplicate == "Last"):
            refuse_blobs_left_out(f"the Lance dataset {target.uri}", decode_schema(target.arrow_schema))
        return target

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome | NeedsStage:
        """Commit with what merges have found. Another one is asked for where the dataset has fragments that none has read."""
        change = results.change
        assert isinstance(change, LanceUpsert)

        def do() -> CommitOutcome | NeedsStage:
            done = read_merges(ledger, change.staged)
            change.merged = done.merged
            try:
                return self.inner.commit(ledger, results)
            except MergeMissing as missing:
                return self._ask(ledger, results, change, done, missing.at_version)
            except RestMissing as missing:
                return self._ask(ledger, results, change, done, missing.at_version, done.stages)

        return outcome_of(do)

    def _ask(
        self,
        ledger: Ledger,
        results: Results,
        change: LanceUpsert,
        done: DoneMerges,
        at_version: int,
        found_by: tuple[str, ...] = (),
    ) -> NeedsStage | Rejected:
        name = name_of_rest(found_by) if found_by else stage_name(at_version)
        if not found_by and at_version in done.versions:
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
            rewrites=bool(found_by),
            found_by=found_by,
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
