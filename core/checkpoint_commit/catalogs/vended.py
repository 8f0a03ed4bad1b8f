"""Keys for the files of tables that a REST catalog hands out with them: what of an answer is taken, and for which tables.

With those of Lance namespaces (`lance/namespaces.py`), they are the keys of a write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from checkpoint_commit.lance.namespaces import is_vending, keys_of
from checkpoint_protocol.manifest.sources.source import IcebergSource, LanceSource
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.places.handed_keys import HandedKeys, RenewedKeys, moment_of
from checkpoint_protocol.places.settings import CatalogSettings, RestCatalogSettings, Settings
from checkpoint_protocol.places.uris import PLACES_OF_TABLES, SAME_STORE
from checkpoint_protocol.tables.lance import TableName

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import TableResponse
    from pyiceberg.table import Table

    from checkpoint_commit.catalogs.named import CatalogBook

#: What is taken, by the scheme of the files: the names of Iceberg's properties, and ours. No endpoint, no region, no class.
_S3: Final = {
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "token",
}
_S3_ENDS: Final = "s3.session-token-expires-at-ms"
_OF_GCS: Final = "gcs.oauth2.token"
_GCS_ENDS: Final = "gcs.oauth2.token-expires-at"
_AZURE_SAS: Final = re.compile(r"adls\.sas-token\.(?P<account>.+)")
_AZURE_ENDS: Final = "adls.sas-token-expires-at-ms."


def vended_keys(response: TableResponse) -> tuple[HandedKeys, ...]:
    """Return the keys that came with a table, whether for prefixes or for all of its places. What else came is not taken."""
    found = [_keys(one.prefix, one.config) for one in response.storage_credentials]
    metadata = response.metadata
    named = (metadata.properties[name] for name in PLACES_OF_TABLES if name in metadata.properties)
    for place in {metadata.location, response.metadata_location or metadata.location, *named}:
        found.append(_keys(place.rpartition("/")[0] if place == response.metadata_location else place, response.config))
    return tuple(keys for keys in found if keys is not None)


def _keys(prefix: str, config: Mapping[str, str]) -> HandedKeys | None:
    scheme, separator, rest = prefix.partition("://")
    scheme = SAME_STORE.get(scheme, scheme)
    values: dict[str, str] = {}
    ends: str | None = None
    if scheme == "s3":
        values, ends = {ours: config[name] for name, ours in _S3.items() if name in config}, config.get(_S3_ENDS)
        if not {"access_key_id", "secret_access_key"} <= values.keys():
            return None
    elif scheme == "gs" and _OF_GCS in config:
        values, ends = {"token": config[_OF_GCS]}, config.get(_GCS_ENDS)
    elif scheme == "az":
        for name, value in config.items():
            if (sas := _AZURE_SAS.fullmatch(name)) is not None:
                values, ends = {"sas_token": value}, config.get(f"{_AZURE_ENDS}{sas['account']}")
    if not values:
        return None
    return HandedKeys(prefix=f"{scheme}{separator}{rest}", values=values, expires_at=moment_of(ends))


def keys_of_table(table: Table) -> Sequence[HandedKeys]:
    """Return the keys that a loaded table came with."""
    handed = getattr(table.io, "handed", None)
    return handed.all() if isinstance(handed, RenewedKeys) else ()


def keys_of_write(spec: Spec, settings: Settings, catalogs: CatalogBook | None = None) -> RenewedKeys | None:
    """Return the keys for the files of all tables of a manifest; None if none of its catalogs hands out any.

    A table that is not there yet has none, until it was made.
    """
    tables = [(catalog, table) for catalog, table in _tables(spec) if _is_vending(settings.catalogs.get(catalog))]
    named = [name for name in _named(spec) if is_vending(name, settings)]
    if not tables and not named:
        return None

    def load() -> tuple[list[HandedKeys], bool]:
        all_of_them = [keys_of(name, settings) for name in named]
        if tables:
            all_of_them += _of_iceberg(tables, settings, catalogs)
        return [one for keys, _ in all_of_them for one in keys], all(is_there for _, is_there in all_of_them)

    return RenewedKeys(load)


def _of_iceberg(
    tables: Sequence[tuple[str, str]], settings: Settings, catalogs: CatalogBook | None
) -> Iterator[tuple[Sequence[HandedKeys], bool]]:
    from pyiceberg.exceptions import NoSuchTableError

    from checkpoint_commit.catalogs.named import CatalogBook, translate_catalog_error

    book = catalogs or CatalogBook(settings)
    for catalog, table in tables:
        settings.check_grant(catalog, table)
        try:
            yield keys_of_table(book.open(catalog).load_table(table)), True
        except NoSuchTableError:
            yield (), False
        except Exception as error:
            raise translate_catalog_error(error, catalog, settings.place) from error


def with_keys_of_tables(spec: Spec, settings: Settings) -> Settings:
    """Return the same settings with the keys of the tables of a manifest, which are asked for when they are needed."""
    return settings.with_keys(keys_of_write(spec, settings))


def _is_vending(catalog: CatalogSettings | None) -> bool:
    return isinstance(catalog, RestCatalogSettings) and catalog.credentials == "vended"


def _tables(spec: Spec) -> Iterator[tuple[str, str]]:
    if spec.sink.iceberg is not None:
        yield spec.sink.iceberg.catalog, spec.sink.iceberg.table
    for source in spec.source.members:
        if isinstance(source, IcebergSource):
            yield source.catalog, source.table


def _named(spec: Spec) -> Iterator[TableName]:
    places = [spec.sink.lance, *(source for source in spec.source.members if isinstance(source, LanceSource))]
    yield from (place.name for place in places if place is not None and place.name is not None)
