"""What a manifest says of no table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Self

from checkpoint_protocol.manifest.sections import Section
from checkpoint_protocol.tables import Mode


class NoSink(Section):
    """No table: the steps run once per row, for their side effects only."""

    kind: ClassVar[str] = "none"
    committed_by: ClassVar[str] = "checkpoint_commit.none.sink"
    modes: ClassVar[tuple[Mode, ...]] = ("Append",)
    has_audit: ClassVar[bool] = False
    editable: ClassVar[frozenset[str]] = frozenset()

    @property
    def title(self) -> None:
        return None

    @property
    def uris(self) -> Mapping[str, str]:
        return {}

    def with_uris(self, change: Callable[[str], str]) -> Self:
        return self
