"""What is under test, piece by piece. All of it is production code unless a mutant has replaced a piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from checkpoint_commit.iceberg import commit as iceberg
from checkpoint_commit.iceberg.upsert_sink import UpsertSink
from checkpoint_commit.lance import commit as lance
from checkpoint_commit.lance.upsert_sink import LanceUpsertSink
from checkpoint_commit.outcomes import BlockOutcome, CommitOutcome
from checkpoint_commit.ports import Sink
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_control.writes.deletion import DeletionOutcome, delete_write, retain_write
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_work.driver.bundling import Bundler
from checkpoint_work.inputs.epoch_input import Budget
from tests.simulation.scheduler import Scheduler
from tests.simulation.source import SimulatedStager
from tests.simulation.store import SimulatedStore

#: Inputs and plans of more than a file or a task are stored in parts.
_PART_BYTES: Final = 150

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def one_by_one(function: Callable[[_Item], _Answer], items: Sequence[_Item]) -> list[_Answer]:
    """The ledger's mapper without threads of its own: the scheduler knows the actors only."""
    return [function(item) for item in items]


def ledger_in_lockstep(made: type[Ledger], store: ObjectStore, key: EpochKey, scheduler: Scheduler) -> Ledger:
    return made(store, key, pause=scheduler.sleep, map_all=one_by_one, part_bytes=_PART_BYTES)


def _as_it_is(port: Any) -> Any:
    return port


@dataclass(frozen=True, slots=True)
class Parts:
    """`table_port` and `store_port` wrap the ports that the code under test gets to see."""

    runner_ledger: type[Ledger] = Ledger
    driver_ledger: type[Ledger] = Ledger
    reconciler: type[Reconciler] = Reconciler
    commit_to_iceberg: Callable[..., CommitOutcome] = iceberg.commit
    commit_to_lance: Callable[..., CommitOutcome] = lance.commit
    block_in_iceberg: Callable[..., BlockOutcome] = iceberg.block_commit
    block_in_lance: Callable[..., BlockOutcome] = lance.block_commit
    delete: Callable[..., DeletionOutcome] = delete_write
    retain: Callable[..., DeletionOutcome] = retain_write
    upsert_iceberg: Callable[[Any], Sink] = UpsertSink
    upsert_lance: Callable[[Any], Sink] = LanceUpsertSink
    table_port: Callable[[Any], Any] = _as_it_is
    store_port: Callable[[SimulatedStore], ObjectStore] = _as_it_is
    stager: type[SimulatedStager] = SimulatedStager
    bundler: Callable[[Ledger, int, str], Bundler] = Bundler
    budget: type[Budget] = Budget


PRODUCTION = Parts()
