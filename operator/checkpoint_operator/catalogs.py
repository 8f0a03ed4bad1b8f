"""Iceberg catalogs by the names that the settings give them. Only the operator holds their credentials."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import ForbiddenError, OAuthError, UnauthorizedError
from pyiceberg.io import FileIO, load_file_io
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException
from sqlalchemy.exc import SQLAlchemyError

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.storage import iceberg_options, reveal

_ANSWER_WITHIN_S: Final = 60.0
#: Properties whose value is the name of a Python class that pyiceberg would import.
CLASS_PROPERTIES: Final = frozenset({"py-io-impl", "py-catalog-impl", "write.py-location-provider.impl", "auth.custom.impl"})


class _BoundedAdapter(HTTPAdapter):
    """Requests to the catalog end: pyiceberg sends the commit without a timeout. Never sends a request twice."""

    def __init__(self) -> None:
        super().__init__(max_retries=0)

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        kwargs["timeout"] = kwargs.get("timeout") or _ANSWER_WITHIN_S
        return super().send(request, *args, **kwargs)


class _OwnFileIO:
    """Reads and writes by our own settings only: never by a class or a credential that a catalog or a table hands out."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, properties: Mapping[str, str] | None = None, location: str | None = None) -> FileIO:
        return load_file_io(dict(iceberg_options(location or "", self._settings)), location)


def open_catalog(name: str, settings: Settings) -> Catalog:
    """Return the catalog of this name. NeedsChange if there is none, or its credentials are refused."""
    entry = settings.catalogs.get(name)
    if entry is None:
        known = ", ".join(sorted(settings.catalogs)) or "none"
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"there is no catalog {name!r} in the settings file (it has: {known}); add it under catalogs",
        )
    properties = {"type": entry.type, "uri": entry.uri}
    if entry.warehouse is not None:
        properties |= {"warehouse": entry.warehouse, **iceberg_options(entry.warehouse, settings)}
    if entry.credential is not None:
        properties["credential"] = reveal(entry.credential)
    if entry.token is not None:
        properties["token"] = reveal(entry.token)
    if entry.scope is not None:
        properties["scope"] = entry.scope
    try:
        catalog = load_catalog(name, **properties)
    except Exception as error:
        raise translate_catalog_error(error, name) from error
    if classes := CLASS_PROPERTIES & catalog.properties.keys() - properties.keys():
        raise NeedsChange(
            reasons.TABLE_UNSUPPORTED,
            f"the catalog {name!r} asks for code to be imported by the property {min(classes)!r}; that is refused",
        )
    # A table's properties may name a class too; pyiceberg would import it while the table is merely looked at.
    catalog._load_file_io = _OwnFileIO(settings)  # type: ignore[method-assign]
    session = getattr(catalog, "_session", None)
    if session is not None:
        session.mount("http://", _BoundedAdapter())
        session.mount("https://", _BoundedAdapter())
    return catalog


@dataclass(slots=True)
class CatalogBook:
    """Opens each catalog once for all tables of a process: a connection pool and a client for each write would be many.

    May be handed to threads; so may the catalogs. One that could not be opened is tried anew by the next who asks.
    """

    settings: Settings
    _opened: dict[str, Catalog] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, name: str) -> Catalog:
        """Return the catalog of this name, as open_catalog does."""
        with self._lock:
            if name not in self._opened:
                self._opened[name] = open_catalog(name, self.settings)
            return self._opened[name]


def translate_catalog_error(error: Exception, name: str) -> CheckpointError:
    """Return the family's error for a failure of a catalog. Never says what was sent, which may hold credentials."""
    if isinstance(error, CheckpointError):
        return error
    text = " ".join(str(error).split())[:400]
    if isinstance(error, UnauthorizedError | ForbiddenError | OAuthError):
        return NeedsChange(
            reasons.CREDENTIALS_REFUSED,
            f"the catalog {name!r} refused access: {text}; check its credentials in the settings file (catalogs.{name})",
        )
    if isinstance(error, ImportError):
        return NeedsChange(
            reasons.CATALOG_UNAVAILABLE,
            f"the catalog {name!r} needs a package that is not installed: {text}; for Postgres: checkpointed-writes[postgres]",
        )
    if isinstance(error, SQLAlchemyError):
        text = str(getattr(error, "orig", None) or type(error).__name__)
    elif not isinstance(error, RequestException | OSError):
        text = f"{type(error).__name__}: {text}"
    return Retryable(
        reasons.CATALOG_UNAVAILABLE, f"the catalog {name!r} did not answer: {text}; check its uri in the settings file"
    )
