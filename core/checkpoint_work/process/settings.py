"""What a process has of its own: the storage settings and the keys of records that whoever started it hands over, and its log."""

from __future__ import annotations

import json
import os
import sys
import traceback
from functools import lru_cache
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.manifest.spec import ManifestInvalid, validate_model
from checkpoint_protocol.places.handed_keys import KeysFile
from checkpoint_protocol.places.secrets import Secrets, secrets_of
from checkpoint_protocol.places.setting_values import STORAGE_SECRET
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.printable import printable
from checkpoint_protocol.store.authenticated_store import AuthenticatedStore, KeysOfOneWrite
from checkpoint_protocol.store.macs import WriteKeys
from checkpoint_protocol.store.object_store import ObjectStore

#: The storage settings of a run on one machine, as JSON. They come first. In no file: that would stay after a kill -9 of the run.
LOCAL_STORAGE_VARIABLE: Final = "CHECKPOINTED_WRITE_LOCAL_STORAGE"
#: Path of a file with the storage settings, as a pod template may mount one. It comes before the variable of a Secret.
STORAGE_FILE_VARIABLE: Final = "CHECKPOINTED_WRITE_STORAGE_FILE"
#: The storage settings themselves, as JSON: in a pod, a key of a Secret.
STORAGE_VARIABLE: Final = "CHECKPOINTED_WRITE_STORAGE"


#: Path of a file with the keys that catalogs hand out, which whoever has started this process renews.
KEYS_FILE_VARIABLE: Final = "CHECKPOINTED_WRITE_KEYS_FILE"


def storage_settings() -> StorageSettings:
    """Return the storage settings of this process, with the keys that catalogs hand out; none are needed for folders.

    A local run hands over those of its settings file; pods have them in a variable, from a Secret. NeedsChange says what is wrong
    with them, and quotes none of their values: they are secrets.
    """
    return _settings_alone().with_keys(_keys_file())


def _keys_file() -> KeysFile | None:
    path = os.environ.get(KEYS_FILE_VARIABLE)
    return KeysFile(Path(path)) if path else None


def _settings_alone() -> StorageSettings:
    if (local := os.environ.get(LOCAL_STORAGE_VARIABLE)) is not None:
        return _read_storage(local, f"${LOCAL_STORAGE_VARIABLE}")
    path, text = os.environ.get(STORAGE_FILE_VARIABLE), os.environ.get(STORAGE_VARIABLE)
    if path:
        try:
            return _read_storage(Path(path).read_text(encoding="utf-8"), f"the file {path} (${STORAGE_FILE_VARIABLE})")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            message = f"the storage settings in {path} (${STORAGE_FILE_VARIABLE}) cannot be read: {why}"
            raise NeedsChange(reasons.MANIFEST_INVALID, message) from None
    if text is not None:
        place = f"${STORAGE_VARIABLE} (in a pod, the key storage.json of its Secret)"
        return _read_storage(text, place).found_in(STORAGE_SECRET)
    return StorageSettings().found_in(STORAGE_SECRET)


def _read_storage(text: str, place: str) -> StorageSettings:
    try:
        document = json.loads(text)
    except ValueError as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        like = '{"storage": [{"prefix": "s3://bucket/", "credentials": "ambient"}]}'
        message = f"the storage settings in {place} are not JSON{where}; they look like {like}"
        raise NeedsChange(reasons.MANIFEST_INVALID, message) from None
    try:
        return validate_model(StorageSettings, document)
    except ManifestInvalid as error:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"the storage settings in {place} are wrong: {error.message}") from None


#: Of driver and executors in a cluster. One machine has one user, and no keys.
RECORD_KEYS_VARIABLE: Final = "CHECKPOINTED_WRITE_RECORD_KEYS"


def record_keys() -> WriteKeys | None:
    """Return the keys of this process's write; None where it has none. NeedsChange if they cannot be read; it quotes none."""
    text = os.environ.get(RECORD_KEYS_VARIABLE)
    if text is None:
        return None
    try:
        return WriteKeys.model_validate_json(text)
    except ValidationError:
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"${RECORD_KEYS_VARIABLE} is not what the operator gives to pods; is it set in a pod template?",
        ) from None


def authenticated(store: ObjectStore, keys: WriteKeys | None) -> ObjectStore:
    """Return the store in which only records of the keys' write count; the same one where there are no keys."""
    return store if keys is None else AuthenticatedStore(store, KeysOfOneWrite(keys))


def masked(text: str) -> str:
    """Return a text without what this process knows to be secret. To be asked before a text is cut: half a secret is none."""
    return _secrets(tuple(sorted(os.environ.items())), _handed_values()).mask(text)


def _handed_values() -> tuple[str, ...]:
    file = _keys_file()
    try:
        return () if file is None else tuple(value for keys in file.read() for value in keys.values.values())
    except CheckpointError:  # said where they are needed
        return ()


def loggable(text: str) -> str:
    """Return a text for a log or for the last words."""
    return printable(masked(text))


def log_traceback(error: BaseException) -> None:
    """Write the whole of an error to this process's log."""
    sys.stderr.write(loggable("".join(traceback.format_exception(error))))
    sys.stderr.flush()


@lru_cache(maxsize=1)
def _secrets(environment: tuple[tuple[str, str], ...], handed: tuple[str, ...]) -> Secrets:
    try:
        storage = _settings_alone()
    except CheckpointError:  # said where they are needed
        storage = None
    try:
        keys = record_keys()
    except CheckpointError:
        keys = None
    return secrets_of(storage, dict(environment), (*(keys.keys.values() if keys is not None else ()), *handed))
