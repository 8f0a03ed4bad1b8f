"""The files that a user gives on the command line: a manifest, and the settings with catalogs and storage."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from checkpoint_commit.catalogs.sqlite_files import sqlite_file, why_no_file, with_file
from checkpoint_control.yaml_documents import line_of, parse_documents, parse_nodes
from checkpoint_local.cli.allowed import claims_of, is_allowed, user_folder
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.manifest.spec import CheckpointedWrite, ManifestInvalid, parse_manifest, validate_model
from checkpoint_protocol.places.setting_values import NO_SETTINGS_FILE
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.uris import why_not_expanded
from checkpoint_protocol.store.object_store import local_path

SETTINGS_VARIABLE: Final = "CHECKPOINTED_WRITE_SETTINGS"
SETTINGS_NAME: Final = "checkpointed-write.settings.yaml"


def load_manifest(path: Path) -> CheckpointedWrite:
    """Read a manifest. Paths in it that are relative are relative to its folder. ManifestInvalid lists all problems."""
    content = read_file(path)
    document = _parse_yaml(path, content)
    with _placed(path, content):
        return manifest_of(document, path.resolve().parent)


def manifest_of(document: Any, folder: Path) -> CheckpointedWrite:
    """Return a manifest. Paths in it that are relative are relative to the folder. ManifestInvalid lists all problems."""
    return _absolute(parse_manifest(document), folder)


@dataclass(frozen=True, slots=True)
class FoundSettings:
    """A settings file. `is_named`: the user has said that it counts, and not only whoever wrote the manifest beside it."""

    path: Path
    is_named: bool = True


def find_settings(given: Path | None, manifest: Path | None) -> FoundSettings | None:
    """Return the settings file: the given one, the environment's, the one beside the manifest, or the user's; or None."""
    if given is not None:
        return FoundSettings(given)
    if os.environ.get(SETTINGS_VARIABLE):
        return FoundSettings(Path(os.environ[SETTINGS_VARIABLE]))
    beside = manifest.resolve().parent / SETTINGS_NAME if manifest is not None else None
    if beside is not None and beside.exists():
        return FoundSettings(beside, is_named=False)
    config = user_folder() / "settings.yaml"
    return FoundSettings(config) if config.exists() else None


def load_settings(found: FoundSettings | None) -> Settings:
    """Read a settings file; without one there are no catalogs, and no bucket has an entry: only local paths can be used.

    NeedsChange if it names what is the user's, and the user has neither named nor allowed it: nothing is read then, or sent.
    """
    if found is None:
        return Settings().found_in(NO_SETTINGS_FILE)
    content = read_file(found.path)
    settings = parse_settings(found.path, content)
    claims = claims_of(settings)
    if claims and not found.is_named and not is_allowed(found.path, content, user_folder()):
        more = f" and {len(claims) - 1} more" if len(claims) > 1 else ""
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"{found.path} was found beside the manifest and uses {claims[0]}{more}: its author could have that sent "
            f"anywhere. Read it, then run: checkpointed-write allow {shlex.quote(str(found.path))} (again after each change), or "
            f"name it with --settings or ${SETTINGS_VARIABLE}",
        )
    return _settings_absolute(settings, found.path.resolve().parent)


def parse_settings(path: Path, content: bytes) -> Settings:
    """Return the settings in a file's content, as they stand there."""
    document = _parse_yaml(path, content)
    with _placed(path, content):
        return validate_model(Settings, document if document is not None else {})


