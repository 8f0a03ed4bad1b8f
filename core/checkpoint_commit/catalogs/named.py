"""Iceberg catalogs by the names that the settings give them. Only the operator holds their credentials."""

from __future__ import annotations

import errno
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError as PydanticValidationError
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, OAuthError, TableAlreadyExistsError, UnauthorizedError
from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from requests.exceptions import RequestException
from sqlalchemy import Connection, event, make_url
from sqlalchemy.exc import SQLAlchemyError

from checkpoint_commit.catalogs.aws import is_of_aws, is_refusal, signer_of
from checkpoint_commit.catalogs.format_3 import WritesFormat3
from checkpoint_commit.catalogs.rest_catalog import CONNECT_WITHIN_S, BoundedRestCatalog
from checkpoint_commit.catalogs.sqlite_files import sqlite_file
from checkpoint_formats.iceberg.file_io import CheckedFileIO, open_file_io
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable, one_line
from checkpoint_protocol.places.setting_values import SettingsPlace, reveal
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import iceberg_options
from checkpoint_protocol.places.uris import BUCKET_SCHEMES, scheme_of
from checkpoint_protocol.store.memory import holding_a_lock
from checkpoint_protocol.store.object_store import disk_full

_ANSWER_WITHIN_S: Final = 60.0
#: Of a table: some thirty thousand snapshots. Who can write where a table lies can put there what they like. On one machine, too,
#: so that what runs here also runs in a cluster.
MOST_METADATA_BYTES: Final = 32 << 20
_REFUSAL_HOLDS_S: Final = 10.0
#: Properties of tables whose value is the name of a Python class that pyiceberg would import.
CLASS_PROPERTIES: Final = frozenset({"py-io-impl", "py-catalog-impl", "write.py-location-provider.impl"})


