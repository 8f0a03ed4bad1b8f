"""Tables of Lance namespaces: the URI that a namespace gives for a name takes the place of the name in a manifest.

Whoever holds the settings asks, once, where a write begins. All that comes after sees a dataset by its URI: drivers, which know
no namespace, the records, and the identity of the write. So a name that leads elsewhere later is told as another dataset.

A location is somebody else's word, and is checked as one in a manifest is. Keys that come with it are passed over, unless the
settings say `credentials: vended`: of the namespace, and of the storage entry that covers the location.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable, one_line
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.manifest.spec import ManifestInvalid, Spec, validate_model
from checkpoint_protocol.places.handed_keys import HandedKeys, RenewedKeys, moment_of
from checkpoint_protocol.places.setting_values import reveal
from checkpoint_protocol.places.settings import NamespaceSettings, Settings
from checkpoint_protocol.places.storage import entry_of, lance_options
from checkpoint_protocol.places.uris import SAME_STORE, local_path
from checkpoint_protocol.tables.lance import LanceDatasetPlace, TableName

_ANSWER_WITHIN_S: Final = 30.0
_MOST_ANSWER_BYTES: Final = 16 << 20
#: Between the names of a table's namespaces, in a path. The default of the specification.
_DELIMITER: Final = "$"
#: What is taken of the storage options that come with a table, by the scheme of its location: Lance's names, and ours.
_TAKEN: Final = {
    "s3": {
        "aws_access_key_id": "access_key_id",
        "access_key_id": "access_key_id",
        "aws_secret_access_key": "secret_access_key",
        "secret_access_key": "secret_access_key",
        "aws_session_token": "token",
        "session_token": "token",
    },
    "gs": {"google_bearer_token": "token", "bearer_token": "token"},
    "az": {"azure_storage_sas_key": "sas_token", "azure_storage_sas_token": "sas_token", "sas_token": "sas_token"},
}
_Place = TypeVar("_Place", bound=LanceDatasetPlace)


def located(spec: Spec, settings: Settings, *, begins: bool = False) -> Spec:
    """Return the manifest with a URI for each table of a namespace. One that is missing stays a name.

    `begins`: the write is to be done now. A missing table is declared then where the sink creates it, and refused elsewhere.
    """
    source, sink = _source(spec.source, settings, begins), spec.sink
    if sink.lance is not None:
        makes, overwrites = begins and sink.create, sink.mode != "Append"
        sink = sink.model_copy(update={"lance": _led(sink.lance, settings, begins, makes=makes, overwrites=overwrites)})
    if source == spec.source and sink == spec.sink:
        return spec
    found = spec.model_copy(update={"source": source, "sink": sink})
    try:
        # What a manifest with these URIs would be refused for: two names of one table, or a place that nobody opens.
        validate_model(Spec, found.model_dump(mode="json", by_alias=True))
    except ManifestInvalid as error:
        raise NeedsChange(error.reason, f"with the URIs that its namespaces give: {error.message}") from error
    return found


def _source(source: Source, settings: Settings, begins: bool) -> Source:
    if source.union is not None:
        members = (
            one if one.lance is None else one.model_copy(update={"lance": _led(one.lance, settings, begins)})
            for one in source.union
        )
        return source.model_copy(update={"union": tuple(members)})
    if source.lance is None:
        return source
    return source.model_copy(update={"lance": _led(source.lance, settings, begins)})


def _led(place: _Place, settings: Settings, begins: bool, *, makes: bool = False, overwrites: bool = False) -> _Place:
    name = place.name
    if name is None or place.uri is not None:
        return place
    settings.check_grant(name.namespace, name.table, overwrites=overwrites, field="namespaces")
    uri = find(name, settings)
    if uri is None and makes:
        uri = declare(name, settings)
    if uri is not None:
        return place.led_to(uri)
    if begins:
        raise NeedsChange(*place.why_missing)
    return place


def why_led_elsewhere(place: LanceDatasetPlace, settings: Settings) -> str | None:
    """Say that the name of a table leads to another URI than it did when the write began; None if it does not, or if the
    manifest has no name. The namespace is asked.
    """
    if place.name is None or (now := find(place.name, settings)) == place.uri:
        return None
    leads = "is gone, and" if now is None else f"leads to {now} now, and"
    return (
        f"the Lance table {place.name} {leads} led to {place.uri} when the write began; let it lead there again, or start a new "
        "write under another name"
    )


def find(name: TableName, settings: Settings) -> str | None:
    """Return the URI of a table; None if the namespace has none of this name."""
    return _asked(name, settings, "describe")


def declare(name: TableName, settings: Settings) -> str | None:
    """Have the namespace know of a table that is to be made, and return its URI. Another may have done so meanwhile."""
    return _asked(name, settings, "declare") or find(name, settings)


def with_keys_of_table(place: LanceDatasetPlace, settings: Settings) -> Settings:
    """Return the settings with the keys that the namespace of a table hands out, if it does; they are asked for when needed."""
    name = place.name
    if name is None or not is_vending(name, settings):
        return settings
    return settings.with_keys(RenewedKeys(lambda: keys_of(name, settings)))


def is_vending(name: TableName, settings: Settings) -> bool:
    entry = settings.namespaces.get(name.namespace)
    return entry is not None and entry.credentials is not None


def keys_of(name: TableName, settings: Settings) -> tuple[Sequence[HandedKeys], bool]:
    """Return the keys that come with a table, and whether the table is there."""
    entry = settings.namespace(name.namespace)
    answer = _ask(name, entry, settings, "describe")
    if answer is None:
        return (), False
    uri, options = _location(answer, name, entry, settings), answer.get("storage_options")
    scheme, _, rest = uri.partition("://")
    scheme = SAME_STORE.get(scheme, scheme)
    given = options if isinstance(options, dict) else {}
    values = {ours: str(given[theirs]) for theirs, ours in _TAKEN.get(scheme, {}).items() if theirs in given}
    if not values:
        return (), True
    return (HandedKeys(prefix=f"{scheme}://{rest}", values=values, expires_at=moment_of(given.get("expires_at_millis"))),), True


def _asked(name: TableName, settings: Settings, what: str) -> str | None:
    entry = settings.namespace(name.namespace)
    answer = _ask(name, entry, settings, what)
    return None if answer is None else _location(answer, name, entry, settings)


def _ask(name: TableName, entry: NamespaceSettings, settings: Settings, what: str) -> Mapping[str, Any] | None:
    return (_ask_server if entry.type == "rest" else _ask_directory)(name, entry, settings, what)


def _location(answer: Mapping[str, Any], name: TableName, entry: NamespaceSettings, settings: Settings) -> str:
    location = answer.get("location")
    if answer.get("managed_versioning"):
        raise NeedsChange(
            reasons.TABLE_UNSUPPORTED,
            f"the Lance table {name} has its versions kept by its namespace (managed_versioning), which would not know of a "
            "commit; name a table of another namespace",
        )
    if not isinstance(location, str) or not location:
        raise NeedsChange(reasons.CATALOG_UNAVAILABLE, f"the namespace says no location of the Lance table {name}")
    path = local_path(location)
    uri = location.rstrip("/") if path is None else str(path)
    try:
        entry_of(uri, settings.in_buckets_only() if _is_elsewhere(entry) else settings)
    except CheckpointError as error:
        raise type(error)(error.reason, f"the Lance table {name}: {error.message}") from error
    return uri


def _is_elsewhere(entry: NamespaceSettings) -> bool:
    """Whether what a namespace calls a path is none of this machine."""
    if entry.type == "directory":
        return local_path(entry.address) is None
    host = urlsplit(entry.address).hostname or ""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _ask_directory(name: TableName, entry: NamespaceSettings, settings: Settings, what: str) -> Mapping[str, Any] | None:
    from lance.namespace import DirectoryNamespace
    from lance_namespace import DeclareTableRequest, DescribeTableRequest
    from lance_namespace.errors import NamespaceNotFoundError, TableAlreadyExistsError, TableNotFoundError

    options = {f"storage.{key}": value for key, value in lance_options(entry.address, settings).items()}
    parts = name.table.split(".")
    try:
        directory = DirectoryNamespace(root=entry.address, **options)
        if what == "declare":
            return dict(directory.declare_table(DeclareTableRequest(id=parts)).model_dump())
        return dict(directory.describe_table(DescribeTableRequest(id=parts)).model_dump())
    except (TableNotFoundError, NamespaceNotFoundError, TableAlreadyExistsError):
        return None
    except Exception as error:
        raise _unavailable(name, settings, error) from error


def _ask_server(name: TableName, entry: NamespaceSettings, settings: Settings, what: str) -> Mapping[str, Any] | None:
    from requests import RequestException, Session

    from checkpoint_commit.catalogs.rest_catalog import BoundedAdapter

    title, field = f"the Lance namespace {name.namespace!r}", f"namespaces.{name.namespace}"
    place = settings.place.name(field)
    headers = {key: reveal(value, place) for key, value in entry.headers.items()}
    if entry.token is not None:
        headers["Authorization"] = f"Bearer {reveal(entry.token, place)}"
    table = quote(name.table.replace(".", _DELIMITER), safe="")
    url = f"{entry.address.rstrip('/')}/v1/table/{table}/{what}?delimiter={quote(_DELIMITER)}"
    try:
        with Session() as session:
            for scheme in ("http://", "https://"):
                session.mount(scheme, BoundedAdapter(title, f"{field}.uri", _ANSWER_WITHIN_S, _MOST_ANSWER_BYTES))
            answer = session.post(
                url, json={"vend_credentials": entry.credentials is not None}, headers=headers, allow_redirects=False
            )
        if answer.status_code in (404, 409):
            return None
        if answer.status_code in (401, 403):
            raise NeedsChange(
                reasons.CREDENTIALS_REFUSED,
                f"the Lance namespace {name.namespace!r} refused access; check its credentials: {place}",
            )
        answer.raise_for_status()
        found = answer.json()
    except (RequestException, ValueError) as error:
        raise _unavailable(name, settings, error) from error
    return found if isinstance(found, dict) else {}


def _unavailable(name: TableName, settings: Settings, error: Exception) -> Retryable:
    return Retryable(
        reasons.CATALOG_UNAVAILABLE,
        f"the Lance namespace {name.namespace!r} does not answer for {name.table}: {one_line(error)}; "
        f"check {settings.place.name(f'namespaces.{name.namespace}')}",
    )
