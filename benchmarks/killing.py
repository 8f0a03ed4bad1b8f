"""A driver that gets SIGKILL in the middle of its work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import psutil

from checkpoint_control.progress.epoch_progress import measure
from checkpoint_control.progress.tallies import Tallies
from checkpoint_protocol.ledger import Ledger

_POLL_S: Final = 0.02


class Killer(threading.Thread):
    """Kills the driver that this process has started, and all below it, as soon as so many rows are sealed.

    `count` is asked at the kill, for what is to be known of that moment.
    """

    def __init__(self, ledger: Ledger, rows: int, count: Callable[[], int] = lambda: 0) -> None:
        super().__init__(name="killer", daemon=True)
        # A view of its own: a ledger keeps what it has read.
        self._tallies = Tallies(Ledger(ledger.store, ledger.key))
        self._rows = rows
        self._count = count
        self.killed_at = 0.0
        self.counted = 0

    def run(self) -> None:
        while (progress := measure(self._tallies)).rows_read < self._rows:
            if progress.attempt > 1:
                return
            time.sleep(_POLL_S)
        for driver in psutil.Process().children():
            if "checkpoint_spark.driver.main" in " ".join(driver.cmdline()):
                for process in [driver, *driver.children(recursive=True)]:
                    process.kill()
        self.killed_at, self.counted = time.time(), self._count()
