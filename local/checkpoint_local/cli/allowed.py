"""Which settings files beside manifests the user has allowed to name what is the user's: variables, files, identities.

A manifest may come from anybody, and the settings file beside it with it: `{env: TOKEN}` under an endpoint of its author would
send the user's token there, on `validate` already. So such a file counts only once the user has allowed it (as direnv asks for
.envrc): by its path and by its content, so that a changed one has to be allowed again. A file that the user names (--settings,
the variable, the user's own configuration) counts as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from checkpoint_protocol.places.kafka_settings import KafkaEntry, SchemaRegistryEntry
from checkpoint_protocol.places.setting_values import SecretRef
from checkpoint_protocol.places.settings import AwsIdentity, Settings
from checkpoint_protocol.places.storage import StorageEntry


def user_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where this program keeps the user's own configuration."""
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "checkpointed-write"


def claims_of(settings: Settings) -> tuple[str, ...]:
    """Return what belongs to the user and is named by these settings, each with where it would go. Nothing of it is read."""
    found: list[str] = []
    for name, catalog in settings.catalogs.items():
        addresses = (catalog.uri, getattr(catalog, "oauth2_server_uri", None))
        to = f"for catalogs.{name}, {' and '.join(_without_user(address) for address in addresses if address)}"
        found += [f"{what} {to}" for what in _references(catalog)]
        if catalog.type == "sql" and not catalog.uri.startswith("sqlite:"):
            found.append(f"the passwords that the database's client finds by itself {to}")
        identity = catalog.signing if catalog.type == "rest" else catalog
        if isinstance(identity, AwsIdentity) and identity.credentials is not None:
            found.append(f"the identity of this machine {to}")
    for name, namespace in settings.namespaces.items():
        found += [f"{what} for namespaces.{name}, {_without_user(namespace.address)}" for what in _references(namespace)]
    for entry in settings.storage:
        to = f"for {entry.prefix}" + (f", {_without_user(entry.endpoint)}" if entry.endpoint is not None else "")
        found += [f"{what} {to}" for what in _references(entry)]
        if entry.credentials == "ambient":
            found.append(f"the identity of this machine {to}")
    for cluster in settings.kafka:
        to = f"for kafka, {', '.join(cluster.bootstrap_servers)}"
        if cluster.schema_registry is not None:
            to += f" and {cluster.schema_registry.url}"
        found += [f"{what} {to}" for what in _references(cluster)]
    return tuple(found)


def is_allowed(path: Path, content: bytes, folder: Path) -> bool:
    """Whether the user has allowed this file with this content. A note that cannot be read allows nothing."""
    try:
        noted = json.loads(_note(path, folder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(noted == _allowance(path, content))


def allow(path: Path, content: bytes, folder: Path) -> None:
    """Note that the user allows this file with this content, instead of any former one. Raises OSError where that fails."""
    note = _note(path, folder)
    note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=note.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(_allowance(path, content), file)
    Path(name).replace(note)


def _allowance(path: Path, content: bytes) -> dict[str, str]:
    return {"path": os.fsdecode(path.resolve()), "sha256": hashlib.sha256(content).hexdigest()}


def _note(path: Path, folder: Path) -> Path:
    return folder / "allowed" / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()}.json"


def _references(section: BaseModel) -> Iterator[str]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        for one in value.values() if isinstance(value, dict) else (value,):
            if isinstance(one, SecretRef):
                yield f"the variable {one.env}" if one.env is not None else f"the file {one.file}"
            elif isinstance(one, BaseModel):
                yield from _references(one)
    if isinstance(section, StorageEntry) and section.service_account_file is not None:
        yield f"the file {section.service_account_file}"
    if isinstance(section, SchemaRegistryEntry) and section.ca_file is not None:
        yield f"the file {section.ca_file}"
    if isinstance(section, KafkaEntry):
        files = (section.ca_file, section.certificate_file, section.key_file)
        yield from (f"the file {file}" for file in files if file is not None)


def _without_user(uri: str) -> str:
    scheme, separator, rest = uri.partition("://")
    authority, slash, _ = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}" if separator else "..."
