"""What is kept of an error on which a row failed: text without secrets, which can be stored."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.records import MAX_TRACEBACK_LENGTH
from checkpoint_work.process.log_text import masked
from checkpoint_work.steps.failing.failures import words_of

_FRAMES: Final = 20
_OURS: Final = str(Path(__file__).parents[1])


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
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    return frames
