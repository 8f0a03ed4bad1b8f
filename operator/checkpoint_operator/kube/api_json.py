"""Read JSON of the API server, which lets an object through that is nested 10,000 deep, or has half a million values in 1.5 MB:
that takes 35 MB once it is parsed. Some of these must not end the reading of all others, be they in a list, in a watch or alone.

Its spec is one of them, its `metadata.managedFields` another, so that a watch of metadata alone would not do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from checkpoint_protocol.manifest.spec import MAX_FREE_FORM_LENGTH

#: More than a manifest may have (`manifest.MOST_DEPTH`), so that one that is cut here is always refused for its depth; and far
#: less than what recursion bears.
MOST_DEPTH: Final = 100

#: Of one object, counted as opening brackets and commas: more than any manifest needs. Parsed, they take a few megabytes.
MOST_VALUES: Final = 50_000
#: Of a spec, as JSON: the largest arguments of a step and the largest template together. Other manifests have some kilobytes.
MOST_SPEC_BYTES: Final = 2 * MAX_FREE_FORM_LENGTH
#: For one object at a time: the API server takes 1.5 MB.
NO_LIMIT: Final = 1 << 30
#: Of each part of the metadata of an object that has more: labels, annotations, owners, who has managed which field.
_MOST_VALUES_OF_METADATA: Final = 1_000

#: How deep objects are: alone, in an event of a watch (`{"type": ..., "object": {...}}`), and in a list (`{"items": [{...}]}`).
ALONE: Final = 1
OF_A_WATCH: Final = 2
OF_A_LIST: Final = 3

#: A small mapping of one small value takes twice as much, and is counted as two; all others take less.
_BYTES_OF_A_VALUE: Final = 100

_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_STRINGS: Final = re.compile(_STRING, re.DOTALL)
_TOKENS: Final = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL)
_NO_BRACKET: Final = rb'[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_UP_TO_A_BRACKET: Final = re.compile(rb"(?:" + _NO_BRACKET + rb")*+([\[\]{}])", re.DOTALL)
#: So deep a value is passed over at once; within a deeper one, its parts are. Far faster than bracket by bracket.
_SHALLOW: Final = 6
_BRACKETS: Final = b"[]{}"
_OTHER_BYTES: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_OPEN, _CLOSE = b"[{", b"]}"


def _shallow_value() -> re.Pattern[bytes]:
    within = rb"(?:" + _NO_BRACKET + rb")*+"
    for _ in range(_SHALLOW - 1):
        within = rb"(?:" + _NO_BRACKET + rb"|[\[{]" + within + rb"[\]}])*+"
    return re.compile(rb"[\[{]" + within + rb"[\]}]", re.DOTALL)


_SHALLOW_VALUE: Final = _shallow_value()


def loads(text: bytes, objects: int = ALONE, most_spec_bytes: int = MOST_SPEC_BYTES) -> Any:
    """Parse JSON, as `cut` leaves it. Raises ValueError where it is none."""
    return json.loads(cut(text, objects, most_spec_bytes))


def split_list(text: bytes) -> tuple[bytes, Iterator[bytes]]:
    """Return a list without its objects, and these, as `cut` leaves them: no more than one is parsed at a time."""
    text = _not_too_deep(text)
    spans = [(start, end) for depth, start, end, _ in _inner_values(text, OF_A_LIST) if depth == OF_A_LIST]
    rest = text[: spans[0][0]] + text[spans[-1][1] :] if spans else text
    return rest, (cut(text[start:end]) for start, end in spans)


def weight(value: Any) -> int:
    """Return how much memory a parsed value takes at the most, in bytes."""
    text = json.dumps(value, separators=(",", ":")).encode()
    return len(text) + _BYTES_OF_A_VALUE * _values(text, 0, len(text))


def cut(text: bytes, objects: int = ALONE, most_spec_bytes: int = MOST_SPEC_BYTES) -> bytes:
    """Put null for each value that is nested deeper than MOST_DEPTH, and a text that says why for the spec of each object that is
    too large, or has more than MOST_VALUES. No spec is a text by itself: the API server refuses it.

    `objects` says how deep they are. Takes time linear in the length, and no recursion.
    """
    text = _not_too_deep(text)
    is_small = len(text) <= most_spec_bytes and _values(text, 0, len(text)) <= MOST_VALUES
    return text if is_small else _without_crowds(text, objects, most_spec_bytes)


def _not_too_deep(text: bytes) -> bytes:
    return b"".join(_kept(text)) if _depth(text) > MOST_DEPTH else text


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


def _values(text: bytes, start: int, end: int) -> int:
    """Return about how many values there are, or more: text may hold commas too."""
    return text.count(b",", start, end) + text.count(b"{", start, end) + text.count(b"[", start, end)


def _without_crowds(text: bytes, objects: int, most_spec_bytes: int) -> bytes:
    """Leave out the specs of objects that are too large, and what their metadata has too much of; the names stay."""
    kept: list[bytes] = []
    since = 0
    cuts: list[tuple[int, int, bytes]] = []
    is_large = False
    for depth, start, end, is_in_metadata in _inner_values(text, objects):
        if depth == objects + 1 and text.endswith(b'"spec":', 0, start):
            is_large = end - start > most_spec_bytes
            cuts.append((start, end, json.dumps(_why(end - start, most_spec_bytes)).encode()))
        elif depth == objects + 2 and is_in_metadata and _values(text, start, end) > _MOST_VALUES_OF_METADATA:
            cuts.append((start, end, text[start : start + 1] + text[end - 1 : end]))
        elif depth == objects:
            if is_large or _values(text, start, end) > MOST_VALUES:
                for cut_at, cut_to, instead in cuts:
                    kept += [text[since:cut_at], instead]
                    since = cut_to
            cuts, is_large = [], False
    return b"".join((*kept, text[since:])) if kept else text


def _why(size_bytes: int, most_spec_bytes: int) -> str:
    if size_bytes <= most_spec_bytes:
        return f"the object has more than {MOST_VALUES:,} values, and is not read"
    return (
        f"it has {size_bytes:,} bytes as JSON, and is not read above {most_spec_bytes:,}; put long arguments into a file of "
        "spec.code, and name that in the arguments"
    )


def _inner_values(text: bytes, objects: int) -> Iterator[tuple[int, int, int, bool]]:
    """Give each list and object as far as two levels below the objects: its depth, where it is, and whether metadata has it."""
    starts: list[int] = []
    is_in_metadata, at = False, 0
    while (found := _UP_TO_A_BRACKET.match(text, at)) is not None:
        start, at = found.start(1), found.end()
        if text[start] in _CLOSE:
            if not starts:
                return  # no JSON, as its parser says
            yield len(starts), starts.pop(), at, is_in_metadata
            continue
        depth = len(starts) + 1
        if depth == objects + 1:
            is_in_metadata = text.endswith(b'"metadata":', 0, start)
        if depth > objects and not (depth == objects + 1 and is_in_metadata):
            passed = _SHALLOW_VALUE.match(text, start)
            if passed is not None:
                at = passed.end()
                yield depth, start, at, is_in_metadata
                continue
        starts.append(start)
