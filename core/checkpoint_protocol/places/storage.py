"""Where objects lie and how to reach them: declared once, translated here for every library that reads or writes.

A storage entry belongs to a URI prefix; the longest matching prefix wins. The translations return plain keyword arguments, so
that this module needs none of the libraries.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import urlparse

from pydantic import Field, PrivateAttr, SecretStr, field_serializer, model_validator

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.handed_keys import HandedKeys, HandedOut
from checkpoint_protocol.places.kafka_settings import KafkaEntry
from checkpoint_protocol.places.patterns import NamespacePattern, Tenant
from checkpoint_protocol.places.setting_values import (
    SETTINGS_FILE,
    Secret,
    SecretRef,
    SettingsPlace,
    SettingsSection,
    in_full,
    reveal,
)
from checkpoint_protocol.places.uris import SAME_STORE, account_of, local_path, why_not_opened, why_not_parsed

_MAX_CONNECT_S = 5
_MAX_RETRY_S = 30
#: Lance takes %2e for a dot.
_READ_BY_LANCE = "?#%"
#: The fields of keys that are complete.
_KEYS: Final = {
    "s3": ("access_key_id", "secret_access_key"),
    "gs": ("service_account_file",),
    "az": ("account_key",),
}
#: The variables that libraries take a token from, in any case, also where keys are given: Lance, where the token goes before
#: the keys on Azure and GCS, and obstore on GCS.
_TOKENS_OF_OTHERS: Final = {
    "s3": ("aws_session_token", "aws_token", "session_token", "token"),
    "gs": ("google_bearer_token", "bearer_token"),
    "az": ("azure_storage_token", "bearer_token", "token"),
}


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
    credentials: Literal["ambient", "anonymous", "vended"] | None = Field(
        default=None,
        description="Used instead of keys. ambient: the identity of the machine or pod (environment, instance role, IRSA, "
        "workload identity). anonymous: no credentials, for public buckets. vended: keys that a catalog hands out for the files "
        "of its tables (credentials: vended in that catalog, too).",
    )
    namespaces: tuple[NamespacePattern, ...] = Field(
        default=(),
        description="Cluster: the namespaces whose writes may use the entry, e.g. [team-a, etl-*]. If absent, only a "
        "namespace that is the only one watched may use it.",
    )
    overwrites: bool = Field(
        default=False,
        description="Cluster: the same namespaces may also overwrite the Lance datasets under the prefix, with a spec.sink.mode "
        "other than Append, which removes rows of other writers.",
    )

    @model_validator(mode="after")
    def _has_one_kind_of_credentials(self) -> StorageEntry:
        if self.credentials is not None and self.has_keys:
            raise ValueError(f"credentials: {self.credentials}: keys do not go with it; leave one of them out")
        return self

    @property
    def has_keys(self) -> bool:
        keys = (self.access_key_id, self.secret_access_key, self.session_token, self.account_key, self.service_account_file)
        return any(key is not None for key in keys)

    @property
    def is_anonymous(self) -> bool:
        return self.credentials == "anonymous"

    @property
    def is_vended(self) -> bool:
        return self.credentials == "vended"

    @field_serializer("access_key_id", "secret_access_key", "session_token", "account_key")
    def _serialize_secret(self, secret: SecretRef | SecretStr | None) -> Any:
        return in_full(secret)


class StorageSettings(SettingsSection):
    """All storage entries. What is in no bucket needs none; a bucket without one is refused."""

    storage: tuple[StorageEntry, ...] = ()
    kafka: tuple[KafkaEntry, ...] = Field(
        default=(),
        exclude_if=lambda entries: not entries,
        description="Kafka clusters that need credentials or TLS. Other clusters need no entry.",
    )
    _place: SettingsPlace = PrivateAttr(default=SETTINGS_FILE)
    _tenant: Tenant | None = PrivateAttr(default=None)
    _allows_paths: bool = PrivateAttr(default=True)
    _handed: HandedOut | None = PrivateAttr(default=None)

    @property
    def place(self) -> SettingsPlace:
        """Where these settings stand, for messages."""
        return self._place

    def found_in(self, place: SettingsPlace) -> Self:
        """Return the same settings, of which messages say that they stand there."""
        copied = self.model_copy()
        copied._place = place
        return copied

    @property
    def tenant(self) -> Tenant | None:
        """Whom they are used for; None where nobody else could be."""
        return self._tenant

    def used_by(self, tenant: Tenant) -> Self:
        """Return the same settings, which then give nothing that is not granted to this namespace."""
        copied = self.model_copy()
        copied._tenant = tenant
        return copied

    @property
    def handed(self) -> HandedOut | None:
        """The keys for entries that say `credentials: vended`; None where nobody has handed out any."""
        return self._handed

    def with_keys(self, handed: HandedOut | None) -> Self:
        """Return the same settings with keys that a catalog hands out."""
        copied = self.model_copy()
        copied._handed = handed
        return copied

    def in_buckets_only(self) -> Self:
        """Return the same settings, by which nothing on this machine's disk is opened, whoever names it."""
        copied = self.model_copy()
        copied._allows_paths = False
        return copied

    def beside(self, location: str) -> Self:
        """Return the settings for what the metadata of a table name: paths on disk only if the table itself lies there."""
        return self if local_path(location) is not None else self.in_buckets_only()

    def check_overwrites(self, uri: str) -> None:
        """Refuse to overwrite a dataset whose entry is not granted for that to whom the settings are used for: NeedsChange.

        What is on disk has no entry, and nobody to grant it.
        """
        entry, tenant = entry_of(uri, self), self._tenant
        if entry is None or tenant is None or entry.overwrites or (tenant.is_only and not entry.namespaces):
            return
        raise NeedsChange(
            reasons.ACCESS_NOT_GRANTED,
            f"writes of the namespace {tenant.namespace} may not overwrite {uri}: the storage entry {entry.prefix} is granted to "
            "it for appends only; the administrator of the operator can set overwrites: true in it, or in one with a longer "
            f"prefix, in {self._place.name('storage')}",
        )

    def entry_for(self, uri: str) -> StorageEntry | None:
        """Return the entry with the longest prefix that holds this URI."""
        matching = [entry for entry in self.storage if _holds(entry.prefix, uri, entry)]
        return max(matching, key=lambda entry: len(entry.prefix), default=None)

    def has_entries_below(self, uri: str) -> bool:
        """Whether something in a folder has another entry than the folder itself."""
        own = self.entry_for(uri)
        return any(entry is not own and _holds(uri, entry.prefix, entry) for entry in self.storage)


