"""Opening a Lance dataset, for whoever reads, stages, commits or validates: what is opened, and how failures are told apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import lance
import obstore
import pyarrow as pa
from obstore.exceptions import BaseError, NotFoundError

from checkpoint_formats.lance.access import access
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line
from checkpoint_protocol.places.storage import StorageSettings, disk_path, entry_of, lance_options
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.store.memory import hold_table
from checkpoint_protocol.store.object_listing import list_objects
from checkpoint_protocol.store.object_store import head_object, open_raw_store, translate_store_error

#: Of a dataset, where one process opens those of many namespaces: a hundred thousand fragments of some columns. Opened it takes
#: three to six times as much memory, and who can write where a dataset lies can put there what they like.
MOST_MANIFEST_BYTES: Final = 32 << 20
_MEMORY_OF_A_BYTE: Final = 6
_VERSIONS: Final = "_versions"
#: The name of a manifest is its version, or in 20 digits what is left of 2^64 - 1, so that the newest is listed first.
_SUFFIX: Final = ".manifest"
_REVERSED_DIGITS: Final = 20
_LAST: Final = 2**64 - 1

#: A file that names rows of a fragment which are to be deleted: a column of their numbers, ascending or not. It is here for both
#: who makes and who commits it: the latter needs none of what finds such rows.
DELETED_ROW: Final = pa.schema([pa.field("row", pa.uint64(), nullable=False)])

#: How Lance words it that a dataset, or a version of it, is not there; it has no exception of its own for that.
_NOT_FOUND: Final = "not found"
#: How it words it that the store failed, and not what was asked of it: both may be an OSError.
STORE_FAILED: Final = "LanceError(IO)"
#: How it words it that it does not take rows, whoever brings them and how often: all of these are OSErrors, as those of a store.
_ROWS_REFUSED: Final = re.compile(r"Invalid user input|LanceError\((?:Schema\)|Arrow\): (?:Invalid argument|Schema) error)")


def open_dataset(uri: str, storage: StorageSettings, version: int | None = None) -> Any | None:
    """Open a version of a dataset, the latest for None; return None if there surely is none.

    Retryable(StoreUnavailable) if that cannot be told. NeedsChange(TableUnsupported) for a dataset with files elsewhere, and,
    where it is opened for a namespace (in the operator), for one whose manifest has more than MOST_MANIFEST_BYTES.
    """
    uri = uri.rstrip("/")
    if storage.tenant is not None:
        _refuse_larger_manifest(uri, storage, version)
    try:
        dataset = lance.LanceDataset(uri, version, **access(uri, storage))
    except (ValueError, OSError) as error:
        if is_not_found(error):
            return None
        raise Retryable(
            reasons.STORE_UNAVAILABLE,
            f"the Lance dataset {uri} cannot be opened: {one_line(error)}; check {storage.place.name('storage')}",
        ) from error
    _refuse_bases_elsewhere(dataset, uri, storage)
    return dataset


def _refuse_larger_manifest(uri: str, storage: StorageSettings, version: int | None) -> None:
    """Look at the size of a manifest before Lance reads it as a whole."""
    folder = disk_path(f"{uri}/{_VERSIONS}", storage)
    try:
        if folder is not None:
            size_bytes = _size_on_disk(folder, version)
        else:
            size_bytes = _size_in_bucket(open_raw_store(uri, storage), version)
    except (BaseError, OSError) as error:
        raise translate_store_error(error, uri, storage.place) from error
    if size_bytes > MOST_MANIFEST_BYTES:
        raise NeedsChange(
            reasons.TABLE_UNSUPPORTED,
            f"the manifest of the Lance dataset {uri} has {size_bytes:,} bytes, and the operator reads no more than "
            f"{MOST_MANIFEST_BYTES:,} of one; compact the dataset (dataset.optimize.compact_files()), or remove metadata of its "
            "schema (dataset.update_schema_metadata({}, replace=True))",
        )
    hold_table(size_bytes * _MEMORY_OF_A_BYTE)


def _size_on_disk(folder: Path, version: int | None) -> int:
    """Return the bytes of the manifest of a version, the latest for None; 0 if there is none."""
    names = {found: path for path in folder.glob(f"*{_SUFFIX}") if (found := _version_of(path.name)) is not None}
    path = names.get(max(names, default=0) if version is None else version)
    return 0 if path is None else path.stat().st_size


def _size_in_bucket(store: obstore.store.ObjectStore, version: int | None) -> int:
    """As `_size_on_disk`. A bucket lists names in their order: the newest version comes first, if it is named in reverse."""
    if version is not None:
        for name in (f"{_LAST - version:0{_REVERSED_DIGITS}}", str(version)):
            with suppress(NotFoundError, FileNotFoundError):
                return int(head_object(store, f"{_VERSIONS}/{name}{_SUFFIX}")["size"])
        return 0
    newest, size_bytes = 0, 0
    for meta in list_objects(store, _VERSIONS):
        name = str(meta["path"]).rpartition("/")[2]
        found = _version_of(name)
        if found is not None and found > newest:
            newest, size_bytes = found, int(meta["size"])
            if len(name) == _REVERSED_DIGITS + len(_SUFFIX):
                break
    return size_bytes


def _version_of(name: str) -> int | None:
    """Return the version whose manifest has this name; None for any other name."""
    digits = name.removesuffix(_SUFFIX)
    if not digits.isdecimal():
        return None
    return _LAST - int(digits) if len(digits) == _REVERSED_DIGITS else int(digits)


def is_not_found(error: Exception) -> bool:
    """Whether an error of Lance says that an object of a dataset is not there."""
    return _NOT_FOUND in str(error).lower()


def read_transaction(dataset: Any, version: int) -> Any | None:
    """Return the transaction that made a version; None if the version is there no more, or does not say."""
    try:
        return dataset.read_transaction(version)
    except (ValueError, OSError) as error:
        if is_not_found(error):
            return None
        raise Retryable(
            reasons.STORE_UNAVAILABLE, f"version {version} of {dataset.uri} cannot be read: {one_line(error)}"
        ) from error


def rows_refused(error: BaseException, where: str) -> NeedsChange | None:
    """Return what is said of rows that Lance does not write, with the column, which it names; None for any other error."""
    if not _ROWS_REFUSED.search(str(error)):
        return None
    return NeedsChange(
        reasons.OUTPUT_SCHEMA_WRONG,
        f"Lance does not take the rows for {where}: {one_line(error)}; correct the step that gives it, or the type in the table",
    )


def plain_of(fragment: Any) -> dict[str, Any]:
    """Return what a version says of a fragment, as plain data."""
    plain: dict[str, Any] = fragment.metadata.to_json()
    return plain


def identity_of(fragment: Any) -> str:
    """Name what a fragment is: its data files, whose names are random, and its deletes."""
    plain = plain_of(fragment)
    deletes = plain["deletion_file"]
    paths = ",".join(file["path"] for file in plain["files"])
    return f"{paths}|{deletes['read_version']}-{deletes['id']}" if deletes else f"{paths}|"


def is_as_it_was(identity: str, fragment: Any) -> bool:
    """Whether the rows of a fragment are still those. Columns may have been added to it, in files of their own."""
    before, now = identity.split("|"), identity_of(fragment).split("|")
    return before[1] == now[1] and set(before[0].split(",")) <= set(now[0].split(","))


def source_file_of(uri: str, fragment: Any) -> SourceFile:
    """Return a fragment as a file of a source: its rows are numbered as they were written."""
    return SourceFile(
        path=f"{uri.rstrip('/')} fragment {fragment.fragment_id}",
        etag=identity_of(fragment),
        size_bytes=sum(file.get("file_size_bytes") or 0 for file in plain_of(fragment)["files"]),
        unit="rows",
        end=fragment.physical_rows,
        fragment=fragment.fragment_id,
    )


def has_values(dataset: Any, fragment: Any, columns: Sequence[str]) -> bool:
    """Whether a fragment has a file for one of the columns. Without one, it is NULL in all rows."""
    return bool(files_of_columns(dataset, fragment, columns))


def files_of_columns(dataset: Any, fragment: Any, columns: Sequence[str]) -> frozenset[tuple[int, str]]:
    """Return of each field of some columns, at any depth, in which file of a fragment it is."""
    ids: set[int] = set()

    def note(field: Any) -> None:
        ids.add(field.id())
        for child in field.children():
            note(child)

    for field in dataset.lance_schema.fields():
        if field.name() in columns:
            note(field)
    return frozenset((number, file.path) for file in fragment.data_files() for number in file.fields if number in ids)


def _refuse_bases_elsewhere(dataset: Any, uri: str, storage: StorageSettings) -> None:
    """Refuse a dataset whose manifest names other places than its own (base paths): NeedsChange(TableUnsupported).

    Lance opens a base when it reads or writes a file there, with the dataset's own options; not when it opens the dataset.
    """
    beside = storage.beside(uri)
    own = entry_of(uri, storage)
    for base in dataset.base_paths().values():
        try:
            entry = entry_of(base.path, beside)
            lance_options(base.path, beside)  # which refuses what Lance would read as another place
        except NeedsChange as error:
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"the Lance dataset {uri} has files elsewhere: {error.message}; copy it to one place",
            ) from error
        if entry is not None and entry != own:
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"the Lance dataset {uri} has files in {base.path}, which another storage entry ({entry.prefix}) covers, and "
                "Lance reaches all by one; copy it to one place",
            )
