"""What the operator asks of the format of a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from checkpoint_commit.ports import Sink
from checkpoint_commit.presence import Former, Presence
from checkpoint_commit.sinks.seen import TargetSeen
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import Output

if TYPE_CHECKING:
    import pyarrow as pa

    from checkpoint_commit.catalogs.named import CatalogBook


class SinkFormat(Protocol):
    """A sink as its manifest names it. To have one opens nothing; table libraries are imported where they are needed only."""

    @property
    def version_word(self) -> str:
        """What the format calls a version of a table, e.g. "snapshot"."""

    @property
    def output(self) -> Output | None:
        """Where data files go as far as the manifest says it; None where only the table knows."""

    @property
    def title(self) -> str:
        """Name the table, for people."""

    @property
    def field(self) -> str:
        """The field of the manifest that names the table."""

    @property
    def needs_settings(self) -> bool:
        """Whether the table can be found by the settings only."""

    def examine(self, settings: Settings) -> TargetSeen:
        """Return what is seen of the table without changing anything."""

    def notes_on(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return what is to be known of a table with these columns."""

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise NeedsChange if no table can be made of these columns."""

    def open(self, settings: Settings, catalogs: CatalogBook | None, written_by: str) -> Sink:
        """Return the port of the reconcile loop. `written_by`: namespace and name, said beside the key of a commit."""

    def find_committed(self, settings: Settings, key: EpochKey, identity: str, commit_id: int) -> Presence:
        """Return what the table shows of a commit that was recorded. Changes nothing, and makes no catalog.

        Raises Retryable where catalog or store do not answer, NeedsChange where they refuse.
        """

    def find_former(self, settings: Settings, name: str, uid: str | None) -> Former | None:
        """Return a commit of another write of that name (namespace/name) in the table, if the table still tells.

        Changes nothing, and raises as `find_committed` does.
        """

    def how_to_read(self, settings: Settings) -> str | None:
        """Return Python that shows the first rows, for a terminal; None where there is no table. It has no secret."""


class CommittingFormat(Protocol):
    """A module of this package, which a kind of sinks names. To import it imports no table library."""

    def format_of(self, spec: SinkSpec, named: Any, /) -> SinkFormat:
        """Return the format of a manifest's sink. `named`: what the manifest says of this kind."""
