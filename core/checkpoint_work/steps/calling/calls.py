"""How the callable of a step is called: at once, or as one of many that wait.

A step that waits for something (an async one, or one whose manifest says concurrency, timeout, retry or rateLimit) is called from
the process's event loop: so many calls at once, each with its time limit, tried again where it fails for a reason outside. Plain
functions are called in threads then. Any other step is called where it is asked for, and takes this way only when it fails so.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

import anyio.to_thread
from anyio import CapacityLimiter
from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.manifest.quantities import format_duration
from checkpoint_protocol.manifest.steps import Retry, Step
from checkpoint_work.steps import row_keys
from checkpoint_work.steps.calling import event_loop
from checkpoint_work.steps.calling.ahead import order
from checkpoint_work.steps.calling.event_loop import MustWait, awaited
from checkpoint_work.steps.calling.memo_values import Memory
from checkpoint_work.steps.calling.outages import Outages, Tried, Verdict
from checkpoint_work.steps.calling.rate_limit import Pacing
from checkpoint_work.steps.calling.rows_at_work import RowsAtWork, Slots
from checkpoint_work.steps.calling.service_errors import TOO_MANY_REQUESTS, is_passing, retry_after_s, status_of
from checkpoint_work.steps.failing.failures import Raised, cause_of
from checkpoint_work.steps.row_keys import NamedRow

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")

_DEFAULT_RETRY: Final = Retry()
#: Threads of plain functions. How many calls run at once is bounded before.
_MOST_THREADS: Final = 1 << 20
#: After so many rows of a group, calls that are on their way have a turn: to begin hundreds of rows takes as long as many calls.
_BEGUN_TOGETHER: Final = 32


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the calls of a task have in common.

    `tasks`: how many run at once. `sets_apart`: rows that fail are set apart, and do not end the task. `write`: as LaunchRecord
    has it in `row_keys`. `memory`: where results are kept of steps that ask for it; None: nowhere.
    """

    tasks: int = 1
    sets_apart: bool = False
    write: str = ""
    memory: Memory | None = None
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    #: From 0 to 1.
    draw: Callable[[], float] = random.random


