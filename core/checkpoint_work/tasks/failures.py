"""How an error gets from a Spark task to the driver: as one marked line of JSON inside the exception text that Spark relays."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NoReturn

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable
from checkpoint_protocol.store.object_store import disk_full
from checkpoint_work.process.last_call import describe_last_call
from checkpoint_work.process.settings import log_traceback, masked

_MARK: Final = "checkpointed-write-error:"
_INVALID_VALUE: Final = re.compile(
    r"\[INVALID_CONF_VALUE[^]]*\] The value '([^']*)' in the config \"([^\"]+)\" is invalid\.([^\n]*?)(?: SQLSTATE|\n|$)"
)
_UNPARSABLE: Final = re.compile(r"Failed to parse (time|size|byte) string: ([^\n]*)")
_EXAMPLES: Final = {"time": "50s or 100ms", "size": "512m or 2g", "byte": "512m or 2g"}
_FAMILIES: Final = {family.family: family for family in (Retryable, NeedsChange, Corrupt)}


class TaskFailed(Exception):
    """What a task raises: its text is the marked line."""


def wrap(error: CheckpointError) -> TaskFailed:
    """Return an exception whose text survives the way through the JVM."""
    plain = {"family": error.family, "reason": error.reason, "message": masked(error.message)[:8_000]}
    return TaskFailed(f"{_MARK}{json.dumps(plain)}")


def end_task(error: CheckpointError) -> NoReturn:
    """Raise what a task of Spark ends with. Alone: Spark logs causes as they are, and one of a step may quote a secret."""
    log_traceback(error)
    raise wrap(error) from None


def unwrap(text: str) -> CheckpointError | None:
    """Return the last marked error in a text, or None if there is none that can be read."""
    for mark in reversed(list(re.finditer(_MARK, text))):
        try:
            plain, _ = json.JSONDecoder().raw_decode(text, mark.end())
            if not reasons.is_of_drivers(plain["reason"]):  # text of a step that looks like ours
                continue
            return _FAMILIES[plain["family"]](plain["reason"], str(plain["message"]))
        except (ValueError, KeyError, TypeError):
            continue
    return None


def of_spark(error: BaseException, conf: Mapping[str, str] | None = None) -> CheckpointError:
    """Return the error of a failed Spark job: the task's own if it left one, else the gist of what Spark says.

    `conf`: the properties that Spark was given, if it is their values that may have kept it from starting.
    """
    text = masked(str(error))
    if (own := unwrap(text)) is not None:
        return own
    if (wrong := _wrong_property(text, conf or {})) is not None:
        return NeedsChange(reasons.MANIFEST_INVALID, f"spec.sparkConf: {wrong}")
    if (begun := describe_last_call(text)) is not None:
        return Retryable(reasons.DRIVER_FAILED, f"{begun}; the driver's log has the whole of it")
    full = disk_full(
        error, "a file of Spark's own (shuffles, spills: spark.local.dir, by default the folder for temporary files)"
    )
    if full is not None:
        return full
    return Retryable(reasons.DRIVER_FAILED, f"the Spark job failed: {_gist(text)[:4_000]}; the driver's log has the whole of it")


def _wrong_property(text: str, conf: Mapping[str, str]) -> str | None:
    """Return which property has a value that Spark cannot take, and what it expects.

    Spark names the property itself (error condition INVALID_CONF_VALUE), but for durations and sizes that it only fails to parse.
    """
    if (named := _INVALID_VALUE.search(text)) is not None and named[2] in conf:
        return f"{named[2]}: {named[1]!r} is not what Spark expects: {' '.join(named[3].split())}"
    if (unnamed := _UNPARSABLE.search(text)) is not None:
        names = sorted(name for name, value in conf.items() if value == unnamed[2])
        if names:
            return f"{' or '.join(names)}: {unnamed[2]!r} is no {unnamed[1]} as Spark writes it, e.g. {_EXAMPLES[unnamed[1]]}"
    return None


def _gist(text: str) -> str:
    """Return the line that ends the last Python traceback in the text, or its first lines without Java's stack."""
    lines = text.splitlines()
    traces = [number for number, line in enumerate(lines) if line.rstrip().endswith("Traceback (most recent call last):")]
    if traces:
        ending = next((line for line in lines[traces[-1] + 1 :] if line.strip() and not line[0].isspace()), None)
        if ending is not None:
            return ending.strip()
    return " | ".join(line.strip() for line in lines if line.strip() and not line.strip().startswith(("at ", "...")))
