"""The threads that reconcile writes, and the canary that shows that they still do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from checkpoint_operator.metrics.counters import Metrics
from checkpoint_operator.metrics.health import Health
from checkpoint_operator.watch.cache import WriteName
from checkpoint_operator.watch.work_queue import WorkQueue
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.store.memory import MemoryBudget, turn

WORKERS: Final = 8
#: Of them, for one of several namespaces: where its store takes its time, the writes of others find a worker at once.
WORKERS_OF_A_NAMESPACE: Final = 6
CANARY: Final = WriteName("", "canary")
RESYNC: Final = WriteName("", "resync")
_AFTER_DEFECT_S: Final = 60.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Workers:
    """`reconcile` brings a write on and says when to come back; `check` is one round trip to the API server, and `resync` lists
    all writes there, and says whether the watch keeps up.

    The canary goes before all that waits, so that it tells of the workers and not of the backlog; the resync waits as any write.
    """

    queue: WorkQueue[WriteName]
    reconcile: Callable[[WriteName], float | None]
    check: Callable[[], None]
    resync: Callable[[], bool]
    health: Health
    metrics: Metrics
    resync_s: float
    count: int = WORKERS
    canary_every_s: float = 10.0
    memory: MemoryBudget | None = None
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        self.health.workers = self.count
        self.queue.add(CANARY, is_first=True)
        self.queue.add(RESYNC, self.resync_s)
        for number in range(self.count):
            thread = threading.Thread(target=self._work, name=f"worker-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, patience_s: float) -> bool:
        """Let what is in hand end, for so long; return whether it did. What did not is completed by the next process."""
        self.queue.close()
        until = time.monotonic() + patience_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        me = threading.current_thread().name
        while (key := self.queue.take()) is not None:
            if key == CANARY:
                self._carry_canary()
                self.queue.done(key)
                self.queue.add(key, self.canary_every_s, is_first=True)
                continue
            self.health.note_taken(me)
            try:
                with turn(self.memory):
                    delay_s = self._resync() if key == RESYNC else self._reconcile(key)
            finally:
                self.queue.done(key)
                self.health.note_back(me)
            if delay_s is not None:
                self.queue.add(key, delay_s)

    def _reconcile(self, key: WriteName) -> float | None:
        started = time.monotonic()
        outcome = "ok"
        try:
            return self.reconcile(key)
        except BaseException:
            # A defect of ours in one write must not end the work on all others. It is loud, and tried again. So is a panic of a
            # native library, which is no Exception; and what ends a process (SystemExit) ends no thread of ours.
            outcome = "defect"
            _log.exception("a reconciliation ended unexpectedly", extra={"write": f"{key.namespace}/{key.name}"})
            return _AFTER_DEFECT_S
        finally:
            self.metrics.reconcile_seconds.labels(outcome).observe(time.monotonic() - started)

    def _carry_canary(self) -> None:
        try:
            self.check()
        except NeedsChange as error:
            if not self.health.kind_was_gone:
                _log.warning("%s", error.message)
            self.health.kind_was_gone = True
            self.health.note_round_trip(api_answers=False)
        except CheckpointError as error:
            if self.health.api_answers:
                _log.warning("the API server does not answer: %s", error.message)
            self.health.note_round_trip(api_answers=False)
        except BaseException:
            _log.exception("the canary's request ended unexpectedly")
            self.health.note_round_trip(api_answers=False)
        else:
            if not self.health.api_answers:
                _log.info("the API server answers")
            self.health.note_round_trip(api_answers=True)

    def _resync(self) -> float:
        try:
            self.health.watch_is_dead = not self.resync()
        except CheckpointError as error:
            _log.warning("the writes could not be listed: %s", error.message)
        except BaseException:
            _log.exception("the resync ended unexpectedly")
        return self.resync_s
