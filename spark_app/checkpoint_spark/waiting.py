"""A driver that has ended its attempt and waits for the next epoch (`trigger.keepDriver`).

It goes on with the first attempt of the next epoch, as its launch record says, if that was recorded for drivers that are started
as this one was, with the same code. Whoever else drives that attempt is another driver of it, and one of them ends before any
task. Nothing is told to it but by the store, and nobody rests on it: if it is gone, another one is started.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from checkpoint_protocol.errors import CheckpointError, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.store import local_path
from checkpoint_protocol.writes import read_deleted

#: A request costs nothing on a disk, and some money at an object store: 3,600 an hour.
_LOCAL_POLL_S: Final = 0.1
_REMOTE_POLL_S: Final = 1.0
#: The note of a deletion is asked for once in so many polls.
_POLLS_OF_A_NOTE: Final = 10


@dataclass(frozen=True, slots=True)
class Keep:
    """For how long a driver waits, and with what it was started."""

    seconds: float
    driver_digest: str


def await_next(
    ledger: Ledger,
    attempt: int,
    keep: Keep,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> EpochKey | None:
    """Wait for the launch record of the next epoch; return its key, or None if this driver is not to go on with it."""
    try:
        done = ledger.attempts.read_launch(attempt)
    except CheckpointError:
        return None
    store, key = ledger.store, EpochKey(ledger.key.uid, ledger.key.epoch + 1)
    following = Ledger(store, key)
    poll_s = _LOCAL_POLL_S if local_path(store.uri) is not None else _REMOTE_POLL_S
    end, polls = clock() + keep.seconds, 0
    while done is not None:
        try:
            launch = following.attempts.read_launch(1)
            if launch is not None:
                is_alike = (launch.code_digest, launch.code) == (done.code_digest, done.code) and launch.stage is None
                return key if is_alike and launch.driver_digest == keep.driver_digest else None
            if polls % _POLLS_OF_A_NOTE == 0 and read_deleted(store, key.uid) is not None:
                return None
        except Retryable:
            pass
        except CheckpointError:
            return None
        if clock() >= end:
            return None
        polls += 1
        sleep(poll_s)
    return None
