"""The archive of a write's code: made of a ConfigMap's files or fetched from a URI, and put into the write's store by its digest.

What an attempt was recorded with can thereby not change under it, wherever the code came from and whatever becomes of that.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

import obstore
import obstore.exceptions as obstore_errors

from checkpoint_protocol import archives, layout, reasons
from checkpoint_protocol.archives import ArchiveRefused
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.storage import StorageSettings
from checkpoint_protocol.store import ObjectStore, local_path, open_raw_store, translate_store_error

_PUT_TRIES: Final = 8
_PUT_PAUSE_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class CodeArchive:
    """A checked zip archive and its sha256, as hex."""

    digest: str
    data: bytes = field(repr=False)


def archive_of_files(files: Mapping[str, bytes]) -> CodeArchive:
    """Return the archive of a ConfigMap's files, which all lie at its top: keys have no slashes."""
    if not files:
        raise NeedsChange(
            reasons.CODE_MISSING,
            "spec.code.configMap: the ConfigMap has no files; its keys are to be files, e.g. kubectl create configmap NAME "
            "--from-file=steps.py",
        )
    return _checked(archives.pack(files), "spec.code.configMap: the ConfigMap cannot be used")


def archive_of_object(uri: str, data: bytes) -> CodeArchive:
    """Return the archive that an object is (.zip, .whl), or one with the module that it is (.py)."""
    name = PurePosixPath(uri).name
    if name.endswith(".py"):
        if not name.removesuffix(".py").isidentifier():
            raise NeedsChange(
                reasons.CODE_MISSING, f"spec.code.uri: {name!r} cannot be imported under that name; give it the name of a module"
            )
        data = archives.pack({name: data})
    return _checked(data, f"spec.code.uri: {uri} cannot be used")


def fetch_uri(uri: str, settings: StorageSettings, may_be_local: bool = False) -> CodeArchive:
    """Fetch the code at a URI. NeedsChange if it is not there or not what can be used; Retryable if the store does not answer.

    Only the one-machine runner says `may_be_local`: what lies on the operator's own disk is no business of a manifest.
    """
    path = local_path(uri)
    if path is None:
        return archive_of_object(uri, _fetch(uri, settings))
    if not may_be_local:
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"spec.code.uri: {uri} is a path, and the operator reads no code from its disk; put the file into an object store "
            "(s3://, gs://, az://), or into the image and say code.path",
        )
    return archive_of_object(uri, _read(path))


def put_archive(store: ObjectStore, uid: str, archive: CodeArchive, pause: Callable[[float], None] = time.sleep) -> None:
    """Have the archive in the write's store. Idempotent: its name is its content.

    Corrupt if something else lies under that name, which nobody of ours has put.
    """
    path = layout.code_path(uid, archive.digest)
    # A listing costs less than the same bytes again, and is enough: whoever uses the archive checks its digest.
    if any(stored.path == path and stored.size_bytes == len(archive.data) for stored in store.list(layout.code_folder(uid))):
        return
    for _ in range(_PUT_TRIES):
        if store.put_if_absent(path, archive.data):
            return
        standing = store.get(path)
        if standing is not None:
            if hashlib.sha256(standing).hexdigest() == archive.digest:
                return
            raise Corrupt(reasons.RECORD_UNREADABLE, f"{store.uri}/{path} is not what its name says; remove it")
        pause(_PUT_PAUSE_S)
    raise Retryable(reasons.STORE_UNAVAILABLE, f"{store.uri}/{path}: the store says that it exists, and returns nothing")


def _checked(data: bytes, what: str) -> CodeArchive:
    try:
        archives.check(data)
    except ArchiveRefused as error:
        raise NeedsChange(
            reasons.CODE_MISSING, f"{what}: {error}; make it anew, e.g. with python -m zipfile -c code.zip package/"
        ) from error
    return CodeArchive(hashlib.sha256(data).hexdigest(), data)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(archives.MAX_ARCHIVE_BYTES + 1)
    except OSError as error:
        raise NeedsChange(
            reasons.CODE_MISSING, f"spec.code.uri: {path} cannot be read: {error.strerror}; correct the path"
        ) from error


def _fetch(uri: str, settings: StorageSettings) -> bytes:
    folder, _, name = uri.rpartition("/")
    store = open_raw_store(folder, settings)
    try:
        found = obstore.get(store, name)
        if found.meta["size"] > archives.MAX_ARCHIVE_BYTES:
            raise NeedsChange(
                reasons.CODE_MISSING,
                f"spec.code.uri: {uri} has {found.meta['size']:,} bytes; {archives.MAX_ARCHIVE_BYTES:,} are the most; put large "
                "files elsewhere, or into the image",
            )
        return bytes(found.bytes())
    except (obstore_errors.NotFoundError, FileNotFoundError) as error:
        raise NeedsChange(
            reasons.CODE_MISSING, f"spec.code.uri: there is no object {uri}; put it there, or correct the URI"
        ) from error
    except (obstore_errors.BaseError, OSError) as error:
        raise translate_store_error(error, uri, settings.place) from error
