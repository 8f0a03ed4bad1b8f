"""The step process: makes the steps, and takes the rows through them that it is sent.

    python -m checkpoint_work.step_process.child SOCKET NOTE PARENT

SOCKET and NOTE are open file descriptors: of the socket to the task, and of the file in which it notes what it begins
(`last_call.py`). It answers one request after another (`wire.py`):

    open    the steps, and the table's schema         -> done
    apply   rows                                      -> made, failed ..., done
    sample  rows                                      -> schema (of a new table for what the steps make of them)
    end     no more rows come; closes the steps       -> done

Instead of these: `error`, one of ours; `memory`, after which it ends; `defect`. Meanwhile it says each second that it is `alive`,
asks (`ask`) for the names of rows and for results of calls that are kept, and has such results kept (`keep`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any, Final, NoReturn

import pyarrow as pa

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.records import RowKey, RowPosition
from checkpoint_work.process.last_call import NoteCall, note_in
from checkpoint_work.process.settings import masked
from checkpoint_work.step_process.memory import be_ended_first, limit_memory
from checkpoint_work.step_process.wire import Message, Wire, with_batch, with_schema
from checkpoint_work.steps.batches import Failed
from checkpoint_work.steps.calling.calls import Surroundings
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.failing.failures import text_of
from checkpoint_work.steps.flow import Flow
from checkpoint_work.steps.loading import closing_steps
from checkpoint_work.steps.places import Place, part_of

_ALIVE_S: Final = 1.0
_OUT_OF_MEMORY: Final = 3
_PR_SET_PDEATHSIG: Final = 1
_MIB: Final = 1 << 20

_Ask = Callable[[str, Any], Any]


@dataclass(frozen=True, slots=True)
class _AskedPlace(Place):
    """Where the rows of a request lie: the task knows, and is asked."""

    ask: _Ask = field(kw_only=True)

    def identity_of(self, row: int) -> tuple[str | int, ...]:
        return tuple(self.ask("identity_of", row))

    def of_row(self, row: int) -> str:
        return str(self.ask("of_row", row))

    def of_rows(self, count: int) -> str:
        return str(self.ask("of_rows", count))


@dataclass(frozen=True, slots=True)
class _AskedMemory:
    """Implements Memory by the task's, which is asked."""

    ask: _Ask
    send: Callable[[Message], None]

    def find(self, key: str) -> str | None:
        found = self.ask("memo", key)
        return None if found is None else str(found)

    def keep(self, key: str, text: str) -> None:
        self.send(Message({"is": "keep", "key": key, "text": text}))


@dataclass(frozen=True, slots=True)
class _Given:
    """A Batch: the rows of a request from the row `first` on."""

    rows: pa.RecordBatch
    whole: Place
    first: int = 0
    unreadable: None = None
    may_begin_segment: bool = True

    @property
    def place(self) -> Place:
        return part_of(self.whole, self.first)

    @property
    def source_rows(self) -> int:
        return int(self.rows.num_rows)

    @property
    def positions(self) -> int:
        return self.source_rows

    def identity_of(self, number: int) -> RowPosition | RowKey:
        raise NotImplementedError("rows are known to the task, which seals them")

    def slice(self, start: int, end: int) -> _Given:
        return _Given(self.rows.slice(start, end - start), self.whole, self.first + start)


