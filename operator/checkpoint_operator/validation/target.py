"""The target: can it be reached, is it there or to be made, can it be written, does it have the columns?

A look only. For Lance that means: not `describe`, which gives a dataset its identity at first touch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never

from checkpoint_operator.table_types import finer_than_iceberg, iceberg_schema, lance_schema
from checkpoint_operator.validation.report import Findings
from checkpoint_operator.validation.writable import why_not_writable
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Retryable
from checkpoint_protocol.manifest import IcebergSink, LanceSink, NoSink, Sink, Spec
from checkpoint_protocol.records import IcebergTarget
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.storage import lance_options
from checkpoint_protocol.store import local_path

_SQLITE: Final = "sqlite:///"


@dataclass(frozen=True, slots=True)
class TargetColumn:
    name: str
    required: bool


@dataclass(frozen=True, slots=True)
class TargetSeen:
    """The target as it is now. `exists` and `columns` are None where that could not be told."""

    title: str
    exists: bool | None
    columns: tuple[TargetColumn, ...] | None = None
    is_partitioned: bool = False
    data_location: str | None = None


def check_target(spec: Spec, settings: Settings, findings: Findings) -> TargetSeen:
    """Look at the target without changing it."""
    sink = spec.sink
    match sink.named:
        case IcebergSink() as named:
            seen = _look_at_iceberg(named, settings, findings)
            where = "spec.sink.iceberg.table"
        case LanceSink() as named:
            seen = _look_at_lance(named, settings, findings)
            where = "spec.sink.lance.uri"
        case NoSink():
            return TargetSeen("(no table)", exists=True)
        case other:
            assert_never(other)
    if seen.exists is False and not sink.create:
        findings.problem(
            where,
            f"{seen.title} does not exist; make it, or set sink.create: true to have it made from the steps' output",
        )
    if seen.exists and sink.partition_by:
        findings.note(f"spec.sink.partitionBy: {seen.title} exists, so that its own partitioning holds")
    return seen


@dataclass(frozen=True, slots=True)
class Giver:
    """Who gives the columns of the target, for messages: the field that names them, that of what lacks one, and a way out."""

    name: str
    columns_at: str
    at: str
    way_out: str


def compare_columns(sink: Sink, target: TargetSeen, given: Sequence[str], giver: Giver, findings: Findings) -> None:
    """Compare the columns that are put into the target with what is there. Names only; types are seen by a run."""
    if target.columns is not None:
        known = [column.name for column in target.columns]
        for name in given:
            if name not in known:
                findings.problem(
                    giver.columns_at,
                    f"{giver.name} has the column {name!r}, and {target.title} has not (it has {', '.join(known)}); "
                    f"{giver.way_out}, or add it to the table",
                )
        for column in target.columns:
            if column.required and column.name not in given:
                findings.problem(giver.at, f"{target.title} requires the column {column.name!r}, and {giver.name} has none")
        return
    for number, field in enumerate(sink.partition_by):
        if field.column not in given:
            findings.problem(
                f"spec.sink.partitionBy.{number}.column",
                f"{giver.name} has no column {field.column!r} (it has {', '.join(given)})",
            )


def check_types(sink: Sink, target: TargetSeen, given: Any, findings: Findings) -> None:
    """Look whether a table can be made of the columns (an Arrow schema) of a write without steps."""
    if target.exists is not False or not sink.create:
        return
    try:
        match sink.named:
            case LanceSink():
                lance_schema(given)
            case IcebergSink():
                for name in finer_than_iceberg(given):
                    findings.note(
                        f"spec.source: the column {name!r} has {given.field(name).type}, and Iceberg keeps microseconds: a row "
                        "with a finer time fails, and is not cut off; round it in a step"
                    )
                iceberg_schema(given)
            case NoSink():
                pass
            case other:
                assert_never(other)
    except CheckpointError as error:
        findings.problem("spec.source", f"no table {target.title} can be made: {error.message} by source.columns")


def _look_at_iceberg(sink: IcebergSink, settings: Settings, findings: Findings) -> TargetSeen:
    title = f"{sink.catalog}.{sink.table}"
    entry = settings.catalogs.get(sink.catalog)
    file = Path(entry.uri.removeprefix(_SQLITE)) if entry is not None and entry.uri.startswith(_SQLITE) else None
    if file is not None and (why := why_not_writable(file) or why_not_writable(file.parent)) is not None:
        findings.problem(
            "spec.sink.iceberg.catalog", f"the SQLite file {file} of the catalog {sink.catalog!r} cannot be used: {why}"
        )
        return TargetSeen(title, exists=None)
    if file is not None and not file.exists():
        # Opening it would make it.
        findings.note(f"the file of the catalog {sink.catalog!r} does not exist yet: a run would make it")
        return TargetSeen(title, exists=False)
    from checkpoint_operator.commit.iceberg_table import PyicebergTable

    try:
        target = PyicebergTable(sink.catalog, sink.table, settings).describe()
    except CheckpointError as error:
        is_table = error.reason == reasons.TABLE_UNSUPPORTED
        findings.error(f"spec.sink.iceberg.{'table' if is_table else 'catalog'}", error)
        return TargetSeen(title, exists=True if is_table else None)
    if target is None:
        _check_folder("spec.sink.iceberg.catalog", entry.warehouse if entry is not None else None, findings)
        return TargetSeen(title, exists=False)
    _check_folder("spec.sink.iceberg.table", target.data_location, findings)
    return _iceberg_seen(target)


def _check_folder(path: str, place: str | None, findings: Findings) -> None:
    """Say where data files of the target cannot be put. A name, as some REST catalogs have for a warehouse, is no place."""
    folder = local_path(place) if place is not None and ("/" in place or ":" in place) else None
    if folder is not None and (why := why_not_writable(folder)) is not None:
        findings.problem(path, f"data files cannot be put into {place}: {why}")


def _iceberg_seen(target: IcebergTarget) -> TargetSeen:
    fields = json.loads(target.table_schema_json)["fields"]
    partitions = json.loads(target.partition_spec_json)["fields"]
    columns = tuple(TargetColumn(field["name"], field["required"]) for field in fields)
    return TargetSeen(target.table, True, columns, is_partitioned=bool(partitions), data_location=target.data_location)


def _look_at_lance(sink: LanceSink, settings: Settings, findings: Findings) -> TargetSeen:
    import lance

    uri = sink.uri.rstrip("/")
    folder = local_path(uri)
    _check_folder("spec.sink.lance.uri", uri, findings)
    if folder is not None and not folder.exists():
        return TargetSeen(uri, exists=False)
    try:
        dataset = lance.dataset(uri, storage_options=lance_options(uri, settings) or None)
    except CheckpointError as error:
        findings.error("spec.sink.lance.uri", error)
        return TargetSeen(uri, exists=None)
    except (ValueError, OSError) as error:
        text = " ".join(str(error).split())[:400]
        if "not found" in text.lower():
            return TargetSeen(uri, exists=False)
        findings.error(
            "spec.sink.lance.uri",
            Retryable(
                reasons.STORE_UNAVAILABLE,
                f"the Lance dataset {uri} cannot be opened: {text}; check {settings.place.name('storage')}",
            ),
        )
        return TargetSeen(uri, exists=None)
    return TargetSeen(uri, True, tuple(TargetColumn(field.name, not field.nullable) for field in dataset.schema))
