"""Opening a Lance dataset, for whoever reads, stages, commits or validates: what is opened, and how failures are told apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import lance

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line
from checkpoint_protocol.records import SourceFile
from checkpoint_protocol.storage import StorageSettings, entry_of, lance_options

#: How Lance words it that a dataset, or a version of it, is not there; it has no exception of its own for that.
_NOT_FOUND: Final = "not found"
#: How it words it that it does not take rows, whoever brings them and how often: all of these are OSErrors, as those of a store.
_ROWS_REFUSED: Final = re.compile(r"Invalid user input|LanceError\((?:Schema\)|Arrow\): (?:Invalid argument|Schema) error)")


def open_dataset(uri: str, storage: StorageSettings, version: int | None = None) -> Any | None:
    """Open a version of a dataset, the latest for None; return None if there surely is none.

    Retryable(StoreUnavailable) if that cannot be told. NeedsChange(TableUnsupported) for a dataset with files elsewhere.
    """
    uri = uri.rstrip("/")
    try:
        dataset = lance.dataset(uri, version=version, storage_options=lance_options(uri, storage) or None)
    except (ValueError, OSError) as error:
        if is_not_found(error):
            return None
        raise Retryable(
            reasons.STORE_UNAVAILABLE,
            f"the Lance dataset {uri} cannot be opened: {one_line(error)}; check {storage.place.name('storage')}",
        ) from error
    _refuse_bases_elsewhere(dataset, uri, storage)
    return dataset


def is_not_found(error: Exception) -> bool:
    """Whether an error of Lance says that an object of a dataset is not there."""
    return _NOT_FOUND in str(error).lower()


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
    ids: set[int] = set()

    def note(field: Any) -> None:
        ids.add(field.id())
        for child in field.children():
            note(child)

    for field in dataset.lance_schema.fields():
        if field.name() in columns:
            note(field)
    return any(not ids.isdisjoint(file.fields) for file in fragment.data_files())


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
