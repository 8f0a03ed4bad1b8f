"""Results of calls on rows that are not sealed yet, kept in the store as they come (`memo: true` of a step).

    staged/<uid>/<epoch>/<n>/memos/<task>/<k>-<token>.json    put while task <task> of attempt n worked on its segment k

A later try takes a result from there instead of calling, if it is of the same code, the same row (file, etag and position, or
key) and the same content. So a segment may be as large as a good file is, and a crash costs the calls of a few moments. Only
seals say which rows are done: a memo that is lost, or cannot be read, costs a call.

Objects are put by a thread of their own, one after another: when so many calls have ended as the step makes at once, or after
two seconds, and at most twenty in a second. They are removed when the segment behind theirs is sealed, and when the task is
done; what a try that was killed has left, by the operator after the commit.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import LaunchRecord
from checkpoint_protocol.rows.positions import Range, subtract
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.macs import without_mac
from checkpoint_protocol.store.parallel import in_threads
from checkpoint_work.process.reporting import InHand

_VERSION: Final = 1
_LEAST_AGE_S: Final = 0.05
_MOST_AGE_S: Final = 2.0
_MOST_BYTES_OF_AN_OBJECT: Final = 8 << 20
#: An object may be larger by one result.
_MOST_BYTES_READ: Final = 64 << 20
#: Of earlier tries, so much is read.
_MOST_BYTES_HELD: Final = 512 << 20
#: So many of the attempts before, and of the tasks that may have had a task's rows.
_MOST_ATTEMPTS: Final = 8
_MOST_EARLIER: Final = 64

#: A task of an attempt, and the link that its next segment had: rows of earlier segments are sealed.
MemosOf = tuple[int, int, int]


@dataclass(slots=True)
class Memos:
    """Those of one try of a task. `find` and `keep` may be called from any thread.

    `at_once`: so many results are put together, where they come within two seconds.
    """

    ledger: Ledger
    attempt: int
    task: int
    code_digest: str
    in_hand: InHand
    at_once: int = 1
    clock: Callable[[], float] = time.monotonic
    _known: dict[str, str] = field(default_factory=dict)
    _waiting: dict[str, str] = field(default_factory=dict)
    _waiting_bytes: int = 0
    _since: float = 0.0
    #: What was put, and the link of the segment that was at work.
    _put_already: list[tuple[int, str]] = field(default_factory=list)
    _is_ended: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def load(self, earlier: Iterable[MemosOf]) -> None:
        """Read what earlier tries have left. What cannot be read is passed over."""
        at, size_bytes, paths = self.ledger.at, 0, []
        with suppress(CheckpointError):
            for attempt, task, next_link in earlier:
                for stored in self.ledger.store.list(at.memos_of_task(attempt, task)):
                    place = layout.memo_of(stored.path, at.memos(attempt))
                    # While a segment is at work, rows behind it may be called.
                    if place is not None and place[1] >= next_link - 1 and size_bytes < _MOST_BYTES_HELD:
                        size_bytes += stored.size_bytes
                        paths.append(stored.path)
        for found in in_threads(self._read, paths):
            self._known.update(found)

    def find(self, key: str) -> str | None:
        return self._known.get(key)

    def keep(self, key: str, text: str) -> None:
        with self._changed:
            if not self._waiting:
                self._since = self.clock()
            self._waiting[key] = text
            self._waiting_bytes += len(text)
            self._changed.notify()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Put and remove what is due while the body runs. When it returns, all is sealed, and removed; else what waits is put."""
        thread = threading.Thread(target=self._run, name="memos", daemon=True)
        thread.start()
        is_done = False
        try:
            yield
            is_done = True
        finally:
            with self._changed:
                if is_done:
                    self._waiting = {}
                self._is_ended = True
                self._changed.notify()
            thread.join()
            if is_done:
                self._remove_all()

    def _run(self) -> None:
        is_ended = False
        while not is_ended:
            with self._changed:
                while not self._is_ended and (wait_s := self._wait_s()) > 0:
                    self._changed.wait(wait_s)
                is_ended = self._is_ended
                results, self._waiting, self._waiting_bytes = self._waiting, {}, 0
            with suppress(CheckpointError):
                if results:
                    self._put(results)
                self._remove_sealed()

    def _wait_s(self) -> float:
        """Return for how long nothing is to be put, unless more comes."""
        if not self._waiting:
            return _MOST_AGE_S
        is_full = len(self._waiting) >= self.at_once or self._waiting_bytes >= _MOST_BYTES_OF_AN_OBJECT
        return self._since + (_LEAST_AGE_S if is_full else _MOST_AGE_S) - self.clock()

    def _put(self, results: dict[str, str]) -> None:
        link = self.in_hand.now[0]
        path = self.ledger.at.memo(self.attempt, self.task, link, new_token())
        document = {"version": _VERSION, "code": self.code_digest, "calls": results}
        self.ledger.store.put_if_absent(path, json.dumps(document, separators=(",", ":")).encode())
        self._put_already.append((link, path))

    def _remove_sealed(self) -> None:
        before = self.in_hand.now[0] - 1
        sealed = {path for link, path in self._put_already if link < before}
        if sealed:
            self.ledger.store.delete(sorted(sealed))
            self._put_already = [(link, path) for link, path in self._put_already if path not in sealed]

    def _remove_all(self) -> None:
        folder = self.ledger.at.memos_of_task(self.attempt, self.task)
        with suppress(CheckpointError):
            self.ledger.store.delete([stored.path for stored in self.ledger.store.list(folder)])

    def _read(self, path: str) -> dict[str, str]:
        try:
            stored = self.ledger.store.get(path, _MOST_BYTES_READ)
            document: Any = json.loads(without_mac(stored)) if stored is not None else {}
            if document.get("version") != _VERSION or document.get("code") != self.code_digest:
                return {}
            return {key: text for key, text in document["calls"].items() if isinstance(text, str)}
        except (CheckpointError, ValueError, KeyError, AttributeError):
            return {}


