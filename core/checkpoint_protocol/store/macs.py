"""Records that only a process of their write can have put: each with a MAC, under a key that never lies in the store.

A store tells who may write somewhere, and often only for a whole bucket. Without a key, whoever may write there could put a
record of another's write first: an input without files, and its epoch is committed with none.

A stored record is its bytes, a line break, and in a line of its own

    {"mac":{"key":"<id>","sha256":"<HMAC-SHA256, as hex>"}}

over the object's path and the bytes. The key is the write's own, derived from one of the operator's: an operator knows those of
all writes, a driver that of its own write, for all epochs and attempts, since it builds on what earlier ones have sealed.

A driver must not be able to say what only a controller may: that an attempt is closed, or an epoch committed. A record below
control/ has a second MAC in its line, `"control":"<HMAC-SHA256, as hex>"`, over the same, under a key that no pod is given:
controllers believe that one, and drivers, which cannot check it, the first.

Pure.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from checkpoint_protocol.store import layout

_BEGINNING: Final = b'{"mac":{"key":"'
_CONTEXT: Final = b"checkpointed-writes record\0"
_KEY_CONTEXT: Final = b"checkpointed-writes write\0"
_CONTROL_KEY_CONTEXT: Final = b"checkpointed-writes control\0"
#: Of the line break and the line, with ids of up to 64 characters.
MOST_MAC_BYTES: Final = 240
#: As many bytes as SHA-256 makes: less is guessed sooner, more adds nothing.
KEY_BYTES: Final = 32


def _check_key(text: str) -> str:
    if len(bytes.fromhex(text)) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes")
    return text


class WriteKeys(BaseModel):
    """The keys of one write, as hex by their ids. `current` signs; all of them are believed.

    `control`: those for control records, by the same ids; None in a pod. It is left out of all that is made of the model, such as
    what a pod is given. `accepts_unsigned`: records without a MAC are taken too, as releases without keys have put them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    current: str
    keys: Mapping[str, Annotated[str, AfterValidator(_check_key)]] = Field(repr=False)
    control: Mapping[str, Annotated[str, AfterValidator(_check_key)]] | None = Field(default=None, repr=False, exclude=True)
    accepts_unsigned: bool = False


def derive(key: bytes, uid: str) -> str:
    """Return a write's own key, as hex, of one of the operator's. Nobody gets from it to the operator's, or another write's."""
    return hmac.new(key, _KEY_CONTEXT + uid.encode(), hashlib.sha256).hexdigest()


def derive_control(key: bytes, uid: str) -> str:
    """Return the key of a write's control records, as hex, of one of the operator's. Nobody gets to it from the write's own."""
    return hmac.new(key, _CONTROL_KEY_CONTEXT + uid.encode(), hashlib.sha256).hexdigest()


def without_mac(stored: bytes) -> bytes:
    """Return a stored record without its MAC, if it has one."""
    at = _start_of_line(stored)
    return stored if at is None else stored[: at - 1]


def key_id_of(stored: bytes) -> str | None:
    """Return the id of the key that a stored record says it is signed with; None where it has no MAC."""
    mac = mac_of(stored)
    return mac.key if mac is not None else None


def sign(path: str, data: bytes, keys: WriteKeys, key_id: str | None = None) -> bytes:
    """Return the stored form of a record at a path, by a key's id, or the current one.

    A control record has the second MAC too, where the keys have what it takes.
    """
    chosen = keys.current if key_id is None else key_id
    mac, second = _compute(keys.keys[chosen], path, data), ""
    if keys.control is not None and layout.is_control(path):
        second = f',"control":"{_compute(keys.control[chosen], path, data)}"'
    return b'%b\n%b%b","sha256":"%b"%b}}' % (data, _BEGINNING, chosen.encode(), mac.encode(), second.encode())


class Mac(BaseModel):
    """What the last line of a signed record says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: str
    sha256: str
    control: str | None = None


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    mac: Mac


def _start_of_line(stored: bytes) -> int | None:
    at = stored.rfind(b"\n", max(0, len(stored) - MOST_MAC_BYTES)) + 1
    return at if at and stored.startswith(_BEGINNING, at) else None


def mac_of(stored: bytes) -> Mac | None:
    """Return the MAC of a stored record; None where it has none that can be read."""
    if (at := _start_of_line(stored)) is None:
        return None
    try:
        return _Line.model_validate_json(stored[at:]).mac
    except ValidationError:
        return None


def is_signed_with(key: str, path: str, stored: bytes, sha256: str) -> bool:
    # As bytes: of texts only ASCII is compared, and a stranger's may have any character.
    return hmac.compare_digest(_compute(key, path, without_mac(stored)).encode(), sha256.encode())


def _compute(key: str, path: str, data: bytes) -> str:
    mac = hmac.new(bytes.fromhex(key), _CONTEXT, hashlib.sha256)
    mac.update(path.encode() + b"\0")
    mac.update(data)
    return mac.hexdigest()
