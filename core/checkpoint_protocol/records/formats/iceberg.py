"""What records say of Iceberg: a source at a snapshot, the table as staging sees it, staged files, the base of a commit."""

from __future__ import annotations

from typing import ClassVar, Final, Literal, NamedTuple

from checkpoint_protocol.records.base import Base64, Count, Output, Part, later

#: Such as data files have below the table's data location.
_NAMES: Final = ("cw-uid/1-0.parquet", "0.parquet", "day=1/0.parquet")


class DeleteFile(Part):
    """A file of an Iceberg table that says which rows of data files are deleted, by their positions."""

    path: str
    format: Literal["parquet", "puffin"]


class IcebergSourceFile(Part):
    """What an Iceberg table knows of one of its data files.

    `partition` has one value per field of the spec, in its order, in Iceberg's binary form. Where the rows are written anew, in
    format 3: `first_row_id` is the id of the file's first row, and `sequence_number` is that of its data.
    """

    spec_id: int
    partition: tuple[Base64 | None, ...]
    deletes: tuple[DeleteFile, ...]
    first_row_id: Count | None = later(None)
    sequence_number: Count | None = later(None)


class PinnedIceberg(Part):
    """An Iceberg table at one snapshot, as its readers need to know it: no catalog is asked any more.

    `snapshot_id` is None where the table had no snapshot. `table_schema_json` is the schema that is read, `partition_specs_json`
    are all of its specs, `name_mapping_json` gives ids to the columns of files that have none. `sequence_number` is that of the
    snapshot. `changed_after`: only those rows are input that snapshots after this sequence number have added or changed.
    """

    format: Literal["iceberg"] = "iceberg"
    table: str
    table_uuid: str
    location: str
    metadata_location: str
    snapshot_id: int | None
    format_version: int
    table_schema_json: str
    partition_specs_json: tuple[str, ...]
    name_mapping_json: str | None
    sequence_number: Count | None = later(None)
    changed_after: Count | None = later(None)

    @property
    def title(self) -> str:
        return f"{self.table} at snapshot {self.snapshot_id}" if self.snapshot_id is not None else f"{self.table}, empty"


class IcebergBase(Part):
    """The table as the claimant had loaded it: its uuid and the head of the branch (None: no snapshot yet).

    `has_branch`: False where a commit was yet to make the branch; the snapshot is main's head then.
    """

    format: Literal["iceberg"] = "iceberg"
    table_uuid: str
    snapshot_id: int | None
    has_branch: bool = later(True)

    @property
    def table_identity(self) -> str:
        return self.table_uuid

    @property
    def at(self) -> int | None:
        return self.snapshot_id


class IcebergTarget(Part):
    """An Iceberg table as staging sees it: everything a data file depends on, and no catalog.

    `snapshot_id`: the head of the branch when it was loaded; None: no snapshot yet.
    `sort_order_json` is given where files are to be sorted. `write_properties` are those of the table's properties that say how
    files are written, besides the codec; `target_file_size_bytes` is what it says of their size.
    """

    staged_by: ClassVar[str] = "checkpoint_formats.iceberg"

    format: Literal["iceberg"] = "iceberg"
    table: str
    table_uuid: str
    data_location: str
    table_schema_json: str
    partition_spec_json: str
    codec: str
    codec_level: int | None = None
    snapshot_id: int | None = later(None)
    sort_order_json: str | None = later(None)
    write_properties: tuple[tuple[str, str], ...] = later(())
    target_file_size_bytes: Count | None = later(None)

    @property
    def title(self) -> str:
        return self.table

    @property
    def identity(self) -> str:
        return self.table_uuid

    @property
    def base(self) -> IcebergBase:
        return IcebergBase(table_uuid=self.table_uuid, snapshot_id=self.snapshot_id)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("the data of the sink's table", self.data_location, _NAMES),)


class FieldMetrics(NamedTuple):
    """Iceberg metrics of one field id of a data file. Bounds are Iceberg's single-value binary form in base64.

    Stored as a list without names, and read as a plain tuple: there are as many as columns in each of a million files.
    """

    field_id: int
    column_size: int | None = None
    value_count: int | None = None
    null_count: int | None = None
    nan_count: int | None = None
    lower: str | None = None
    upper: str | None = None


#: What is stored of a FieldMetrics.
_StoredMetrics = tuple[int, Count | None, Count | None, Count | None, Count | None, Base64 | None, Base64 | None]


class IcebergFile(Part):
    """A staged Iceberg data file.

    `partition` has one value per field of the spec, in its order, in Iceberg's binary form; `metrics` has the values of a
    FieldMetrics for each field id. `sort_order_id` names the table's sort order that its rows are in, if they are in one.
    """

    format: Literal["iceberg"] = "iceberg"
    path: str
    size_bytes: Count
    rows: Count
    schema_id: int
    spec_id: int
    partition: tuple[Base64 | None, ...]
    metrics: tuple[_StoredMetrics, ...]
    split_offsets: tuple[Count, ...]
    sort_order_id: Count | None = later(None)

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Of each of its paths."""
        return (self.size_bytes,)


class IcebergDeletes(Part):
    """A staged file that says which rows of one data file are deleted, by their positions: each once, rising.

    Where it is a Puffin file: a deletion vector, at that offset and of that size in bytes. Beside those `rows` it has the rows
    that were deleted before: `cardinality` in all.
    """

    format: Literal["iceberg-deletes"] = "iceberg-deletes"
    path: str
    size_bytes: Count
    rows: Count
    data_file: str
    content_offset: Count | None = later(None)
    content_size_bytes: Count | None = later(None)
    cardinality: Count | None = later(None)

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        return (self.size_bytes,)


class IcebergRewrite(Part):
    """Staged files with the rows that stay of one data file, which they take the place of; none where no row stays.

    `rows`: so many of the data file's rows were looked at, those that do not stay too. Several of these are of one data file
    where it was read in several segments.
    """

    format: Literal["iceberg-rewrite"] = "iceberg-rewrite"
    rows: Count
    data_file: str
    files: tuple[IcebergFile, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.files)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        return tuple(file.size_bytes for file in self.files)
