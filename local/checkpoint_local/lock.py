"""A lock that says "somebody on this machine is at it", and who. A hint for a second runner to attach; no safety rests on it.

So it may be taken from a runner that does not run (Ctrl-Z, SIGSTOP): the lock's file is replaced by another one, which is what
later runners find. The one that was passed over sees that when it wakes, and attaches in its turn; what it does before that the
store and the table judge as any rival's.
"""

from __future__ import annotations

import datetime
import fcntl
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from checkpoint_local.other_processes import start_of
from checkpoint_protocol.identity import new_token

_MOST_BYTES = 4096


class Holder(BaseModel):
    """The process that holds a lock. `started` tells it from a later one with its number, where the system says it."""

    model_config = ConfigDict(frozen=True)

    pid: int
    host: str
    since: str
    started: str | None = None


def this_process() -> Holder:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Holder(pid=os.getpid(), host=socket.gethostname(), since=now, started=start_of(os.getpid()))


@dataclass(slots=True)
class RunnerLock:
    """A file that one process at a time has locked, with its name in it. The system frees it when that ends, however it ends."""

    path: Path
    _handle: int | None = field(default=None)

    def take(self) -> bool:
        """Take the lock if it is free, or ours already; return whether it is ours."""
        if self.is_held():
            return True
        self.release()
        handle = self._opened(self.path)
        if not _lock(handle) or not _is_at(handle, self.path):
            os.close(handle)
            return False
        self._keep(handle)
        return True

    def is_held(self) -> bool:
        """Whether the lock is ours still: nobody has passed this process over."""
        return self._handle is not None and _is_at(self._handle, self.path)

    def holder(self) -> Holder | None:
        """Return who holds the lock; None if that cannot be read, as while it is being taken."""
        try:
            with self.path.open("rb") as file:
                return Holder.model_validate_json(file.read(_MOST_BYTES))
        except (OSError, ValidationError):
            return None

    def pass_over(self, holder: Holder) -> bool:
        """Take the lock from this holder; return whether it is ours now. Of several who try, one gets it."""
        turn = self._opened(self.path.with_name(f"{self.path.name}.turn"))
        try:
            if not _lock(turn) or self.holder() != holder:
                return False
            fresh = self.path.with_name(f"{self.path.name}.{new_token()}")
            handle = self._opened(fresh)
            _lock(handle)
            self._keep(handle)
            fresh.rename(self.path)
            return True
        finally:
            os.close(turn)

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _opened(self, path: Path) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _keep(self, handle: int) -> None:
        os.ftruncate(handle, 0)
        os.pwrite(handle, this_process().model_dump_json().encode(), 0)
        self._handle = handle


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is the one that the path names now."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    own = os.fstat(handle)
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)
