"""The settings file of the operator or the local runner: catalogs and storage, with their credentials.

Manifests name catalogs; how to reach one stands here and only here. Drivers are handed the storage part, never the catalogs.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.patterns import NamespacePattern, is_named
from checkpoint_protocol.places.setting_values import Secret, SettingsSection
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.places.uris import BUCKET_SCHEMES, scheme_of

_OF_GLUE: Final = ("region", "endpoint", "catalog_id", "access_key_id", "secret_access_key", "session_token", "credentials")


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

    type: Literal["sql", "rest", "glue"]
    uri: str = Field(
        default="",
        repr=False,
        description="sql and rest, which need it. sql: an SQLAlchemy URI (sqlite:///..., postgresql+psycopg2://...).",
    )
    warehouse: str | None = Field(default=None, description="The location of new tables (a name, for some REST catalogs).")
    credential: Secret | None = Field(default=None, description="REST: client id and secret, as id:secret.")
    token: Secret | None = Field(default=None, description="REST: a bearer token.")
    scope: str | None = None
    region: str | None = Field(default=None, description="Glue, which needs it.")
    endpoint: str | None = Field(
        default=None, description="Glue: another address than that of the region, e.g. of a VPC endpoint."
    )
    catalog_id: str | None = Field(
        default=None, description="Glue: the AWS account whose catalog it is, if not that of the keys."
    )
    access_key_id: Secret | None = Field(default=None, description="Glue.")
    secret_access_key: Secret | None = Field(default=None, description="Glue.")
    session_token: Secret | None = Field(default=None, description="Glue.")
    credentials: Literal["ambient", "vended"] | None = Field(
        default=None,
        description="Glue, instead of keys: the identity of the machine or pod (environment, instance role, IRSA).",
    )
    grants: tuple[CatalogGrant, ...] = Field(
        default=(),
        description="Cluster: the namespaces whose writes may use the catalog, and which tables. If absent, a namespace that is "
        "the only one watched may use all tables, and other namespaces none.",
    )

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> CatalogSettings:
        if self.type == "glue":
            self._check_glue()
            return self
        given = [name for name in _OF_GLUE if getattr(self, name) is not None and not (name == "credentials" and self.is_vending)]
        if given:
            raise ValueError(f"a {self.type} catalog takes no {given[0]}, which is of glue catalogs")
        if not self.uri:
            raise ValueError(f"a {self.type} catalog needs a uri")
        if self.type == "sql" and self.warehouse is None:
            raise ValueError("a sql catalog needs a warehouse")
        if self.type == "sql" and (self.credential or self.token):
            raise ValueError("a sql catalog takes its credentials in the uri")
        return self

    def _check_glue(self) -> None:
        if self.uri or self.credential or self.token or self.scope:
            raise ValueError("a glue catalog takes no uri, credential, token or scope")
        if self.region is None:
            raise ValueError("a glue catalog needs a region")
        if self.warehouse is not None and scheme_of(self.warehouse) not in BUCKET_SCHEMES:
            raise ValueError("the warehouse of a glue catalog lies in a bucket (s3://...)")
        keys = (self.access_key_id, self.secret_access_key)
        # A client that is left to itself asks the instance's metadata address who this machine is.
        if None in keys and self.credentials is None:
            raise ValueError(
                "a glue catalog needs access_key_id and secret_access_key, or credentials: ambient (the identity of this machine "
                "or pod)"
            )
        if self.credentials is not None and any(key is not None for key in (*keys, self.session_token)):
            raise ValueError("a glue catalog takes keys or credentials: ambient, not both")

    @property
    def is_vending(self) -> bool:
        """Whether the keys are taken that it hands out with a table."""
        return self.type == "rest" and self.credentials == "vended"

    @property
    def address(self) -> str:
        """Where its requests, and the credentials with them, are sent."""
        return self.endpoint or f"https://glue.{self.region}.amazonaws.com" if self.type == "glue" else self.uri


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
        storage = StorageSettings(storage=self.storage, kafka=self.kafka).found_in(self.place).with_keys(self.handed)
        return storage if self._allows_paths else storage.in_buckets_only()
