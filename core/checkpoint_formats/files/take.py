"""What an epoch takes of files: those that are new, under the names by which they are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from checkpoint_formats.port import Described, FileReader
from checkpoint_formats.readers import file_reader_for
from checkpoint_formats.taking import Taking, choose, find_moved, recorded_names, renamed
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.source import FilesSource
from checkpoint_protocol.records import TakenFile
from checkpoint_protocol.records.inputs import FileColumns, SourceFile


def take(source: FilesSource, of: Taking) -> tuple[Described, None]:
    """Return what the epoch takes of the files that are there now."""
    return take_with(file_reader_for(source, of.selection, of.storage, sets_apart=of.sets_apart), of), None


def take_with(reader: FileReader, of: Taking) -> Described:
    """Return what the epoch takes of the files, as this reader describes them."""
    known, on_replaced = of.earlier.files, of.launch.on_replaced
    names = recorded_names(of.found, known, of.identify)
    described = reader.describe(of.found, _as_taken(of, known, names))
    files = renamed(described.files, names)
    moved: Mapping[str, TakenFile] = {}
    if known and on_replaced != "Process" and of.takes_new:
        moved = find_moved([file for file in files if file.path not in known], of.earlier.taken, partial(_is_gone, reader))
    taken = choose(files, lambda file: _is_new(file, known, moved, on_replaced), of, are_files=True)
    return replace(described, files=taken)


def _as_taken(of: Taking, known: Mapping[str, TakenFile], names: Mapping[str, str]) -> dict[str, FileColumns | None]:
    """Return the columns of files that are as they were taken, by their paths; not where rows are tried again."""
    again = {path for path, _ in of.earlier.again}
    taken: dict[str, FileColumns | None] = {}
    for file in of.found:
        before = known.get(names.get(file.path, file.path))
        if before is not None and (before.etag, before.size_bytes) == (file.etag, file.size_bytes) and before.path not in again:
            taken[file.path] = None if before.columns is None else of.earlier.columns.get(before.columns)
    return taken


def _is_gone(reader: FileReader, file: TakenFile) -> bool:
    try:
        reader.check_unchanged(SourceFile(path=file.path, etag=file.etag, size_bytes=file.size_bytes, unit="rows", end=None))
    except NeedsChange as error:
        if error.reason != reasons.SOURCE_CHANGED:
            raise
        return True
    return False


def _is_new(file: SourceFile, known: Mapping[str, TakenFile], moved: Mapping[str, TakenFile], on_replaced: str) -> bool:
    if file.path in moved:
        if on_replaced == "Skip":
            return False
        raise NeedsChange(
            reasons.SOURCE_MOVED,
            f"{file.path} has the etag {file.etag} and the {file.size_bytes} bytes of {moved[file.path].path}, which was taken "
            "by an earlier epoch and is not there any more: it seems to have been moved; move it back, or set onReplaced: Skip "
            "to pass it over, or onReplaced: Process to take its rows as new ones",
        )
    before = known.get(file.path)
    if before is None:
        return True
    if before.etag == file.etag or on_replaced == "Skip":
        return False
    if on_replaced == "Process":
        return True
    raise NeedsChange(
        reasons.SOURCE_CHANGED,
        f"{file.path} was taken by an earlier epoch with etag {before.etag}, and now has etag {file.etag}; "
        "set onReplaced: Process to take it again as new rows, or onReplaced: Skip to pass it over",
    )
