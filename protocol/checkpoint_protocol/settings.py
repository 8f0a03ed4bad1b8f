"""The settings file of the operator or the local runner: catalogs and storage, with their credentials.

Manifests name catalogs; how to reach one stands here and only here. Drivers are handed the storage part, never the catalogs.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from checkpoint_protocol.storage import Secret, SettingsSection, StorageSettings


class CatalogSettings(SettingsSection):
    """One Iceberg catalog."""

    type: Literal["sql", "rest"]
    uri: str = Field(min_length=1, repr=False, description="sql: an SQLAlchemy URI (sqlite:///..., postgresql+psycopg2://...).")
    warehouse: str | None = Field(default=None, description="Where new tables lie (a name, for some REST catalogs).")
    credential: Secret | None = Field(default=None, description="REST: client id and secret, as id:secret.")
    token: Secret | None = Field(default=None, description="REST: a bearer token.")
    scope: str | None = None

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

    def for_drivers(self) -> StorageSettings:
        """Return what a driver may know: storage, no catalogs."""
        return StorageSettings(storage=self.storage).standing_in(self.place)
