"""The secrets that a process knows, masked in what it says: messages, tracebacks, records of failures, its log.

A step may raise with the whole URL that it called, and a library with the key that it was given. What can be known is masked: the
values of the storage settings and of catalogs, those of environment variables whose names say that they are secret, passwords in
URLs, and what a store sends back of the keys that it refuses. What a program makes of a secret (its hash, its base64) is not
known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

from checkpoint_protocol.errors import SENT_BACK, CheckpointError
from checkpoint_protocol.places.setting_values import SecretRef, reveal

MASK: Final = "***"
_SECRET_NAME: Final = re.compile(
    r"pass(word|wd|phrase)?(_|$)|pwd|secret|token|credential|api_?key|access_?key|private_?key|_key$|^key$"
)
#: Of such a name: where something is, and not what it is. Kubernetes makes some of the names of services.
_PLACE_NAME: Final = re.compile(r"_(file|path|dir|host|port|name|uri|endpoint|port_.*|service_.*)$")
#: Shorter values stand in ordinary text too: "true", "root", "1234".
_LEAST_DECLARED: Final = 4
_LEAST_OF_ENVIRONMENT: Final = 6
_LEAST_OF_A_LINE: Final = 16
_USER_INFO: Final = re.compile(r"(://[^\s/@:]*:)[^\s/@]+(@)")


@dataclass(frozen=True, slots=True)
class Secrets:
    """Texts that must not be said."""

    known: frozenset[str] = frozenset()

    def mask(self, text: str) -> str:
        """Return the text with *** for each secret. Long ones first: one may hold another."""
        for secret in sorted(self.known, key=len, reverse=True):
            if secret in text:
                text = text.replace(secret, MASK)
        return _USER_INFO.sub(rf"\g<1>{MASK}\g<2>", SENT_BACK.sub("", text))


def secrets_of(settings: BaseModel | None, environment: Mapping[str, str], others: Iterable[str] = ()) -> Secrets:
    """Return what these settings and an environment hold of secrets, and the others. One that cannot be read now is not known."""
    declared = {text for text in (*_texts_in(settings), *others) if len(text) >= _LEAST_DECLARED}
    named = {
        value
        for name, value in environment.items()
        if len(value) >= _LEAST_OF_ENVIRONMENT and says_secret(name.lower()) and not value.lower().startswith(("file:", "/"))
    }
    return Secrets(frozenset(_spellings({*declared, *named})))


def says_secret(name: str) -> bool:
    """Whether the name of a variable or field, in lower case, says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None and _PLACE_NAME.search(name) is None


def _spellings(secrets: Iterable[str]) -> Iterator[str]:
    """Give each secret as it is, line by line where it has several, and as it stands in a URL or in a repr."""
    for secret in secrets:
        stripped = secret.strip()
        yield from (stripped, quote(stripped, safe=""), repr(stripped)[1:-1])
        yield from (line for line in stripped.splitlines() if len(line) >= _LEAST_OF_A_LINE)


def _texts_in(value: object) -> Iterator[str]:
    match value:
        case SecretStr() | SecretRef():
            try:
                yield reveal(value, "")
            except CheckpointError:
                return
        case BaseModel():
            for name in type(value).model_fields:
                yield from _texts_in(getattr(value, name))
        case dict():
            for inner in value.values():
                yield from _texts_in(inner)
        case tuple() | list():
            for inner in value:
                yield from _texts_in(inner)
        case _:
            return
