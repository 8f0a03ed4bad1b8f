"""A Lance dataset."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkpoint_operator.commit.presence import Former, Presence
from checkpoint_operator.reconcile import Sink
from checkpoint_operator.sink_formats.table_sink import TableSink
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest import LanceSink
from checkpoint_protocol.manifest import Sink as SinkSpec
from checkpoint_protocol.outputs import Output, lance_output
from checkpoint_protocol.settings import Settings

if TYPE_CHECKING:
    from checkpoint_operator.catalogs import CatalogBook


@dataclass(frozen=True, slots=True)
class LanceFormat:
    spec: SinkSpec
    named: LanceSink
    version_word: str = "version"

    @property
    def uris(self) -> Mapping[str, str]:
        return {"spec.sink.lance.uri": self.named.uri}

    @property
    def output(self) -> Output | None:
        return lance_output(self.named.uri)

    def open(self, settings: Settings, catalogs: CatalogBook | None, written_by: str) -> Sink:
        from checkpoint_operator.commit import lance
        from checkpoint_operator.commit.lance_probe import refuse_lance_without_fences
        from checkpoint_operator.commit.lance_table import PylanceTable

        refuse_lance_without_fences()
        return TableSink(PylanceTable(self.named.uri, settings, written_by), self.spec, self.output, lance.commit, lance.bury)

    def find_committed(self, settings: Settings, key: EpochKey, identity: str, commit_id: int) -> Presence:
        from checkpoint_operator.commit.lance_table import PylanceTable

        return PylanceTable(self.named.uri, settings).find_committed(key, identity, commit_id)

    def find_former(self, settings: Settings, name: str, uid: str | None) -> Former | None:
        from checkpoint_operator.commit.lance_table import PylanceTable

        return PylanceTable(self.named.uri, settings).find_former(name, uid)

    def how_to_read(self, settings: Settings) -> str | None:
        return f"""{sys.executable} -c "import lance; print(lance.dataset('{self.named.uri}').head(10).to_pandas())\""""
