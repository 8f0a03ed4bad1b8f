"""Which data files of an Iceberg table an overwrite takes out: all, those of a condition, or those of some partitions.

Files are taken out as a whole. Sources of the rules: the Iceberg table specification (scan planning: inclusive and strict
projection; metrics), as pyiceberg implements them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    _StrictMetricsEvaluator,
    expression_evaluator,
    inclusive_projection,
    strict_projection,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import UnknownType

from checkpoint_formats.iceberg.plan import to_pyiceberg
from checkpoint_formats.rows.plain_types import plain_schema
from checkpoint_formats.rows.where import Filter
from checkpoint_protocol.manifest.where import AllOf, AnyOf, Condition, IsNull, as_of_the_sink, parse_where, predicates_of


class Extent(Enum):
    """How many of a data file's rows are replaced. SOME: this cannot be ruled out, and nor can it that others stay."""

    ALL = "all"
    SOME = "some"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Everything:
    is_everything: bool = True

    def extent(self, file: DataFile) -> Extent:
        return Extent.ALL


#: Partition values as they are stored: in Iceberg's binary form, in base64.
Partition = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class InPartitions:
    """Of the partitions that the staged files are in, by spec. What lies under another spec may be in them, or not."""

    metadata: TableMetadata
    partitions: Mapping[int, Collection[Partition]]
    is_everything: bool = False

    def extent(self, file: DataFile) -> Extent:
        of_spec = self.partitions.get(file.spec_id)
        if of_spec is None:
            return Extent.SOME
        return Extent.ALL if partition_of(file, self.metadata) in of_spec else Extent.NONE


def partition_of(file: DataFile, metadata: TableMetadata) -> Partition:
    """Return the partition values of a data file in the form in which staged files have theirs."""
    fields = metadata.specs()[file.spec_id].partition_type(metadata.schema()).fields
    values = [file.partition[number] for number in range(len(fields))]
    return tuple(
        None if value is None or isinstance(part.field_type, UnknownType) else _stored(part.field_type, value)
        for part, value in zip(fields, values, strict=True)
    )


def _stored(kind: Any, value: Any) -> str:
    return base64.b64encode(to_bytes(kind, value)).decode()


@dataclass(slots=True)
class Matching:
    """Of a condition. A file is taken out where its partition or its statistics show that the condition is true of each row."""

    metadata: TableMetadata
    where: str
    is_everything: bool = False
    _expression: BooleanExpression = field(init=False)
    _by_spec: dict[int, tuple[Callable[[Any], bool], Callable[[Any], bool]]] = field(default_factory=dict)
    _metrics: tuple[Any, Any] = field(init=False)

    def __post_init__(self) -> None:
        schema = self.metadata.schema()
        arrow = plain_schema(schema_to_pyarrow(schema, include_field_ids=False))
        with as_of_the_sink():
            condition = parse_where(self.where)
            Filter(condition, arrow)
        expression = self._expression = to_pyiceberg(_without_nulls(condition), arrow)
        self._metrics = _InclusiveMetricsEvaluator(schema, expression), _StrictMetricsEvaluator(schema, expression)

    def extent(self, file: DataFile) -> Extent:
        may_match, must_match = self._of_spec(file.spec_id)
        may_match_metrics, must_match_metrics = self._metrics
        if not _told(may_match, file, True) or not may_match_metrics.eval(file):
            return Extent.NONE
        if _told(must_match, file, False) or must_match_metrics.eval(file):
            return Extent.ALL
        return Extent.SOME

    def _of_spec(self, spec_id: int) -> tuple[Callable[[Any], bool], Callable[[Any], bool]]:
        if spec_id not in self._by_spec:
            schema, spec = self.metadata.schema(), self.metadata.specs()[spec_id]
            values = Schema(*spec.partition_type(schema).fields)
            self._by_spec[spec_id] = (
                expression_evaluator(values, inclusive_projection(schema, spec)(self._expression), case_sensitive=True),
                expression_evaluator(values, strict_projection(schema, spec)(self._expression), case_sensitive=True),
            )
        return self._by_spec[spec_id]


#: Says of data files whether their rows are replaced.
Replaced = Everything | InPartitions | Matching


def _told(judge: Callable[[Any], bool], file: DataFile, otherwise: bool) -> bool:
    try:
        return judge(file.partition)
    except TypeError:  # pyiceberg 0.12 compares a partition value that is NULL with a literal
        return otherwise


def _without_nulls(condition: Condition) -> Condition:
    """Return the condition with what pyiceberg leaves out of it: that no column which it compares is NULL."""
    match condition:
        case AllOf(parts):
            return AllOf(tuple(_without_nulls(part) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(_without_nulls(part) for part in parts))
        case IsNull():
            return condition
    (predicate,) = predicates_of(condition)
    return AllOf((condition, IsNull(predicate.column, negated=True)))


def replaced_by_where(metadata: TableMetadata, where: str) -> Matching:
    """Return what `sink.where` takes out of a table. NeedsChange(ManifestInvalid) if it does not fit its columns."""
    return Matching(metadata, where)