class _Passing(Exception):
    """A call failed for a reason outside: `error`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


@dataclass(slots=True)
class Calls:
    """The calls of one step in one task; from any number of threads, where the step waits, but not from the event loop's own."""

    step: Step
    function: Callable[[Any], Any]
    is_async: bool = False
    around: Surroundings = field(default_factory=Surroundings)
    #: Calls that have ended, those that were made again, and those that are on their way, of a step that waits.
    ended: int = 0
    tries_again: int = 0
    in_flight: int = 0
    at_work: RowsAtWork = field(init=False)
    _outages: Outages = field(init=False)
    _slots: Slots = field(init=False)
    _threads: CapacityLimiter | None = field(init=False, default=None)
    _pacing: Pacing | None = field(init=False)
    #: Set, and then another one, when a call ends: those that wait for evidence look again.
    _news: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    #: Rows are numbered as their groups are begun, which is about their order.
    _numbers: Iterator[int] = field(init=False, default_factory=itertools.count)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _running: set[Future[Any]] = field(init=False, default_factory=set)
    #: Calls in threads that were given up and have not ended, and when that was.
    _left: dict[object, float] = field(init=False, default_factory=dict)
    _is_stopped: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._outages = Outages(self.around.clock, may_doubt=self.around.sets_apart)
        at_once = self.step.concurrency or 1
        self._slots, self.at_work = Slots(at_once), RowsAtWork(at_once)
        limit = self.step.rate_limit
        self._pacing = Pacing(limit, self.around.tasks, self.around.clock) if limit is not None else None

    @property
    def waits(self) -> bool:
        """Whether the step is called from the event loop."""
        said = (self.step.concurrency, self.step.timeout, self.step.retry, self.step.rate_limit)
        return self.is_async or any(one is not None for one in said)

    @property
    def is_uncertain(self) -> bool:
        """Whether a row was set apart and the service has not answered since: that may not be sealed yet."""
        return self._outages.is_uncertain

    @property
    def left_running(self) -> int:
        """How many calls in threads were given up, and have not ended."""
        return len(self._left)

    @property
    def hanging(self) -> int:
        """How many of these have taken as long again since."""
        timeout_s, now = self.step.timeout or 0.0, self.around.clock()
        return sum(1 for since in list(self._left.values()) if now - since >= timeout_s)

    def end(self) -> None:
        """Say that no more rows come. Retryable(ServiceUnavailable) where no call was ever answered."""
        if self._outages.is_uncertain and not self._outages.answers:
            raise Retryable(reasons.SERVICE_UNAVAILABLE, f"step {self.step.label!r}: all {self._outages.failures} calls failed")

    def directly(self, given: _Given, convert: Callable[[Any], _Made], named: NamedRow | None = None) -> _Made | Raised:
        """Call a step that does not wait, and return what `convert` makes of its result, or what it raised.

        `named`: the row that is given. Retryable(ServiceUnavailable) where the service that it calls is out.
        """
        row_keys.current.set(named)
        try:
            made = convert(self.function(given))
        except MustWait as must:
            return self.together([given], convert, [named], must)[0]
        except BaseException as error:  # user code: see code_failed
            if not self._is_passing(error):
                self._outages.answers += 1
                return Raised(error)
            return self._again(given, convert, named, error)
        self._outages.answers += 1
        self._outages.is_uncertain = False
        return made

    def together(
        self,
        given: Sequence[_Given],
        convert: Callable[[Any], _Made],
        named: Sequence[NamedRow | None] | None = None,
        first: MustWait | None = None,
    ) -> list[_Made | Raised]:
        """Call a step on each of these, so many at once as it may, and return for each what `directly` does, in their order.

        `named`: the row that each is. `first`: what has come of the first one already.
        """
        with self._lock:
            if self._is_stopped:
                raise CancelledError
            future = event_loop.submit(self._together(given, convert, named or [None] * len(given), first, order.get()))
            self._running.add(future)
        try:
            return future.result()
        finally:
            # Also where this thread was interrupted.
            future.cancel()
            with self._lock:
                self._running.discard(future)

    def stop(self) -> None:
        """Give up all that is called together now, and refuse more until `start`: whoever asked is given CancelledError."""
        with self._lock:
            self._is_stopped = True
            running = list(self._running)
        for future in running:
            future.cancel()

    def start(self, tell_few: Callable[[], None] = lambda: None) -> None:
        """Take calls. `tell_few` is called, from any thread, when few are left while rows wait for their next try."""
        self._is_stopped, self.at_work.tell_few = False, tell_few

    async def _together(
        self,
        given: Sequence[_Given],
        convert: Callable[[Any], _Made],
        named: Sequence[NamedRow | None],
        first: MustWait | None,
        order: int,
    ) -> list[_Made | Raised]:
        numbers = [(order, next(self._numbers)) for _ in given]
        self.at_work.begun += len(given)
        tasks: list[asyncio.Task[_Made | Raised]] = []
        try:
            for index, one in enumerate(given):
                row = self._one(one, convert, named[index], numbers[index], first if not index else None)
                tasks.append(asyncio.create_task(row))
                tasks[-1].add_done_callback(self._row_ended)
                if len(tasks) % _BEGUN_TOGETHER == 0:
                    await asyncio.sleep(0)
            return await asyncio.gather(*tasks)
        finally:
            self.at_work.end(len(given) - len(tasks))
            for task in tasks:
                task.cancel()

    def _row_ended(self, _task: asyncio.Task[Any]) -> None:
        self.at_work.end(1)
        self._tell()

    async def _one(
        self,
        given: _Given,
        convert: Callable[[Any], _Made],
        named: NamedRow | None,
        number: tuple[int, int],
        first: MustWait | None,
    ) -> _Made | Raised:
        row_keys.current.set(named)
        tried = self._outages.begin()
        try:
            return await self._try(number, given, convert, tried, first)
        except _Passing as failed:
            known = [failed]

        async def once() -> _Made | Raised:
            if known:
                raise known.pop()
            return await self._try(number, given, convert, tried, None)

        trying = AsyncRetrying(
            stop=stop_after_attempt(self._retry.attempts),
            wait=self._delay_s,
            retry=retry_if_exception_type(_Passing),
            sleep=self.at_work.sleep,
            reraise=True,
        )
        try:
            return await trying(once)
        except _Passing as exhausted:
            return await self._judged(tried, exhausted.error)

    async def _try(
        self, number: tuple[int, int], given: _Given, convert: Callable[[Any], _Made], tried: Tried, first: MustWait | None
    ) -> _Made | Raised:
        async with self._slots.slot(number):
            if self._pacing is not None:
                await self._pacing.begin()
            self._outages.call(tried)
            self.in_flight += 1
            try:
                outcome = await self._in_time(given, convert, first)
            finally:
                self.in_flight -= 1
                self.ended += 1
            if isinstance(outcome, Raised) and self._is_passing(outcome.error):
                self._failed(tried, outcome.error)
            self._outages.answered(tried)
            self._tell()
            return outcome

    async def _in_time(self, given: _Given, convert: Callable[[Any], _Made], first: MustWait | None) -> _Made | Raised:
        """Call once. Nothing is raised but cancellation by ourselves: what ends a process would end the loop."""
        try:
            async with asyncio.timeout(self.step.timeout) as timeout:
                result = first or await self._begin(given, convert)
                if isinstance(result, MustWait):
                    return convert(await awaited(result.result))
                return cast("_Made | Raised", result)
        except TimeoutError as error:
            if timeout.expired():
                return Raised(TimeoutError(f"no answer within {format_duration(self.step.timeout or 0)} (timeout)"))
            return Raised(error)
        except BaseException as error:  # user code: see code_failed
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            return Raised(error)

    async def _begin(self, given: Any, convert: Callable[[Any], Any]) -> Any:
        """Return what comes of a call: MustWait, Raised, or what was made."""
        if self.is_async:
            return MustWait(self.function(given))
        if self._threads is None:
            self._threads = CapacityLimiter(_MOST_THREADS)
        call, has_ended = object(), threading.Event()

        def run() -> Any:
            try:
                return self._plainly(given, convert)
            finally:
                has_ended.set()
                self._left.pop(call, None)

        try:
            # Nobody can end a thread: one that takes too long is left to itself.
            return await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._threads)
        except asyncio.CancelledError:
            self._left[call] = self.around.clock()
            if has_ended.is_set():
                self._left.pop(call, None)
            raise

    def _plainly(self, given: _Given, convert: Callable[[Any], _Made]) -> _Made | Raised | MustWait:
        try:
            return convert(self.function(given))
        except MustWait as must:
            return must
        except BaseException as error:  # user code: see code_failed
            return Raised(error)

    def _failed(self, tried: Tried, error: BaseException) -> None:
        """Raise _Passing; Retryable(ServiceUnavailable) where most calls of a minute have failed so."""
        if self._pacing is not None and status_of(error) == TOO_MANY_REQUESTS:
            self._pacing.refused()
        is_out = self._outages.failed(tried)
        self._tell()
        if is_out:
            raise self._unavailable("most calls of the last minute failed", error)
        raise _Passing(error)

    async def _judged(self, tried: Tried, error: BaseException) -> Raised:
        """Return what the row failed with, when it is known that the service answers others."""
        self.at_work.judged += 1
        try:
            self._tell()
            while True:
                verdict = self._outages.judge(tried, is_idle=self.at_work.is_idle)
                if verdict is not Verdict.OPEN:
                    return self._as_judged(verdict, tried, error)
                await self._news.wait()
        finally:
            self.at_work.judged -= 1

    def _as_judged(self, verdict: Verdict, tried: Tried, error: BaseException) -> Raised:
        if verdict is Verdict.OUTAGE:
            raise self._unavailable(f"it was tried {tried.failures} times, and others had no answer either", error)
        if tried.failures > 1:
            error.add_note(f"tried {tried.failures} times (retry)")
        return Raised(error)

    def _again(
        self, given: _Given, convert: Callable[[Any], _Made], named: NamedRow | None, error: BaseException
    ) -> _Made | Raised:
        """Try again here what has failed once for a reason outside."""
        tried = self._outages.begin()
        known: list[BaseException] = [error]

        def once() -> _Made | Raised:
            self._outages.call(tried)
            outcome = Raised(known.pop()) if known else self._plainly(given, convert)
            if isinstance(outcome, MustWait):
                return self.together([given], convert, [named], outcome)[0]
            if isinstance(outcome, Raised) and self._is_passing(outcome.error):
                self._failed(tried, outcome.error)
            self._outages.answered(tried)
            return outcome

        trying = Retrying(
            stop=stop_after_attempt(self._retry.attempts),
            wait=self._delay_s,
            retry=retry_if_exception_type(_Passing),
            sleep=self.around.sleep,
            reraise=True,
        )
        try:
            return trying(once)
        except _Passing as exhausted:
            return self._as_judged(self._outages.judge(tried, is_idle=True), tried, exhausted.error)

    @property
    def _retry(self) -> Retry:
        return self.step.retry or _DEFAULT_RETRY

    def _is_passing(self, error: BaseException) -> bool:
        return isinstance(error, Exception) and is_passing(error, self._retry.on)

    def _delay_s(self, state: RetryCallState) -> float:
        """Return how long to wait: what the service asks for, else twice as long from try to try, from half to one and a half."""
        self.tries_again += 1
        passing = state.outcome.exception() if state.outcome is not None else None
        asked_s = retry_after_s(passing.error, self.around.wall_clock()) if isinstance(passing, _Passing) else None
        if asked_s is None:
            asked_s = self._retry.first_delay * 2 ** (state.attempt_number - 1) * (0.5 + self.around.draw())
        else:
            # All that were refused at once would come back at once.
            asked_s *= 1 + 0.1 * self.around.draw()
        return min(asked_s, self._retry.most_delay)

    def _unavailable(self, what: str, error: BaseException) -> Retryable:
        return Retryable(
            reasons.SERVICE_UNAVAILABLE,
            f"step {self.step.label!r}: {what}; the last call raised {cause_of(error, self.step)}",
        )

    def _tell(self) -> None:
        if self.at_work.judged:
            self._news.set()
            self._news = asyncio.Event()
