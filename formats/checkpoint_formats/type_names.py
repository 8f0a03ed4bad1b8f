"""The type names of source.files.types, and of a step's output."""

from __future__ import annotations

import difflib
import re
import zoneinfo
from typing import Final

import pyarrow as pa

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

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
_TIMESTAMP: Final = re.compile(r"timestamp\[\s*(s|ms|us|ns)\s*(?:,\s*(?:tz=)?([^\s\]]+)\s*)?\]")
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


def parse_type(column: str, text: str, where: str = "source.files.types") -> pa.DataType:
    """Return the Arrow type of a name. NeedsChange(ManifestInvalid) lists the known ones, and says `where` the name stands."""
    name = text.strip()
    if name in _SIMPLE:
        return _SIMPLE[name]
    if (timestamp := _TIMESTAMP.fullmatch(name)) and _is_zone(timestamp[2]):
        return pa.timestamp(timestamp[1], timestamp[2])
    if (decimal := _DECIMAL.fullmatch(name)) and 1 <= int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    close = difflib.get_close_matches(name, _SIMPLE, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise NeedsChange(reasons.MANIFEST_INVALID, f"{where}.{column}: unknown type {text!r}; {hint}known: {', '.join(_KNOWN)}")


def _is_zone(name: str | None) -> bool:
    if name is None or re.fullmatch(r"[+-]\d\d:\d\d", name):
        return True
    try:
        zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # KeyError: there is no such zone
        return False
    return True