def disk_path(uri: str, settings: StorageSettings) -> Path | None:
    """Return where on this machine's disk a URI is to be opened; None for what is in a bucket.

    NeedsChange(ManifestInvalid) if it is not to be opened at all. Everything that opens something asks this, or `entry_of`.
    """
    if (why := why_not_opened(uri)) is not None:
        raise NeedsChange(reasons.MANIFEST_INVALID, why)
    path = local_path(uri)
    if path is not None and not settings._allows_paths:
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"{uri} is a path, and nothing on disk is opened here; use an object store (s3://, gs://, az://)",
        )
    return path


def entry_of(uri: str, settings: StorageSettings) -> StorageEntry | None:
    """Return the entry to reach a URI by; None for what is on disk. NeedsChange if it is not to be opened (see `disk_path`), or
    if a bucket has no entry, one without keys, or one that is not granted to whom the settings are used for.

    Left to themselves the libraries ask the instance's metadata address for the identity of this machine, and use it for
    whatever bucket a manifest names.
    """
    if disk_path(uri, settings) is not None:
        return None
    entry = settings.entry_for(uri)
    example = f"storage: [{{prefix: {uri.partition('://')[0]}://{urlparse(uri).netloc}/, credentials: ambient}}]"
    ways = (
        "keys, or credentials: ambient (the identity of this machine or pod), anonymous (a public bucket) or vended (keys that a "
        f"catalog hands out), e.g. {example}"
    )
    place = settings.place.name("storage")
    if entry is None:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"no storage entry covers {uri}: add one to {place}, with {ways}")
    tenant = settings.tenant
    if tenant is not None and not tenant.is_granted(entry.namespaces):
        raise NeedsChange(
            reasons.ACCESS_NOT_GRANTED,
            f"writes of the namespace {tenant.namespace} may not use {uri}: the storage entry {entry.prefix} is not granted to "
            f"it; the administrator of the operator can add {tenant.namespace} to its namespaces, in {place}",
        )
    if entry.credentials is None and not entry.has_keys:
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"the storage entry {entry.prefix} ({place}), which covers {uri}, has neither keys nor credentials: give it {ways}",
        )
    missing = [name for name in _KEYS[_scheme(uri)] if getattr(entry, name) is None] if entry.credentials is None else []
    if _scheme(uri) == "az":
        named = account_of(urlparse(uri).netloc.partition("@")[2])
        if named and entry.account_name not in (None, named):
            # obstore would go to the entry's account, and Lance with its key to the other one.
            raise NeedsChange(
                reasons.MANIFEST_INVALID,
                f"{uri} is in the account {named}, and the storage entry {entry.prefix} ({place}), which covers it, says "
                f"account_name: {entry.account_name}; correct one of them",
            )
        missing += [] if named or entry.account_name else ["account_name"]
    if missing:
        # Libraries take what is missing from this process's variables, or the identity of this machine.
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"the storage entry {entry.prefix} ({place}), which covers {uri}, lacks {' and '.join(missing)}: give it {ways}",
        )
    return entry


