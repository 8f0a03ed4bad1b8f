"""Folders and files on a disk, below a place where others may write: no symbolic link there is followed.

A library that lists, reads or removes by a path goes through links, and waits for ever at a named pipe. Whoever may write there
could have files of somebody else removed, or copied to where they can be read. So each folder is opened from the one above, that
none can become a link in between, and a file is looked at when it is open.

A hard link is a regular file, and nothing tells which of its names came first. It leads to files of the same file system only.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: A pipe, or a device, is not waited for, and no terminal becomes this process's.
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_OTHERS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, slots=True)
class Folder:
    """An open folder. `path`: where it was, for messages.

    Names are those of its entries. All methods raise OSError where the disk refuses, and NeedsChange, naming it, for what is
    neither a folder nor a regular file.
    """

    path: Path
    handle: int

    def names(self) -> list[str]:
        return os.listdir(self.handle)

    def has_folder(self, name: str) -> bool:
        """Whether a folder has this name at this moment."""
        return stat.S_ISDIR(os.stat(name, dir_fd=self.handle, follow_symlinks=False).st_mode)

    @contextmanager
    def folder(self, path: str, *, make: bool = False) -> Iterator[Folder]:
        """Open the folder at a path with slashes. `make`: with those that are not there."""
        at = Folder(self.path, os.dup(self.handle))
        try:
            for name in filter(None, path.split("/")):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=at.handle)
                below = Folder(at.path / name, at._open(name, _FOLDER))
                os.close(at.handle)
                at = below
            yield at
        finally:
            os.close(at.handle)

    def file(self, name: str) -> BufferedReader:
        """Open a regular file."""
        handle = self._open(name, _FILE)
        try:
            mode = os.fstat(handle).st_mode
            self._refuse_others(name, mode)
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self.path / name))
        except BaseException:
            os.close(handle)
            raise
        return os.fdopen(handle, "rb")

    def new_file(self, name: str) -> BinaryIO:
        """Make a file. FileExistsError where anything has its name."""
        return os.fdopen(os.open(name, _NEW_FILE, 0o666, dir_fd=self.handle), "wb")

    def remove(self, name: str) -> None:
        """Remove what has a name, with all that is in it. Of a link, the link."""
        if not self.has_folder(name):
            os.unlink(name, dir_fd=self.handle)
            return
        with self.folder(name) as folder:
            for below in folder.names():
                folder.remove(below)
        os.rmdir(name, dir_fd=self.handle)

    def _open(self, name: str, flags: int) -> int:
        try:
            return os.open(name, flags | os.O_NOFOLLOW, dir_fd=self.handle)
        except OSError:
            self._refuse_others(name, os.stat(name, dir_fd=self.handle, follow_symlinks=False).st_mode)
            raise

    def _refuse_others(self, name: str, mode: int) -> None:
        if (what := _OTHERS.get(stat.S_IFMT(mode))) is not None:
            raise NeedsChange(
                reasons.STORE_UNAVAILABLE,
                f"{self.path / name} is {what}, and only folders and regular files are read, or removed from, where others may "
                "write; remove it, or put a copy of what it stands for in its place",
            )


@contextmanager
def open_root(root: Path) -> Iterator[Folder]:
    """Open a folder that settings name: it may be a link."""
    handle = os.open(root, _FOLDER)
    try:
        yield Folder(root, handle)
    finally:
        os.close(handle)


@contextmanager
def open_file_below(root: Path, path: str) -> Iterator[BufferedReader]:
    """Open the regular file at a path with slashes below a folder, which may be a link. Raises as Folder does."""
    folder, _, name = path.rpartition("/")
    with open_root(root) as opened, opened.folder(folder) as at, at.file(name) as file:
        yield file


def remove_below(root: Path, path: str) -> None:
    """Remove the file at a path with slashes below a folder, which may be a link. Of a file that is a link, the link is removed.

    What is not there is passed over. NeedsChange, and nothing is removed, where a folder on the way is a link. Raises OSError
    where the disk refuses.
    """
    folder, _, name = path.rpartition("/")
    with suppress(FileNotFoundError, NotADirectoryError), open_root(root) as opened, opened.folder(folder) as at:
        os.unlink(name, dir_fd=at.handle)
