"""Where objects lie and how to reach them: declared once, translated here for every library that reads or writes.

A storage entry belongs to a URI prefix; the longest matching prefix wins. The translations return plain keyword arguments, so
that this module needs none of the libraries.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlparse

from pydantic import BaseModel, ConfigDict, Discriminator, Field, SecretStr, Tag, field_serializer, model_validator

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.problems import NO_SECRET, UNION_MARK

_MAX_CONNECT_S = 5
_MAX_RETRY_S = 30


class SettingsSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SecretRef(SettingsSection):
    """A secret that lies elsewhere: in an environment variable or a file (whose trailing line break is dropped)."""

    env: str | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _names_one_place(self) -> SecretRef:
        if (self.env is None) == (self.file is None):
            raise ValueError("exactly one of env and file is expected")
        return self

    def read(self) -> str:
        if self.env is not None:
            if self.env not in os.environ:
                raise NeedsChange(reasons.MANIFEST_INVALID, f"settings: the environment variable {self.env} is not set")
            return os.environ[self.env]
        assert self.file is not None
        try:
            return Path(self.file).read_text().rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise NeedsChange(reasons.MANIFEST_INVALID, f"settings: cannot read the secret file {self.file}: {error}") from error


_TEXT: Final = f"{UNION_MARK}text"
_REFERENCE: Final = f"{UNION_MARK}reference"


def _kind_of_secret(value: object) -> str | None:
    if isinstance(value, str | SecretStr):
        return _TEXT
    return _REFERENCE if isinstance(value, dict | SecretRef) else None


#: Told apart before either is tried, so that what is wrong is said of the one that was meant.
Secret = Annotated[
    Annotated[SecretRef, Tag(_REFERENCE)] | Annotated[SecretStr, Tag(_TEXT)],
    Discriminator(
        _kind_of_secret,
        custom_error_type=NO_SECRET,
        custom_error_message="a text, {env: NAME} or {file: PATH} is expected",
    ),
]


def reveal(secret: SecretRef | SecretStr) -> str:
    """Return the secret's text. For the translations and the catalogs only; never for messages."""
    return secret.read() if isinstance(secret, SecretRef) else secret.get_secret_value()


class StorageEntry(SettingsSection):
    """How to reach the objects below one URI prefix (s3://bucket/..., gs://..., az://...)."""

    prefix: str = Field(min_length=1)
    endpoint: str | None = None
    region: str | None = None
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    account_name: str | None = Field(default=None, description="Azure.")
    account_key: Secret | None = Field(default=None, description="Azure.")
    service_account_file: str | None = Field(default=None, description="GCS: the path of a key file.")

    @field_serializer("access_key_id", "secret_access_key", "session_token", "account_key")
    def _serialize_secret(self, secret: SecretRef | SecretStr | None) -> Any:
        # Used for the private file that hands storage settings to a driver; reprs and messages stay masked.
        if isinstance(secret, SecretStr):
            return secret.get_secret_value()
        return secret.model_dump() if secret is not None else None


class StorageSettings(SettingsSection):
    """All storage entries. Without one for a URI, each library's own defaults apply (environment, instance roles)."""

    storage: tuple[StorageEntry, ...] = ()

    def entry_for(self, uri: str) -> StorageEntry | None:
        """Return the entry with the longest prefix that holds this URI."""
        matching = [entry for entry in self.storage if _holds(entry.prefix, uri)]
        return max(matching, key=lambda entry: len(entry.prefix), default=None)


def _holds(prefix: str, uri: str) -> bool:
    return uri == prefix.rstrip("/") or uri.startswith(prefix if prefix.endswith("/") else prefix + "/")


def _texts(**values: str | SecretRef | SecretStr | None) -> dict[str, str]:
    return {name: value if isinstance(value, str) else reveal(value) for name, value in values.items() if value is not None}


def _scheme(uri: str) -> str:
    scheme = urlparse(uri).scheme
    return {"s3a": "s3", "gcs": "gs", "abfs": "az", "abfss": "az"}.get(scheme, scheme)


