"""Drivers that run in a thread of this process, without Spark: the production driver and tasks, called directly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from checkpoint_control.decision.observation import DriverObservation, DriverState
from checkpoint_protocol.errors import CheckpointError, Superseded
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import FailureRecord, LaunchRecord
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_spark.driver.main import family_of
from checkpoint_work.driver.attempt import RunDataFrames, run_attempt
from checkpoint_work.tasks.executor import execute_order
from tests.support import driver_threads
from tests.support.driver_threads import Killed
from tests.support.waiting import patience


@dataclass
class DirectDrivers:
    """The driver port. `between_tasks` runs before each task and may raise Killed; `started` counts drivers."""

    store: ObjectStore
    settings: Settings
    parallelism: int = 2
    between_tasks: Callable[[int], None] = lambda _: None
    run_dataframes: RunDataFrames | None = None
    started: int = 0
    tasks_run: int = 0
    _threads: dict[tuple[EpochKey, int], threading.Thread] = field(default_factory=dict)
    _expected: set[tuple[EpochKey, int]] = field(default_factory=set)

    def expect(self, key: EpochKey, attempt: int) -> None:
        self._expected.add((key, attempt))

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        thread = self._threads.get((key, attempt))
        if thread is not None:
            return DriverObservation(DriverState.RUNNING if thread.is_alive() else DriverState.GONE)
        return DriverObservation(DriverState.NOT_STARTED if (key, attempt) in self._expected else DriverState.GONE)

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        self.started += 1
        ledger = Ledger(driver_threads.while_the_test_runs(self.store), key)
        self._threads[key, launch.attempt] = driver_threads.start(partial(self._drive, ledger, launch.attempt))

    def stop(self, key: EpochKey, attempt: int) -> None:
        pass

    def wait_a_moment(self) -> None:
        """Wait until a driver ends, or a moment."""
        for thread in self._threads.values():
            thread.join(0.05)

    def finish(self) -> None:
        """Let every driver run to its end: a runner's death does not end one at once."""
        for thread in self._threads.values():
            thread.join(patience(60))

    def _drive(self, ledger: Ledger, attempt: int) -> None:
        try:
            run_attempt(ledger, attempt, self.settings.for_drivers(), self.parallelism, self._run_tasks, self.run_dataframes)
        except (Killed, Superseded):
            pass
        except CheckpointError as error:
            ledger.attempts.put_failure(
                FailureRecord(
                    token=new_token(), attempt=attempt, family=family_of(error), reason=error.reason, message=error.message
                )
            )

    def _run_tasks(self, orders: Sequence[str]) -> None:
        for number, order in enumerate(orders):
            self.between_tasks(number)
            self.tasks_run += 1
            execute_order(order, self.settings.for_drivers())