class _BoundedSqlCatalog(WritesFormat3, SqlCatalog):
    """Each connection and each statement ends. (SQLite waits for a lock for five seconds, and the pool for a connection for
    thirty, by themselves.) What the uri says of these limits itself stands.
    """

    def __init__(self, name: str, answer_within_s: float, **properties: str) -> None:
        self._answer_within_s = answer_within_s
        #: The table that this thread commits to, as it was loaded.
        self._loaded = threading.local()
        super().__init__(name, **{**properties, "uri": _bounded_uri(properties["uri"], answer_within_s)})

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        # pyiceberg opens this file, and the one below, by the catalog's properties, whatever the scheme, and however large it is.
        location = orm_table.metadata_location
        if not location:
            return super()._convert_orm_to_iceberg(orm_table)
        loaded: Table | None = getattr(self._loaded, "table", None)
        if loaded is not None and loaded.metadata_location == location:
            metadata = loaded.metadata
        else:
            files = self._load_file_io(location=location)
            metadata = FromInputFile.table_metadata(files.new_input(location))
        name = (*self.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return Table(name, metadata, location, self._load_file_io(metadata.properties, location), self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        # pyiceberg loads the table again. A file of metadata never changes: where it is the same one, it need not be read twice.
        self._loaded.table = table
        try:
            return super().commit_table(table, requirements, updates)
        finally:
            del self._loaded.table

    def create_table(self, identifier: str | Identifier, *args: Any, **fields: Any) -> Table:
        # pyiceberg writes the first metadata by the catalog's properties: on GCS, as whoever this machine is.
        try:
            self.create_table_transaction(identifier, *args, **fields).commit_transaction()
        except CommitFailedException as error:  # a table that is made needs that there is none, and nothing else
            raise TableAlreadyExistsError(f"Table {identifier} already exists") from error
        return self.load_table(identifier)

    def _resolve_table_location(self, location: str | None, database_name: str, table_name: str) -> str:
        # A namespace may have a location of its own.
        resolved = super()._resolve_table_location(location, database_name, table_name)
        self._load_file_io(location=resolved)
        return resolved

    def _init_catalog(self) -> None:
        # Called when the engine has been made, and before its first statement.
        if self.engine.dialect.name == "postgresql":
            within_ms = int(self._answer_within_s * 1000)

            def bound(connection: Connection) -> None:
                # Of this transaction only: a pooler between may hand the session on to others.
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = {within_ms}")

            event.listen(self.engine, "begin", bound)
        super()._init_catalog()


def location_of_new_table(catalog: Catalog, name: str) -> str | None:
    """Return where a catalog would put a table that it is asked to make; None where that is its server's to say."""
    if not isinstance(catalog, MetastoreCatalog):
        return None
    namespace, _, table = name.rpartition(".")
    if catalog.namespace_exists(namespace):
        return catalog._resolve_table_location(None, namespace, table)
    warehouse = catalog.properties.get("warehouse")
    folder = namespace if isinstance(catalog, SqlCatalog) else f"{namespace}.db"
    return None if warehouse is None else f"{warehouse.rstrip('/')}/{folder}/{table}"


def _bounded_uri(uri: str, answer_within_s: float) -> str:
    """Have libpq give up on a server that does not let us in, and on one that is gone."""
    url = make_url(uri)
    if url.get_backend_name() != "postgresql" or url.get_driver_name() not in ("psycopg2", "psycopg"):
        return uri
    limits = {
        "connect_timeout": str(max(2, int(min(CONNECT_WITHIN_S, answer_within_s)))),
        "tcp_user_timeout": str(int(answer_within_s * 1000)),
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
    }
    bounded = url.update_query_dict({name: value for name, value in limits.items() if name not in url.query})
    return bounded.render_as_string(hide_password=False)


class _OwnFileIO:
    """Reads and writes by our own settings only: never by a class or a credential that a catalog or a table hands out."""

    def __init__(self, settings: Settings, most_metadata_bytes: int) -> None:
        self._settings = settings
        self._most_metadata_bytes = most_metadata_bytes

    def __call__(self, properties: Mapping[str, str] | None = None, location: str | None = None) -> FileIO:
        if location:
            return open_file_io(location, self._settings, self._most_metadata_bytes)
        return CheckedFileIO(self._settings, self._most_metadata_bytes)


#: What pyiceberg 0.12 says of types such as variant and geometry(srid:4326), and of defaults of nanoseconds.
_UNKNOWN_TYPE: Final = re.compile(
    r"Unsupported field type|Could not parse .+ into an? \w+Type|Cannot deserialize bytes, type \w+"
)
_FIELD_PLACE: Final = re.compile(r"schemas\..+")


def open_catalog(
    name: str, settings: Settings, answer_within_s: float = _ANSWER_WITHIN_S, most_metadata_bytes: int = MOST_METADATA_BYTES
) -> Catalog:
    """Return the catalog of this name. NeedsChange if there is none, or its credentials are refused.

    Each request to it, those made here too, is given up after `answer_within_s` of silence (Retryable). `most_metadata_bytes`: a
    table whose metadata file, or an answer of a REST catalog that has them, has more is refused.
    """
    entry = settings.catalog(name)
    properties = {"uri": entry.uri} if entry.type != "glue" else {}
    in_bucket = scheme_of(entry.warehouse or "") in BUCKET_SCHEMES
    if entry.warehouse is not None:
        properties["warehouse"] = entry.warehouse
        if in_bucket or entry.type != "rest":  # to a REST catalog it may be a name
            properties |= iceberg_options(entry.warehouse, settings)
    if entry.type == "rest":
        for field in ("credential", "token", "scope", "audience", "resource", "oauth2_server_uri"):
            if (value := getattr(entry, field)) is not None:
                text = value if isinstance(value, str) else reveal(value, settings.place.name(f"catalogs.{name}.{field}"))
                properties[field.replace("_", "-")] = text
    try:
        if entry.type == "rest":
            signing = entry.signing
            sign = signer_of(signing, settings.place, f"catalogs.{name}.signing") if signing is not None else None
            is_vending = entry.credentials is not None
            catalog: Catalog = BoundedRestCatalog(
                name, answer_within_s, most_metadata_bytes, sign, is_vending=is_vending, **properties
            )
        elif entry.type == "glue":
            from checkpoint_commit.catalogs.glue_catalog import open_glue

            connect_within_s = min(CONNECT_WITHIN_S, answer_within_s)
            catalog = open_glue(name, entry, settings.place, connect_within_s, answer_within_s, **properties)
        else:
            catalog = _BoundedSqlCatalog(name, answer_within_s, **properties)
    except Exception as error:
        raise translate_catalog_error(error, name, settings.place) from error
    # A table's properties may name a class too; pyiceberg would import it while the table is merely loaded.
    own = _OwnFileIO(settings.in_buckets_only() if in_bucket or entry.type == "glue" else settings, most_metadata_bytes)
    catalog._load_file_io = own  # type: ignore[method-assign]
    return catalog


def is_unmade(name: str, settings: Settings) -> bool:
    """Whether a catalog is a file of this machine that does not exist. To open it would make it."""
    entry = settings.catalogs.get(name)
    return entry is not None and (file := sqlite_file(entry.uri)) is not None and not file.exists()


@dataclass(slots=True)
class _Entry:
    """One catalog of a book. `refusal`: why it could not be opened the last time, and when to try anew."""

    opening: threading.Lock = field(default_factory=threading.Lock)
    catalog: Catalog | None = None
    refusal: Retryable | None = None
    again_at: float = 0.0


@dataclass(slots=True)
class CatalogBook:
    """Opens each catalog once for all tables of a process: a connection pool and a client for each write would be many.

    May be handed to threads; so may the catalogs. Nobody waits for a catalog of another name. One that does not answer is tried
    anew by one caller at a time, and not at once: all others are told so without waiting, or they would soon be all workers.

    `most_metadata_bytes`: see open_catalog.
    """

    settings: Settings
    answer_within_s: float = _ANSWER_WITHIN_S
    clock: Callable[[], float] = time.monotonic
    most_metadata_bytes: int = MOST_METADATA_BYTES
    _entries: dict[str, _Entry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._entries = {name: _Entry() for name in self.settings.catalogs}

    def open(self, name: str) -> Catalog:
        """Return the catalog of this name, as open_catalog does."""
        entry = self._entries.get(name)
        if entry is None:
            return open_catalog(name, self.settings, most_metadata_bytes=self.most_metadata_bytes)
        if entry.catalog is not None:
            return entry.catalog
        # Whoever comes while the first attempt is made waits for what it brings.
        is_mine = entry.opening.acquire(blocking=entry.refusal is None)
        try:
            if entry.catalog is not None:
                return entry.catalog
            if entry.refusal is not None and (not is_mine or self.clock() < entry.again_at):
                raise Retryable(entry.refusal.reason, entry.refusal.message)
            with holding_a_lock():
                entry.catalog = self._open(name, entry)
            return entry.catalog
        finally:
            if is_mine:
                entry.opening.release()

    def _open(self, name: str, entry: _Entry) -> Catalog:
        try:
            return open_catalog(name, self.settings, self.answer_within_s, self.most_metadata_bytes)
        except Retryable as error:
            entry.refusal, entry.again_at = error, self.clock() + _REFUSAL_HOLDS_S
            raise


def refuse_unknown_type(error: Exception, title: str) -> None:
    """NeedsChange(TableUnsupported) if a table could not be loaded because pyiceberg knows no such type, or default of a type."""
    if isinstance(error, PydanticValidationError):
        found = [(".".join(map(str, part["loc"])), str(part["msg"])) for part in error.errors(include_input=False)]
    else:
        found = [("", one_line(error))]
    for place, text in found:
        if _UNKNOWN_TYPE.search(text):
            where = f" ({schema.group()})" if (schema := _FIELD_PLACE.search(place)) is not None else ""
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"the table {title} has a column{where} that pyiceberg cannot read: {text}; drop the column, or its default",
            ) from error


def translate_catalog_error(error: Exception, name: str, settings: SettingsPlace) -> CheckpointError:
    """Return the family's error for a failure of a catalog. Never says what was sent, which may hold credentials.

    `settings`: where those stand that name it.
    """
    if isinstance(error, CheckpointError):
        return error
    text = one_line(error)
    if isinstance(error, UnauthorizedError | ForbiddenError | OAuthError) or is_refusal(error):
        return NeedsChange(
            reasons.CREDENTIALS_REFUSED,
            f"the catalog {name!r} refused access: {text}; check its credentials: {settings.name(f'catalogs.{name}')}",
        )
    uri = settings.name(f"catalogs.{name}" if is_of_aws(error) else f"catalogs.{name}.uri")
    if isinstance(error, ImportError):
        return NeedsChange(
            reasons.CATALOG_UNAVAILABLE,
            f"the catalog {name!r} needs a package that is not installed: {text}; for Postgres: checkpointed-writes[postgres], "
            "for Glue and signed requests: checkpointed-writes[glue]",
        )
    if isinstance(error, SQLAlchemyError):
        cause = getattr(error, "orig", None)
        if isinstance(cause, sqlite3.Error) and (told := _of_sqlite(cause, name, uri)) is not None:
            return told
        text = one_line(cause or type(error).__name__)
    elif isinstance(error, OSError) and (told := _of_warehouse(error, name, settings)) is not None:
        return told
    elif not isinstance(error, RequestException | OSError):
        text = f"{type(error).__name__}: {text}"
    return Retryable(reasons.CATALOG_UNAVAILABLE, f"the catalog {name!r} did not answer: {text}; check its address: {uri}")


def _of_warehouse(error: OSError, name: str, settings: SettingsPlace) -> CheckpointError | None:
    """Return what is said of a file of a table that the disk did not take: the catalog itself has answered. Else None."""
    if isinstance(error, RequestException):
        return None
    if (full := disk_full(error, f"the warehouse of the catalog {name!r} ({one_line(error)})")) is not None:
        return full
    if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
        return None
    return NeedsChange(
        reasons.CREDENTIALS_REFUSED,
        f"the warehouse of the catalog {name!r} cannot be written: {one_line(error)}; check the permissions of its folder, and "
        f"whether its file system is read-only: {settings.name(f'catalogs.{name}.warehouse')}",
    )


def _of_sqlite(cause: sqlite3.Error, name: str, uri: str) -> CheckpointError | None:
    """Return what is said of a file of SQLite: nobody has to answer there. `uri`: where its path is set."""
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # the rest of it says more of how it came
    if (full := disk_full(cause, f"the SQLite file of the catalog {name!r} ({uri})")) is not None:
        return full
    if code == sqlite3.SQLITE_CANTOPEN:
        return Retryable(
            reasons.CATALOG_UNAVAILABLE,
            f"the SQLite file of the catalog {name!r} cannot be opened or made: check that its folder is there and can be "
            f"written, and {uri}",
        )
    if code == sqlite3.SQLITE_READONLY:
        return NeedsChange(
            reasons.CREDENTIALS_REFUSED,
            f"the SQLite file of the catalog {name!r} cannot be written ({cause}): check the permissions of the file and its "
            f"folder, in which SQLite makes files of its own, and {uri}",
        )
    return None
