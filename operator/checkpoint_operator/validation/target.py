"""The target: can it be reached, is it there or to be made, can it be written, does it have the columns?

A look only. For Lance that means: not `describe`, which gives a dataset its identity at first touch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from checkpoint_operator.validation.report import Findings
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Retryable
from checkpoint_protocol.manifest import IcebergSink, LanceSink, Sink, Spec
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
    if sink.iceberg is not None:
        seen = _look_at_iceberg(sink.iceberg, settings, findings)
        where = "spec.sink.iceberg.table"
    elif sink.lance is not None:
        seen = _look_at_lance(sink.lance, settings, findings)
        where = "spec.sink.lance.uri"
    else:
        return TargetSeen("(no table)", exists=True)
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


def _look_at_iceberg(sink: IcebergSink, settings: Settings, findings: Findings) -> TargetSeen:
    title = f"{sink.catalog}.{sink.table}"
    entry = settings.catalogs.get(sink.catalog)
    if entry is not None and entry.uri.startswith(_SQLITE) and not Path(entry.uri.removeprefix(_SQLITE)).exists():
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
    return TargetSeen(title, exists=False) if target is None else _iceberg_seen(target)


def _iceberg_seen(target: IcebergTarget) -> TargetSeen:
    fields = json.loads(target.table_schema_json)["fields"]
    partitions = json.loads(target.partition_spec_json)["fields"]
    columns = tuple(TargetColumn(field["name"], field["required"]) for field in fields)
    return TargetSeen(target.table, True, columns, is_partitioned=bool(partitions), data_location=target.data_location)


def _look_at_lance(sink: LanceSink, settings: Settings, findings: Findings) -> TargetSeen:
    import lance

    uri = sink.uri.rstrip("/")
    folder = local_path(uri)
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
            Retryable(reasons.STORE_UNAVAILABLE, f"the Lance dataset {uri} cannot be opened: {text}; check the storage settings"),
        )
        return TargetSeen(uri, exists=None)
    return TargetSeen(uri, True, tuple(TargetColumn(field.name, not field.nullable) for field in dataset.schema))