def earlier_memos(ledger: Ledger, launch: LaunchRecord, tasks: Sequence[Sequence[Range]]) -> list[tuple[MemosOf, ...]]:
    """Return for each task of a plan which earlier tasks, whose memos are there, have read some of its positions.

    For nothing where no step keeps any.
    """
    found: list[list[MemosOf]] = [[] for _ in tasks]
    for attempt, lengths in _attempts_with_memos(ledger, launch):
        plan = ledger.plans.read_plan(attempt)
        before = [] if plan is None else [(number, ranges) for number, ranges in enumerate(ledger.plans.read_tasks(plan))]
        for mine, ranges in zip(found, tasks, strict=True):
            met = (number for number, others in before if number in lengths and _meet(ranges, others))
            mine += [(attempt, number, lengths[number]) for number in met]
    return [tuple(each[-_MOST_EARLIER:]) for each in found]


def earlier_memos_by_number(ledger: Ledger, launch: LaunchRecord) -> tuple[MemosOf, ...]:
    """Return the same of rows known by key: all. Who has had a key is not known; Spark divides most sources as before."""
    found = _attempts_with_memos(ledger, launch)
    return tuple((attempt, task, next_link) for attempt, tasks in found for task, next_link in tasks.items())


def _attempts_with_memos(ledger: Ledger, launch: LaunchRecord) -> Iterator[tuple[int, dict[int, int]]]:
    """Give earlier attempts of which memos are there, with the number of the next link of each task that has some."""
    if not any(step.memo for step in launch.steps):
        return
    for attempt in range(max(1, launch.attempt - _MOST_ATTEMPTS), launch.attempt):
        closed = ledger.attempts.read_closed(attempt)
        folder = ledger.at.memos(attempt)
        places = (layout.memo_of(stored.path, folder) for stored in ledger.store.list(folder))
        tasks = {place[0] for place in places if place is not None}
        lengths = closed.chain_lengths if closed is not None else ()
        yield attempt, {task: lengths[task] if task < len(lengths) else 0 for task in sorted(tasks)}


def _meet(some: Sequence[Range], others: Sequence[Range]) -> bool:
    return subtract(some, others) != subtract(some, ())
