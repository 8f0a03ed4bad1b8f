"""What records say of Lance: a source at a version, the dataset as staging sees it, staged fragments, the base of a commit."""

from __future__ import annotations

from typing import Literal

from checkpoint_protocol.records.base import Base64, Count, Number, Part, Token
from checkpoint_protocol.records.output_places import Output


def lance_output(uri: str) -> Output:
    """Return where the data files of a dataset go, which is known before it is made."""
    return Output("the sink's dataset", uri, ("data/0.lance",))


class PinnedLance(Part):
    """A Lance dataset at one version."""

    format: Literal["lance"] = "lance"
    uri: str
    at_version: Number

    @property
    def title(self) -> str:
        return f"{self.uri} at version {self.at_version}"


class LanceField(Part):
    """One field of a Lance schema, at any depth. `path` is dotted, `type` is Lance's logical type."""

    id: int
    path: str
    type: str
    nullable: bool


class LanceTarget(Part):
    """A Lance dataset as staging sees it, at one version."""

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
    def outputs(self) -> tuple[Output, ...]:
        return (lance_output(self.uri),)


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


class LanceBase(Part):
    """The dataset as the claimant had looked at it."""

    format: Literal["lance"] = "lance"
    identity: Token
    at_version: Number

    @property
    def table_identity(self) -> str:
        return self.identity

    @property
    def at(self) -> int | None:
        return self.at_version
