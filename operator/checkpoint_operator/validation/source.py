"""The source: do its paths mean files, are they of the format, do they have the columns that the manifest names?"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.source_files import SourceFiles, each_once, what_is_missing
from checkpoint_operator.validation.json_columns import infer_fields
from checkpoint_operator.validation.looks import MOST_FILES, Look
from checkpoint_operator.validation.report import ColumnType, Findings
from checkpoint_operator.validation.text_columns import infer_columns
from checkpoint_operator.validation.text_files import check_options, check_type_names, is_read_from_its_start, look_at_text
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest import VARIABLE_PATTERN, Source
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.storage import StorageSettings
from checkpoint_protocol.store import local_path
from checkpoint_protocol.where import Condition, check_where, columns_of, parse_where

_WHERE = "spec.source.where"


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """The source as it is now.

    `columns` are those that the steps (or the table) get; None if they are not known for sure. `filled` are the files that
    have something to read, `unopened` those that may have. `whole` are the paths that one task must read from the start.
    `read` are the columns of text with the types that they would be read as.
    """

    files: tuple[FoundFile, ...]
    filled: tuple[FoundFile, ...]
    unopened: tuple[FoundFile, ...]
    whole: frozenset[str]
    columns: tuple[str, ...] | None
    rows: int | None
    read: tuple[ColumnType, ...] = ()
    #: The Arrow schema of these columns, where the source has types of its own.
    schema: Any | None = None

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def check_source(source: Source, settings: Settings, findings: Findings, *, sets_apart: bool = False) -> SourceSeen | None:
    """Look at the source; None if it has no files that can be looked at.

    `sets_apart`: of text, lines that cannot be read are rows that failed.
    """
    condition = _parse(source, findings)
    if source.iceberg is not None or source.lance is not None:
        return _check_table(source, condition, settings, findings)
    return _check_files(source, condition, settings, findings, sets_apart)


def _parse(source: Source, findings: Findings) -> Condition | None:
    try:
        return None if source.where is None else parse_where(source.where)
    except CheckpointError as error:
        findings.error(_WHERE, error)
        return None


def _check_table(source: Source, condition: Condition | None, settings: Settings, findings: Findings) -> SourceSeen | None:
    from checkpoint_operator.validation.tables import look_at_table

    if source.types:
        findings.note("spec.source.types does nothing for tables: they have types of their own")
    if source.key_columns:
        findings.note("spec.source.keyColumns is not needed for tables: a row is known by its file and its position in it")
    table = look_at_table(source, settings, findings)
    if table is None:
        return None
    _check_columns(source, tuple(table.types), findings, "the table has")
    if condition is not None:
        _check_where(source, condition, tuple(table.types), table.types, findings)
    return SourceSeen(
        files=table.files,
        filled=table.files,
        unopened=(),
        whole=frozenset(),
        columns=_chosen(source, tuple(table.types)),
        rows=table.rows if condition is None else None,
        schema=_typed(table.schema, _chosen(source, tuple(table.types))),
    )


def _check_files(
    source: Source, condition: Condition | None, storage: StorageSettings, findings: Findings, sets_apart: bool
) -> SourceSeen | None:
    listing = SourceFiles(storage)
    files = _find(listing, source, findings)
    if source.format != "parquet":
        check_type_names(source.types, "spec.source.types", findings)
    elif source.types:
        findings.note("spec.source.types does nothing for Parquet: the files have types of their own")
    if source.key_columns:
        findings.note("spec.source.keyColumns is not needed for files: a row is known by its file and its position in it")
    if not files:
        return None
    if len(files) > MOST_FILES:
        findings.note(f"only the first {MOST_FILES} of {len(files):,} files were opened")
    look = _look(listing, source, files, findings)
    if look.columns is not None:
        _check_columns(source, look.columns, findings)
        if condition is not None:
            _check_where(source, condition, look.columns, look.types, findings)
    whole = frozenset(file.path for file in files if source.format != "parquet" and is_read_from_its_start(file.path, source))
    read: tuple[ColumnType, ...] = ()
    if look.columns and source.format == "csv":
        read = infer_columns(listing, source, files[:MOST_FILES], look.columns, whole, findings)
    elif look.columns and source.format == "json":
        read = infer_fields(listing, source, files[:MOST_FILES], findings, sets_apart=sets_apart)
    return SourceSeen(
        files=files,
        filled=tuple(file for file in files[:MOST_FILES] if file.path not in look.empty),
        unopened=files[MOST_FILES:],
        whole=whole,
        columns=None if look.columns is None or source.format == "json" else _chosen(source, look.columns),
        rows=look.rows if condition is None else None,
        read=read,
        schema=None if look.schema is None or look.columns is None else _typed(look.schema, _chosen(source, look.columns)),
    )


def check_dataframe_source(source: Source, findings: Findings) -> None:
    """Look at what can be seen of a source that only Spark reads: its options, and its paths on this machine."""
    if not source.options.say_nothing:
        findings.problem(
            "spec.source.options",
            "these belong to the splits way; name the options of Spark's reader in spec.source.readerOptions",
        )
    for path in source.all_paths:
        folder = local_path(path)
        if folder is not None and not any(mark in path for mark in "*?[{") and not folder.exists():
            findings.problem("spec.source.path", f"{path}: there is no such file or folder; correct the path")
    for name, value in source.reader_options.items():
        for variable in re.findall(VARIABLE_PATTERN, value):
            if variable[len("${env:") : -1] not in os.environ:
                findings.note(
                    f"spec.source.readerOptions.{name}: {variable} is not set here; the driver's environment must have it"
                )
    findings.note("what Spark makes of the source is seen when a driver reads it; columns and types were not looked at")


def _find(listing: SourceFiles, source: Source, findings: Findings) -> tuple[FoundFile, ...]:
    found: list[FoundFile] = []
    for number, path in enumerate(source.all_paths):
        where = "spec.source.path" if source.path is not None else f"spec.source.paths.{number}"
        try:
            meant = tuple(listing.find(path))
        except CheckpointError as error:
            findings.error(where, error)
            continue
        if not meant:
            findings.problem(where, f"{path}: {what_is_missing(path)}")
        found += meant
    return each_once(found)


def _look(listing: SourceFiles, source: Source, files: Sequence[FoundFile], findings: Findings) -> Look:
    if source.format != "parquet":
        if source.format == "csv" and not check_options(source.options, findings):
            return Look(columns=None)
        return look_at_text(listing, source, files, findings)
    from checkpoint_operator.validation.parquet_files import look_at_parquet

    return look_at_parquet(listing, files, findings)


def _chosen(source: Source, known: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that are read; one that does not exist has been said already."""
    return tuple(known) if source.columns is None else tuple(name for name in source.columns if name in known)


