"""Ask what the settings name, once each: for `--check`, which `helm test` runs.

Nothing is written, but that a SQL catalog which is new makes its own tables, as it does whenever it is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from checkpoint_commit.catalogs.named import open_catalog, translate_catalog_error
from checkpoint_commit.lance.namespaces import find
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import StorageEntry
from checkpoint_protocol.store.object_listing import list_objects
from checkpoint_protocol.store.object_store import local_path, open_raw_store, translate_store_error
from checkpoint_protocol.tables.lance import TableName

_ANSWER_WITHIN_S: Final = 20.0


class Checked(NamedTuple):
    """`what`: such as "catalog lakehouse". `problem`: None if it has answered."""

    what: str
    problem: CheckpointError | None


def check_settings(settings: Settings) -> Iterator[Checked]:
    """Ask each catalog for its namespaces, each Lance namespace for a table, and each storage prefix for its first object.

    Whether a store honours put-if-absent is not tried, which would take a put: a prefix may be one that is only read. It is
    tried of each checkpoint store when the first write names it.
    """
    for name in sorted(settings.catalogs):
        yield Checked(f"catalog {name}", _check_catalog(name, settings))
    for name in sorted(settings.namespaces):
        yield Checked(f"Lance namespace {name}", _check_namespace(name, settings))
    for entry in settings.storage:
        if _is_a_place(entry):
            yield Checked(f"storage {entry.prefix}", _check_storage(entry, settings))


def _check_catalog(name: str, settings: Settings) -> CheckpointError | None:
    try:
        open_catalog(name, settings, _ANSWER_WITHIN_S).list_namespaces()
    except Exception as error:
        return translate_catalog_error(error, name, settings.place)
    return None


def _check_namespace(name: str, settings: Settings) -> CheckpointError | None:
    try:
        find(TableName(name, "any"), settings)
    except CheckpointError as error:
        return error
    return None


def _check_storage(entry: StorageEntry, settings: Settings) -> CheckpointError | None:
    uri = entry.prefix.rstrip("/")
    try:
        next(list_objects(open_raw_store(uri, settings), None), None)
    except CheckpointError as error:
        return error
    except Exception as error:
        return translate_store_error(error, uri, settings.place)
    return None


def _is_a_place(entry: StorageEntry) -> bool:
    """Whether the prefix names a bucket or container, and not only a scheme for all of them, or a folder."""
    return local_path(entry.prefix) is None and entry.prefix.partition("://")[2].strip("/") != ""
