"""Which table a merge reads, by the source of its launch record. A record that no merge can have is refused by what it has."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint_formats.merging.sources import merge_source_for
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import Merge, PinnedIceberg, PinnedTable
from checkpoint_protocol.records.formats.lance import PinnedLance
from tests.support.sources import source_of

MERGE = Merge(keys=("id",), when_matched="Update", on_duplicate="Fail", order_by=None, attempts=(1,), since=None)
ICEBERG = PinnedIceberg(
    table="c.db.t",
    table_uuid="0" * 32,
    location="/lake/t",
    metadata_location="/lake/t/metadata/1.metadata.json",
    snapshot_id=None,
    format_version=2,
    table_schema_json='{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"id","required":false,"type":"long"}]}',
    partition_specs_json=(),
    name_mapping_json=None,
)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"files": {"format": "parquet", "paths": ["/in"]}}, "files"),
        ({"kafka": {"bootstrapServers": ["k:9092"], "topics": ["t"], "format": "json"}}, "kafka"),
    ],
)
def test_a_launch_record_whose_source_is_no_table_is_refused_by_the_source(source: dict[str, Any], told: str) -> None:
    # Also beside a table, which says nothing of what is read.
    with pytest.raises(Corrupt, match=rf"source\.{told}") as caught:
        merge_source_for(source_of(source), (ICEBERG,), MERGE, StorageSettings())
    assert caught.value.reason == reasons.RECORD_UNREADABLE


@pytest.mark.parametrize("table", [None, PinnedLance(uri="/lake/t", at_version=1)], ids=["none", "another format's"])
def test_a_merge_of_an_iceberg_table_without_it_in_its_launch_record_is_refused(table: PinnedTable | None) -> None:
    source = source_of({"iceberg": {"catalog": "c", "table": "db.t"}})
    with pytest.raises(Corrupt, match=r"does not pin the Iceberg table c\.db\.t"):
        merge_source_for(source, (table,), MERGE, StorageSettings())


def test_a_table_of_each_format_is_read_as_the_launch_record_pins_it() -> None:
    iceberg = source_of({"iceberg": {"catalog": "c", "table": "db.t"}})
    lance = source_of({"lance": {"uri": "/lake/t", "version": 3}})

    assert merge_source_for(iceberg, (ICEBERG,), MERGE, StorageSettings()).table == ICEBERG
    assert merge_source_for(lance, (), MERGE, StorageSettings()).table == PinnedLance(uri="/lake/t", at_version=3)