def read_file(path: Path) -> bytes:
    """Return a file's content; ManifestInvalid if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ManifestInvalid((f"{path}: cannot be read: {error.strerror}",)) from error


def places_in(path: Path, content: bytes) -> Callable[[str], str | None]:
    """Return what gives the place of a problem in a parsed file, such as write.yaml:12; None if its field is not there."""
    node = parse_nodes(content.decode("utf-8"))

    def place_of(problem: str) -> str | None:
        # A section may have found it in a field further down: `spec: source.columns: ...`
        fields = re.match(r"(?:\S+: )*", problem)
        line = line_of(node, fields[0].removesuffix(": ").replace(": ", ".")) if fields is not None else None
        return None if line is None else f"{path}:{line}"

    return place_of


@contextmanager
def _placed(path: Path, content: bytes) -> Iterator[None]:
    """Give the problems of a file that was parsed the lines of their fields."""
    try:
        yield
    except ManifestInvalid as error:
        place_of = places_in(path, content)
        raise ManifestInvalid(error.problems, tuple(f"{place_of(one) or path}: {one}" for one in error.problems)) from None


def _parse_yaml(path: Path, content: bytes) -> Any:
    try:
        documents = parse_documents(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ManifestInvalid((f"{path}: is not UTF-8 text: {error}",)) from error
    except yaml.YAMLError as error:
        raise ManifestInvalid((f"{path}: is not YAML: {_named(error, path)}",)) from error
    if len(documents) > 1:
        raise ManifestInvalid((f"{path}: holds {len(documents)} documents; one is expected",))
    return documents[0] if documents else None


def _named(error: yaml.YAMLError, path: Path) -> str:
    """Return what PyYAML says, with line, column, and a mark below the text, of a text that came from a file."""
    return str(error).replace('"<unicode string>"', f'"{path}"')


def _absolute(manifest: CheckpointedWrite, folder: Path) -> CheckpointedWrite:
    spec = manifest.spec
    source = _source_absolute(spec.source, folder)
    absolute = partial(_absolute_uri, folder=folder)
    sink = spec.sink.model_copy(update={spec.sink.format: spec.sink.named.with_uris(absolute)})
    checkpoint = spec.checkpoint.model_copy(update={"uri": _absolute_uri(spec.checkpoint.uri, folder)})
    code = spec.code.model_copy(
        update={
            "path": spec.code.path and _absolute_uri(spec.code.path, folder),
            "uri": spec.code.uri and _absolute_uri(spec.code.uri, folder),
        }
    )
    spec = spec.model_copy(update={"source": source, "sink": sink, "checkpoint": checkpoint, "code": code})
    return manifest.model_copy(update={"spec": spec})


def _source_absolute(source: Source, folder: Path) -> Source:
    absolute = partial(_absolute_uri, folder=folder)
    update: dict[str, Any] = {}
    if source.spark is not None:
        update["spark"] = source.spark.model_copy(update={"paths": tuple(map(absolute, source.spark.paths))})
    if source.union is not None:
        update["union"] = tuple(
            member.model_copy(update={member.named.kind: member.named.with_uris(absolute)}) for member in source.union
        )
    elif source.members:
        (one,) = source.members
        update[one.kind] = one.with_uris(absolute)
    return source.model_copy(update=update)


def _absolute_uri(uri: str, folder: Path) -> str:
    path = local_path(uri)
    if path is None:
        return uri
    # Not resolved: a pattern is no path, and links are the user's business.
    return os.path.normpath(folder / path)


def _settings_absolute(settings: Settings, folder: Path) -> Settings:
    """Make sqlite files and local warehouses of catalogs, and folders of namespaces, relative to the settings file's folder."""
    catalogs = {}
    for name, catalog in settings.catalogs.items():
        update = {}
        if catalog.warehouse and catalog.type == "sql" and (why := why_not_expanded(catalog.warehouse)) is not None:
            raise NeedsChange(reasons.MANIFEST_INVALID, f"catalogs.{name}.warehouse: {why}")
        if catalog.warehouse and catalog.type == "sql" and local_path(catalog.warehouse) is not None:
            update["warehouse"] = f"file://{_warehouse(name, _absolute_uri(catalog.warehouse, folder))}"
        if (named := sqlite_file(catalog.uri)) is not None:
            if (why := why_no_file(catalog.uri)) is not None:
                raise NeedsChange(reasons.MANIFEST_INVALID, f"catalogs.{name}.uri: {why}")
            if (why := why_not_expanded(catalog.uri.partition(":///")[2].partition("?")[0])) is not None:
                raise NeedsChange(reasons.MANIFEST_INVALID, f"catalogs.{name}.uri: {why}")
            file = Path(os.path.normpath(folder / named))
            if not file.parent.is_dir():
                raise NeedsChange(
                    reasons.MANIFEST_INVALID, f"catalogs.{name}.uri: the folder {file.parent} does not exist; make it"
                )
            update["uri"] = with_file(catalog.uri, file)
        catalogs[name] = catalog.model_copy(update=update)
    namespaces = {}
    for name, namespace in settings.namespaces.items():
        if namespace.root is not None and (why := why_not_expanded(namespace.root)) is not None:
            raise NeedsChange(reasons.MANIFEST_INVALID, f"namespaces.{name}.root: {why}")
        root = namespace.root and _absolute_uri(namespace.root, folder)
        namespaces[name] = namespace.model_copy(update={"root": root})
    return settings.model_copy(update={"catalogs": catalogs, "namespaces": namespaces})


def _warehouse(name: str, path: str) -> str:
    """Return a folder as it is. NeedsChange where pyiceberg, which parses it as a URI of the web, would write beside it."""
    if (found := next((character for character in path if character in "?#"), None)) is not None:
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"catalogs.{name}.warehouse: {found!r} stands in {path}, and begins no name for pyiceberg; use a folder without it",
        )
    return path
