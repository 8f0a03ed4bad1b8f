"""Spark's own checkpoint in a volume that drivers share: each driver has a folder of its own.

    <volume>/streams/<uid>/<epoch>-<attempt>-<token>/   of a driver that was started for this attempt; in it as in `checkpoint.py`

A driver whose attempt was given up may go on for a while, and on most file systems Spark looks whether a file is there before it
renames another to its name. In one folder it could put offsets, or state, in the place of those that another driver's rows come
from. So no two drivers write into one folder: a driver begins with a copy of the newest one that has the offsets of the table. It
is made of hard links where the file system has them, as Spark gives a file its name when it is whole, and never changes it.

Pods of others may have the volume, too: no symbolic link in it is followed (`plain_files.py`), and a copy has none.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.records import DrivenBy
from checkpoint_protocol.store.layout import stream_folder
from checkpoint_protocol.store.plain_files import Folder, open_root
from checkpoint_spark.streams.checkpoint import Checkpoint, Known

_NAME: Final = re.compile(r"(\d+)-(\d+)-\w+")
#: In this order, which is not that in which Spark writes: of a driver at work, what is copied is what a crash could leave.
_FIRST: Final = ("commits", "offsets")


@dataclass(frozen=True, slots=True)
class StreamVolume:
    """The folders of one write's drivers. `driver`: the attempt that this one was started for."""

    mount: Path
    uid: str
    driver: DrivenBy

    def begin(self, known: Known) -> Checkpoint:
        """Make this driver's folder. NeedsChange(CheckpointLost) if no folder is one of the rows that are committed."""
        own = f"{self.driver.epoch}-{self.driver.attempt}-{new_token()}"
        try:
            with self._opened() as drivers:
                base = self._find(known, drivers)
                if base is not None:
                    _copy_whole(drivers, base, own)
            checkpoint = self._of(own)
            checkpoint.prepare(known)
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
        return checkpoint

    def remove_older(self, own: Checkpoint) -> None:
        """Remove the folders of drivers before this one, which has committed: none begins with theirs any more.

        Never of a later one, which goes on without this one.
        """
        with self._opened() as drivers:
            for driver, name in _folders(drivers):
                if name != own.folder.name and driver <= (self.driver.epoch, self.driver.attempt):
                    # What is left of one is removed by a later driver.
                    with suppress(OSError, NeedsChange):
                        drivers.remove(name)

    @contextmanager
    def _opened(self) -> Iterator[Folder]:
        with open_root(self.mount) as root, root.folder(stream_folder(self.uid), make=True) as drivers:
            yield drivers

    def _of(self, name: str) -> Checkpoint:
        return Checkpoint(self.mount, self.uid, f"{stream_folder(self.uid)}{name}")

    def _find(self, known: Known, drivers: Folder) -> str | None:
        """Return the name of the newest one that has what is committed; None where nothing is, and there is none."""
        problem: CheckpointError | None = None
        for _, name in sorted(_folders(drivers), reverse=True):
            try:
                if self._of(name).check(known):
                    return name
            except NeedsChange as error:
                problem = problem or error
        if problem is not None:
            raise problem
        if known.committed or known.planned:
            raise self._of("").lost("has no folder of a driver")
        return None


def _folders(drivers: Folder) -> Iterator[tuple[tuple[int, int], str]]:
    for name in drivers.names():
        if (named := _NAME.fullmatch(name)) is not None:
            yield (int(named[1]), int(named[2])), name


def _copy_whole(drivers: Folder, base: str, own: str) -> None:
    """Have a copy of a folder under another name, whole, or not there: another driver may begin with it."""
    made = f".{own}"
    try:
        with drivers.folder(base) as source, drivers.folder(made, make=True) as target:
            _copy(source, target)
        os.rename(made, own, src_dir_fd=drivers.handle, dst_dir_fd=drivers.handle)
    except (OSError, NeedsChange):
        # It is tried again and again, and a disk may be full.
        with suppress(OSError, NeedsChange):
            drivers.remove(made)
        raise


def _copy(source: Folder, target: Folder) -> None:
    names = source.names()
    for name in (*(name for name in _FIRST if name in names), *(name for name in names if name not in _FIRST)):
        try:
            is_folder = source.has_folder(name)
            file = None if is_folder else source.file(name)
        except FileNotFoundError:
            continue  # an old version that its driver has just removed, as Spark does
        if file is None:
            with source.folder(name) as below, target.folder(name, make=True) as made:
                _copy(below, made)
        else:
            with file:
                _link(file, target, name)


def _link(file: BinaryIO, target: Folder, name: str) -> None:
    try:
        # By what is open, and not by its name, under which something else may be by now.
        os.link(f"/proc/self/fd/{file.fileno()}", name, dst_dir_fd=target.handle, follow_symlinks=True)
    except OSError:
        with target.new_file(name) as made:
            shutil.copyfileobj(file, made)
