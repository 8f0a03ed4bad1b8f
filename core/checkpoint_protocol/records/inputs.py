"""The input of an epoch: what every attempt of it reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import CoreSchema

from checkpoint_protocol.plain_values import of_plain_values
from checkpoint_protocol.records.base import Base64, Count, Digest, Part, Record, Token, later
from checkpoint_protocol.records.formats.iceberg import IcebergSourceFile
from checkpoint_protocol.records.formats.kafka import KafkaPartition
from checkpoint_protocol.records.formats.lance import LancePack
from checkpoint_protocol.records.formats.union import PinnedTable
from checkpoint_protocol.rows.positions import Range

#: An input or a plan that is larger is put in parts of about this size: some 30,000 files, or 200,000 ranges.
PART_BYTES = 8 << 20
#: Of so many bytes of columns an input, or an index, keeps which file has them; files with others are opened again.
MOST_COLUMNS_BYTES: Final = 4 << 20


ColumnsDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class StoredPart(Part):
    """An object with a part of a record that is too large for one, named by its token; it counts because the record names it.

    `count`: how many files of an input, or tasks of a plan, it has. `digest` is the SHA-256 of its bytes.
    """

    token: Token
    count: Annotated[int, Field(ge=1)]
    digest: Digest


class FileColumns(Part):
    """The columns that files have, as a message of Arrow's IPC, chosen or not. `read_as`: by which rules they were found.

    Files name them by `digest`, which may also be that of columns that are kept nowhere.
    """

    digest: ColumnsDigest
    read_as: str
    arrow_schema: Base64


def some_columns(found: Iterable[FileColumns]) -> tuple[FileColumns, ...]:
    """Return them each once, the first that are not too many for one record."""
    room, kept = MOST_COLUMNS_BYTES, {}
    for one in found:
        if one.digest not in kept and (room := room - len(one.arrow_schema)) >= 0:
            kept[one.digest] = one
    return tuple(kept.values())


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class SourceFile:
    """One input file, fixed for the epoch. With slots, and no pydantic model: there may be a million in one process.

    `unit` says what its positions count: rows (Parquet, Iceberg, Lance; a file that is one row as a whole), bytes
    (line-aligned text), records (text that is read from its start only). Positions run from `start` to `end`; end is None
    where it is known after reading only. `cuts` are positions at which a reader starts cheaply (row groups). `only`: of all
    these positions, those that are input, from and to; None: all. Rows of a table are counted as they lie in the file, so
    that those which the table has deleted have positions too. `iceberg`: of an Iceberg table's data file. `fragment`: of a
    Lance dataset, whose fragments are its files. `pack`: of a fragment whose columns are put together. `source`: which member
    of a union it is of. `modified_us`: when it was written, where its rows tell that. `kafka`: a partition of a topic, whose
    offsets are its positions; its bytes are estimated. `columns`: which columns it has, so that later
    epochs need not open it. `left_out`: of a staged Lance fragment, files that name rows of it which are not to be committed.
    """

    path: str
    etag: str
    size_bytes: Count
    unit: Literal["rows", "bytes", "records"]
    start: Count = 0
    end: Count | None
    cuts: tuple[Count, ...] = ()
    only: tuple[tuple[Count, Count], ...] | None = later(None)
    iceberg: IcebergSourceFile | None = later(None)
    fragment: Count | None = later(None)
    source: Count = later(0)
    modified_us: int | None = later(None)
    kafka: KafkaPartition | None = later(None)
    pack: LancePack | None = later(None)
    columns: ColumnsDigest | None = later(None)
    left_out: tuple[str, ...] = later(())

    @property
    def has_positions(self) -> bool:
        """Whether there is anything in it that is input."""
        return self.start != self.end if self.only is None else any(start != end for start, end in self.only)

    def ranges(self, index: int) -> tuple[Range, ...]:
        """Return the positions that are input, as those of the file with this index."""
        if self.only is None:
            return (Range(file=index, start=self.start, end=self.end),)
        return tuple(Range(file=index, start=start, end=end) for start, end in self.only)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: CoreSchema = of_plain_values(handler(source))
        return schema


class KeyColumn(Part):
    """A column that identifies rows; `type` is in Spark's words, e.g. bigint or decimal(10,2)."""

    name: str
    type: str


class Retried(Part):
    """What an epoch takes besides new rows, or alone: those of the source that earlier epochs have quarantined.

    For rows that are known by keys; of files it is `SourceFile.only` that names them. `rows`: so many of them the source had when
    this was fixed, before `sql` or a program left any out; only the limits of `quarantine` go by it.
    """

    retry: Literal["Also", "Only"]
    rows: Count


class InputTotals(Part):
    """What the files of an input add up to.

    `rows` are the most that it may have, where its files tell: those of which rows are counted, to a known end. `retried`: so
    many single rows are taken that earlier epochs have quarantined. `left`: so many new files are left to the next epoch.
    """

    files: Count
    size_bytes: Count
    rows: Count | None
    retried: Count
    left: Count = later(0)


class InputRecord(Record):
    """What every attempt of the epoch reads: exactly these files, under this schema (an Arrow IPC schema message).

    The schema has the columns that the steps get, and after them those that only `where` reads. `tables` has for each
    source (a union has several) the table at the snapshot or version that every attempt reads, or None; it is empty where no
    source is a table. Where rows are known by keys there are no files, which nothing
    could pin: `keys` are the columns that every attempt knows rows by, and `retried` says what it takes of earlier epochs.
    `file_columns` are those that its files name.
    Of a stream there are none either: `batch` is the number of Spark's micro-batch, and each attempt has a record of its own.

    With too many files for one object an InputIndexRecord is stored in its place.
    """

    kind: Literal["input"] = "input"
    version: Literal[2] = 2
    files: tuple[SourceFile, ...]
    arrow_schema: Base64
    keys: tuple[KeyColumn, ...] = ()
    tables: tuple[PinnedTable | None, ...] = ()
    retried: Retried | None = later(None)
    left: Count = later(0)
    batch: Count | None = later(None)
    file_columns: tuple[FileColumns, ...] = later(())

    @property
    def totals(self) -> InputTotals:
        again = [file for file in self.files if file.only is not None]
        rows: int | None = sum(len(file.only or ()) for file in again)
        for file in self.files:
            if rows is not None and file.only is None:
                rows = None if file.unit == "bytes" or file.end is None else rows + file.end - file.start
        return InputTotals(
            files=len(self.files),
            size_bytes=sum(file.size_bytes for file in self.files),
            rows=None if self.keys or self.batch is not None else rows,
            retried=sum(len(file.only or ()) for file in again),
            left=self.left,
        )


class InputIndexRecord(Record):
    """An input whose files are in parts, in this order; what it says else is that of an InputRecord.

    It is put after its parts, under the name of the input: the first one, of whichever kind, stands.
    """

    kind: Literal["input-index"] = "input-index"
    version: Literal[2] = 2
    parts: Annotated[tuple[StoredPart, ...], Field(min_length=1)]
    totals: InputTotals
    arrow_schema: Base64
    tables: tuple[PinnedTable | None, ...]
    file_columns: tuple[FileColumns, ...] = later(())

    @model_validator(mode="after")
    def _counts_its_files(self) -> InputIndexRecord:
        if sum(part.count for part in self.parts) != self.totals.files:
            raise ValueError("the parts have not as many files as the input")
        return self


class InputPartRecord(Record):
    """Files of an input that an InputIndexRecord names."""

    kind: Literal["input-part"] = "input-part"
    version: Literal[1] = 1
    files: Annotated[tuple[SourceFile, ...], Field(min_length=1)]
