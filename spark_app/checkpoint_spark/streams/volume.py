"""Spark's own checkpoint in a volume that drivers share: each driver has a folder of its own.

    <volume>/streams/<uid>/<epoch>-<attempt>-<token>/   of a driver that was started for this attempt; in it as in `checkpoint.py`

A driver whose attempt was given up may go on for a while, and on most file systems Spark looks whether a file is there before it
renames another to its name. In one folder it could put offsets, or state, in the place of those that another driver's rows come
from. So no two drivers write into one folder: a driver begins with a copy of the newest one that has the offsets of the table. It
is made of hard links where the file system has them, as Spark gives a file its name when it is whole, and never changes it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.records import DrivenBy
from checkpoint_protocol.store.layout import stream_folder
from checkpoint_spark.streams.checkpoint import Checkpoint, Known

_NAME: Final = re.compile(r"(\d+)-(\d+)-\w+")
#: In this order, which is not that in which Spark writes: of a driver at work, what is copied is what a crash could leave.
_FIRST: Final = ("commits", "offsets")


@dataclass(frozen=True, slots=True)
class StreamVolume:
    """The folders of one write's drivers. `driver`: the attempt that this one was started for."""

    folder: Path
    uid: str
    driver: DrivenBy

    @classmethod
    def at(cls, mount: Path, uid: str, driver: DrivenBy) -> StreamVolume:
        return cls(mount / stream_folder(uid), uid, driver)

    def begin(self, known: Known) -> Checkpoint:
        """Make this driver's folder. NeedsChange(CheckpointLost) if no folder is one of the rows that are committed."""
        own = Checkpoint(self.folder / f"{self.driver.epoch}-{self.driver.attempt}-{new_token()}", self.uid)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            base = self._find(known)
            if base is not None:
                made = own.folder.with_name(f".{own.folder.name}")
                _copy(base.folder, made)
                # Whole, or not there: another driver may begin with it.
                made.rename(own.folder)
            own.prepare(known)
        except PermissionError as error:
            raise NeedsChange(
                reasons.CREDENTIALS_REFUSED,
                f"the volume of source.program.stream.checkpointVolume cannot be used: {error}; let the group of the pods "
                "(fsGroup) read and write it",
            ) from error
        except OSError as error:
            raise Retryable(
                reasons.STORE_UNAVAILABLE, f"the volume of source.program.stream.checkpointVolume cannot be used: {error}"
            ) from error
        return own

    def remove_older(self, own: Checkpoint) -> None:
        """Remove the folders of drivers before this one, which has committed: none begins with theirs any more.

        Never of a later one, which goes on without this one.
        """
        for driver, folder in self._folders():
            if folder != own.folder and driver <= (self.driver.epoch, self.driver.attempt):
                shutil.rmtree(folder, ignore_errors=True)

    def _find(self, known: Known) -> Checkpoint | None:
        """Return the newest one that has what is committed; None where nothing is, and there is none."""
        problem: CheckpointError | None = None
        for _, folder in sorted(self._folders(), reverse=True):
            found = Checkpoint(folder, self.uid)
            try:
                if found.check(known):
                    return found
            except NeedsChange as error:
                problem = problem or error
        if problem is not None:
            raise problem
        if known.committed or known.planned:
            raise Checkpoint(self.folder, self.uid).lost("has no folder of a driver")
        return None

    def _folders(self) -> Iterator[tuple[tuple[int, int], Path]]:
        for entry in self.folder.iterdir():
            if (named := _NAME.fullmatch(entry.name)) is not None:
                yield (int(named[1]), int(named[2])), entry


def _copy(source: Path, target: Path) -> None:
    names = [entry.name for entry in source.iterdir()]
    target.mkdir()
    for name in (*(name for name in _FIRST if name in names), *(name for name in names if name not in _FIRST)):
        if (source / name).is_dir():
            _copy(source / name, target / name)
        else:
            _link(source / name, target / name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        return  # an old version that its driver has just removed, as Spark does
    except OSError:
        shutil.copyfile(source, target)
