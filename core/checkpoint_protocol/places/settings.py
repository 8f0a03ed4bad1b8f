"""The settings file of the operator or the local runner: catalogs, Lance namespaces and storage, with their credentials.

Manifests name catalogs and namespaces; how to reach one stands here and only here. Drivers are handed the storage part, and
neither of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, Never, Self, TypeVar

from pydantic import ConfigDict, Discriminator, Field, GetPydanticSchema, Tag, field_validator, model_validator
from pydantic_core import PydanticOmit

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.problems import UNION_MARK
from checkpoint_protocol.places.patterns import NamespacePattern, is_named
from checkpoint_protocol.places.setting_values import Secret, SettingsSection
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.places.uris import BUCKET_SCHEMES, scheme_of


class CatalogGrant(SettingsSection):
    """Namespaces, and the tables of a catalog that their writes may read and append to, or overwrite."""

    namespaces: tuple[NamespacePattern, ...] = Field(min_length=1, description="E.g. [team-a, etl-*].")
    tables: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=("*",), min_length=1, description="E.g. [sales.*, raw.events]; * matches any characters."
    )
    overwrites: bool = Field(
        default=False, description="Also allow the overwriting values of spec.sink.mode, which remove rows of other writers."
    )


class _CatalogSettings(SettingsSection):
    """One Iceberg catalog, of any type."""

    # A type has a default for code only: in a file, it tells the entries apart.
    model_config = ConfigDict(json_schema_extra=lambda schema: schema["required"].append("type"))

    warehouse: str | None = Field(default=None, description="The location of new tables (a name, for some REST catalogs).")
    grants: tuple[CatalogGrant, ...] = Field(
        default=(),
        description="Cluster: the namespaces whose writes may use the catalog, and which tables. If absent, a namespace that is "
        "the only one watched may use all tables, and other namespaces none.",
    )


class SqlCatalogSettings(_CatalogSettings):
    """A catalog in a database."""

    type: Literal["sql"] = "sql"
    uri: str = Field(
        min_length=1,
        repr=False,
        description="An SQLAlchemy URI (sqlite:///..., postgresql+psycopg2://...), credentials included.",
    )
    warehouse: str = Field(description="The location of new tables.")


class AwsIdentity(SettingsSection):
    """As whom AWS is asked."""

    region: str
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    credentials: Literal["ambient"] | None = Field(
        default=None, description="Instead of keys: the identity of the machine or pod (environment, instance role, IRSA)."
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        keys = (self.access_key_id, self.secret_access_key)
        # A client that is left to itself asks the instance's metadata address who this machine is.
        if None in keys and self.credentials is None:
            raise ValueError(
                "access_key_id and secret_access_key are needed, or credentials: ambient (the identity of this machine or pod)"
            )
        if self.credentials is not None and any(key is not None for key in (*keys, self.session_token)):
            raise ValueError("keys or credentials: ambient are expected, not both")
        return self


class Signing(AwsIdentity):
    """SigV4: how requests are signed for AWS."""

    name: str = Field(min_length=1, description="Of the service: s3tables, glue or execute-api.")


class RestCatalogSettings(_CatalogSettings):
    """A catalog of Iceberg's REST protocol."""

    type: Literal["rest"] = "rest"
    uri: str = Field(min_length=1, repr=False)
    credential: Secret | None = Field(default=None, description="Client id and secret, as id:secret.")
    token: Secret | None = Field(default=None, description="A bearer token.")
    scope: str | None = Field(default=None, description="Asked for with a token, as are audience and resource.")
    audience: str | None = None
    resource: str | None = None
    credentials: Literal["vended"] | None = Field(
        default=None,
        description="The keys that it hands out with a table are taken for its files, where the storage entry that covers them "
        "says credentials: vended, too.",
    )
    oauth2_server_uri: str | None = Field(
        default=None,
        repr=False,
        description="Where tokens for the credential are asked for. If absent, at the catalog itself (v1/oauth/tokens).",
    )
    signing: Signing | None = Field(
        default=None,
        description="Instead of credential and token: requests are signed for AWS (SigV4). Has region, the name of the service "
        "(s3tables, glue or execute-api), and access_key_id and secret_access_key (and session_token), or credentials: ambient.",
    )

    @model_validator(mode="after")
    def _has_one_way_in(self) -> Self:
        if self.signing is not None and (self.credential is not None or self.token is not None):
            raise ValueError("signing, or credential and token are expected, not both")
        return self


class GlueCatalogSettings(_CatalogSettings, AwsIdentity):
    """The AWS Glue Data Catalog."""

    type: Literal["glue"] = "glue"
    endpoint: str | None = Field(default=None, description="Another address than that of the region, e.g. of a VPC endpoint.")
    catalog_id: str | None = Field(default=None, description="The AWS account whose catalog it is, if not that of the keys.")

    @field_validator("warehouse")
    @classmethod
    def _lies_in_a_bucket(cls, warehouse: str | None) -> str | None:
        if warehouse is not None and scheme_of(warehouse) not in BUCKET_SCHEMES:
            raise ValueError("the warehouse of a glue catalog lies in a bucket (s3://...)")
        return warehouse

    @property
    def uri(self) -> str:
        """Where its requests, and the credentials with them, are sent."""
        return self.endpoint or f"https://glue.{self.region}.amazonaws.com"


CatalogSettings = SqlCatalogSettings | RestCatalogSettings | GlueCatalogSettings


def _is_in_no_schema(*_: Any) -> Never:
    raise PydanticOmit


class _OfNoType(SettingsSection):
    """Taken by none: says which types there are, and nothing of fields that depend on it."""

    model_config = ConfigDict(extra="ignore")
    type: Literal["sql", "rest", "glue"]


