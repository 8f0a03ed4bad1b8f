"""The storage settings of a driver's or a task's process, as whoever started it hands them over."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.spec import ManifestInvalid, validate_model
from checkpoint_protocol.places.settings_place import STORAGE_SECRET
from checkpoint_protocol.places.storage import StorageSettings

#: The storage settings of a run on one machine, as JSON. They come first. In no file: that would stay after a kill -9 of the run.
LOCAL_STORAGE_VARIABLE: Final = "CHECKPOINTED_WRITE_LOCAL_STORAGE"
#: Path of a file with the storage settings, as a pod template may mount one. It comes before the variable of a Secret.
STORAGE_FILE_VARIABLE: Final = "CHECKPOINTED_WRITE_STORAGE_FILE"
#: The storage settings themselves, as JSON: in a pod, a key of a Secret.
STORAGE_VARIABLE: Final = "CHECKPOINTED_WRITE_STORAGE"


def storage_settings() -> StorageSettings:
    """Return the storage settings of this process; none are needed for folders.

    A local run hands over those of its settings file; pods have them in a variable, from a Secret. NeedsChange says what is wrong
    with them, and quotes none of their values: they are secrets.
    """
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