def _typed(schema: Any, names: Sequence[str]) -> Any:
    """Return the fields of these columns. Of a file in which a name is there twice, which is said already, the first."""
    return pa.schema([schema.field(schema.names.index(name)) for name in names])


def _check_where(
    source: Source, condition: Condition, known: Sequence[str], types: Mapping[str, str] | None, findings: Findings
) -> None:
    """Compare the condition with the columns; where the types are not known before a run, only their names."""
    try:
        if types is not None:
            check_where(condition, types)
            return
    except CheckpointError as error:
        findings.error(_WHERE, error)
        return
    for name in columns_of(condition):
        if name in known or name in source.types:
            continue
        if source.format == "json":
            findings.note(f"{_WHERE}: the first object has no field {name!r}; it has {', '.join(known)}")
        else:
            findings.problem(_WHERE, f"there is no column {name!r} (there are {', '.join(known)}); correct it")


def _check_columns(source: Source, known: Sequence[str], findings: Findings, has: str = "the files have") -> None:
    """Compare the names in the manifest with the files'. A JSON field may be in a later row, so there it is only noted."""
    named = [(f"spec.source.columns.{number}", name) for number, name in enumerate(source.columns or ())]
    named += [(f"spec.source.types.{name}", name) for name in source.types if source.format != "json"]
    named += [(f"spec.source.keyColumns.{number}", name) for number, name in enumerate(source.key_columns)]
    for path, name in named:
        if name in known or (source.format == "json" and name in source.types):
            continue
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"they have {', '.join(known)}"
        if source.format == "json":
            findings.note(f"{path}: the first object has no field {name!r}; {hint}")
        else:
            findings.problem(path, f"{has} no column {name!r}; {hint}")
