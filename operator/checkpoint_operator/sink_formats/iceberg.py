"""An Iceberg table of a catalog."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkpoint_operator.commit.presence import Former, Presence
from checkpoint_operator.reconcile import Sink
from checkpoint_operator.sink_formats.table_sink import TableSink
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest import IcebergSink
from checkpoint_protocol.manifest import Sink as SinkSpec
from checkpoint_protocol.outputs import Output
from checkpoint_protocol.settings import Settings

if TYPE_CHECKING:
    from checkpoint_operator.catalogs import CatalogBook
    from checkpoint_operator.commit.iceberg_table import PyicebergTable


@dataclass(frozen=True, slots=True)
class IcebergFormat:
    spec: SinkSpec
    named: IcebergSink
    version_word: str = "snapshot"

    @property
    def uris(self) -> Mapping[str, str]:
        return {}

    @property
    def output(self) -> Output | None:
        return None

    def open(self, settings: Settings, catalogs: CatalogBook | None, written_by: str) -> Sink:
        from checkpoint_operator.commit import iceberg
        from checkpoint_operator.commit.iceberg_table import PyicebergTable

        table = PyicebergTable(self.named.catalog, self.named.table, settings, catalogs, written_by=written_by)
        return TableSink(table, self.spec, self.output, iceberg.commit, iceberg.bury)

    def find_committed(self, settings: Settings, key: EpochKey, identity: str, commit_id: int) -> Presence:
        table = self._existing(settings)
        return Presence.GONE if table is None else table.find_committed(key, identity, commit_id)

    def find_former(self, settings: Settings, name: str, uid: str | None) -> Former | None:
        table = self._existing(settings)
        return None if table is None else table.find_former(name, uid)

    def how_to_read(self, settings: Settings) -> str | None:
        catalog = settings.catalogs[self.named.catalog]
        # A uri with a user in it may hold a password, which belongs on no screen.
        uri = "..." if "@" in catalog.uri else catalog.uri
        more = f", warehouse='{catalog.warehouse}'" if catalog.warehouse else ""
        loaded = f"load_catalog('{self.named.catalog}', type='{catalog.type}', uri='{uri}'{more})"
        scan = f"{loaded}.load_table('{self.named.table}').scan(limit=10).to_arrow()"
        return f"""{sys.executable} -c "from pyiceberg.catalog import load_catalog; print({scan}.to_pandas())\""""

    def _existing(self, settings: Settings) -> PyicebergTable | None:
        """Return the table, there or not; None where to open its catalog would make it."""
        from checkpoint_operator.catalogs import is_unmade
        from checkpoint_operator.commit.iceberg_table import PyicebergTable

        if is_unmade(self.named.catalog, settings):
            return None
        return PyicebergTable(self.named.catalog, self.named.table, settings)
