"""The settings file of the operator or the local runner: catalogs and storage, with their credentials.

Manifests name catalogs; how to reach one stands here and only here. Drivers are handed the storage part, never the catalogs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.patterns import NamespacePattern, is_named
from checkpoint_protocol.places.setting_values import Secret, SettingsSection
from checkpoint_protocol.places.storage import StorageSettings


class CatalogGrant(SettingsSection):
    """Namespaces, and the tables of a catalog that their writes may read and append to, or overwrite."""

    namespaces: tuple[NamespacePattern, ...] = Field(min_length=1, description="E.g. [team-a, etl-*].")
    tables: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=("*",), min_length=1, description="E.g. [sales.*, raw.events]; * matches any characters."
    )
    overwrites: bool = Field(
        default=False, description="Also allow the overwriting values of spec.sink.mode, which remove rows of other writers."
    )


class CatalogSettings(SettingsSection):
    """One Iceberg catalog."""

    type: Literal["sql", "rest"]
    uri: str = Field(min_length=1, repr=False, description="sql: an SQLAlchemy URI (sqlite:///..., postgresql+psycopg2://...).")
    warehouse: str | None = Field(default=None, description="The location of new tables (a name, for some REST catalogs).")
    credential: Secret | None = Field(default=None, description="REST: client id and secret, as id:secret.")
    token: Secret | None = Field(default=None, description="REST: a bearer token.")
    scope: str | None = None
    grants: tuple[CatalogGrant, ...] = Field(
        default=(),
        description="Cluster: the namespaces whose writes may use the catalog, and which tables. If absent, a namespace that is "
        "the only one watched may use all tables, and other namespaces none.",
    )

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> CatalogSettings:
        if self.type == "sql" and self.warehouse is None:
            raise ValueError("a sql catalog needs a warehouse")
        if self.type == "sql" and (self.credential or self.token):
            raise ValueError("a sql catalog takes its credentials in the uri")
        return self


class Settings(StorageSettings):
    """The whole settings file."""

    catalogs: dict[str, CatalogSettings] = Field(default_factory=dict)

    def catalog(self, name: str) -> CatalogSettings:
        """Return how to reach a catalog. NeedsChange if there is none of this name."""
        entry = self.catalogs.get(name)
        if entry is None:
            known = ", ".join(sorted(name for name, catalog in self.catalogs.items() if self._may_use_some_of(catalog))) or "none"
            example = f'catalogs: {{{name}: {{type: rest, uri: "https://catalog.example.com"}}}}'
            if self.tenant is None:
                example += f', or catalogs: {{{name}: {{type: sql, uri: "sqlite:///catalog.db", warehouse: warehouse}}}}'
            raise NeedsChange(
                reasons.MANIFEST_INVALID,
                f"there is no catalog {name!r} (there are: {known}); add it to {self.place.name('catalogs')}, e.g. {example}",
            )
        return entry

    def check_grant(self, catalog: str, table: str, *, overwrites: bool = False) -> None:
        """Refuse a table that is not granted to whom the settings are used for, or whose catalog there is not: NeedsChange.

        `overwrites`: it is to be overwritten, which a grant allows only where it says so.
        """
        entry, tenant = self.catalog(catalog), self.tenant
        if tenant is None or (tenant.is_only and not entry.grants):
            return
        granted = [grant for grant in entry.grants if tenant.is_granted(grant.namespaces) and is_named(table, grant.tables)]
        if not granted or (overwrites and not any(grant.overwrites for grant in granted)):
            may_not = "use" if not granted else "overwrite"
            more = ", overwrites: true" if overwrites else ""
            raise NeedsChange(
                reasons.ACCESS_NOT_GRANTED,
                f"writes of the namespace {tenant.namespace} may not {may_not} the table {table} of the catalog {catalog!r}; "
                f"the administrator of the operator can grant it: {{namespaces: [{tenant.namespace}], tables: [{table}]"
                f"{more}}} in {self.place.name(f'catalogs.{catalog}.grants')}",
            )

    def _may_use_some_of(self, catalog: CatalogSettings) -> bool:
        tenant = self.tenant
        if tenant is None or (tenant.is_only and not catalog.grants):
            return True
        return any(tenant.is_granted(grant.namespaces) for grant in catalog.grants)

    def for_drivers(self) -> StorageSettings:
        """Return what a driver may know: storage and Kafka clusters, no catalogs."""
        storage = StorageSettings(storage=self.storage, kafka=self.kafka).found_in(self.place)
        return storage if self._allows_paths else storage.in_buckets_only()
