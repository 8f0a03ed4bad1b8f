"""How an error gets from a Spark task to the driver: as one marked line of JSON inside the exception text that Spark relays."""

from __future__ import annotations

import json
import re
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable

_MARK: Final = "checkpointed-write-error:"
_FAMILIES: Final = {family.family: family for family in (Retryable, NeedsChange, Corrupt)}


class TaskFailed(Exception):
    """What a task raises: its text is the marked line."""


def wrap(error: CheckpointError) -> TaskFailed:
    """Return an exception whose text survives the way through the JVM."""
    plain = {"family": error.family, "reason": error.reason, "message": error.message[:8_000]}
    return TaskFailed(f"{_MARK}{json.dumps(plain)}")


def unwrap(text: str) -> CheckpointError | None:
    """Return the last marked error in a text, or None if there is none that can be read."""
    for line in reversed(re.findall(rf"{_MARK}(\{{.*\}})", text)):
        try:
            plain = json.loads(line)
            return _FAMILIES[plain["family"]](str(plain["reason"]), str(plain["message"]))
        except (ValueError, KeyError, TypeError):
            continue
    return None


def of_spark(error: BaseException) -> CheckpointError:
    """Return the error of a failed Spark job: the task's own if it left one, else what Spark says, shortened."""
    text = str(error)
    if (own := unwrap(text)) is not None:
        return own
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith(("at ", "..."))]
    return Retryable(reasons.DRIVER_FAILED, f"the Spark job failed: {' | '.join(lines[:6])[:4_000]}")
