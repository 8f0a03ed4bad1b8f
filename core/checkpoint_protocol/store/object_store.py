"""The object store as the protocol needs it: put-if-absent, read, list.

`ObjectStore` is the port. `open_store` gives the real one, over obstore, for S3, GCS, Azure and folders.
"""

from __future__ import annotations

import datetime
import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

import obstore
import obstore.exceptions as obstore_errors
from obstore.store import LocalStore, from_url

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable, cause_of
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.places.setting_values import SettingsPlace
from checkpoint_protocol.places.storage import StorageSettings, disk_path, obstore_options
from checkpoint_protocol.places.uris import local_path as local_path
from checkpoint_protocol.store.memory import MemoryBudget, room_for_stored
from checkpoint_protocol.store.object_listing import NotListed, list_objects, name_that_is_no_path, walk_objects
from checkpoint_protocol.store.plain_files import open_file_below, remove_below


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One entry of a listing. `modified`: when it was put, by the store's clock; None where the store does not say."""

    path: str
    size_bytes: int
    etag: str | None = None
    modified: datetime.datetime | None = None


class ObjectStore(Protocol):
    """Objects below one URI, named by paths with slashes.

    All methods raise Retryable where the store does not answer and NeedsChange where it refuses our credentials; then nothing
    is known about the effect of a put.
    """

    @property
    def uri(self) -> str:
        """Where the store's root lies, for messages."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Store an object, whole or not at all, unless one is there.

        True: it is there now and this call made it. False: the store says that one exists, which may be our own (a put whose
        answer was lost and that was sent again) or one that is still being made and may never appear. Read it back to know.
        """

    def get(self, path: str, most_bytes: int) -> bytes | None:
        """Return an object's bytes, or None if there surely is none.

        Corrupt, naming the object, its size and the bound, for one of more than `most_bytes`: of that no more is read. On disk
        nothing is read behind a link, and nothing but regular files: NeedsChange.
        """

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        """Give every object whose path starts with `folder` (which ends in a slash), in any order.

        `borders` are paths at which a listing of many pages may be cut, so that the parts are asked for at once; they change
        nothing of what is given.

        Not a snapshot: an object that was put while the listing runs may be missing although a later one is seen.

        An object whose name is no path (a tab in it, two slashes) is nobody's record: it is named in the log and passed over.
        Where it hides others, NotListed is raised once all else was given; some may be given twice then.
        """

    def delete(self, paths: Iterable[str]) -> None:
        """Remove objects. Those that are not there are passed over. On disk nothing is removed behind a link: NeedsChange."""


