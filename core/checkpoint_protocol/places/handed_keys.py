"""Keys that a catalog hands out for the files of its tables: short-lived, by the prefix of URIs that they are for.

The process that asks the catalog keeps them in memory. Drivers and executors have no catalog: they read them from a file, a
private one on one machine, or one of a Secret that is mounted. They are in no record, plan, event or status.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable

#: A Secret that has changed is in the pods that mount it within about a minute and a half.
_MOST_WAIT_S: Final = 150.0
_PAUSE_S: Final = 1.0
#: The last moment of the year 9999.
_MOST_MS: Final = 253_402_300_799_000


class HandedKeys(BaseModel):
    """Keys for the URIs that start with a prefix (which may be a scheme alone).

    `values`: by the names of obstore's credential providers: access_key_id, secret_access_key and token for S3, sas_token for
    Azure, token for GCS.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefix: str
    values: dict[str, str] = Field(repr=False)
    expires_at: AwareDatetime | None = None

    @property
    def credential(self) -> dict[str, Any]:
        """What a credential provider of obstore returns."""
        optional = {"token": None} if "access_key_id" in self.values else {}
        return {**optional, **self.values, "expires_at": self.expires_at}


def moment_of(milliseconds: object) -> datetime | None:
    """Return the moment that a server names, in milliseconds since 1970; None for what is none."""
    text = str(milliseconds)
    return datetime.fromtimestamp(int(text) / 1000, UTC) if text.isdecimal() and int(text) <= _MOST_MS else None


class HandedOut(Protocol):
    """Where the keys are that were handed out."""

    def find(self, uri: str) -> HandedKeys | None:
        """Return the keys with the longest prefix of this URI; None if there are none.

        Retryable where they have expired and no others have come, or the catalog cannot be asked for others.
        """


def longest(keys: Iterable[HandedKeys], uri: str) -> HandedKeys | None:
    return max((one for one in keys if uri.startswith(one.prefix)), key=lambda one: len(one.prefix), default=None)


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class RenewedKeys:
    """Implements HandedOut where the catalog can be asked: `load` returns the keys as they are now, and whether these are all.

    They are asked for anew when half of their life is over, or if they were not all: a table may have been made since. Whoever
    fails to ask goes on with those that have not expired.
    """

    load: Callable[[], tuple[Sequence[HandedKeys], bool]]
    now: Callable[[], datetime] = _utc_now
    _keys: Sequence[HandedKeys] | None = None
    _renew_at: datetime | None = None

    def take(self, keys: Sequence[HandedKeys], are_all: bool = True) -> None:
        """Keep what was handed out just now."""
        now = self.now()
        first_end = min((one.expires_at for one in keys if one.expires_at is not None), default=None)
        self._renew_at = now if not are_all else None if first_end is None else now + (first_end - now) / 2
        self._keys = keys

    def all(self) -> Sequence[HandedKeys]:
        """Return the keys. Retryable if those that are known have expired and the catalog does not answer; NeedsChange if it
        refuses us.
        """
        now = self.now()
        if self._keys is None or (self._renew_at is not None and now >= self._renew_at):
            try:
                self.take(*self.load())
            except Retryable:
                if self._keys is None or any(_is_over(one, now) for one in self._keys):
                    raise
        assert self._keys is not None
        return self._keys

    def find(self, uri: str) -> HandedKeys | None:
        return longest(self.all(), uri)


_FILE: Final = TypeAdapter(tuple[HandedKeys, ...])


@dataclass(frozen=True, slots=True)
class KeysFile:
    """Implements HandedOut where another process renews them. Waits for a while for keys that are not there yet."""

    path: Path
    now: Callable[[], datetime] = _utc_now
    pause: Callable[[float], None] = field(default=time.sleep)

    def read(self) -> tuple[HandedKeys, ...]:
        """Return what is in the file, none if there is no file. NeedsChange if it is no file of keys; quotes none."""
        try:
            return _FILE.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError):
            raise NeedsChange(
                reasons.CREDENTIALS_REFUSED, f"the keys that a catalog has handed out cannot be read: {self.path}"
            ) from None

    def find(self, uri: str) -> HandedKeys | None:
        end = self.now() + timedelta(seconds=_MOST_WAIT_S)
        while (now := self.now()) < end:
            found = longest(self.read(), uri)
            if found is not None and not _is_over(found, now):
                return found
            self.pause(_PAUSE_S)
        raise Retryable(
            reasons.CATALOG_UNAVAILABLE,
            f"there are no keys for {uri} that have not expired: those that a catalog hands out were not renewed; is the "
            "operator still there, or the process that has started this one?",
        )


def written(keys: Sequence[HandedKeys]) -> bytes:
    """Return keys as a KeysFile reads them."""
    return _FILE.dump_json(tuple(keys))


def are_over(text: bytes, now: datetime) -> bool:
    """Whether there are keys, and all have expired. ValueError for what was not written so."""
    found = _FILE.validate_json(text)
    return bool(found) and all(_is_over(keys, now) for keys in found)


def _is_over(keys: HandedKeys, now: datetime) -> bool:
    return keys.expires_at is not None and keys.expires_at <= now
