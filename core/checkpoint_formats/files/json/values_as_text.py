"""Values of JSON as text: of a field whose type is `string` by source.files.types, numbers, booleans, lists and objects, too.

pyarrow reads a column of strings from strings only. So lines that it refuses are written again, with a string in the place of
each other value: its JSON text, as it is written in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Final

from checkpoint_formats.files.lines import Lines

_SPACE: Final = re.compile(r"[ \t\r\n]*")


def with_texts(lines: Lines, names: Collection[str]) -> Lines:
    """Return the lines with strings in the place of what else is not null in these fields at the top of objects.

    A line that is no object is left as it is: what is wrong with it is then said of what the file has. The same lines come
    back where there is nothing to change.
    """
    given = lines.data[lines.begin : lines.end]
    data = b"".join(_with_texts(line, names) for line in given.splitlines(keepends=True))
    return lines if data == given else Lines(data, 0, len(data), lines.position)


def _with_texts(line: bytes, names: Collection[str]) -> bytes:
    try:
        text = line.decode()
        parts: list[str] = []
        done = 0
        for name, start, end in _fields(text):
            if name in names and text[start] != '"' and text[start:end] != "null":
                parts += [text[done:start], json.dumps(text[start:end], ensure_ascii=False)]
                done = end
    except (ValueError, IndexError, RecursionError):
        return line
    return "".join([*parts, text[done:]]).encode() if parts else line


def _fields(text: str) -> Iterator[tuple[str, int, int]]:
    """Give the fields of an object: the name, and from where to where the value lies. ValueError or IndexError if it is none."""
    at = _after(text, _skip(text, 0), "{")
    if text[at] == "}":
        at += 1
    else:
        while True:
            name, at = _DECODER.raw_decode(text, at)
            start = _after(text, _skip(text, at), ":")
            _, end = _DECODER.raw_decode(text, start)
            yield name, start, end
            at = _skip(text, end)
            if text[at] == "}":
                at += 1
                break
            at = _after(text, at, ",")
    if text[at:].strip():
        raise ValueError("more than one object")


def _after(text: str, at: int, mark: str) -> int:
    """Return the place after a character that has to be there, and after the space that follows."""
    if text[at] != mark:
        raise ValueError(f"{mark} is missing")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


#: Only the ends of numbers are looked for: Python makes no int of 5,000 digits.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)