def _tag_of(entry: Any) -> str:
    given = entry.get("type") if isinstance(entry, dict) else getattr(entry, "type", None)
    return f"{UNION_MARK}{given if given in ('sql', 'rest', 'glue') else ''}"


_Entry = Annotated[
    Annotated[SqlCatalogSettings, Tag(f"{UNION_MARK}sql")]
    | Annotated[RestCatalogSettings, Tag(f"{UNION_MARK}rest")]
    | Annotated[GlueCatalogSettings, Tag(f"{UNION_MARK}glue")]
    | Annotated[Never, GetPydanticSchema(lambda _, schema_of: schema_of(_OfNoType), _is_in_no_schema), Tag(UNION_MARK)],
    Discriminator(_tag_of),
]


class NamespaceSettings(SettingsSection):
    """One Lance namespace, which leads from the names of tables to their URIs."""

    type: Literal["directory", "rest"]
    root: str | None = Field(default=None, description="directory: the folder of the tables, e.g. s3://bucket/tables.")
    uri: str | None = Field(default=None, description="rest: the server, e.g. https://namespace.example.com.")
    token: Secret | None = Field(default=None, description="rest: a bearer token.")
    headers: dict[str, Secret] = Field(default_factory=dict, description="rest: sent with each request, e.g. x-api-key.")
    credentials: Literal["vended"] | None = Field(
        default=None, description="rest: the keys that it hands out with a table are taken, as those of a catalog are."
    )
    grants: tuple[CatalogGrant, ...] = Field(
        default=(), description="Cluster: as the grants of a catalog, of tables as they are called in the namespace."
    )

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> NamespaceSettings:
        if self.type == "directory" and (self.root is None or self.uri or self.token or self.headers or self.credentials):
            raise ValueError("a directory namespace needs a root, and takes no uri, token, headers or credentials")
        if self.type == "rest" and (self.root is not None or not (self.uri or "").startswith(("http://", "https://"))):
            raise ValueError("a rest namespace needs a uri (https://... or http://...), and takes no root")
        return self

    @property
    def address(self) -> str:
        """Where it is asked; for a server, where credentials are sent."""
        return self.root or self.uri or ""


_Named = Literal["catalogs", "namespaces"]
_Granting = TypeVar("_Granting", bound=CatalogSettings | NamespaceSettings)
_ONE_OF: Final[Mapping[_Named, str]] = {"catalogs": "catalog", "namespaces": "Lance namespace"}


class Settings(StorageSettings):
    """The whole settings file."""

    catalogs: dict[str, _Entry] = Field(default_factory=dict)
    namespaces: dict[str, NamespaceSettings] = Field(default_factory=dict)

    def catalog(self, name: str) -> CatalogSettings:
        """Return how to reach a catalog. NeedsChange if there is none of this name."""
        ways = [f'{name}: {{type: rest, uri: "https://catalog.example.com"}}']
        if self.tenant is None:
            ways.append(f'{name}: {{type: sql, uri: "sqlite:///catalog.db", warehouse: warehouse}}')
        return self._named("catalogs", name, self.catalogs, ways)

    def namespace(self, name: str) -> NamespaceSettings:
        """Return how to reach a Lance namespace. NeedsChange if there is none of this name."""
        ways = [f"{name}: {{type: directory, root: {root}}}" for root in ("s3://bucket/tables", "tables")]
        return self._named("namespaces", name, self.namespaces, ways[: 1 if self.tenant is not None else 2])

    def _named(self, field: _Named, name: str, entries: Mapping[str, _Granting], ways: Iterable[str]) -> _Granting:
        if (entry := entries.get(name)) is not None:
            return entry
        known = ", ".join(sorted(name for name, one in entries.items() if self._may_use_some_of(one))) or "none"
        example = ", or ".join(f"{field}: {{{way}}}" for way in ways)
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"there is no {_ONE_OF[field]} {name!r} (there are: {known}); add it to {self.place.name(field)}, e.g. {example}",
        )

    def check_grant(self, name: str, table: str, *, overwrites: bool = False, field: _Named = "catalogs") -> None:
        """Refuse a table that is not granted to whom the settings are used for, or whose catalog there is not: NeedsChange.

        `overwrites`: it is to be overwritten, which a grant allows only where it says so. `field`: where the name is one.
        """
        entry, tenant = self.catalog(name) if field == "catalogs" else self.namespace(name), self.tenant
        if tenant is None or (tenant.is_only and not entry.grants):
            return
        granted = [grant for grant in entry.grants if tenant.is_granted(grant.namespaces) and is_named(table, grant.tables)]
        if not granted or (overwrites and not any(grant.overwrites for grant in granted)):
            may_not = "use" if not granted else "overwrite"
            more = ", overwrites: true" if overwrites else ""
            raise NeedsChange(
                reasons.ACCESS_NOT_GRANTED,
                f"writes of the namespace {tenant.namespace} may not {may_not} the table {table} of the {_ONE_OF[field]} "
                f"{name!r}; the administrator of the operator can grant it: {{namespaces: [{tenant.namespace}], tables: [{table}]"
                f"{more}}} in {self.place.name(f'{field}.{name}.grants')}",
            )

    def _may_use_some_of(self, entry: CatalogSettings | NamespaceSettings) -> bool:
        tenant = self.tenant
        if tenant is None or (tenant.is_only and not entry.grants):
            return True
        return any(tenant.is_granted(grant.namespaces) for grant in entry.grants)

    def for_drivers(self) -> StorageSettings:
        """Return what a driver may know: storage and Kafka clusters, no catalogs or namespaces."""
        storage = StorageSettings(storage=self.storage, kafka=self.kafka).found_in(self.place).with_keys(self.handed)
        return storage if self._allows_paths else storage.in_buckets_only()
