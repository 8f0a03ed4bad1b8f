"""A step process as its task sees it: started, asked, and told how it ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.manifest.quantities import format_duration
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.process.last_call import LastCall, read_last_call
from checkpoint_work.step_process.wire import Message, Wire, with_batch, with_schema
from checkpoint_work.steps.calling.memo_values import Memory
from checkpoint_work.steps.failing.failures import ErrorText
from checkpoint_work.steps.places import Place

_CHILD: Final = "checkpoint_work.step_process.child"
_LOOK_S: Final = 0.2
#: So much longer than its timeout a call may take that holds its whole process up, before that is ended.
_GRACE_S: Final = 5.0
_MOST_OF_A_NOTE: Final = 64 << 10
_FAMILIES: Final = {family.family: family for family in (Retryable, NeedsChange, Corrupt)}


@dataclass(frozen=True, slots=True)
class Opening:
    """What a step process makes its pipeline of. `optional` are columns that a row may leave out.

    `memory`: where results of calls are kept and found, in the task's own process; None: nowhere.
    """

    steps: tuple[Step, ...]
    schema: pa.Schema | None
    sets_apart: bool
    optional: tuple[str, ...] = ()
    tasks: int = 1
    write: str = ""
    memory: Memory | None = None

    @property
    def message(self) -> Message:
        said = {
            "do": "open",
            "steps": [step.model_dump_json(by_alias=True) for step in self.steps],
            "setsApart": self.sets_apart,
            "optional": list(self.optional),
            "tasks": self.tasks,
            "write": self.write,
            "hasMemory": self.memory is not None,
        }
        return with_schema(said, self.schema)


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row that failed: its number among those that were given, the label of the step, and why."""

    number: int
    step: str
    error: ErrorText


@dataclass(frozen=True, slots=True)
class Reply:
    """What the steps make of some rows."""

    made: tuple[pa.RecordBatch, ...]
    failed: tuple[FailedRow, ...]
    schema: pa.Schema | None = None


class StepProcessEnded(Exception):
    """The process has ended, and is to be closed: the step that it had begun last, None if none; and how it ended."""

    def __init__(self, step: str | None, how: ErrorText) -> None:
        super().__init__(how.message)
        self.step = step
        self.how = how


