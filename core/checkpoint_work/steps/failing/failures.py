"""What steps raise, until it is decided what becomes of it; and the text of it that is kept."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.records import MAX_TRACEBACK_LENGTH
from checkpoint_work.process.settings import masked

_OURS: Final = f"{Path(__file__).parents[2]}{os.sep}"


class StepFailed(Exception):
    """A step raised on rows that it was given. How rows that fail are treated decides whether it is theirs, or ends the task.

    `where` names the rows, for the end of the task.
    """

    def __init__(self, step: Step, error: BaseException, where: Callable[[], str]) -> None:
        super().__init__(step.label)
        self.step = step
        self.error = error
        self.where = where

    def end_task(self) -> NoReturn:
        """Raise what ends the task: an error of ours as it is, another one with the step, the rows and the cause."""
        if isinstance(self.error, CheckpointError):
            raise self.error from self.error.__cause__
        raise code_failed(self.step, self.where(), self.error) from self.error


@dataclass(frozen=True, slots=True)
class Raised:
    """In place of what a step would have made of a row: why it made nothing."""

    error: BaseException


class WrongResult(TypeError):
    """A batch step gives what is no batch at all."""


def code_failed(step: Step, where: str, error: BaseException) -> NeedsChange:
    """Return what is said of an exception that a step raised.

    Of any: sys.exit and a native library's panic are no Exceptions, and would end a worker of Spark that nobody asks why.
    """
    hint = "; to leave a row out, give None instead of ending the process" if isinstance(error, SystemExit) else ""
    return NeedsChange(reasons.CODE_FAILED, f"step {step.label!r} raised on {where}: {cause_of(error, step)}{hint}")


def words_of(error: BaseException) -> str:
    """Return what an exception says, with the notes that were added to it (PEP 678). Raises what its own code raises."""
    return "; ".join(text for text in (str(error), *getattr(error, "__notes__", ())) if text)


def cause_of(error: BaseException, step: Step) -> str:
    """Describe an exception of user code with the innermost line of the step's own module, or of all that is not ours."""
    frames = traceback.extract_tb(error.__traceback__)
    module = sys.modules.get(step.call.split(":")[0])
    others = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    theirs = [frame for frame in others if frame.filename == getattr(module, "__file__", None)] or others
    place = f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
    text = masked(words_of(error))
    return f"{type(error).__name__}: {text[:2000]}{place}" if text else f"{type(error).__name__}{place}"


_FRAMES: Final = 20
_STEPS: Final = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class ErrorText:
    """An error's type, or the reason of one of ours; what it says; and where it was raised, from the user's own code on."""

    kind: str
    message: str
    traceback: str = ""


class ToldError(Exception):
    """An error of another process, or what has ended that: all that is known of it is text."""

    def __init__(self, text: ErrorText) -> None:
        super().__init__(text.message)
        self.text = text


def text_of(error: BaseException) -> ErrorText:
    """Return the text of an error. Never fails."""
    if isinstance(error, ToldError):
        return error.text
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(error, CheckpointError):
        return ErrorText(error.reason, _message_of(error))
    return ErrorText(name, _message_of(error), _traceback_of(error))


def _message_of(error: BaseException) -> str:
    try:
        return _storable(words_of(error))
    except Exception as second:
        return f"(its text cannot be had: {type(second).__name__})"


def _traceback_of(error: BaseException) -> str:
    """Return the innermost frames from the user's own code on, without values; the end of it, where it is long."""
    try:
        frames = _after_ours(error.__traceback__)
        text = _storable("".join(traceback.format_exception(type(error), error, frames, limit=-_FRAMES)))
    except Exception as second:
        return f"(the traceback cannot be had: {type(second).__name__})"
    return text if len(text) <= MAX_TRACEBACK_LENGTH else f"...{text[3 - MAX_TRACEBACK_LENGTH :]}"


def _storable(text: str) -> str:
    # Before it is cut: surrogates, which cannot be stored, become longer.
    return masked(text).encode("utf-8", "backslashreplace").decode()


def _after_ours(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_STEPS):
        frames = frames.tb_next
    return frames
