"""A driver whose attempt was closed ends by itself: nobody counts what it would go on to seal.

The store is the truth: whoever gives an attempt up closes it, on this machine or another, and may be unable to end its driver. No
safety rests on this watch; it saves the work, and the resources of the attempt that follows. One request every ten seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.ledger import Ledger
from checkpoint_spark.driver.at_work import AtWork

_INTERVAL_S: Final = 10.0


def is_given_up(ledger: Ledger, attempt: int) -> bool:
    """Whether the attempt was closed before all was sealed. A record that cannot be read says nothing: it is read again."""
    try:
        closed = ledger.attempts.read_closed(attempt)
    except CheckpointError:
        return False
    # Closed because all is sealed, it ends on its own within a moment.
    return closed is not None and not closed.complete


@contextmanager
def ending_when_closed(at_work: AtWork, end: Callable[[str], None], interval_s: float = _INTERVAL_S) -> Iterator[None]:
    """Call `end` with the reason, once, from another thread, when the attempt at hand was given up while the body runs."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(interval_s):
            ledger, attempt = at_work.now
            if is_given_up(Ledger(ledger.store, ledger.key), attempt):
                end(f"attempt {attempt} of {ledger.key} was closed: another one does what it has not sealed; this driver ends")
                return

    threading.Thread(target=run, name="closed-watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
