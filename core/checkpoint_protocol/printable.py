"""Text of others on its way to a terminal, a status or a log: what would steer a terminal, or hide, is shown as an escape.

Names of files, columns and tables, messages of exceptions and whatever stands in records are written by others. An escape
sequence in them would move the cursor or fill the clipboard of who reads them (OSC 52), and a bidi control would show them in
another order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from pydantic import BaseModel

#: C0 but for tab and line feed, DEL, C1; bidi controls and marks, what is invisible, line separators, surrogates, tags. Joiners
#: (U+200C and U+200D) stay: scripts and emoji are written with them.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)

_Model = TypeVar("_Model", bound=BaseModel)


def printable(text: str) -> str:
    """Return the text with escapes such as \\x1b and \\u202e for what does not print. Lines stay lines. Idempotent."""
    return _UNPRINTABLE.sub(_escaped, text)


def printable_json(text: str) -> str:
    """Return JSON text that says the same, in which all that does not print is escaped as JSON escapes it."""
    return _UNPRINTABLE.sub(lambda found: found[0] if found[0] in "\r" else _as_json(found[0]), text)


def printable_model(model: _Model, mask: Callable[[str], str] = lambda text: text) -> _Model:
    """Return a copy of a model in which each text, at any depth, is printable.

    `mask` is asked for what the fields called message say, before: names are read back, and must stay as they are.
    """
    changed: dict[str, object] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        changed[name] = _of(mask(value) if name == "message" and isinstance(value, str) else value, mask)
    return model.model_copy(update=changed)


def _of(value: object, mask: Callable[[str], str]) -> object:
    match value:
        case str():
            return printable(value)
        case BaseModel():
            return printable_model(value, mask)
        case tuple():
            return tuple(_of(item, mask) for item in value)
        case list():
            return [_of(item, mask) for item in value]
        case dict():
            return {_of(name, mask): _of(item, mask) for name, item in value.items()}
        case _:
            return value


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _as_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[at : at + 2]):04x}" for at in range(0, len(units), 2))
