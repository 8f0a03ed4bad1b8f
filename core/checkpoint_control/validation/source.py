"""The source: do its paths mean files, are they of the format, do they have the columns that the manifest names?

What a run takes is planned here by the plan of a run. What is found wrong is said with its place in the manifest, and all of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from checkpoint_commit.catalogs.source_tables import pin
from checkpoint_commit.catalogs.sqlite_files import sqlite_file
from checkpoint_commit.catalogs.vended import with_keys_of_tables
from checkpoint_commit.ports import NO_CODE
from checkpoint_control.validation.fields import check_options, check_type_names
from checkpoint_control.validation.report import ColumnType, Findings, say_of_files
from checkpoint_control.validation.text_columns import read_columns
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.source_files import each_once, what_is_missing
from checkpoint_formats.planning import Align
from checkpoint_formats.port import Described, FileReader
from checkpoint_formats.readers import file_reader_for, reader_for
from checkpoint_formats.rows.selecting import selection_of
from checkpoint_formats.rows.uniting import else_hint_of, refuse_shared_files
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import new_token
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
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.manifest.where import parse_where
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import LaunchRecord, PinnedIceberg, PinnedTable
from checkpoint_protocol.records.formats.lance import PinnedLance
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.store.object_store import local_path
from checkpoint_work.inputs.epoch_input import SourcePlan

#: Of a source with more files than this, only so many are opened.
MOST_FILES: Final = 200
_WHERE_SOURCE: Final = "spec.source"
_WHERE: Final = "spec.source.where"


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """The source as it is now.

    `opened` are its files as they would be recorded, `unopened` those that were not opened; `align` is the reader's.
    `columns` are those that the steps (or the table) get, and `schema` has their types; None if they are not known. `read` are
    the columns of text with the types that they would be read as.
    """

    opened: tuple[SourceFile, ...]
    unopened: tuple[FoundFile, ...]
    align: Align
    columns: tuple[str, ...] | None
    rows: int | None
    read: tuple[ColumnType, ...] = ()
    schema: Any | None = None

    @property
    def files(self) -> tuple[SourceFile | FoundFile, ...]:
        return (*self.opened, *self.unopened)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def check_source(spec: Spec, settings: Settings, findings: Findings) -> SourceSeen | None:
    """Examine the source; None if it has nothing that can be opened, or is read by Spark, which alone knows its columns."""
    source = _with_a_condition_that_can_be(spec.source, findings)
    places = _placed_members(source)
    told = [Findings() for _ in places]
    settings = with_keys_of_tables(spec, settings)
    pinned = [_pinned(member, at, settings, of_it) for (at, member), of_it in zip(places, told, strict=True)]
    plan = SourcePlan(_launch(spec, source, pinned), settings, ())
    seen = []
    for number, of_it in enumerate(told):
        findings.problems += of_it.problems
        seen.append(_check_member(plan, number, spec, pinned, settings, findings))
    _check_shared_files(seen, findings)
    found = [one for one in seen if one is not None]
    if not seen or len(found) < len(seen):
        return None
    described = [one.described for one in found if one.described is not None]
    known = tuple(dict.fromkeys(name for one in described for name in one.known))
    is_known = len(described) == len(found)
    schema = _columns(plan, source, known, described, findings) if is_known else None
    chosen = known if source.columns is None else tuple(name for name in source.columns if name in known)
    rows = None if source.where is not None else _sum_of([one.rows for one in found])
    return SourceSeen(
        opened=tuple(replace(file, source=number) for number, one in enumerate(described) for file in one.files),
        unopened=tuple(file for one in found for file in one.unopened),
        align=reader_for(source, settings, [one.table for one in found], sets_apart=spec.on_row_error == "Quarantine").align,
        columns=chosen if is_known else None,
        rows=rows,
        read=tuple(column for one in found for column in one.read),
        schema=None if schema is None else pa.schema([schema.field(name) for name in chosen]),
    )


@dataclass(frozen=True, slots=True)
class _MemberSeen:
    """One source as it is now; a union has several. `described`: None where its files could not be read."""

    described: Described | None
    unopened: tuple[FoundFile, ...] = ()
    #: All of its files, as they were listed.
    listed: tuple[FoundFile, ...] = ()
    table: PinnedTable | None = None
    rows: int | None = None
    read: tuple[ColumnType, ...] = ()


def _with_a_condition_that_can_be(source: Source, findings: Findings) -> Source:
    try:
        if source.where is not None:
            parse_where(source.where)
    except CheckpointError as error:
        findings.error(_WHERE, error)
        return source.model_copy(update={"where": None})
    return source


def _pinned(member: Positional, at: str, settings: Settings, findings: Findings) -> PinnedIceberg | None:
    """Return the Iceberg table as an attempt would record it. None, with a problem, if it cannot be read."""
    if not isinstance(member, IcebergSource):
        return None
    entry = settings.catalogs.get(member.catalog)
    if entry is not None and (file := sqlite_file(entry.uri)) is not None and not file.exists():
        # Opening it would make it.
        text = f"the file of the catalog {member.catalog!r} does not exist, so it has no tables"
        findings.problem(f"{at}.iceberg.catalog", text)
        return None
    try:
        return pin(member, settings)
    except CheckpointError as error:
        findings.error(f"{at}.iceberg", error)
        return None


def _launch(spec: Spec, source: Source, pinned: Sequence[PinnedIceberg | None]) -> LaunchRecord:
    """Return what a first attempt would be recorded with, as far as the source is concerned. Not stored."""
    return LaunchRecord(
        token=new_token(),
        attempt=1,
        run_nonce="",
        source=source,
        steps=(),
        code_digest=NO_CODE,
        target=None,
        sink_format=spec.sink.format,
        target_file_size_bytes=1,
        interval_s=spec.checkpoint.interval,
        minimum_bytes=spec.checkpoint.minimum_bytes,
        counted=(),
        on_replaced=spec.on_replaced,
        on_row_error=spec.on_row_error,
        source_tables=tuple(pinned),
    )


def _check_member(
    plan: SourcePlan,
    number: int,
    spec: Spec,
    pinned: Sequence[PinnedIceberg | None],
    settings: Settings,
    findings: Findings,
) -> _MemberSeen | None:
    at, member = _placed_members(spec.source)[number]
    if isinstance(member, FilesSource):
        return _check_files(plan, number, spec, member, f"{at}.files", settings, findings)
    if isinstance(member, IcebergSource) and pinned[number] is None:
        return None  # said already
    if isinstance(member, KafkaSource):
        check_type_names(member.types, f"{at}.kafka.types", findings)
    try:
        described, table = plan.take(number, ())
        rows = _rows_of(described, table, settings)
    except CheckpointError as error:
        field = "" if not isinstance(member, LanceSource) else ".uri" if member.name is None else ".table"
        findings.error(f"{at}.{member.kind}{field}", error)
        return None
    if isinstance(member, KafkaSource) and not described.files:
        findings.note(f"{at}.kafka.pattern: no topic matches {member.pattern!r} by now; those that come later are taken")
    return _MemberSeen(described, table=table, rows=rows)


def _rows_of(described: Described, table: PinnedTable | None, settings: Settings) -> int | None:
    """Return the rows of a table; None where deletes make it unsure, and of what is no table."""
    if isinstance(table, PinnedIceberg):
        has_deletes = any(file.iceberg is not None and file.iceberg.deletes for file in described.files)
        return None if has_deletes else _sum_of([file.end or 0 for file in described.files])
    if not isinstance(table, PinnedLance):
        return None
    from checkpoint_formats.lance.datasets import open_dataset

    dataset = open_dataset(table.uri, settings, table.at_version)
    return None if dataset is None else dataset.count_rows()


def _check_files(
    plan: SourcePlan,
    number: int,
    spec: Spec,
    source: FilesSource,
    at: str,
    settings: Settings,
    findings: Findings,
) -> _MemberSeen | None:
    files = _find(plan, source, at, findings)
    check_type_names(source.types, f"{at}.types", findings)
    if not files:
        return None
    most = len(files) if source.format == "binary" else MOST_FILES  # of which nothing is opened to describe them
    if len(files) > most:
        findings.note(f"only the first {MOST_FILES} of {len(files):,} files were opened")
    if source.format == "csv" and not check_options(source.csv_options, f"{at}.csv", findings):
        return None
    opened, unopened = files[:most], files[most:]
    selection, sets_apart = selection_of(plan.source), spec.on_row_error == "Quarantine"
    try:
        reader = file_reader_for(source, selection, settings, sets_apart=sets_apart)
    except CheckpointError:
        return None  # a type that does not exist, which is said already
    try:
        described, _ = plan.take(number, opened)
    except CheckpointError as error:
        # Each by itself, so that all that are wrong are named.
        wrong = [message for file in opened if (message := _what_is_wrong(reader, file)) is not None]
        say_of_files(wrong or [error.message], findings)
        return _MemberSeen(None, unopened=files, listed=files)
    if described.note:
        findings.note(f"{at}.{described.note}")
    rows = None if source.is_text or unopened else _sum_of([file.end or 0 for file in described.files])
    return _MemberSeen(
        described, unopened=unopened, listed=files, rows=rows, read=read_columns(source, reader, opened, described)
    )


def _what_is_wrong(reader: FileReader, file: FoundFile) -> str | None:
    try:
        reader.check(file)
    except CheckpointError as error:
        return error.message
    return None


def _find(plan: SourcePlan, source: FilesSource, at: str, findings: Findings) -> tuple[FoundFile, ...]:
    found: list[FoundFile] = []
    for number, path in enumerate(source.paths):
        where = f"{at}.paths.{number}"
        try:
            meant = tuple(plan.files.find(path))
        except CheckpointError as error:
            findings.error(where, error)
            continue
        if not meant:
            findings.problem(where, f"{path}: {what_is_missing(path)}")
        found += meant
    return each_once(found)


def _check_shared_files(seen: Sequence[_MemberSeen | None], findings: Findings) -> None:
    try:
        refuse_shared_files([() if one is None else one.listed for one in seen])
    except CheckpointError as error:
        findings.error(f"{_WHERE_SOURCE}.union", error)


def _columns(
    plan: SourcePlan, source: Source, known: Sequence[str], found: Sequence[Described], findings: Findings
) -> pa.Schema | None:
    """Return the columns that a run would read; None, with problems, if they cannot be those."""
    before = len(findings.problems)
    typed = [(f"{at}.{name}", name) for at, types in placed_types(source) for name in types]
    named = [(f"spec.source.columns.{number}", name) for number, name in enumerate(source.columns or ())]
    for path, name in (*named, *typed):
        if name not in known:
            meant = closest(name, known)
            hint = f"did you mean {meant!r}?" if meant else f"it has {', '.join(known)}"
            findings.problem(path, f"the source has no column {name!r}; {hint}{else_hint_of(found)}")
    if len(findings.problems) > before:
        return None
    at = _WHERE_SOURCE if source.union is None else f"{_WHERE_SOURCE}.union"
    try:
        columns = plan.columns(found)
        at = _WHERE
        plan.check_where(columns, found)
    except CheckpointError as error:
        findings.error(at, error)
        return None
    return columns


def _sum_of(rows: Sequence[int | None]) -> int | None:
    return None if any(one is None for one in rows) else sum(one or 0 for one in rows)


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
