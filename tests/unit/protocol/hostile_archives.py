"""An archive of very many empty files: measured by test_archives.py."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from checkpoint_protocol.code import archives

_COUNT: Final = 500_000
_ARCHIVE: Final = struct.pack("<4s42x", b"PK\x01\x02") * _COUNT + struct.pack(
    "<4s4xHHIIH", b"PK\x05\x06", 1, 1, 46 * _COUNT, 0, 0
)


def entries() -> str:
    archives.check(_ARCHIVE)
    return "it was taken"


CASES: Final[Mapping[str, Callable[[], str]]] = {"entries": entries}
