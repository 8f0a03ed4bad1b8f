"""What a Python worker of Spark has begun, kept where who survives it finds it: os._exit and signals leave no exception.

Spark gives each of its workers a file for Python's fault handler (spark.python.worker.faulthandler.enabled). When a worker is
gone without a word, the executor's Java process puts what stands in that file into the error that the driver gets, from another
pod too. So before each call of a step its name and its rows are written there, by one pwrite; what the fault handler says of a
signal comes after it. Where the executor itself is gone, nobody reads it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Spark's name for the folder of these files; a file has the number of its worker's process for a name.
_FOLDER_VARIABLE: Final = "PYTHON_FAULTHANDLER_DIR"
_MARK: Final = "checkpointed-write-begun:"
_NOTE_BYTES: Final = 4096
#: In JSON a character has six bytes at the most.
_MOST_OF_A_STEP: Final = 60
_MOST_OF_ROWS: Final = 580
_FRAMES: Final = 2
_FATAL: Final = re.compile(r"Fatal Python error: (.{1,200})")
_OF_THE_SIGNAL: Final = "Current thread"
_FRAME: Final = re.compile(r'File "([^"]{1,300})", line (\d+) in (\S{1,100})')

#: The file of this process's task, open for as long as the fault handler may write there.
_handles: Final[list[int]] = []

#: Is told the step that begins, and with which rows.
NoteCall = Callable[[str, str], None]


def tell_nobody(_step: str, _rows: str) -> None:
    """Where nobody would read it."""


def open_note(environment: Mapping[str, str]) -> NoteCall:
    """Return what writes into the file that Spark keeps for this worker; it is there from the beginning of a task to its end."""
    folder = environment.get(_FOLDER_VARIABLE)
    path = Path(folder) / str(os.getpid()) if folder else None
    if path is None or not path.exists():
        return tell_nobody
    while _handles:  # of the task before, which Spark has ended, and its fault handler with it
        os.close(_handles.pop())
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    _handles.append(handle)
    return note_in(handle)


def note_in(handle: int) -> NoteCall:
    """Return what writes the note into an open file, at its beginning, and have the fault handler write behind it."""
    os.write(handle, _line(""))
    # From here on it is the fault handler's, which writes where the file stands: after the note.
    faulthandler.enable(file=handle)

    def begun(step: str, rows: str) -> None:
        note = {"step": step[:_MOST_OF_A_STEP], "rows": rows[:_MOST_OF_ROWS]}
        os.pwrite(handle, _line(_MARK + json.dumps(note)), 0)

    return begun


def _line(text: str) -> bytes:
    # ASCII, as Java reads the file strictly as UTF-8.
    return text.encode("ascii").ljust(_NOTE_BYTES - 1) + b"\n"


@dataclass(frozen=True, slots=True)
class LastCall:
    """What a process had begun last: the step and its rows; what the fault handler says of a signal, if anything, and where."""

    step: str
    rows: str
    fault: str | None
    where: str


def read_last_call(text: str) -> LastCall | None:
    """Return the last note in a text; None where there is none that can be read."""
    for mark in reversed(list(re.finditer(_MARK, text))):
        try:
            note, end = json.JSONDecoder().raw_decode(text, mark.end())
            step, rows = str(note["step"]), str(note["rows"])
        except (ValueError, KeyError, TypeError):
            continue
        fatal = _FATAL.search(text, end)
        # The fault handler lists all threads, in any order.
        frames = _FRAME.findall(text, max(end, text.find(_OF_THE_SIGNAL, end)))
        where = "".join(f" in {function} ({file}:{line})" for file, line, function in frames[:_FRAMES])
        return LastCall(step, rows, fatal[1].strip() if fatal else None, where)
    return None


def describe_last_call(text: str) -> str | None:
    """Return what is told of the worker that was lost, from Spark's text; None where no such note is in it."""
    last = read_last_call(text)
    if last is None:
        return None
    how = f": {last.fault}" if last.fault else " (os._exit, or killed: by somebody, or by the kernel for want of memory)"
    return (
        f"a Python process of Spark ended without an exception{how}{last.where}; what it had begun last is step {last.step!r} "
        f"on {last.rows}"
    )
