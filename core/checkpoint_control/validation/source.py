"""The source: do its paths mean files, are they of the format, do they have the columns that the manifest names?"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

import pyarrow as pa

from checkpoint_control.validation.fields import check_options, check_type_names
from checkpoint_control.validation.report import ColumnType, Findings, say_of_files
from checkpoint_control.validation.tables import TableSeen, examine_iceberg, examine_lance
from checkpoint_control.validation.text_columns import read_columns
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.source_files import SourceFiles, each_once, what_is_missing
from checkpoint_formats.planning import Align
from checkpoint_formats.port import FileReader
from checkpoint_formats.readers import file_reader_for
from checkpoint_formats.rows.selecting import Selection
from checkpoint_formats.rows.uniting import UnitedColumns, refuse_extensions, refuse_shared_files
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.problems import closest
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.manifest.sources.source import (
    VARIABLE_PATTERN,
    FilesSource,
    IcebergSource,
    LanceSource,
    Positional,
    Source,
)
from checkpoint_protocol.manifest.where import Condition, check_where, columns_of, parse_where
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.store.object_store import local_path

#: Of a source with more files than this, only so many are opened.
MOST_FILES: Final = 200
_WHERE_SOURCE: Final = "spec.source"
_WHERE: Final = "spec.source.where"


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """The source as it is now.

    `opened` are its files as they would be recorded, `unopened` those that were not opened; `align` is the reader's.
    `columns` are those that the steps (or the table) get; None if they are not known for sure. `read` are the columns of text
    with the types that they would be read as.
    """

    opened: tuple[SourceFile, ...]
    unopened: tuple[FoundFile, ...]
    align: Align
    columns: tuple[str, ...] | None
    rows: int | None
    read: tuple[ColumnType, ...] = ()
    #: The Arrow schema of these columns, where the source has types of its own.
    schema: Any | None = None
    #: That of the columns which are read, where it is inferred of the first rows.
    sampled: Any | None = None

    @property
    def files(self) -> tuple[SourceFile | FoundFile, ...]:
        return (*self.opened, *self.unopened)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def check_source(source: Source, settings: Settings, findings: Findings, *, sets_apart: bool = False) -> SourceSeen | None:
    """Examine the source; None if it has nothing that can be opened, or is read by Spark, which alone knows its columns.

    `sets_apart`: of text, lines that cannot be read are rows that failed.
    """
    condition = _parse(source, findings)
    seen = []
    for at, member in _placed_members(source):
        match member:
            case FilesSource():
                selection = Selection(source.columns, condition)
                seen.append(_check_files(member, selection, f"{at}.files", settings, findings, sets_apart))
            case IcebergSource():
                seen.append(_check_table(examine_iceberg(member, f"{at}.iceberg", settings, findings)))
            case LanceSource():
                seen.append(_check_table(examine_lance(member, f"{at}.lance", settings, findings)))
            case KafkaSource():
                seen.append(_check_topics(member, f"{at}.kafka", settings, findings, sets_apart))
            case other:
                assert_never(other)
    _check_shared_files(seen, findings)
    found = [one for one in seen if one is not None]
    if not seen or len(found) < len(seen):
        return None
    known = tuple(dict.fromkeys(name for one in found for name in one.known))
    if all(one.known for one in found):
        more = next((one.else_hint for one in found if one.else_hint), "")
        _check_columns(source, known, findings, more, may_come_later=any(one.may_come_later for one in found))
    schema = _united(source, found, findings, Selection(source.columns, condition).columns_to_read)
    if condition is not None and all(one.known for one in found):
        _check_where(source, condition, known, None if schema is None else _types_of_schema(schema), findings, found)
    chosen = known if source.columns is None else tuple(name for name in source.columns if name in known)
    return SourceSeen(
        opened=tuple(replace(file, source=number) for number, one in enumerate(found) for file in one.opened),
        unopened=tuple(file for one in found for file in one.unopened),
        align=lambda file, position, slack: found[file.source].align(file, position, slack),
        columns=None if any(one.names_are_open for one in found) else chosen,
        rows=None if condition is not None or any(one.rows is None for one in found) else sum(one.rows or 0 for one in found),
        read=tuple(column for one in found for column in one.read),
        schema=None if schema is None else pa.schema([schema.field(name) for name in chosen if name in schema.names]),
        sampled=found[0].sampled if len(found) == 1 else None,
    )


@dataclass(frozen=True, slots=True)
class _MemberSeen:
    """One source as it is now; a union has several. `known` are all of its columns.

    `names_are_open`: whether they are is not known for sure, as of JSON, where a later row may have more of them
    (`may_come_later`), and of files that could not be read.
    """

    opened: tuple[SourceFile, ...]
    unopened: tuple[FoundFile, ...] = ()
    #: All of its files, as they were listed.
    listed: tuple[FoundFile, ...] = ()
    align: Align = lambda file, position, slack: position
    known: tuple[str, ...] = ()
    names_are_open: bool = False
    may_come_later: bool = False
    rows: int | None = None
    read: tuple[ColumnType, ...] = ()
    #: The Arrow schema of these columns, where the source has types of its own.
    schema: Any | None = None
    #: That of the columns which are read, as it is inferred of the first rows; also a run makes a table of these.
    sampled: Any | None = None
    place: str = ""
    #: What one can do, beside correcting the name, about a column that is not there.
    else_hint: str = ""


def _check_shared_files(seen: Sequence[_MemberSeen | None], findings: Findings) -> None:
    try:
        refuse_shared_files([() if one is None else one.listed for one in seen])
    except CheckpointError as error:
        findings.error(f"{_WHERE_SOURCE}.union", error)


def _parse(source: Source, findings: Findings) -> Condition | None:
    try:
        return None if source.where is None else parse_where(source.where)
    except CheckpointError as error:
        findings.error(_WHERE, error)
        return None


def _united(source: Source, found: Sequence[_MemberSeen], findings: Findings, asked: Sequence[str] | None) -> Any | None:
    """Return all columns of all members, where the types of all are known."""
    if any(one.schema is None for one in found):
        return None
    columns = UnitedColumns()
    try:
        for one in found:
            refuse_extensions(one.place, one.schema, asked)
            columns.add(one.place, one.schema)
    except CheckpointError as error:
        findings.error(_WHERE_SOURCE if source.union is None else f"{_WHERE_SOURCE}.union", error)
        return None
    return columns.schema


def _check_table(table: TableSeen | None) -> _MemberSeen | None:
    if table is None:
        return None
    return _MemberSeen(
        opened=table.described.files,
        known=table.described.known,
        rows=table.rows,
        schema=table.described.schema,
        place=table.described.place,
    )


def _check_topics(source: KafkaSource, at: str, settings: Settings, findings: Findings, sets_apart: bool) -> _MemberSeen | None:
    """Ask the cluster as the first driver would: which partitions there are, and what the first records look like."""
    from checkpoint_formats.kafka.take import find_partitions

    check_type_names(source.types, f"{at}.types", findings)
    try:
        described, _ = find_partitions(source, None, settings, sets_apart=sets_apart)
    except CheckpointError as error:
        findings.error(at, error)
        return None
    if not described.files:
        findings.note(f"{at}.pattern: no topic matches {source.pattern!r} by now; those that come later are taken")
    is_json = source.format == "json"
    return _MemberSeen(
        opened=described.files,
        known=described.known,
        names_are_open=is_json,
        may_come_later=is_json,
        rows=None,
        schema=None if is_json else described.schema,
        sampled=described.schema if is_json else None,
        place=described.place,
    )


def _check_files(
    source: FilesSource,
    selection: Selection,
    at: str,
    storage: StorageSettings,
    findings: Findings,
    sets_apart: bool,
) -> _MemberSeen | None:
    listing = SourceFiles(storage)
    files = _find(listing, source, at, findings)
    check_type_names(source.types, f"{at}.types", findings)
    if not files:
        return None
    most = len(files) if source.format == "binary" else MOST_FILES  # of which nothing is opened to describe them
    if len(files) > most:
        findings.note(f"only the first {MOST_FILES} of {len(files):,} files were opened")
    if source.format == "csv" and not check_options(source.csv_options, f"{at}.csv", findings):
        return None
    opened, unopened = files[:most], files[most:]
    try:
        reader = file_reader_for(source, selection, storage, sets_apart=sets_apart)
    except CheckpointError:
        return None  # a type that does not exist, which is said already
    try:
        described = reader.describe(opened)
    except CheckpointError as error:
        # Each by itself, so that all that are wrong are named.
        wrong = [message for file in opened if (message := _what_is_wrong(reader, file)) is not None]
        say_of_files(wrong or [error.message], findings)
        return _MemberSeen(opened=(), unopened=files, listed=files, names_are_open=True)
    if described.note:
        findings.note(f"{at}.{described.note}")
    is_text = source.is_text
    return _MemberSeen(
        opened=described.files,
        unopened=unopened,
        listed=files,
        align=reader.align,
        known=described.known,
        names_are_open=source.format == "json",
        may_come_later=source.format == "json",
        rows=None if is_text or unopened else sum(file.end or 0 for file in described.files),
        read=read_columns(source, reader, opened, described),
        schema=None if is_text else described.schema,
        sampled=described.schema if is_text else None,
        place=described.place,
        else_hint=described.else_hint if source.format == "csv" else "",
    )


def _what_is_wrong(reader: FileReader, file: FoundFile) -> str | None:
    try:
        reader.check(file)
    except CheckpointError as error:
        return error.message
    return None


def check_keyed_source(source: Source, findings: Findings) -> None:
    """Examine what can be seen of a source that only Spark reads: its options, and its paths on this machine."""
    spark = source.spark
    for number, path in enumerate(spark.paths if spark is not None else ()):
        folder = local_path(path)
        if folder is not None and not any(mark in path for mark in "*?[{") and not folder.exists():
            findings.problem(f"spec.source.spark.paths.{number}", f"{path}: there is no such file or folder; correct the path")
    for name, value in (spark.options if spark is not None else {}).items():
        for variable in re.findall(VARIABLE_PATTERN, value):
            if variable[len("${env:") : -1] not in os.environ:
                findings.note(
                    f"spec.source.spark.options.{name}: {variable} is not set here; the driver's environment must have it"
                )
    findings.note("what Spark makes of the source is seen when a driver reads it; columns and types were not checked")


def _find(listing: SourceFiles, source: FilesSource, at: str, findings: Findings) -> tuple[FoundFile, ...]:
    found: list[FoundFile] = []
    for number, path in enumerate(source.paths):
        where = f"{at}.paths.{number}"
        try:
            meant = tuple(listing.find(path))
        except CheckpointError as error:
            findings.error(where, error)
            continue
        if not meant:
            findings.problem(where, f"{path}: {what_is_missing(path)}")
        found += meant
    return each_once(found)


def _types_of_schema(schema: Any) -> dict[str, str]:
    """Name the types of an Arrow schema as columns are read: a dictionary is an encoding."""
    return {field.name: str(field.type.value_type if pa.types.is_dictionary(field.type) else field.type) for field in schema}


def placed_types(source: Source) -> list[tuple[str, Mapping[str, str]]]:
    """Return the types that the manifest gives columns of each member that takes such, with their place in it."""
    return [
        (f"{at}.{member.kind}.types", member.types)
        for at, member in _placed_members(source)
        if isinstance(member, FilesSource | KafkaSource)
    ]


def _placed_members(source: Source) -> list[tuple[str, Positional]]:
    if source.union is None:
        return [(_WHERE_SOURCE, member) for member in source.members]
    return [(f"{_WHERE_SOURCE}.union.{number}", member) for number, member in enumerate(source.members)]


def _check_where(
    source: Source,
    condition: Condition,
    known: Sequence[str],
    types: Mapping[str, str] | None,
    findings: Findings,
    found: Sequence[_MemberSeen],
) -> None:
    """Compare the condition with the columns; where the types are not known before a run, only their names."""
    try:
        if types is not None:
            check_where(condition, types)
            return
    except CheckpointError as error:
        findings.error(_WHERE, error)
        return
    given = {name for _, types in placed_types(source) for name in types}
    for name in columns_of(condition):
        if name in known or name in given:
            continue
        more = next((one.else_hint for one in found if one.else_hint), "")
        if any(one.may_come_later for one in found):
            findings.note(f"{_WHERE}: the first object has no field {name!r}; it has {', '.join(known)}")
        else:
            findings.problem(_WHERE, f"there is no column {name!r} (there are {', '.join(known)}); correct it{more}")


def _check_columns(source: Source, known: Sequence[str], findings: Findings, more: str, *, may_come_later: bool) -> None:
    """Compare the names in the manifest with the source's. A JSON field may be in a later row, so there it is only noted."""
    typed = [(f"{at}.{name}", name) for at, types in placed_types(source) for name in types]
    given = {name for _, name in typed}
    named = [(f"spec.source.columns.{number}", name) for number, name in enumerate(source.columns or ())]
    if not may_come_later:
        named += typed
    for path, name in named:
        if name in known or (may_come_later and name in given):
            continue
        meant = closest(name, known)
        hint = f"did you mean {meant!r}?" if meant else f"it has {', '.join(known)}"
        if may_come_later:
            findings.note(f"{path}: the first object has no field {name!r}; {hint}")
        else:
            findings.problem(path, f"the source has no column {name!r}; {hint}{more}")
