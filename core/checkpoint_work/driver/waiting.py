"""A driver that has ended its attempt and waits for the next stage of its epoch, or for the next epoch (`trigger.keepDriver`).

It goes on with the first attempt there, as its launch record says, if that was recorded for drivers that are started as this one
was, with the same code. Whoever else drives that attempt is another driver of it, and one of them ends before any task. Nothing
is told to it but by the store, and nobody rests on it: if it is gone, another one is started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from checkpoint_protocol.errors import CheckpointError, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import LaunchRecord
from checkpoint_protocol.store.object_store import local_path
from checkpoint_protocol.writes import list_stages, read_deleted

#: A request costs nothing on a disk, and some money at an object store: of an epoch 3,600 an hour, of a stage some more a minute.
_LOCAL_POLL_S: Final = 0.1
_REMOTE_POLL_S: Final = 1.0
#: The note of a deletion is asked for once in so many polls.
_POLLS_OF_A_NOTE: Final = 10


@dataclass(frozen=True, slots=True)
class Keep:
    """With what a driver was started, and for how long it waits: for the next epoch, and for the next stage. 0: not at all."""

    driver_digest: str
    epoch_s: float = 0.0
    stage_s: float = 0.0


def await_next(
    ledger: Ledger,
    attempt: int,
    keep: Keep,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> EpochKey | None:
    """Wait for the launch record of the next stage, or epoch; return its key, or None if this driver is not to go on with it."""
    try:
        done = ledger.attempts.read_launch(attempt)
    except CheckpointError:
        return None
    if done is None:
        return None
    wait = _Wait(ledger, done, keep)
    poll_s = _LOCAL_POLL_S if local_path(ledger.store.uri) is not None else _REMOTE_POLL_S
    begun, polls = clock(), 0
    while True:
        waited_s = clock() - begun
        try:
            found = wait.look(waited_s)
            if found is not None:
                return found.key if wait.is_for_this_driver(found) else None
            if polls % _POLLS_OF_A_NOTE == 0 and read_deleted(ledger.store, ledger.key.uid) is not None:
                return None
        except Retryable:
            pass
        except CheckpointError:
            return None
        if wait.is_over(waited_s):
            return None
        polls += 1
        sleep(poll_s)


@dataclass(frozen=True, slots=True)
class _Found:
    key: EpochKey
    launch: LaunchRecord


@dataclass(slots=True)
class _Wait:
    """What a driver looks for that has done this attempt."""

    ledger: Ledger
    done: LaunchRecord
    keep: Keep
    #: The epoch has its commit, so that no stage of it follows.
    _is_committed: bool = False
    #: Whether the epoch is one of stages. None: not known yet.
    _has_stages: bool | None = None
    #: Stages that somebody has planned, or given up.
    _passed: set[EpochKey] = field(default_factory=set)

    def look(self, waited_s: float) -> _Found | None:
        """Return the launch that comes next, if it is there."""
        if self._awaits_stage(waited_s):
            for key in self._stages():
                if (launch := self._launch_without_plan(key)) is not None:
                    return _Found(key, launch)
            self._is_committed = self._of(self._epoch).commits.read_commit() is not None
        if self.keep.epoch_s:
            return self._first_of(replace(self._epoch, epoch=self._epoch.epoch + 1))
        return None

    def _first_of(self, epoch: EpochKey) -> _Found | None:
        """Return the first launch of an epoch: its own, or where this one has stages that of its first stage."""
        if self._has_stages is None:
            own = self._of(self._epoch).attempts.read_launch(1)
            self._has_stages = own is not None and own.stage is not None
        for key in (epoch, *(list_stages(self.ledger.store, epoch) if self._has_stages else ())):
            launch = self._of(key).attempts.read_launch(1)
            if launch is not None:
                return _Found(key, launch)
        return None

    def is_over(self, waited_s: float) -> bool:
        return not self._awaits_stage(waited_s) and waited_s >= self.keep.epoch_s

    def is_for_this_driver(self, found: _Found) -> bool:
        launch, done = found.launch, self.done
        if found.key.epoch != self._epoch.epoch and launch.reads_stage:
            return False
        if launch.session_code is not None:
            is_alike = launch.session_code == done.session_code
        else:
            is_alike = (launch.code_digest, launch.code) == (done.code_digest, done.code)
        return is_alike and launch.driver_digest == self.keep.driver_digest

    def _awaits_stage(self, waited_s: float) -> bool:
        return not self._is_committed and waited_s < self.keep.stage_s

    def _stages(self) -> Iterator[EpochKey]:
        """Yield all that may come next in the epoch. The last stage of a pipeline is the epoch itself."""
        for key in (self._epoch, *list_stages(self.ledger.store, self._epoch)):
            if key != self.ledger.key and key not in self._passed:
                yield key

    def _launch_without_plan(self, key: EpochKey) -> LaunchRecord | None:
        ledger = self._of(key)
        launch = ledger.attempts.read_launch(1)
        if launch is None:
            return None
        if ledger.plans.read_plan(1) is not None or ledger.attempts.read_closed(1) is not None:
            self._passed.add(key)
            return None
        return launch

    @property
    def _epoch(self) -> EpochKey:
        return self.ledger.key.of_stage("")

    def _of(self, key: EpochKey) -> Ledger:
        return Ledger(self.ledger.store, key)
