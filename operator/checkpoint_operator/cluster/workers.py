"""The threads that look at writes, and the canary that shows that they still do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from checkpoint_operator.cluster.cache import WriteName
from checkpoint_operator.cluster.health import Health
from checkpoint_operator.cluster.metrics import Metrics
from checkpoint_operator.cluster.work_queue import WorkQueue
from checkpoint_protocol.errors import CheckpointError

CANARY: Final = WriteName("", "")
_CANARY_EVERY_S: Final = 10.0
_AFTER_DEFECT_S: Final = 60.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Workers:
    """`look` brings a write on and says when to come back; `check` is one round trip to the API server, and `resync` looks at all
    writes there, and says whether the watch keeps up.
    """

    queue: WorkQueue[WriteName]
    look: Callable[[WriteName], float | None]
    check: Callable[[], None]
    resync: Callable[[], bool]
    health: Health
    metrics: Metrics
    resync_s: float
    count: int = 8
    _threads: list[threading.Thread] = field(default_factory=list)
    _last_resync: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        self.queue.add(CANARY)
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
        while (key := self.queue.take()) is not None:
            try:
                delay_s = self._canary() if key == CANARY else self._look(key)
            finally:
                self.queue.done(key)
            if delay_s is not None:
                self.queue.add(key, delay_s)

    def _look(self, key: WriteName) -> float | None:
        started = time.monotonic()
        outcome = "ok"
        try:
            return self.look(key)
        except Exception:
            # A defect of ours in one write must not end the work on all others. It is loud, and tried again.
            outcome = "defect"
            _log.exception("a look ended unexpectedly", extra={"write": f"{key.namespace}/{key.name}"})
            return _AFTER_DEFECT_S
        finally:
            self.metrics.reconcile_seconds.labels(outcome).observe(time.monotonic() - started)

    def _canary(self) -> float:
        try:
            self.check()
            self.health.note_round_trip(api_answers=True)
        except CheckpointError as error:
            _log.warning("the API server does not answer: %s", error.message)
            self.health.note_round_trip(api_answers=False)
            return _CANARY_EVERY_S
        if time.monotonic() - self._last_resync > self.resync_s:
            self._last_resync = time.monotonic()
            try:
                self.health.watch_is_dead = not self.resync()
            except CheckpointError as error:
                _log.warning("the writes could not be listed: %s", error.message)
        return _CANARY_EVERY_S
