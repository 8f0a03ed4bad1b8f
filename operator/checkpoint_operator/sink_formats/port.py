"""What the operator asks of the format of a sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from checkpoint_operator.commit.presence import Former, Presence
from checkpoint_operator.reconcile import Sink
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.outputs import Output
from checkpoint_protocol.settings import Settings

if TYPE_CHECKING:
    from checkpoint_operator.catalogs import CatalogBook


class SinkFormat(Protocol):
    """A sink as its manifest names it. To have one opens nothing; table libraries are imported where they are needed only."""

    @property
    def version_word(self) -> str:
        """What the format calls a version of a table, e.g. "snapshot"."""

    @property
    def uris(self) -> Mapping[str, str]:
        """The URIs that the manifest gives, by the path of their field: whoever opens the sink opens these."""

    @property
    def output(self) -> Output | None:
        """Where data files go as far as the manifest says it; None where only the table knows."""

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
