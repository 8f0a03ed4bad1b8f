"""Tests of permissions as root, to whom permissions say nothing."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LIBC: Final = ctypes.CDLL(None)
_NOBODY: Final = 65_534


@contextmanager
def without_privileges() -> Iterator[None]:
    """Let this thread reach files as nobody does, where we are root.

    Not os.seteuid, which is for all threads of the process: those of other tests lose their files meanwhile. setfsuid(2).
    """
    me = os.geteuid()
    if me == 0:
        _LIBC.setfsuid(_NOBODY)
    try:
        yield
    finally:
        if me == 0:
            _LIBC.setfsuid(me)
