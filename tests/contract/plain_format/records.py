"""What records say of a folder of Parquet files."""

from __future__ import annotations

from typing import ClassVar, Literal

from checkpoint_protocol.records.base import Base64, Count, Output, Part


class PlainTarget(Part):
    """A folder."""

    staged_by: ClassVar[str] = "checkpoint_formats.plain"

    format: Literal["plain"] = "plain"
    uri: str
    arrow_schema: Base64

    @property
    def title(self) -> str:
        return self.uri

    @property
    def identity(self) -> str:
        return self.uri

    @property
    def base(self) -> None:
        return None

    @property
    def target_file_size_bytes(self) -> int | None:
        return None

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("the sink's folder", self.uri, ("0.parquet",)),)


class PlainFile(Part):
    """A Parquet file."""

    format: Literal["plain"] = "plain"
    path: str
    size_bytes: Count
    rows: Count

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        return (self.size_bytes,)
