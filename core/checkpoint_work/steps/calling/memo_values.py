"""Results of calls as text that gives exactly the same Python values back, or none at all.

JSON, with a tag for what it does not have. Nothing is unpickled: the text comes from a store. What is not known here is not
kept, and its row is called again: a result that comes back as something else (a numpy number as an int) could be stored as
another value. All that rows of Arrow have is known: times with zones and nanoseconds, tuples of maps.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Final, Protocol, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa

from checkpoint_work.steps.row_keys import NamedRow

_TAG: Final = "$"
#: datetime.UTC, which is not the zone of that name.
_UTC: Final = "datetime.UTC"
_DIGITS: Final = 32


class Memory(Protocol):
    """Where steps keep what calls have given, by the key of the call. Both are text. For any thread."""

    def find(self, key: str) -> str | None: ...

    def keep(self, key: str, text: str) -> None: ...


class _Unknown(Exception):
    """A value that JSON would give back as another one."""


def _bytes_of(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_READ: Final[dict[str, Callable[[str], Any]]] = {
    "bytes": _bytes_of,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "decimal": Decimal,
    "uuid": UUID,
    "microseconds": lambda text: timedelta(microseconds=int(text)),
}


def encode(value: Any) -> str | None:
    """Return a value as text; None where it would not come back as it is."""
    try:
        return json.dumps(_plain(value), ensure_ascii=True, separators=(",", ":"))
    except (_Unknown, RecursionError):
        return None


def rows_of(text: str) -> list[dict[str, Any]] | None:
    """Return the rows that a text is of; None for what is no such text."""
    try:
        rows = _value(json.loads(text))
    except Exception:  # whatever is wrong with it: the row is called
        return None
    is_of_rows = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    return cast(list[dict[str, Any]], rows) if is_of_rows else None


def memo_key(named: NamedRow, row: dict[str, Any]) -> str | None:
    """Return what a call is known by: the row it is made for, and what that holds. None where nobody can say."""
    if named.number is None or (content := encode(row)) is None:
        return None
    return hashlib.sha256(f"{named.key()}{content}".encode()).hexdigest()[:_DIGITS]


def _plain(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_plain(one) for one in value]
    if kind is dict:
        if not all(type(name) is str for name in value):
            raise _Unknown
        plain = {name: _plain(one) for name, one in value.items()}
        return {_TAG: "dict", "of": plain} if _TAG in plain else plain
    return _tagged(value, kind)


def _tagged(value: Any, kind: type) -> dict[str, Any]:
    if kind is bytes:
        return {_TAG: "bytes", "of": base64.b64encode(value).decode()}
    if kind is tuple:
        return {_TAG: "tuple", "of": [_plain(one) for one in value]}
    if kind is datetime:
        naive = value.replace(tzinfo=None, fold=0).isoformat()
        return {_TAG: "datetime", "of": naive, "zone": _zone_name(value.tzinfo), "fold": value.fold}
    if kind is date:
        return {_TAG: "date", "of": value.isoformat()}
    if kind is time and value.tzinfo is None and not value.fold:
        return {_TAG: "time", "of": value.isoformat()}
    if kind is Decimal:
        return {_TAG: "decimal", "of": str(value)}
    if kind is UUID:
        return {_TAG: "uuid", "of": str(value)}
    if kind is timedelta:
        return {_TAG: "microseconds", "of": str(value // timedelta(microseconds=1))}
    # Pandas is not imported for it: pyarrow gives these where it is there.
    if kind.__module__.startswith("pandas.") and kind.__name__ == "Timestamp":
        return _of_arrow("Timestamp", value, None if value.tzinfo is None else str(value.tzinfo))
    if kind.__module__.startswith("pandas.") and kind.__name__ == "Timedelta":
        return _of_arrow("Timedelta", value, None)
    raise _Unknown


def _of_arrow(tag: str, value: Any, zone: str | None) -> dict[str, Any]:
    """Return what a time of pandas, which pyarrow gives for nanoseconds, is as text, if pyarrow gives just that for it."""
    tagged = {_TAG: tag, "of": int(value.asm8.view("i8")), "unit": value.unit, "zone": zone}
    try:
        found = _by_arrow(tagged)
    except Exception:
        raise _Unknown from None
    if type(found) is not type(value) or found != value:
        raise _Unknown
    if zone is not None and type(found.tzinfo) is not type(value.tzinfo):
        raise _Unknown
    return tagged


def _by_arrow(tagged: dict[str, Any]) -> Any:
    unit = tagged["unit"]
    kind = pa.timestamp(unit, tagged["zone"]) if tagged[_TAG] == "Timestamp" else pa.duration(unit)
    return pa.scalar(tagged["of"], kind).as_py()


def _zone_name(zone: tzinfo | None) -> str | None:
    """Return by what a time zone is found again; as pyarrow gives them, they are of the time zone database."""
    if zone is None or zone is UTC:
        return None if zone is None else _UTC
    if type(zone) is ZoneInfo and zone.key:
        return zone.key
    raise _Unknown


def _zone(name: str | None) -> tzinfo | None:
    return None if name is None else UTC if name == _UTC else ZoneInfo(name)


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(one) for one in plain]
    if not isinstance(plain, dict):
        return plain
    tag = plain.get(_TAG)
    if tag is None:
        return {name: _value(one) for name, one in plain.items()}
    of = plain["of"]
    match tag:
        case "dict":
            return {name: _value(one) for name, one in cast(dict[str, Any], of).items()}
        case "tuple":
            return tuple(_value(one) for one in of)
        case "datetime":
            return datetime.fromisoformat(of).replace(tzinfo=_zone(plain["zone"]), fold=plain["fold"])
        case "Timestamp" | "Timedelta":
            return _by_arrow(plain)
    return _READ[tag](of)
