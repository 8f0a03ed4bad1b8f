"""The errors of the product, in three families that say who has to act.

    CheckpointError
    ├── Retryable     the store, catalog or cluster did not answer: the same call may succeed later
    ├── NeedsChange   a person must change something: the spec, the code, the table, a credential
    ├── Corrupt       a record cannot be read: never retried, never deleted, never taken for "not there"
    └── Superseded    another try of the same task has sealed this link: give up, the rows may already count

Every error carries a `reason`, one CamelCase word that a machine can act on (it becomes a condition's reason), and a message
that names the thing, the place and the way out.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import ValidationError


def one_line(text: object, most: int = 400) -> str:
    """Return what others say, such as an exception of a library, in one line of bounded length.

    pydantic's exceptions quote the values that they refuse. Those come from answers of catalogs and files of others.
    """
    if isinstance(text, ValidationError):
        problems = text.errors(include_url=False, include_context=False, include_input=False)
        text = "; ".join(f"{'.'.join(map(str, problem['loc'])) or '(top level)'}: {problem['msg']}" for problem in problems)
    return " ".join(str(text).split())[:most]


class CheckpointError(Exception):
    """An error with a machine-readable reason and a message for a person."""

    family: ClassVar[str] = "CheckpointError"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    def __reduce__(self) -> tuple[type[CheckpointError], tuple[str, str]]:
        # Spark carries exceptions between processes; without this only the message would arrive.
        return (type(self), (self.reason, self.message))


class Retryable(CheckpointError):
    """Something outside did not answer; trying again later is right."""

    family = "Retryable"


class NeedsChange(CheckpointError):
    """Trying again cannot help until a person changes something."""

    family = "NeedsChange"


class Corrupt(CheckpointError):
    """A stored record is not what it must be; a person has to see to it."""

    family = "Corrupt"


class Superseded(CheckpointError):
    """Another try has won the link or the attempt that this process worked on."""

    family = "Superseded"
