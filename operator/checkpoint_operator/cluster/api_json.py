"""Read JSON of the API server, which lets an object through that is nested 10,000 deep: one of these must not end the reading of
all others, be it in a list, in a watch or alone.

Its spec is one way, its `metadata.managedFields` another, so that a watch of metadata alone would not do.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

#: More than a manifest may have (`manifest.MOST_DEPTH`), so that one that is cut here is always refused for its depth; and far
#: less than what recursion bears.
MOST_DEPTH: Final = 100

_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_STRINGS: Final = re.compile(_STRING, re.DOTALL)
_TOKENS: Final = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL)
_BRACKETS: Final = b"[]{}"
_OTHER_BYTES: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_OPEN, _CLOSE = b"[{", b"]}"


def loads(text: bytes) -> Any:
    """Parse JSON; what is nested deeper than MOST_DEPTH becomes null. Raises ValueError where it is none."""
    return json.loads(cut(text))


def cut(text: bytes) -> bytes:
    """Put null for each value that is nested deeper than MOST_DEPTH. Takes time linear in the length, and no recursion."""
    return text if _depth(text) <= MOST_DEPTH else b"".join(_kept(text))


def _depth(text: bytes) -> int:
    if text.count(b"[") + text.count(b"{") <= MOST_DEPTH:
        return 0
    depth = most = 0
    for byte in _STRINGS.sub(b"", text).translate(None, _OTHER_BYTES):
        depth += 1 if byte in _OPEN else -1
        most = max(most, depth)
    return most


def _kept(text: bytes) -> list[bytes]:
    kept, depth, since = [], 0, 0
    for token in _TOKENS.finditer(text):
        mark = token.group()
        if mark in (b"[", b"{"):
            depth += 1
            if depth == MOST_DEPTH + 1:
                kept += [text[since : token.start()], b"null"]
        elif mark in (b"]", b"}"):
            if depth == MOST_DEPTH + 1:
                since = token.end()
            depth -= 1
    return [*kept, text[since:]]