def _holds(prefix: str, uri: str, entry: StorageEntry) -> bool:
    prefix, uri = _by_its_first_name(prefix, entry), _by_its_first_name(uri, entry)
    return uri == prefix.rstrip("/") or uri.startswith(prefix if prefix.endswith("/") else prefix + "/")


def _texts(settings: StorageSettings, /, **values: str | SecretRef | SecretStr | None) -> dict[str, str]:
    place = settings.place.name("storage")
    return {
        name: value if isinstance(value, str) else reveal(value, place) for name, value in values.items() if value is not None
    }


def _scheme(uri: str) -> str:
    scheme = urlparse(uri).scheme
    return SAME_STORE.get(scheme, scheme)


def _by_its_first_name(uri: str, entry: StorageEntry) -> str:
    scheme, separator, rest = uri.partition("://")
    container, at, host = rest.partition("/")[0].partition("@")
    if at and account_of(host) == entry.account_name:
        # The entry says the same account as the URI does.
        rest = container + rest.removeprefix(f"{container}@{host}")
    return f"{SAME_STORE.get(scheme, scheme)}{separator}{rest}"


def _is_plain_http(entry: StorageEntry) -> bool:
    return entry.endpoint is not None and entry.endpoint.startswith("http://")


def obstore_options(uri: str, settings: StorageSettings) -> dict[str, Any]:
    """Return keyword arguments of `obstore.store.from_url`."""
    entry = entry_of(uri, settings)
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
            settings,
            endpoint=entry.endpoint,
            region=entry.region or "us-east-1",
            access_key_id=entry.access_key_id,
            secret_access_key=entry.secret_access_key,
            session_token=entry.session_token,
        )
    elif scheme == "gs":
        if entry.has_keys:
            _refuse_tokens_of_others(entry, settings, _TOKENS_OF_OTHERS[scheme])
        options["config"] = _texts(settings, service_account=entry.service_account_file, base_url=entry.endpoint)
    elif scheme == "az":
        options["config"] = _texts(
            settings, account_name=entry.account_name, account_key=entry.account_key, endpoint=entry.endpoint
        )
    if entry.is_anonymous:
        options["config"]["skip_signature"] = True
        if scheme == "gs":
            options["config"] |= _NO_TOKEN_OF_GCS
    elif entry.is_vended:
        _handed_keys(uri, settings)  # what is wrong is told here: the provider's errors come through obstore
        options["credential_provider"] = lambda: _handed_keys(uri, settings).credential
    elif entry.has_keys and (given := _credential(scheme, options["config"])) is not None:
        # obstore adds to the config what variables of this process say, such as AWS_SESSION_TOKEN; not to this.
        options["credential_provider"] = lambda: given
    return options


#: For puts object_store would else ask for the identity of this machine, whatever `skip_signature` says.
_NO_TOKEN_OF_GCS: Final = {"bearer_token": ""}


def _credential(scheme: str, config: dict[str, str]) -> dict[str, str | None] | None:
    """Return keys as obstore's credential providers give them; None for GCS, where they give tokens only."""
    if scheme == "s3":
        keys = {name: config[name] for name in ("access_key_id", "secret_access_key")}
        return {**keys, "token": config.get("session_token"), "expires_at": None}
    return {"access_key": config["account_key"], "expires_at": None} if scheme == "az" else None


def _handed_keys(uri: str, settings: StorageSettings) -> HandedKeys:
    """Return the keys that were handed out for a URI. NeedsChange if there are none; see HandedOut."""
    found = settings.handed.find(f"{_scheme(uri)}://{uri.partition('://')[2]}") if settings.handed is not None else None
    if found is None:
        raise NeedsChange(
            reasons.CREDENTIALS_REFUSED,
            f"no catalog has handed out keys for {uri}, which a storage entry with credentials: vended covers "
            f"({settings.place.name('storage')}): they are handed out for the tables of a catalog with credentials: vended; give "
            "other places, such as that of the checkpoint, an entry of their own with a longer prefix",
        )
    return found


def is_read_by_pyarrow(uri: str, settings: StorageSettings) -> bool:
    """Whether pyarrow's client for S3 is used for a URI. It cannot be given all that entries for GCS and Azure say, and cannot
    renew keys that a catalog hands out.
    """
    entry = settings.entry_for(uri)
    return _scheme(uri) == "s3" and not (entry is not None and entry.is_vended)


