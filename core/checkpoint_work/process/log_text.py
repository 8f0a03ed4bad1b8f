"""What a driver or a task says, in its log, its records and its last words: without the secrets of its process, and printable."""

from __future__ import annotations

import os
import sys
import traceback
from functools import lru_cache

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.places.secrets import Secrets, secrets_of
from checkpoint_protocol.printable import printable
from checkpoint_work.process.process_settings import storage_settings
from checkpoint_work.process.record_keys import record_keys


def masked(text: str) -> str:
    """Return a text without what this process knows to be secret. To be asked before a text is cut: half a secret is none."""
    return _secrets(tuple(sorted(os.environ.items()))).mask(text)


def loggable(text: str) -> str:
    """Return a text for a log or for the last words."""
    return printable(masked(text))


def log_traceback(error: BaseException) -> None:
    """Write the whole of an error to this process's log."""
    sys.stderr.write(loggable("".join(traceback.format_exception(error))))
    sys.stderr.flush()


@lru_cache(maxsize=1)
def _secrets(environment: tuple[tuple[str, str], ...]) -> Secrets:
    try:
        storage = storage_settings()
    except CheckpointError:  # said where they are needed
        storage = None
    try:
        keys = record_keys()
    except CheckpointError:
        keys = None
    return secrets_of(storage, dict(environment), keys.keys.values() if keys is not None else ())