def _is_plain_http(entry: StorageEntry) -> bool:
    return entry.endpoint is not None and entry.endpoint.startswith("http://")


def obstore_options(uri: str, settings: StorageSettings) -> dict[str, Any]:
    """Return keyword arguments of `obstore.store.from_url`."""
    entry = settings.entry_for(uri)
    options: dict[str, Any] = {
        "client_options": {"connect_timeout": f"{_MAX_CONNECT_S}s", "timeout": "60s"},
        "retry_config": {"max_retries": 6, "retry_timeout": timedelta(seconds=_MAX_RETRY_S)},
    }
    if entry is None:
        return options
    if _is_plain_http(entry):
        options["client_options"]["allow_http"] = True
    scheme = _scheme(uri)
    if scheme == "s3":
        options["config"] = _texts(
            endpoint=entry.endpoint,
            region=entry.region or "us-east-1",
            access_key_id=entry.access_key_id,
            secret_access_key=entry.secret_access_key,
            session_token=entry.session_token,
        )
    elif scheme == "gs":
        options["config"] = _texts(service_account=entry.service_account_file)
    elif scheme == "az":
        options["config"] = _texts(account_name=entry.account_name, account_key=entry.account_key, endpoint=entry.endpoint)
    return options


def pyarrow_options(uri: str, settings: StorageSettings) -> dict[str, Any]:
    """Return keyword arguments of pyarrow's S3FileSystem, GcsFileSystem or AzureFileSystem for a URI."""
    entry = settings.entry_for(uri)
    if entry is None:
        return {}
    scheme = _scheme(uri)
    if scheme == "s3":
        options: dict[str, Any] = _texts(
            region=entry.region or "us-east-1",
            access_key=entry.access_key_id,
            secret_key=entry.secret_access_key,
            session_token=entry.session_token,
        )
        if entry.endpoint is not None:
            options["endpoint_override"] = entry.endpoint
            options["scheme"] = urlparse(entry.endpoint).scheme
        return options | {"connect_timeout": _MAX_CONNECT_S, "request_timeout": 60}
    if scheme == "gs":
        return {}
    return _texts(account_name=entry.account_name, account_key=entry.account_key)


def iceberg_options(uri: str, settings: StorageSettings) -> dict[str, str]:
    """Return pyiceberg FileIO properties for a table location."""
    entry = settings.entry_for(uri)
    if entry is None:
        return {}
    scheme = _scheme(uri)
    if scheme == "s3":
        named = _texts(
            endpoint=entry.endpoint,
            region=entry.region or "us-east-1",
            **{
                "access-key-id": entry.access_key_id,
                "secret-access-key": entry.secret_access_key,
                "session-token": entry.session_token,
            },
        )
        return {f"s3.{name}": value for name, value in named.items()} | {"s3.connect-timeout": str(_MAX_CONNECT_S)}
    if scheme == "az":
        named = _texts(**{"account-name": entry.account_name, "account-key": entry.account_key})
        return {f"adls.{name}": value for name, value in named.items()}
    return {}


def lance_options(uri: str, settings: StorageSettings) -> dict[str, str]:
    """Return Lance storage options for a dataset URI."""
    entry = settings.entry_for(uri)
    if entry is None:
        return {}
    scheme = _scheme(uri)
    if scheme == "s3":
        options = _texts(
            aws_endpoint=entry.endpoint,
            aws_region=entry.region or "us-east-1",
            aws_access_key_id=entry.access_key_id,
            aws_secret_access_key=entry.secret_access_key,
            aws_session_token=entry.session_token,
        )
        return options | ({"allow_http": "true"} if _is_plain_http(entry) else {}) | {"connect_timeout": f"{_MAX_CONNECT_S}s"}
    if scheme == "gs":
        return _texts(service_account=entry.service_account_file)
    return _texts(account_name=entry.account_name, account_key=entry.account_key, endpoint=entry.endpoint)