@dataclass(slots=True)
class StepProcess:
    """A child process that has the steps. It ends with this one.

    `is_uncertain`, `calls` and `calls_left_running`: as the pipeline's, when it said something last.
    """

    opening: Opening
    clock: Callable[[], float] = time.monotonic
    is_uncertain: bool = False
    calls: tuple[int, int, int] = (0, 0, 0)
    calls_left_running: int = 0
    _process: subprocess.Popen[bytes] = field(init=False)
    _wire: Wire = field(init=False)
    _note: int = field(init=False)

    def __post_init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._note, name = tempfile.mkstemp()
        os.unlink(name)
        with theirs:
            handles = (theirs.fileno(), self._note)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _CHILD, *map(str, handles), str(os.getpid())],
                pass_fds=handles,
                stdin=subprocess.DEVNULL,
                # What steps print goes to the log; Spark reads the standard output of some of its processes.
                stdout=sys.stderr.fileno() if _has_file(sys.stderr) else subprocess.DEVNULL,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                    # Arrow's other allocators take a GiB of address space at once, which the limit of memory would count.
                    "ARROW_DEFAULT_MEMORY_POOL": "system",
                },
                # What it has started itself ends with it, and an interrupt from the keyboard is the task's to take.
                start_new_session=True,
            )
        self._wire = Wire(ours)

    def open(self) -> None:
        """Make the steps. Raises CheckpointError where they cannot be made, and StepProcessEnded."""
        for _ in self._ask(self.opening.message, None):
            pass

    def apply(self, rows: pa.RecordBatch, place: Place) -> Reply:
        """Take rows through the steps. Raises CheckpointError, as a pipeline does, and StepProcessEnded."""
        made: list[pa.RecordBatch] = []
        failed: list[FailedRow] = []
        for message in self._ask(with_batch({"do": "apply"}, rows), place):
            if message.said["is"] == "made":
                made += message.batches
            else:
                failed.append(FailedRow(message.said["number"], message.said["step"], ErrorText(**message.said["error"])))
        return Reply(tuple(made), tuple(failed))

    def sample(self, rows: pa.RecordBatch, place: Place) -> pa.Schema:
        """Return the schema of a new table for what the steps make of rows. Raises as `apply` does."""
        (message,) = self._ask(with_batch({"do": "sample"}, rows), place)
        assert message.schema is not None
        return message.schema

    def end(self) -> None:
        """Say that no more rows come. Raises CheckpointError, as a pipeline does, and StepProcessEnded."""
        for _ in self._ask(Message({"do": "end"}), None):
            pass

    def close(self) -> None:
        """End the process, and what it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._wire.socket.close()
        os.close(self._note)

    def _ask(self, request: Message, place: Place | None) -> Iterator[Message]:
        """Send a request, and give what comes before it is answered."""
        with suppress(OSError):  # it is told below how the process ended
            self._wire.send(request)
        heard = self.clock()
        while True:
            try:
                message = self._wire.receive(_LOOK_S)
            except (EOFError, OSError):
                raise self._ended() from None
            if message is None:
                # A process that the step has started may hold the other end open.
                if self._process.poll() is not None and (message := self._last_words()) is None:
                    raise self._ended()
                if message is None:
                    self._end_if_held_up(self.clock() - heard)
                    continue
            heard = self.clock()
            said = message.said
            match said["is"]:
                case "alive":
                    self._counted(said)
                case "ask":
                    with suppress(OSError):
                        self._wire.send(Message({"answer": self._answer(place, said["what"], said["of"])}))
                case "keep":
                    if self.opening.memory is not None:
                        self.opening.memory.keep(said["key"], said["text"])
                case "done":
                    self._counted(said)
                    self.is_uncertain, self.calls_left_running = said["uncertain"], said["hanging"]
                    return
                case "schema":
                    yield message
                    return
                case "memory":
                    raise self._ended(ErrorText("MemoryError", said["text"]))
                case "error":
                    raise _FAMILIES[said["family"]](said["reason"], said["message"])
                case "defect":
                    raise RuntimeError(said["text"])
                case _:
                    yield message

    def _answer(self, place: Place | None, what: str, of: Any) -> Sequence[str | int] | str | None:
        if what == "memo":
            return self.opening.memory.find(of) if self.opening.memory is not None else None
        assert place is not None
        if what == "identity_of":
            return place.identity_of(of)
        return place.of_row(of) if what == "of_row" else place.of_rows(of)

    def _counted(self, said: dict[str, Any]) -> None:
        if said["calls"]:
            ended, in_flight, again = said["calls"]
            self.calls = (ended, in_flight, again)

    def _last_words(self) -> Message | None:
        try:
            return self._wire.receive(0.01)
        except (EOFError, OSError):
            return None

    def _end_if_held_up(self, silent_s: float) -> None:
        """End a process that a call holds up beyond its step's timeout, as C code can which keeps the interpreter's lock."""
        last = self._last_call() if silent_s > _GRACE_S else None
        timeout_s = next((step.timeout for step in self.opening.steps if last is not None and step.label == last.step), None)
        if timeout_s is not None and silent_s > timeout_s + _GRACE_S:
            limit = format_duration(timeout_s)
            raise self._ended(
                ErrorText("TimeoutError", f"no answer within {limit} (timeout); its process was held up, and ended")
            )

    def _ended(self, why: ErrorText | None = None) -> StepProcessEnded:
        try:
            # It may be writing its core, or have closed the socket only.
            code = self._process.wait(_GRACE_S if why is None else 0)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        last = self._last_call()
        has_step = last is not None and last.step in {step.label for step in self.opening.steps}
        return StepProcessEnded(last.step if has_step and last is not None else None, why or _how(code, last))

    def _last_call(self) -> LastCall | None:
        text = os.pread(self._note, _MOST_OF_A_NOTE, 0).decode("utf-8", "replace")
        return read_last_call(text)


def _how(code: int, last: LastCall | None) -> ErrorText:
    if code >= 0:
        return ErrorText("os._exit", f"it ended its process with exit code {code} (os._exit, or a library's exit)")
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    fault = f": {last.fault}{last.where}" if last is not None and last.fault else ""
    hint = " (for want of memory, if it was the kernel)" if -code == signal.SIGKILL else ""
    return ErrorText(name, f"its process was ended by {name}{hint}{fault}")


def _has_file(stream: Any) -> bool:
    try:
        stream.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    return True
