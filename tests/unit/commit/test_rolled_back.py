"""A table that was rolled back between our commit and its commit record: the record and the object's condition say so."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint_commit.changes import Change, as_staged
from checkpoint_commit.iceberg import commit as iceberg
from checkpoint_commit.lance import commit as lance
from checkpoint_commit.lance.port import LanceState
from checkpoint_commit.outcomes import Committed
from checkpoint_commit.results import Results
from checkpoint_control.decision.actions import Finish
from checkpoint_control.decision.observation import DriverObservation, DriverState
from checkpoint_control.loop.observing import Observer
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_control.ports import Write
from checkpoint_control.progress.epoch_progress import Progress
from checkpoint_local.runner import LocalHost
from checkpoint_operator.crd.status_model import Status
from checkpoint_operator.pods.driver_pod import Owner
from checkpoint_operator.status import round_status as statuses
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import LanceBase, Operation, StagedFile, Target
from tests.support.records import DIGEST, ICEBERG, KEY, LANCE, TOKEN, appended, iceberg_file, ledger_over
from tests.support.stored_writes import UID, StoredWrite
from tests.support.stores import MemoryStore
from tests.support.tables import FakeIceberg, FakeLance


def results(target: Target) -> Results:
    staged = appended([iceberg_file("a.parquet")])
    return Results(staged, (target,), rows_read=1, rows_written=1, attempts=1, code_digests=(DIGEST,))


def test_a_commit_that_is_found_in_the_history_only_is_committed_and_not_current() -> None:
    table = FakeIceberg()
    table.append_as_stranger()
    state = table.load(KEY)
    assert state is not None
    table.older = deque([replace(state, committed=KEY.snapshot_id, is_current=False)])

    found = iceberg.commit(table, ledger_over(MemoryStore()), results(ICEBERG), lambda _: None)

    assert found == Committed("the-table", KEY.snapshot_id, by_us=False, is_current=False)


class RestoredLance(FakeLance):
    """It was restored to before our commit."""

    def load(self, key: EpochKey, since: int, up_to: int | None = None) -> LanceState | None:
        found = super().load(key, since, up_to)
        return None if found is None else replace(found, is_current=found.committed is None)


def test_a_lance_commit_that_was_restored_away_is_committed_and_not_current() -> None:
    table, store = RestoredLance(), MemoryStore()
    lance.commit(table, ledger_over(store), results(LANCE), lambda _: None)

    found = lance.commit(table, ledger_over(store), results(LANCE), lambda _: None)

    assert found == Committed(LanceBase(identity=TOKEN, at_version=1).identity, 2, by_us=False, is_current=False)


class NoDrivers:
    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        return DriverObservation(DriverState.GONE)


class FoundInHistory:
    """A sink whose table has the commit in its history only, or in its current state."""

    title = "lake.db.rows"

    def __init__(self, is_current: bool) -> None:
        self.is_current = is_current

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        return as_staged(operation, key, targets, files)

    def commit(self, ledger: Ledger, _: Results) -> Committed:
        return Committed("the-table", ledger.key.snapshot_id, by_us=False, is_current=self.is_current)


@pytest.mark.parametrize("is_current", [True, False])
def test_the_mark_and_the_condition_say_that_the_rows_are_not_in_the_current_state(is_current: bool, tmp_path: Path) -> None:
    stored = StoredWrite(tmp_path)
    stored.begin()
    stored.launch()
    stored.plan()
    stored.seal(0)
    stored.seal(1)
    stored.close()
    spec = stored.manifest.spec
    sink: Any = FoundInHistory(is_current)
    drivers: Any = NoDrivers()
    reconciler = Reconciler(Observer(Write(UID, spec, DIGEST), stored.store, drivers, sink, LocalHost()))

    reconciler.step()
    done = reconciler.step()

    assert done.outcome == Finish()
    assert done.commit is not None
    assert done.commit.was_rolled_back is not is_current
    frame = statuses.Frame(Status(), Owner("default", "nightly", UID, 1), "2026-01-01T00:00:00Z", spec)
    shown = statuses.derive(frame, done, statuses.Figures(Progress(1, 2, 2, 20, 0, 0, 0)))
    (committed,) = [condition for condition in shown.conditions or () if condition.type == "Committed"]
    assert committed.status == "True"
    assert ("rolled back" in committed.message) is not is_current