class ObstoreStore:
    """The port over obstore."""

    def __init__(
        self,
        uri: str,
        store: obstore.store.ObjectStore,
        settings: SettingsPlace | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        """`settings`: where those stand that the store is reached with, for messages. `memory`: for what is read, if bounded."""
        self._uri = uri
        self._memory = memory
        self._settings = settings
        self._store = store

    @property
    def uri(self) -> str:
        return self._uri

    def put_if_absent(self, path: str, data: bytes) -> bool:
        try:
            # One plain request: a multipart upload is conditional only at its end, if at all.
            obstore.put(self._store, path, data, mode="create", use_multipart=False)
        except obstore_errors.AlreadyExistsError:
            return False
        except (obstore_errors.BaseError, OSError) as error:
            raise self._translated(error, path) from error
        return True

    def overwrite(self, path: str, data: bytes) -> None:
        """Store an object, whatever is there. For advice only (`progress_reports.py`); records are put if they are absent."""
        try:
            obstore.put(self._store, path, data, mode="overwrite", use_multipart=False)
        except (obstore_errors.BaseError, OSError) as error:
            raise self._translated(error, path) from error

    def get(self, path: str, most_bytes: int) -> bytes | None:
        where = f"{self._uri}/{path}"
        try:
            if isinstance(self._store, LocalStore) and self._store.prefix is not None:
                return self._read_file(self._store.prefix, path, most_bytes)
            found = obstore.get(self._store, path)
            # Told before the body comes: of what is too large nothing is read.
            size_bytes = found.meta["size"]
            refuse_larger(size_bytes, most_bytes, where)
            with room_for_stored(self._memory, size_bytes):
                return read_to_end(found.stream(), size_bytes, where)
        except (obstore_errors.BaseError, OSError) as error:
            if _says_only_that_it_is_absent(error):
                return None
            raise self._translated(error, path) from error

    def _read_file(self, root: Path, path: str, most_bytes: int) -> bytes:
        """As `get`, from a disk on which others may write: obstore follows links, and waits for ever at a named pipe."""
        with open_file_below(root, path) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            refuse_larger(size_bytes, most_bytes, f"{self._uri}/{path}")
            with room_for_stored(self._memory, size_bytes):
                return file.read(size_bytes)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        try:
            for meta in list_objects(self._store, folder, borders):
                yield StoredObject(meta["path"], meta["size"], meta["e_tag"], meta["last_modified"])
        except (obstore_errors.NotFoundError, FileNotFoundError):
            return
        except obstore_errors.InvalidPathError:
            yield from self._walk(folder)
        except (obstore_errors.BaseError, OSError) as error:
            raise self._translated(error, folder) from error

    def _walk(self, folder: str) -> Iterator[StoredObject]:
        try:
            for meta in walk_objects(self._store, folder, self._uri):
                yield StoredObject(meta["path"], meta["size"], meta["e_tag"], meta["last_modified"])
        except NotListed:
            raise
        except (obstore_errors.BaseError, OSError) as error:
            raise self._translated(error, folder) from error

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                if isinstance(self._store, LocalStore) and self._store.prefix is not None:
                    remove_below(self._store.prefix, path)
                else:
                    obstore.delete(self._store, path)
            except (obstore_errors.BaseError, OSError) as error:
                if not _says_only_that_it_is_absent(error):
                    raise self._translated(error, path) from error

    def _translated(self, error: Exception, path: str) -> CheckpointError:
        return translate_store_error(error, f"{self._uri}/{path}", self._settings)


def refuse_larger(size_bytes: int, most_bytes: int, where: str) -> None:
    """Raise Corrupt, naming an object, its size and the bound, for one that is larger than what is ever put there."""
    if size_bytes > most_bytes:
        raise Corrupt(
            reasons.RECORD_UNREADABLE,
            f"{where} has {size_bytes:,} bytes, and what this program puts there has {most_bytes:,} at the most: it was written "
            "by something else",
        )


def read_to_end(chunks: Iterable[obstore.Bytes | bytes], size_bytes: int, where: str) -> bytes:
    """Return a body of as many bytes as its head has told. Corrupt for one that goes on: no more than that is held."""
    held: list[bytes] = []
    length = 0
    for chunk in chunks:
        length += len(chunk)
        if length > size_bytes:
            raise Corrupt(
                reasons.RECORD_UNREADABLE, f"{where} goes on after the {size_bytes:,} bytes that the store has told for it"
            )
        held.append(bytes(chunk))
    return b"".join(held)


def head_object(store: obstore.store.ObjectStore, path: str) -> obstore.ObjectMeta:
    """Return what a store says of an object. Raises what obstore raises.

    The answer to HEAD has no body, so that a store which refuses a token that has expired says 400 there, and no more: it is
    asked again in a way whose answer has one.
    """
    try:
        return obstore.head(store, path)
    except obstore_errors.BaseError as error:
        if not _says_400_alone(error):
            raise
        return obstore.get(store, path).meta


def _says_only_that_it_is_absent(error: Exception) -> bool:
    """A 404 may also mean that the bucket is gone, or the account: then nothing is known of the object."""
    if not isinstance(error, obstore_errors.NotFoundError | FileNotFoundError | IsADirectoryError):
        return False
    code = _ANSWER_CODE.search(str(error))
    return code[1] in ("NoSuchKey", "BlobNotFound") if code is not None else _NO_BUCKET.search(str(error)) is None


_ANSWER_CODE = re.compile(r"<Code>([A-Za-z]+)</Code>")
#: When it removes something, Azure says no code.
_NO_BUCKET: Final = re.compile("NoSuchBucket|ContainerNotFound|The specified container does not exist")
_EACH_TIME_ANOTHER = re.compile(
    r",? (?:after|in) [0-9.]+ ?(?:ns|µs|us|ms|s)\b"
    r"|<(RequestId|HostId)>[^<]*</\1>"
    r"|,? (?:request_?id|x-amz-request-id)[:=] ?\S+(?: Time:\S+Z)?",
    re.IGNORECASE,
)
#: As obstore and Lance say it, and as pyarrow does.
_BARE_400: Final = re.compile(r"400 Bad Request: *$|HTTP status 400\) during \w+ operation: No response body")
_FULL = re.compile(r"No space left on device|Disk quota exceeded|disk is full|\(os error (?:28|122)\)")
_REFUSALS = (
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AccessDenied",
    "ExpiredToken",
    "InvalidToken",
    "401 Unauthorized",
    "403 Forbidden",
    "Read-only file system",
)


def disk_full(error: BaseException, where: str) -> Retryable | None:
    """Return the error of a disk without room, or of a quota that is used up; None where that is not what happened.

    Retryable, because room is made without any change to the write. Libraries in Rust tell the number in their text only.
    """
    if getattr(error, "errno", None) not in (errno.ENOSPC, errno.EDQUOT) and not _FULL.search(str(error)):
        return None
    return Retryable(
        reasons.DISK_FULL,
        f"disk full: there is no room to write {where}; make room there (or raise the quota), or choose another place",
    )


#: How obstore words it that a credential provider of ours could not renew keys.
_NOT_RENEWED: Final = re.compile(r"credential provider: Retryable: (.+)")


def translate_store_error(error: Exception, where: str, settings: SettingsPlace | None = None) -> CheckpointError:
    """Return the family's error for a failure of obstore, or of the file system, at a place.

    `settings`: where the settings stand that a bucket is reached with, if the caller knows.
    """
    if (full := disk_full(error, where)) is not None:
        return full
    if isinstance(error, obstore_errors.InvalidPathError):
        return NotListed(where, name_that_is_no_path(error))
    first_line = _gist(error)
    storage = settings.name("storage") if settings is not None else "the storage settings"
    if (told := _NOT_RENEWED.search(first_line)) is not None:
        return Retryable(reasons.CATALOG_UNAVAILABLE, f"{where} cannot be reached: {told[1]}")
    refused = isinstance(error, obstore_errors.PermissionDeniedError | obstore_errors.UnauthenticatedError)
    if refused or isinstance(error, PermissionError) or any(word in first_line for word in _REFUSALS):
        remedy = (
            f"the credentials of this prefix: {storage}" if local_path(where) is None else "the permissions of file and folder"
        )
        return NeedsChange(reasons.CREDENTIALS_REFUSED, f"the store refused access to {where}: {first_line}; check {remedy}")
    if _says_400_alone(error):
        return NeedsChange(
            reasons.CREDENTIALS_REFUSED,
            f"the store refused {where} without saying why ({first_line}), as for a token that has expired; check the "
            f"credentials of this prefix: {storage}",
        )
    if "There is currently a lease on the blob" in first_line:
        return NeedsChange(
            reasons.STORE_UNAVAILABLE,
            f"{where} cannot be changed or removed, as somebody holds a lease on it in Azure; break the lease (az storage blob "
            "lease break)",
        )
    if _NO_BUCKET.search(first_line):
        return NeedsChange(reasons.STORE_UNAVAILABLE, f"the bucket of {where} does not exist; make it, or correct the URI")
    if local_path(where) is not None:
        return Retryable(
            reasons.STORE_UNAVAILABLE, f"{where} cannot be read or written: {first_line}; check the disk that it lies on"
        )
    return Retryable(
        reasons.STORE_UNAVAILABLE,
        f"the store did not answer for {where}: {first_line}; check its endpoint ({storage}) and the network",
    )


def _says_400_alone(error: Exception) -> bool:
    return _BARE_400.search(_gist(error)) is not None


def _gist(error: Exception) -> str:
    """Return what a library says in one line, without what is another each time: it may stand in a status that is compared."""
    return _EACH_TIME_ANOTHER.sub("", cause_of(str(error)))[:600]


#: Under how many names a store may say that a fresh one is taken.
_PROBED_NAMES: Final = 3
#: A probe's object is a token.
_PROBE_BYTES: Final = 1 << 10


def open_raw_store(uri: str, storage: StorageSettings) -> obstore.store.ObjectStore:
    """Return obstore's store rooted at a URI. Nothing is asked of the store yet (a local folder is made).

    NeedsChange(ManifestInvalid) for a URI that is not to be opened by these settings.
    """
    folder = disk_path(uri, storage)
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return LocalStore(str(folder))
        except OSError as error:
            raise translate_store_error(error, uri) from error
    scheme, _, rest = uri.partition("://")
    bucket, _, path = rest.partition("/")
    if {"", ".", ".."} & set(path.split("/")) and path:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"{uri} is not a store URI that can be used: an empty name, . or .. is in it")
    try:
        # Quoted, so that no character of a name has a meaning of its own: "a#b" and "a?b" would be "a", and "a%20b" "a b".
        return from_url(f"{scheme}://{bucket}/{quote(path)}", **obstore_options(uri, storage))
    except (obstore_errors.BaseError, ValueError) as error:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"{uri} is not a store URI that can be used: {_gist(error)}") from error


