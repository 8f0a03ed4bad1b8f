"""The type names of source.files.types, and of a step's output."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.problems import closest

_SIMPLE: Final = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
}
_KNOWN: Final = (
    *_SIMPLE,
    "timestamp[s|ms|us|ns]",
    "timestamp[us, UTC] (for text with a zone: ...Z, ...+02:00)",
    "decimal(precision, scale)",
)
_NESTED: Final = ("list<type>", "map<type, type>", "struct<name: type, ...>")
_DEEPEST: Final = 16
#: Arrow names the items of a list.
_ITEM: Final = re.compile(r"^(?:item|element)\s*:\s*")
_TIMESTAMP: Final = re.compile(r"timestamp\[\s*(s|ms|us|ns)\s*(?:,\s*(?:tz=)?([^\s\]]+)\s*)?\]")
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


def parse_type(column: str, text: str, where: str = "source.files.types", *, nested: bool = False) -> pa.DataType:
    """Return the Arrow type of a name. NeedsChange(ManifestInvalid) lists the known ones, and says `where` the name stands.

    `nested`: lists, structs and maps are known too, as Arrow and Spark write them.
    """
    name = text.strip()
    kind = _parse_nested(name) if nested else _parse_plain(name)
    if kind is not None:
        return kind
    meant = closest(name, _SIMPLE)
    hint = f"did you mean {meant}? " if meant else ""
    known = ", ".join((*_KNOWN, *_NESTED) if nested else _KNOWN)
    raise NeedsChange(reasons.MANIFEST_INVALID, f"{where}.{column}: unknown type {text!r}; {hint}known: {known}")


def _parse_plain(name: str) -> pa.DataType | None:
    if name in _SIMPLE:
        return _SIMPLE[name]
    if (timestamp := _TIMESTAMP.fullmatch(name)) and _is_zone(timestamp[2]):
        return pa.timestamp(timestamp[1], timestamp[2])
    if (decimal := _DECIMAL.fullmatch(name)) and 1 <= int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return None


def _parse_nested(name: str, depth: int = 0) -> pa.DataType | None:
    kind, opened, inner = name.partition("<")
    if not opened:
        return _parse_plain(name)
    if not inner.endswith(">") or depth == _DEEPEST or (parts := _parts(inner[:-1])) is None:
        return None
    match kind.strip(), parts:
        case "list", [item]:
            return _made(pa.list_, _parse_nested(_ITEM.sub("", item), depth + 1))
        case "map", [key, value]:
            return _made(pa.map_, _parse_nested(key, depth + 1), _parse_nested(value, depth + 1))
        case "struct", _:
            fields = [part.partition(":") for part in parts]
            names = [field.strip() for field, _, _ in fields]
            if "" in names or len(set(names)) < len(names):
                return None
            types = [_parse_nested(of_field.strip(), depth + 1) for _, _, of_field in fields]
            return _made(lambda *kinds: pa.struct(list(zip(names, kinds, strict=True))), *types)
    return None


def _made(make: Callable[..., pa.DataType], *parts: pa.DataType | None) -> pa.DataType | None:
    return None if any(part is None for part in parts) else make(*parts)


def _parts(text: str) -> list[str] | None:
    """Return what the commas outside of all brackets separate; None if the brackets do not match."""
    parts, begin, depth = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "<([") - (character in ">)]")
        if depth < 0:
            return None
        if character == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return None if depth else [*parts, text[begin:].strip()]


def _is_zone(name: str | None) -> bool:
    if name is None or re.fullmatch(r"[+-]\d\d:\d\d", name):
        return True
    try:
        zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # KeyError: there is no such zone
        return False
    return True
