"""Removing files below a folder of this machine, and nowhere else: no symbolic link below it is followed.

A library that lists or removes by a path goes through links. Whoever may write below a checkpoint folder could put one there, to
files of somebody else, and have them removed by whoever deletes the write.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def remove_below(root: Path, path: str) -> None:
    """Remove the file at a path with slashes below a folder, which may be a link. Of a file that is a link, the link is removed.

    What is not there is passed over. NeedsChange, and nothing is removed, where a folder on the way is a link. Raises OSError
    where the disk refuses. Each folder is opened from the one above, so that none can become a link in between.
    """
    *folders, name = path.split("/")
    try:
        at = os.open(root, _FOLDER)
    except FileNotFoundError:
        return
    try:
        for number, folder in enumerate(folders):
            try:
                below = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            except OSError:
                _refuse_link(at, folder, root.joinpath(*folders[: number + 1]))
                raise
            os.close(at)
            at = below
        os.unlink(name, dir_fd=at)
    except (FileNotFoundError, NotADirectoryError):
        return
    finally:
        os.close(at)


def _refuse_link(at: int, folder: str, path: Path) -> None:
    if stat.S_ISLNK(os.stat(folder, dir_fd=at, follow_symlinks=False).st_mode):
        raise NeedsChange(
            reasons.STORE_UNAVAILABLE,
            f"{path} is a symbolic link, and nothing is removed behind one; remove the link, or put the folder in its place",
        )
