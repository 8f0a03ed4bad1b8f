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

_INTERVAL_S: Final = 10.0


def is_given_up(ledger: Ledger, attempt: int) -> bool:
    """Whether the attempt was closed before all was sealed. What cannot be read says nothing: the next look may."""
    try:
        closed = ledger.attempts.read_closed(attempt)
    except CheckpointError:
        return False
    # Closed because all is sealed, it ends on its own within a moment.
    return closed is not None and not closed.complete


@contextmanager
def ending_when_closed(
    ledger: Ledger, attempt: int, end: Callable[[str], None], interval_s: float = _INTERVAL_S
) -> Iterator[None]:
    """Call `end` with the reason, once, from another thread, when the attempt was given up while the body runs."""
    own = Ledger(ledger.store, ledger.key)
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(interval_s):
            if is_given_up(own, attempt):
                end(f"attempt {attempt} of {own.key} was closed: another one does what it has not sealed; this driver ends")
                return

    threading.Thread(target=run, name="closed-watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
