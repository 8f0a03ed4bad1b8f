"""What a manifest says of a folder of Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Self

from checkpoint_protocol.manifest.sections import Section, Uri
from checkpoint_protocol.tables import Mode


class PlainSink(Section):
    """A folder."""

    kind: ClassVar[str] = "plain"
    committed_by: ClassVar[str] = "checkpoint_commit.plain"
    modes: ClassVar[tuple[Mode, ...]] = ("Append",)
    has_audit: ClassVar[bool] = False
    editable: ClassVar[frozenset[str]] = frozenset()

    uri: Uri

    @property
    def title(self) -> str:
        return f"the folder {self.uri}"

    @property
    def uris(self) -> Mapping[str, str]:
        return {"uri": self.uri}

    def with_uris(self, change: Callable[[str], str]) -> Self:
        return self.model_copy(update={"uri": change(self.uri)})