def pyarrow_options(uri: str, settings: StorageSettings) -> dict[str, Any]:
    """Return keyword arguments of pyarrow's S3FileSystem; none for what it does not read."""
    entry = entry_of(uri, settings)
    if entry is None or not is_read_by_pyarrow(uri, settings):
        return {}
    options: dict[str, Any] = _texts(
        settings,
        region=entry.region or "us-east-1",
        access_key=entry.access_key_id,
        secret_key=entry.secret_access_key,
        session_token=entry.session_token,
    )
    if entry.endpoint is not None:
        options["endpoint_override"] = entry.endpoint
        options["scheme"] = urlparse(entry.endpoint).scheme
    if entry.is_anonymous:
        options["anonymous"] = True
    return options | {"connect_timeout": _MAX_CONNECT_S, "request_timeout": 60}


def iceberg_options(uri: str, settings: StorageSettings) -> dict[str, str]:
    """Return properties of pyiceberg's own FileIO; none for what `ObjectFileIO` opens."""
    entry = entry_of(uri, settings)
    if entry is None or not is_read_by_pyarrow(uri, settings):
        return {}
    named = _texts(
        settings,
        endpoint=entry.endpoint,
        region=entry.region or "us-east-1",
        **{
            "access-key-id": entry.access_key_id,
            "secret-access-key": entry.secret_access_key,
            "session-token": entry.session_token,
        },
    )
    anonymous = {"s3.anonymous": "true"} if entry.is_anonymous else {}
    return {f"s3.{name}": value for name, value in named.items()} | anonymous | {"s3.connect-timeout": str(_MAX_CONNECT_S)}


def _refuse_tokens_of_others(entry: StorageEntry, settings: StorageSettings, names: Collection[str]) -> None:
    """NeedsChange if a variable of this process has a token that a library would send with an entry's own keys."""
    found = next((name for name in os.environ if name.lower() in names), None)
    if found is not None:
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"the variable {found} is set, and would be sent as a token with the keys of the storage entry {entry.prefix} "
            f"({settings.place.name('storage')}); unset {found} for this process, or use credentials: ambient instead of keys",
        )


#: The names that Lance has for those of obstore's credential providers.
_OF_LANCE: Final = {
    "s3": {"access_key_id": "aws_access_key_id", "secret_access_key": "aws_secret_access_key", "token": "aws_session_token"},
    "gs": {"token": "bearer_token"},
    "az": {"sas_token": "azure_storage_sas_key"},
}


def _handed_to_lance(uri: str, settings: StorageSettings) -> dict[str, str]:
    keys, names = _handed_keys(uri, settings), _OF_LANCE[_scheme(uri)]
    end = {} if keys.expires_at is None else {"expires_at_millis": str(int(keys.expires_at.timestamp() * 1000))}
    return {names[name]: value for name, value in keys.values.items() if name in names} | end


def lance_options(uri: str, settings: StorageSettings) -> dict[str, str]:
    """Return Lance storage options for a dataset URI, or for another place that a dataset names."""
    entry = entry_of(uri, settings)
    if (why := why_not_parsed(uri, _READ_BY_LANCE)) is not None:
        raise NeedsChange(reasons.MANIFEST_INVALID, why)
    if entry is None:
        return {}
    scheme = _scheme(uri)
    client = {"connect_timeout": f"{_MAX_CONNECT_S}s"} | ({"allow_http": "true"} if _is_plain_http(entry) else {})
    if entry.is_vended:
        client |= _handed_to_lance(uri, settings)
    has_token = entry.session_token is not None or "aws_session_token" in client
    if (entry.has_keys or entry.is_vended) and not has_token:
        _refuse_tokens_of_others(entry, settings, _TOKENS_OF_OTHERS[scheme])
    if scheme == "s3":
        options = _texts(
            settings,
            aws_endpoint=entry.endpoint,
            aws_region=entry.region or "us-east-1",
            aws_access_key_id=entry.access_key_id,
            aws_secret_access_key=entry.secret_access_key,
            aws_session_token=entry.session_token,
        )
        anonymous = {"aws_skip_signature": "true"} if entry.is_anonymous else {}
        return options | anonymous | client
    if scheme == "gs":
        anonymous = {"google_skip_signature": "true", **_NO_TOKEN_OF_GCS} if entry.is_anonymous else {}
        return _texts(settings, service_account=entry.service_account_file, base_url=entry.endpoint) | anonymous | client
    anonymous = {"azure_skip_signature": "true"} if entry.is_anonymous else {}
    options = _texts(settings, account_name=entry.account_name, account_key=entry.account_key, endpoint=entry.endpoint)
    return options | anonymous | client
