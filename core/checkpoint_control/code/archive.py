"""The archive of a write's code: made of a ConfigMap's files or fetched from a URI, and put into the write's store by its digest.

What an attempt was recorded with can thereby not change under it, wherever the code came from and whatever becomes of that.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import obstore
import obstore.exceptions as obstore_errors

from checkpoint_protocol import reasons
from checkpoint_protocol.code import archives
from checkpoint_protocol.code.archives import ArchiveRefused
from checkpoint_protocol.code.hiding import refuse_hiding
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import (
    ObjectStore,
    head_object,
    local_path,
    open_raw_store,
    read_to_end,
    translate_store_error,
)
from checkpoint_protocol.store.put_once import put_object


@dataclass(frozen=True, slots=True)
class CodeVersion:
    """Which version of an object a store says that it has. Without an etag versions cannot be told apart."""

    etag: str | None
    size_bytes: int


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
    return _checked(archives.pack(files), "spec.code.configMap: the ConfigMap")


def archive_of_object(uri: str, data: bytes) -> CodeArchive:
    """Return the archive that an object is (.zip, .whl), or one with the module that it is (.py)."""
    name = PurePosixPath(uri).name
    if name.endswith(".py"):
        if not name.removesuffix(".py").isidentifier():
            raise NeedsChange(
                reasons.CODE_MISSING, f"spec.code.uri: {name!r} cannot be imported under that name; give it the name of a module"
            )
        data = archives.pack({name: data})
    return _checked(data, f"spec.code.uri: {uri}")


def fetch_uri(uri: str, settings: StorageSettings, may_be_local: bool = False) -> CodeArchive:
    """Fetch the code at a URI. NeedsChange if it is not there or not what can be used; Retryable if the store does not answer.

    Only the one-machine runner says `may_be_local`: what lies on the operator's own disk is no business of a manifest.
    """
    path = local_path(uri)
    if path is None:
        return archive_of_object(uri, _fetch(uri, settings, None))
    if not may_be_local:
        raise _is_on_disk(uri)
    return archive_of_object(uri, _read(path))


def version_of(uri: str, settings: StorageSettings) -> CodeVersion:
    """Return which version of an object lies at a URI, in one small request. Raises as `fetch_uri` does."""
    if local_path(uri) is not None:
        raise _is_on_disk(uri)
    folder, _, name = uri.rpartition("/")
    with _named(uri, settings):
        found = head_object(open_raw_store(folder, settings), name)
    return _version_of(uri, found)


def fetch_version(uri: str, settings: StorageSettings, version: CodeVersion) -> bytes:
    """Fetch this version of an object. Retryable if another lies there by now; else raises as `version_of` does."""
    return _fetch(uri, settings, version)


def _is_on_disk(uri: str) -> NeedsChange:
    return NeedsChange(
        reasons.CODE_MISSING,
        f"spec.code.uri: {uri} is a path, and the operator reads no code from its disk; put the file into an object store "
        "(s3://, gs://, az://), or into the image and say code.path",
    )


def put_archive(store: ObjectStore, uid: str, archive: CodeArchive, pause: Callable[[float], None] = time.sleep) -> None:
    """Have the archive in the write's store. Idempotent: its name is its content.

    Corrupt if something else lies under that name, which nobody of ours has put.
    """
    path = layout.code_path(uid, archive.digest)
    if has_archive(store, uid, archive.digest, len(archive.data)):
        return
    if hashlib.sha256(put_object(store, path, archive.data, pause, archives.MAX_ARCHIVE_BYTES)).hexdigest() != archive.digest:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{store.uri}/{path} is not what its name says; remove it")


def has_archive(store: ObjectStore, uid: str, digest: str, size_bytes: int) -> bool:
    """Whether an archive is in the write's store.

    A listing costs less than the same bytes again, and is enough: whoever uses the archive checks its digest.
    """
    path = layout.code_path(uid, digest)
    return any(stored.path == path and stored.size_bytes == size_bytes for stored in store.list(layout.code_folder(uid)))


def _checked(data: bytes, where: str) -> CodeArchive:
    try:
        files = archives.check(data)
    except ArchiveRefused as error:
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"{where} cannot be used: {error}; make it anew, e.g. with python -m zipfile -c code.zip package/",
        ) from error
    refuse_hiding(files, where)
    return CodeArchive(hashlib.sha256(data).hexdigest(), data)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(archives.MAX_ARCHIVE_BYTES + 1)
    except OSError as error:
        raise NeedsChange(
            reasons.CODE_MISSING, f"spec.code.uri: {path} cannot be read: {error.strerror}; correct the path"
        ) from error


def _fetch(uri: str, settings: StorageSettings, wanted: CodeVersion | None) -> bytes:
    folder, _, name = uri.rpartition("/")
    with _named(uri, settings):
        found = obstore.get(open_raw_store(folder, settings), name)
        version = _version_of(uri, found.meta)
        if wanted is not None and version != wanted:
            raise Retryable(
                reasons.CODE_MISSING, f"spec.code.uri: {uri} was replaced while it was fetched; it is fetched again soon"
            )
        return read_to_end(found.stream(), version.size_bytes, uri)


def _version_of(uri: str, meta: obstore.ObjectMeta) -> CodeVersion:
    if meta["size"] > archives.MAX_ARCHIVE_BYTES:
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"spec.code.uri: {uri} has {meta['size']:,} bytes; {archives.MAX_ARCHIVE_BYTES:,} are the most; put large "
            "files elsewhere, or into the image",
        )
    return CodeVersion(meta["e_tag"], meta["size"])


@contextmanager
def _named(uri: str, settings: StorageSettings) -> Iterator[None]:
    """Say of what the store answers in the body that it is about the code."""
    try:
        yield
    except (obstore_errors.NotFoundError, FileNotFoundError) as error:
        raise NeedsChange(
            reasons.CODE_MISSING, f"spec.code.uri: there is no object {uri}; put it there, or correct the URI"
        ) from error
    except (obstore_errors.BaseError, OSError) as error:
        raise translate_store_error(error, uri, settings.place) from error
