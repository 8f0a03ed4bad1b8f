"""The stored form of a record: how it is written, and read back or refused by its name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.manifest.problems import place_of, text_of
from checkpoint_protocol.records.base import Record
from checkpoint_protocol.store.macs import without_mac
from checkpoint_protocol.store.memory import SMALL_BYTES, wait_for_room_to_decode

_R = TypeVar("_R", bound=Record)


def encode(record: Record) -> bytes:
    """Return the stored form."""
    return record.model_dump_json(exclude_none=False).encode()


def decode(model: type[_R], data: bytes, where: str) -> _R:
    """Read a stored record. Corrupt, naming the object, if it is not a record of this kind and version.

    A MAC that it has is passed over: the store that gave the record has checked it, or its reader trusts whoever may write there.
    """
    data = without_mac(data)
    if len(data) > model.most_bytes:
        raise Corrupt(
            reasons.RECORD_UNREADABLE,
            f"{where} has {len(data)} bytes; no {_kind_of(model)} record is larger than {model.most_bytes}",
        )
    is_bounded = wait_for_room_to_decode(data, where)
    try:
        record = _validated(model, data, is_bounded)
    except ValidationError as error:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{where} {_what_is_wrong(model, data, error)}") from None
    if not record.model_fields_set.issuperset(("kind", "version")):
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{where} does not say its kind and version: it is not a record of ours")
    return record


def decode_one_of(models: Sequence[type[_R]], data: bytes, where: str) -> _R:
    """Read a stored record of one of these kinds, which it says itself. What is of none of them is no record of the first."""
    data = without_mac(data)
    if len(models) == 1 or len(data) > most_bytes_of(models):
        return decode(models[0], data, where)
    wait_for_room_to_decode(data, where)
    kind = _head_of(data).kind
    return decode(next((model for model in models if model.model_fields["kind"].default == kind), models[0]), data, where)


def most_bytes_of(models: Sequence[type[Record]]) -> int:
    """Return how large the largest record of these kinds may be."""
    return max(model.most_bytes for model in models)


class _Head(BaseModel):
    kind: Any = None
    version: Any = None


def _head_of(data: bytes) -> _Head:
    try:
        return _Head.model_validate_json(data)
    except ValidationError:
        return _Head()


def _kind_of(model: type[Record]) -> str:
    return str(model.model_fields["kind"].default)


def _validated(model: type[_R], data: bytes, is_bounded: bool) -> _R:
    if not is_bounded or len(data) <= SMALL_BYTES or not model.is_of_plain_values:
        return model.model_validate_json(data)
    # In two steps, which take half as long again, and memory that can be told beforehand.
    try:
        plain = from_json(data)
    except ValueError:
        return model.model_validate_json(data)  # says what is wrong with it
    return model.model_validate(plain)


def refuse_too_large(record: Record, data: bytes, where: str) -> None:
    """Raise NeedsChange, naming the object, for a record that nobody could read."""
    if len(data) > record.most_bytes:
        kind = _kind_of(type(record))
        raise NeedsChange(
            reasons.RECORD_TOO_LARGE,
            f"{where} would have {len(data):,} bytes, and such a record has {record.most_bytes:,} at the most; "
            f"{_WAYS_OUT.get(kind, 'nothing was put')}",
        )


#: What a user can do about a record that is too large, by its kind.
_WAYS_OUT: Final = {
    "launch": "name fewer paths in source.files.paths: a folder or a pattern may mean any number of files",
    "write": "name fewer paths in source.files.paths: a folder or a pattern may mean any number of files",
    "input": "give the source fewer columns (source.columns)",
    "input-part": "one input file has too many rows that are tried again (set quarantine.retry: Never) or too many row groups "
    "(rewrite it with larger ones)",
    "output": "let the steps give fewer columns",
    "seal": "a segment has made too many data files: partition the table by fewer values, let source.files.splitSize or "
    "checkpoint.interval be shorter, or sink.targetFileSize larger",
}


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False


def _what_is_wrong(model: type[Record], data: bytes, error: ValidationError) -> str:
    kind, version = _kind_of(model), model.model_fields["version"].default
    is_large = len(data) > SMALL_BYTES
    head = _head_of(data)
    if not is_large and not _is_object(data):
        return f"is not a {kind} record: it is not a JSON object (truncated or overwritten?)"
    if head.kind == kind and head.version != version:
        return (
            f"is a {kind} record of version {repr(head.version)[:32]}, and this program reads version {version}: "
            "it was written by another release; use that one, or a later one"
        )
    if is_large:
        return f"is not a valid {kind} record: its {len(data):,} bytes are not all what one has (truncated or overwritten?)"
    first = error.errors(include_url=False, include_input=False)[0]
    return f"is not a valid {kind} record: {place_of(first)}: {text_of(first)} ({error.error_count()} problems)"