def copy_object(uri: str, storage: StorageSettings, path: str, other: str) -> None:
    """Have the store at a URI copy an object to another path there, over what is there. Visible as a whole, or not at all."""
    try:
        obstore.copy(open_raw_store(uri, storage), path, other)
    except (obstore_errors.BaseError, OSError) as error:
        raise translate_store_error(error, f"{uri}/{path}", storage.place) from error


def open_store(uri: str, storage: StorageSettings, memory: MemoryBudget | None = None) -> ObstoreStore:
    """Return the store at a checkpoint URI. `memory`: of the process, for what it reads; without it, as much as there is."""
    uri = uri.rstrip("/")
    return ObstoreStore(uri, open_raw_store(uri, storage), storage.place, memory)


def probe(store: ObjectStore) -> None:
    """Refuse a store that ignores put-if-absent: everything here rests on it.

    Puts one object twice under a fresh name and removes it. NeedsChange(StoreUnsafe) if the second put is accepted or the
    first one's bytes are not what is read back. A store that says of the fresh name that it is taken is asked again under others:
    gateways over a file system do so by mistake (versitygw 1.8) while the last object of the same folder is removed.
    """
    for _ in range(_PROBED_NAMES):
        path = f"probe/{new_token()}.json"
        first, second = new_token().encode(), new_token().encode()
        made = store.put_if_absent(path, first)
        again = store.put_if_absent(path, second)
        found = store.get(path, _PROBE_BYTES)
        store.delete([path])
        if found == first and not again:
            return
        if made:
            break
    if again or found == second:
        saw = "a second put of one object was accepted"
    elif found is None:
        saw = f"an object was put ({'made' if made else 'it was there already, said the store'}) and could not be read back"
    else:
        saw = "what is read back is not what was put"
    raise NeedsChange(
        reasons.STORE_UNSAFE,
        f"the store at {store.uri} does not honour put-if-absent (If-None-Match: *): {saw}; exactly once cannot be kept on it; "
        "use a store with conditional writes",
    )
