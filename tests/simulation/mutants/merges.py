"""Planted bugs of upserts: what merges have found is taken for more than it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from checkpoint_commit.changes import as_staged
from checkpoint_commit.iceberg.changes.merges import SeenMerges, done_merges
from checkpoint_commit.iceberg.changes.upsert import IcebergUpsert
from checkpoint_commit.iceberg.upsert_sink import UpsertSink
from checkpoint_commit.lance.changes.upsert import LanceUpsert
from checkpoint_commit.lance.upsert_sink import LanceUpsertSink
from checkpoint_commit.outcomes import CommitOutcome, Landed, Refused, RequestOutcome
from checkpoint_commit.ports import NeedsStage
from checkpoint_commit.results import Results, gather
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import LanceDeletes
from tests.simulation.iceberg_port import IcebergPort, staged_files
from tests.simulation.lance_table import SimulatedLance


class _OnePort:
    """Sees every merge as it is."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class RebasesWithItsMerges(_OnePort):
    """As a library's own retry: refused, it puts the same files and deletes on whatever the table is by now."""

    def swap(self, state: Any, key: EpochKey, change: Any) -> RequestOutcome:
        outcome: RequestOutcome = self._inner.swap(state, key, change)
        port: IcebergPort = self._inner
        for _ in range(4):
            if not isinstance(outcome, Refused):
                break
            paths = tuple(file.path for file in staged_files(change))
            deletes = tuple(deletes.path for deletes in change.merged.files)
            outcome = port.table.request_upsert(port.table.metadata, key, paths, deletes)
        return outcome


class MergesOnce(UpsertSink[Any]):
    """Once a merge is done, nobody looks what has come since."""

    def _missing(self, ledger: Ledger, results: Results, change: IcebergUpsert) -> Any:
        asked = super()._missing(ledger, results, change)
        return None if change.merged is not None else asked


class WithoutConflicts(_OnePort):
    """What others have put since the merges is in nobody's way."""

    def find_incompatibility(self, state: Any, targets: Sequence[Any], change: Any) -> Any:
        return None


class LatestMergeOnly(_OnePort):
    """What a merge goes on from is forgotten."""

    def see_merges(self, state: Any, ledger: Ledger) -> SeenMerges:
        seen: SeenMerges = self._inner.see_merges(state, ledger)
        if seen.merged is None:
            return seen
        stage = done_merges(ledger)[seen.merged.snapshot_id]
        record = stage.commits.read_commit()
        assert record is not None
        found: Any = gather(stage, record.attempts, as_staged).change
        return replace(seen, merged=replace(seen.merged, files=found.files))


class WithoutFenceFirst(_OnePort):
    """The first committer of an upsert does not fence: Lance lets two upserts of one new key land."""

    def fence(self, read_version: int) -> RequestOutcome:
        table: SimulatedLance = self._inner
        return Landed(table.latest)


class MergedByPath(LanceUpsertSink):
    """A fragment is known by its data file, whatever others have deleted of it, and one that is new was merged, too."""

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome | NeedsStage:
        change = results.change
        assert isinstance(change, LanceUpsert)
        believing = _BelievesAnyFragment(change.operation, change.staged, change.storage)
        return super().commit(ledger, replace(results, change=believing))


@dataclass(slots=True)
class _BelievesAnyFragment(LanceUpsert):
    def _merged_of(self, dataset: Any) -> list[tuple[Any, Sequence[LanceDeletes]]]:
        merged = self.merged
        if merged is None:
            return LanceUpsert._merged_of(self, dataset)
        found = {each.source: each for deletes in merged.fragments.values() for each in deletes}
        return [(each, [found[each.path]] if each.path in found else []) for each in dataset.get_fragments()]
