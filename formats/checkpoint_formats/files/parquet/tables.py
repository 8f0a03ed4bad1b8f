"""Parquet files that belong to a table: in its folder lie files, too, whose rows the table has removed or replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os.path import realpath
from typing import Final

from checkpoint_formats.failures import unreadable
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.source_files import SourceFiles, for_each
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.source_paths import locate

_ICEBERG_METADATA: Final = re.compile(r"(?:v[0-9]+|[0-9]{5,}-[0-9a-f-]{36})(?:\.gz)?\.metadata\.json(?:\.gz)?")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A format of tables: what its folders have, and the source that reads it."""

    title: str
    #: Below the table's folder. The first file that is there tells, if `is_its` says so of its name.
    mark: str
    is_its: Callable[[str], bool]
    source: str


_KINDS: Final = (
    _Kind("a Delta table", "_delta_log/", lambda _: True, "source.spark with format: delta"),
    _Kind("a Hudi table", ".hoodie/hoodie.properties", lambda _: True, "source.spark with format: hudi"),
    _Kind(
        "an Iceberg table",
        "metadata/*.metadata.json*",
        lambda name: _ICEBERG_METADATA.fullmatch(name) is not None,
        "source.iceberg",
    ),
)


def refuse_files_of_tables(files: SourceFiles, found: Sequence[FoundFile]) -> None:
    """Raise NeedsChange(SourceUnreadable) for a file below the folder of a table. Folders that nobody may list tell nothing."""
    first: dict[str, str] = {}
    for file in found:
        for folder in _folders_above(file.path):
            if folder in first:
                break
            first[folder] = file.path
    for folder, kind in zip(first, for_each(lambda folder: _table_in(files, folder), list(first)), strict=True):
        if kind is not None:
            raise unreadable(
                first[folder],
                f"{folder} is the folder of {kind.title}, in which files stay whose rows the table has removed or replaced",
                f"read the table by {kind.source}, or copy the files to a folder of their own if all their rows count",
            )


def _folders_above(path: str) -> Iterable[str]:
    """Give the folders that a file lies in, the nearest first."""
    location = locate(path)
    key = location.key if location.root else realpath(location.key)
    while "/" in key:
        key = key.rpartition("/")[0]
        yield location.at(key).text
    if location.root and key:
        yield location.root


def _table_in(files: SourceFiles, folder: str) -> _Kind | None:
    try:
        for kind in _KINDS:
            names = (file.path.rpartition("/")[2] for file in files.find(f"{folder}/{kind.mark}"))
            if any(map(kind.is_its, names)):
                return kind
    except NeedsChange:  # not granted, or refused by the store: the files themselves may be
        return None
    return None
