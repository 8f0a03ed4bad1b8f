"""What is neither a folder nor a regular file, put at a path. A link leads to a folder elsewhere, or to `token` in it."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

#: Is given the path, and the folder elsewhere.
Put = Callable[[Path, Path], object]


def a_link_to_a_file(path: Path, elsewhere: Path) -> None:
    path.symlink_to(elsewhere / "token")


def a_link_to_a_folder(path: Path, elsewhere: Path) -> None:
    path.symlink_to(elsewhere)


def a_link_to_nothing(path: Path, _elsewhere: Path) -> None:
    path.symlink_to("not-there")


def a_named_pipe(path: Path, _elsewhere: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path, _elsewhere: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        # A path of a socket has about a hundred bytes at the most.
        at = os.open(path.parent, os.O_RDONLY)
        made.bind(f"/proc/self/fd/{at}/{path.name}")
        os.close(at)


def a_device(path: Path, _elsewhere: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")


#: Each with what messages call it.
OTHERS: Final = [
    pytest.param(a_link_to_a_file, "a symbolic link", id="a link to a file"),
    pytest.param(a_link_to_a_folder, "a symbolic link", id="a link to a folder"),
    pytest.param(a_link_to_nothing, "a symbolic link", id="a link to nothing"),
    pytest.param(a_named_pipe, "a named pipe", id="a named pipe"),
    pytest.param(a_socket, "a socket", id="a socket"),
    pytest.param(a_device, "a device", id="a device"),
]
