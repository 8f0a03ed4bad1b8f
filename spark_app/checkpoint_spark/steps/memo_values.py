"""Results of calls as text that gives exactly the same Python values back, or none at all.

JSON, with a tag for what it does not have. Nothing is unpickled: the text comes from a store. What is not known here is not
kept, and its row is called again: a result that comes back as something else (a tuple as a list, a numpy number as an int) could
be stored as another value.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, Protocol, cast
from uuid import UUID

from checkpoint_spark.steps.row_keys import NamedRow

_TAG: Final = "$"
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
    "datetime": datetime.fromisoformat,
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
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
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


def _tagged(value: Any, kind: type) -> dict[str, str]:
    if kind is bytes:
        return {_TAG: "bytes", "of": base64.b64encode(value).decode()}
    if kind is datetime and (value.tzinfo is None or value.tzinfo is UTC) and not value.fold:
        return {_TAG: "datetime", "of": value.isoformat()}
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
    raise _Unknown


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(one) for one in plain]
    if not isinstance(plain, dict):
        return plain
    tag = plain.get(_TAG)
    if tag is None:
        return {name: _value(one) for name, one in plain.items()}
    if tag == "dict":
        return {name: _value(one) for name, one in cast(dict[str, Any], plain["of"]).items()}
    return _READ[tag](plain["of"])
