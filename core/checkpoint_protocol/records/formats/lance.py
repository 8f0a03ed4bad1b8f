"""What records say of Lance: a source at a version, the dataset as staging sees it, staged fragments, the base of a commit."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from checkpoint_protocol.records.base import Base64, Count, Number, Output, Part, Token, later


def lance_output(uri: str) -> Output:
    """Return where the data files of a dataset go, which is known before it is made."""
    return Output("the sink's dataset", uri, ("data/0.lance",))


class ChangedRows(Part):
    """Rows that have other values in some columns than at version `since`, of which values were made for them.

    `transaction` is the UUID of the one that made that version. `given_at` is the version before the one in which rows got
    these values; None: none did. A row that an update has moved between the two has changed as well.
    """

    since: Number
    transaction: str
    given_at: Number | None
    columns: tuple[str, ...]


class PackedColumns(Part):
    """Columns whose files are made of what is staged. `replaces`: input rows of which nothing is staged become NULL there.

    `changed`: so do those of its rows, at version `input_at`, of which nothing is staged.
    """

    columns: tuple[str, ...]
    replaces: bool
    changed: ChangedRows | None = later(None)
    input_at: Number | None = later(None)


class PinnedLance(Part):
    """A Lance dataset at one version.

    `null_in`: of its rows, those are input that are NULL in all of these columns. `packed`: no rows are read, but what is staged
    for these columns is put together, fragment by fragment. `transaction`: the UUID of the one that made the version, where rows
    have stable ids; it tells the version from that of another dataset. `after_version`: of whole fragments, those rows are
    input that were made after this version; a compaction has put them together with others. `changed`: rows that were there at
    its version are input if they have changed since, and no others.
    """

    format: Literal["lance"] = "lance"
    uri: str
    at_version: Number
    null_in: tuple[str, ...] = later(())
    packed: PackedColumns | None = later(None)
    transaction: str | None = later(None)
    after_version: Number | None = later(None)
    changed: ChangedRows | None = later(None)

    @property
    def title(self) -> str:
        return f"{self.uri} at version {self.at_version}"


class LanceField(Part):
    """One field of a Lance schema, at any depth. `path` is dotted, `type` is Lance's logical type."""

    id: int
    path: str
    type: str
    nullable: bool


class LanceBase(Part):
    """The dataset as the claimant had loaded it."""

    format: Literal["lance"] = "lance"
    identity: Token
    at_version: Number

    @property
    def table_identity(self) -> str:
        return self.identity

    @property
    def at(self) -> int | None:
        return self.at_version


class LanceTarget(Part):
    """A Lance dataset as staging sees it, at one version."""

    staged_by: ClassVar[str] = "checkpoint_formats.lance"

    format: Literal["lance"] = "lance"
    uri: str
    identity: Token
    at_version: Number
    fields: tuple[LanceField, ...]
    arrow_schema: Base64
    storage_version: str

    @property
    def title(self) -> str:
        return self.uri

    @property
    def base(self) -> LanceBase:
        return LanceBase(identity=self.identity, at_version=self.at_version)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (lance_output(self.uri),)

    @property
    def target_file_size_bytes(self) -> int | None:
        """What the table says of the size of data files: nothing."""
        return None


class LancePackTarget(Part):
    """A Lance dataset whose fragments get files for some columns, made of what an attempt of the epoch, and those it counts,
    have staged: `attempt` is its number. `arrow_schema` has these columns only.
    """

    staged_by: ClassVar[str] = "checkpoint_formats.lance.packing"

    format: Literal["lance-pack"] = "lance-pack"
    uri: str
    identity: Token
    at_version: Number
    arrow_schema: Base64
    columns: tuple[str, ...]
    replaces: bool
    attempt: Number

    @property
    def title(self) -> str:
        return self.uri

    @property
    def base(self) -> LanceBase:
        return LanceBase(identity=self.identity, at_version=self.at_version)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """None that a source must not lead to: what is read are fragments, and files that seals name."""
        return ()

    @property
    def target_file_size_bytes(self) -> int | None:
        """A fragment has one file, of whatever size."""
        return None


class LanceDataFile(Part):
    """A data file of a fragment, named relative to the dataset's data folder, with what Lance's manifest wants to know of it."""

    path: str
    size_bytes: Count
    fields: tuple[int, ...]
    column_indices: tuple[int, ...]
    major_version: Count
    minor_version: Count


class LanceFragment(Part):
    """A staged Lance fragment. Its id is given at commit."""

    format: Literal["lance"] = "lance"
    files: tuple[LanceDataFile, ...]
    rows: Count

    @property
    def paths(self) -> tuple[str, ...]:
        """Its data files, as they are named in the dataset's data folder."""
        return tuple(data_file.path for data_file in self.files)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Of each of its paths."""
        return tuple(data_file.size_bytes for data_file in self.files)


class LanceDeletes(Part):
    """A staged file that says which rows of one fragment are deleted, by their numbers in it. Named as data files are.

    `source` is the fragment as the input of the merge names it, which says also what it is.
    """

    format: Literal["lance-deletes"] = "lance-deletes"
    path: str
    size_bytes: Count
    rows: Count
    source: str

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Of each of its paths."""
        return (self.size_bytes,)


class LanceRewrite(Part):
    """Staged fragments with the rows that stay of another one, which they take the place of; none where no row stays.

    `source` is the data file of that one, `rows`: so many of its rows were looked at, those that do not stay too. Several of
    these are of one fragment where it was read in several segments.
    """

    format: Literal["lance-rewrite"] = "lance-rewrite"
    rows: Count
    source: str
    fragments: tuple[LanceFragment, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for fragment in self.fragments for path in fragment.paths)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Of each of its paths."""
        return tuple(size_bytes for fragment in self.fragments for size_bytes in fragment.sizes_bytes)


class ColumnRows(Part):
    """Rows of a staged file that are of one fragment, one after the other: how many, and the places of the first and the last."""

    fragment: Count
    rows: Annotated[int, Field(ge=1)]
    first: Count
    last: Count


class StagedColumns(Part):
    """Values for columns of rows that a Lance dataset has: an own file below the dataset, which no version ever names.

    Its rows rise by fragment and by place in it, within each of its `parts`.
    """

    format: Literal["lance-columns"] = "lance-columns"
    path: str
    size_bytes: Count
    rows: Count
    parts: tuple[ColumnRows, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        return (self.size_bytes,)


class LanceColumnFile(Part):
    """A data file with columns of a whole fragment, of its deleted rows too. `beside`: the data files that the fragment had."""

    format: Literal["lance-column-file"] = "lance-column-file"
    fragment: Count
    file: LanceDataFile
    rows: Count
    beside: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.file.path,)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        return (self.file.size_bytes,)


class LanceOrigin(Part):
    """Of which rows a fragment was made, so that values that are known by their former places find them.

    `made_of`: the fragments that a compaction put in its place, of each the rows that were not deleted at `live_at`, one after
    the other, from number `skip` on. Where there are none it is as it was when the input was fixed, if it `is_input`.
    """

    fragment: Count
    rows: Count
    is_input: bool = later(False)
    live_at: Number | None = later(None)
    skip: Count = later(0)
    made_of: tuple[LanceOrigin, ...] = later(())


class PackedPiece(Part):
    """Where a part of a staged file lies: `skip` rows of the file come before it."""

    path: str
    skip: Count
    part: ColumnRows


class LancePack(Part):
    """What the column file of a fragment is made of."""

    origin: LanceOrigin
    pieces: tuple[PackedPiece, ...]