@dataclass(slots=True)
class StepProcess:
    """Answers what it is asked, until the other end is closed."""

    wire: Wire
    note_call: NoteCall
    _pipeline: Pipeline | None = None
    _schema: pa.Schema | None = None
    _sets_apart: bool = False
    _left_bytes: int | None = None
    _is_at_work: bool = False
    _asking: threading.Lock = field(default_factory=threading.Lock)

    def serve(self) -> None:
        threading.Thread(target=self._say_alive, name="alive", daemon=True).start()
        while True:
            try:
                message = self.wire.receive()
            except (EOFError, OSError):
                return
            assert message is not None
            with self._at_work(), self._answering():
                self._answer(message)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._is_at_work = True
        try:
            yield
        finally:
            self._is_at_work = False

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except MemoryError as error:
            self._end_for_memory(error)
        except CheckpointError as error:
            if isinstance(error.__cause__, MemoryError):
                self._end_for_memory(error.__cause__)
            plain = {"family": error.family, "reason": error.reason, "message": masked(error.message)}
            self._send(Message({"is": "error", **plain}))
        except Exception as error:  # of ours: the task is to end with it as if it were its own
            self._send(Message({"is": "defect", "text": masked("".join(traceback.format_exception(error)))}))

    def _answer(self, message: Message) -> None:
        said = message.said
        match said["do"]:
            case "open":
                self._open(said, message.schema)
            case "apply":
                (rows,) = message.batches
                self._apply(_Given(rows, self._place))
            case "sample":
                (rows,) = message.batches
                schema = self._opened.schema_of(rows, self._place, sets_apart=self._sets_apart)
                self._send(with_schema({"is": "schema"}, schema))
            case "end":
                with closing_steps():
                    self._opened.end()
                self._done()

    @property
    def _opened(self) -> Pipeline:
        assert self._pipeline is not None
        return self._pipeline

    @property
    def _place(self) -> Place:
        return _AskedPlace("", "rows", 0, ask=self._ask)

    def _open(self, said: dict[str, Any], schema: pa.Schema | None) -> None:
        steps = [Step.model_validate_json(text) for text in said["steps"]]
        self._schema, self._sets_apart = schema, said["setsApart"]
        memory = _AskedMemory(self._ask, self._send) if said["hasMemory"] else None
        around = Surroundings(said["tasks"], self._sets_apart, said["write"], memory)
        self._pipeline = Pipeline(steps, said["optional"], self.note_call, around)
        # After setup(): what that takes, each process of the steps has.
        self._left_bytes = limit_memory()
        self._done()

    def _apply(self, given: _Given) -> None:
        flow = Flow(self._opened, self._schema, self._sets_apart)
        for finished in flow.finished(iter([given])):
            for made in finished.results(self._tell_failed):
                self._send(with_batch({"is": "made"}, made))
        self._done()

    def _tell_failed(self, failed: Failed[_Given]) -> None:
        number = failed.batch.first + failed.number
        self._send(Message({"is": "failed", "number": number, "step": failed.step, "error": asdict(text_of(failed.error))}))

    def _done(self) -> None:
        steps = self._opened
        self._send(
            Message({"is": "done", "uncertain": steps.is_uncertain, "calls": self._calls(), "hanging": steps.calls_left_running})
        )

    def _calls(self) -> list[int]:
        counts = self._pipeline.count_calls() if self._pipeline is not None else None
        return [] if counts is None else [counts.ended, counts.in_flight, counts.tries_again]

    def _ask(self, what: str, of: Any) -> Any:
        with self._asking:
            self._send(Message({"is": "ask", "what": what, "of": of}))
            answer = self.wire.receive()
        assert answer is not None
        return answer.said["answer"]

    def _say_alive(self) -> None:
        for _ in count():
            threading.Event().wait(_ALIVE_S)
            if self._is_at_work:
                self._send(Message({"is": "alive", "calls": self._calls()}))

    def _end_for_memory(self, error: MemoryError) -> NoReturn:
        left = "" if self._left_bytes is None else f"; the process was left {self._left_bytes // _MIB} MiB beside what it had"
        with suppress(MemoryError):
            said = masked(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
            self._send(Message({"is": "memory", "text": said + left}))
        os._exit(_OUT_OF_MEMORY)

    def _send(self, message: Message) -> None:
        try:
            self.wire.send(message)
        except OSError:
            os._exit(0)  # nobody is there any more


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process with the task's, also where a call holds all of it up. Elsewhere than on Linux: not."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was faster
        os._exit(0)


def main() -> None:
    end, note, parent = (int(text) for text in sys.argv[1:])
    end_with_parent(parent)
    be_ended_first()
    StepProcess(Wire(socket.socket(fileno=end)), note_in(note)).serve()
    # Threads of steps are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
