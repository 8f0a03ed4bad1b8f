"""The end of an executor, as its tasks hear of it before it comes: they seal what they have, and begin nothing more.

A pod that has to go (its node is drained, or a spot node is taken back) gets SIGTERM, and SIGKILL when its
terminationGracePeriodSeconds are over. The signal reaches the first process of the container only (`pod_executor.py`, `pod.py`),
and Python workers are none of its children. So it tells them by a folder that all of them have in their environment:

    announced      the signal has come
    task-<pid>     a task is at work in this process, and has not sealed what it has

A task that has sealed waits: what it raised would be a failure, and what it returned a result. It ends with its executor, whose
loss Spark does not count against the task.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

FOLDER_VARIABLE: Final = "CHECKPOINTED_WRITE_ENDING"
_ANNOUNCED: Final = "announced"
_OF_A_TASK: Final = "task-"


class Left(Exception):
    """A task has sealed what it had, and goes no further."""


def _wait_for_the_end() -> NoReturn:
    while True:
        time.sleep(60)


@dataclass(frozen=True, slots=True)
class Ending:
    """What a process knows of its executor's end. `try_number`: Spark's, of the task at work here, counted from 0."""

    folder: Path | None = None
    try_number: int = 0
    wait: Callable[[], NoReturn] = _wait_for_the_end

    @classmethod
    def of(cls, environment: Mapping[str, str], try_number: int = 0) -> Ending:
        folder = environment.get(FOLDER_VARIABLE)
        return cls(Path(folder) if folder else None, try_number)

    def announce(self) -> None:
        """Tell all tasks. Harmless without a folder, or a second time."""
        if self.folder is not None:
            with suppress(OSError):
                (self.folder / _ANNOUNCED).touch()

    def is_announced(self) -> bool:
        return self.folder is not None and (self.folder / _ANNOUNCED).exists()

    def is_awaited(self) -> bool:
        """Whether a task is still on its way to a seal. Of a folder that somebody has removed nothing is known."""
        names: list[str] = []
        if self.folder is not None:
            with suppress(OSError):
                names = os.listdir(self.folder)
        return any(_is_alive(int(name.removeprefix(_OF_A_TASK))) for name in names if name.startswith(_OF_A_TASK))

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Run a task, or nothing where the end has been announced. Waits for the end where the task has left."""
        try:
            if self.is_announced():
                raise Left
            with self._told():
                yield
        except Left:
            self.wait()

    @contextmanager
    def _told(self) -> Iterator[None]:
        if self.folder is None:
            yield
            return
        own = self.folder / f"{_OF_A_TASK}{os.getpid()}"
        # No result rests on it: a task that cannot be told of is not waited for.
        with suppress(OSError):
            own.touch()
        try:
            yield
        finally:
            with suppress(OSError):
                own.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
