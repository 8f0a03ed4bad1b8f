"""The files that a user gives on the command line: a manifest, and the settings with catalogs and storage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import yaml

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest import CheckpointedWrite, ManifestInvalid, parse_manifest, validate_model
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.store import local_path

SETTINGS_VARIABLE: Final = "CHECKPOINTED_WRITE_SETTINGS"
_SETTINGS_NAME: Final = "checkpointed-write.settings.yaml"


def load_manifest(path: Path) -> CheckpointedWrite:
    """Read a manifest. Paths in it that are relative are relative to its folder. ManifestInvalid lists all problems."""
    manifest = parse_manifest(_load_yaml(path))
    return _absolute(manifest, path.resolve().parent)


def find_settings(given: Path | None, manifest: Path | None) -> Path | None:
    """Return the settings file: the given one, the environment's, the one beside the manifest, or the user's; or None."""
    if given is not None:
        return given
    if os.environ.get(SETTINGS_VARIABLE):
        return Path(os.environ[SETTINGS_VARIABLE])
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "checkpointed-write" / "settings.yaml"
    candidates = [manifest.resolve().parent / _SETTINGS_NAME] if manifest else []
    return next((path for path in (*candidates, config) if path.exists()), None)


def load_settings(path: Path | None) -> Settings:
    """Read a settings file; without one there are no catalogs, and storage is reached with each library's defaults."""
    if path is None:
        return Settings()
    document = _load_yaml(path)
    settings = validate_model(Settings, document if document is not None else {})
    return _settings_absolute(settings, path.resolve().parent)


def _load_yaml(path: Path) -> Any:
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ManifestInvalid((f"{path}: cannot be read: {error.strerror}",)) from error
    except UnicodeDecodeError as error:
        raise ManifestInvalid((f"{path}: is not UTF-8 text: {error}",)) from error
    except yaml.YAMLError as error:
        raise ManifestInvalid((f"{path}: is not YAML: {' '.join(str(error).split())}",)) from error
    documents = [document for document in documents if document is not None]
    if len(documents) > 1:
        raise ManifestInvalid((f"{path}: holds {len(documents)} documents; one is expected",))
    return documents[0] if documents else None


def _absolute(manifest: CheckpointedWrite, folder: Path) -> CheckpointedWrite:
    spec = manifest.spec
    source = spec.source.model_copy(
        update={
            "path": spec.source.path and _absolute_uri(spec.source.path, folder),
            "paths": tuple(_absolute_uri(path, folder) for path in spec.source.paths),
        }
    )
    if source.lance is not None:
        table = source.lance.model_copy(update={"uri": _absolute_uri(source.lance.uri, folder)})
        source = source.model_copy(update={"lance": table})
    sink = spec.sink
    if sink.lance is not None:
        sink = sink.model_copy(update={"lance": sink.lance.model_copy(update={"uri": _absolute_uri(sink.lance.uri, folder)})})
    checkpoint = spec.checkpoint.model_copy(update={"uri": _absolute_uri(spec.checkpoint.uri, folder)})
    code = spec.code.model_copy(
        update={
            "path": spec.code.path and _absolute_uri(spec.code.path, folder),
            "uri": spec.code.uri and _absolute_uri(spec.code.uri, folder),
        }
    )
    absolute = spec.model_copy(update={"source": source, "sink": sink, "checkpoint": checkpoint, "code": code})
    return manifest.model_copy(update={"spec": absolute})


def _absolute_uri(uri: str, folder: Path) -> str:
    path = local_path(uri)
    if path is None:
        return uri
    # Not resolved: a pattern is no path, and links are the user's business.
    return os.path.normpath(folder / path)


def _settings_absolute(settings: Settings, folder: Path) -> Settings:
    """Make sqlite files and local warehouses of catalogs relative to the settings file's folder."""
    catalogs = {}
    for name, catalog in settings.catalogs.items():
        update = {}
        if catalog.warehouse and catalog.type == "sql" and local_path(catalog.warehouse) is not None:
            update["warehouse"] = f"file://{_absolute_uri(catalog.warehouse, folder)}"
        prefix = "sqlite:///"
        if catalog.uri.startswith(prefix):
            file = Path(_absolute_uri(catalog.uri.removeprefix(prefix), folder))
            if not file.parent.is_dir():
                raise NeedsChange(
                    reasons.MANIFEST_INVALID, f"catalogs.{name}.uri: the folder {file.parent} does not exist; make it"
                )
            update["uri"] = f"{prefix}{file}"
        catalogs[name] = catalog.model_copy(update=update)
    return settings.model_copy(update={"catalogs": catalogs})
