"""The cumulative index of a write: what all of its epochs up to one have taken, so that the next need not read their records."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, GetCoreSchemaHandler
from pydantic.dataclasses import dataclass
from pydantic_core import CoreSchema

from checkpoint_protocol.plain_values import of_plain_values
from checkpoint_protocol.records.base import Count, Number, Part, Record, later
from checkpoint_protocol.records.formats.kafka import KafkaPartition
from checkpoint_protocol.records.formats.union import PinnedTable
from checkpoint_protocol.records.inputs import ColumnsDigest, FileColumns, KeyColumn, StoredPart
from checkpoint_protocol.records.plans import KeySet, KeysObject


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class TakenFile:
    """A file, or a fragment of a Lance dataset, that an epoch has taken; the names are those of SourceFile.

    Data files of Iceberg tables are none: what was taken of a table its snapshot tells.
    """

    path: str
    etag: str
    size_bytes: Count
    fragment: Count | None = later(None)
    source: Count = later(0)
    columns: ColumnsDigest | None = later(None)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: CoreSchema = of_plain_values(handler(source))
        return schema


class TakenPartition(Part):
    """A partition of a topic up to which offset it was taken, and the last epoch that had it in its input."""

    partition: KafkaPartition
    topic_id: str
    end: Count
    epoch: Number
    source: Count = later(0)


class OutstandingRows(Part):
    """Positions of a file, from and to, whose rows are quarantined, and that no later epoch has taken again."""

    path: str
    etag: str
    source: Count = later(0)
    rows: tuple[tuple[Count, Count], ...]


class CsvDialect(Part):
    """The characters under which rows of a source were numbered, where rows are known by their number in a text."""

    source: Count = later(0)
    delimiter: str
    quote: str


class TakenKeys(Part):
    """What was taken of a source whose rows are known by keys, of which `columns` they are.

    `with_result` adds up exactly: no epoch takes such a row again. A row that was taken again is in `quarantined` for each time
    that it has failed, and may be in both; `was_retried` says that there may be such rows.
    """

    columns: tuple[KeyColumn, ...]
    objects: tuple[KeysObject, ...]
    with_result: KeySet
    quarantined: KeySet
    was_retried: bool = later(False)


class TakenRecord(Record):
    """What all epochs of a write up to this one have taken; where each epoch reads the whole source, what the last one has.

    `files` come after those in `parts`, in the order of the epochs, and so do rows in `outstanding` and in its parts. `tables`
    are those of the last epoch, and `tables_committed_at` is the snapshot or version of its commit. `in_table`: the last epoch
    that has committed to a table, and how many rows.
    `not_committed`: the epochs that have ended by a deletion, which have taken nothing. `unread`: those whose quarantined rows
    could not be read; what they have taken is known all the same. `file_columns` are those that files name, as in an input.
    """

    kind: Literal["taken"] = "taken"
    version: Literal[1] = 1
    epoch: Annotated[int, Field(ge=0, lt=1 << 31)]
    files: tuple[TakenFile, ...] = later(())
    parts: tuple[StoredPart, ...] = later(())
    tables: tuple[PinnedTable | None, ...] = later(())
    tables_committed_at: Count | None = later(None)
    outstanding: tuple[OutstandingRows, ...] = later(())
    outstanding_parts: tuple[StoredPart, ...] = later(())
    partitions: tuple[TakenPartition, ...] = later(())
    dialects: tuple[CsvDialect, ...] = later(())
    keys: TakenKeys | None = later(None)
    in_table: tuple[Number, Count] | None = later(None)
    not_committed: tuple[Number, ...] = later(())
    unread: tuple[Number, ...] = later(())
    file_columns: tuple[FileColumns, ...] = later(())

    @property
    def last_that_took(self) -> int:
        """The last epoch that did not end by a deletion; 0 if there is none."""
        return max({*range(self.epoch - len(self.not_committed), self.epoch + 1)} - {*self.not_committed}, default=0)


class TakenPartRecord(Record):
    """Files, or outstanding rows, that a TakenRecord names; `epoch` is that of the first one that does."""

    kind: Literal["taken-part"] = "taken-part"
    version: Literal[1] = 1
    epoch: Number
    files: tuple[TakenFile, ...] = later(())
    outstanding: tuple[OutstandingRows, ...] = later(())
