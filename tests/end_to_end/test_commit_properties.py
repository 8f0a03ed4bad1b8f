"""What commits and deletions leave in tables is what docs/reference/commit-properties.md lists, and its blocks answer with it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.decision.actions import Finish
from checkpoint_local.runner import identify
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.lance_schema import IDENTITY_CONFIG
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.records import Base, ClaimRecord, IcebergBase, LanceBase
from checkpoint_protocol.store.object_store import open_store
from devtools.rest_catalog import RestCatalog
from tests.end_to_end.test_documented_blocks import fenced
from tests.end_to_end.test_overwrites_by_spark import spark as spark  # the fixture
from tests.support import vectors
from tests.support.places import IcebergPlace, LancePlace, Place, on_disk
from tests.support.spark_sql import Spark
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

PAGE: Final = "docs/reference/commit-properties.md"
SHOWN_UID: Final = "3f9c0a1d5be27744"
_COUNTS: Final = re.compile(r"(added|deleted|removed|total)-.*|changed-partition-count")
UPSERT: Final = {"mode": "Upsert", "upsertKeys": ["id"]}
COMMON: Final[dict[str, dict[str, Any]]] = {
    "append": {},
    "all": {"mode": "OverwriteAll"},
    "where": {"mode": "OverwriteWhere", "where": "id >= 0"},
    "upsert": UPSERT,
    "made": {"create": True},
}
ICEBERG: Final = {
    **COMMON,
    "partitions": {"mode": "OverwritePartitions"},
    "branch": {"iceberg": {"branch": "staging", "tag": "epoch-{epoch}"}},
    "audit": {"audit": f"{__name__}:passes"},
}
LANCE: Final = {**COMMON, "tag": {"lance": {"tag": "epoch-{epoch}"}}, "columns": {"mode": "AddColumns"}}
WRITES: Final = [*(("iceberg", name) for name in ICEBERG), *(("lance", name) for name in LANCE)]
Names = set[tuple[str, str]]


def passes(table: Any) -> None:
    """The audit of these writes."""


def listed(kind: str, by: str) -> Names:
    """Return where the page lists which names of a format, as left by a commit, an upsert or a deletion."""
    rows = re.findall(r"^\| (\w+) \| ([\w ]+) \| `([^`]+)` \| ([\w, ]+) \|", (Path(__file__).parents[2] / PAGE).read_text(), re.M)
    return {(where, name) for format_, where, name, left_by in rows if format_.lower() == kind and by in left_by.split(", ")}


@dataclass
class Made:
    """A table into which a write has committed an epoch."""

    place: Place
    manifest: CheckpointedWrite

    @property
    def uid(self) -> str:
        return identify(open_store(self.place.checkpoint_uri, self.place.settings), self.manifest)

    def names(self) -> Names:
        """Return where which names are, but for those of the formats themselves."""
        if isinstance(self.place, IcebergPlace):
            table = self.place.table()
            summaries = [snapshot.summary for snapshot in table.snapshots() if snapshot.summary is not None]
            found = {("summary of the snapshot", name) for summary in summaries for name in summary.additional_properties}
            found |= {("properties of the table", name.replace(self.uid, "<uid>")) for name in table.properties}
            strange = self.place.opened().create_table(f"{self.place.name}_of_others", SCHEMA)
            found -= {("properties of the table", name) for name in strange.properties}
            self.place.opened().drop_table(f"{self.place.name}_of_others")
            return {(where, name) for where, name in found if not _COUNTS.fullmatch(name)}
        assert isinstance(self.place, LancePlace)
        dataset = self.place.dataset()
        said = [dataset.read_transaction(found["version"]).transaction_properties or {} for found in dataset.versions()]
        found = {("properties of the transaction", name) for properties in said for name in properties}
        return found | {("config of the dataset", name) for name in dataset.config()}

    def delete(self, epoch: int) -> None:
        """Do what a deletion does to the table while a commit of an epoch may be on its way."""
        base: Base
        if isinstance(self.place, IcebergPlace):
            metadata = self.place.table().metadata
            base = IcebergBase(table_uuid=str(metadata.table_uuid), snapshot_id=metadata.current_snapshot_id)
        else:
            assert isinstance(self.place, LancePlace)
            dataset = self.place.dataset()
            base = LanceBase(identity=dataset.config()[IDENTITY_CONFIG], at_version=dataset.version)
        ledger = Ledger(open_store(self.place.checkpoint_uri, self.place.settings), EpochKey(self.uid, epoch))
        ledger.commits.put_claim(ClaimRecord(token=new_token(), index=0, base=base))
        open_sink(self.manifest.spec.sink, self.place.settings).block_commit(ledger)


def written(folder: Path, kind: str, name: str = "append", rest: RestCatalog | None = None) -> Made:
    place, sink = on_disk(folder / "place", kind, rest), (ICEBERG if kind == "iceberg" else LANCE)[name]
    if name == "columns":
        assert isinstance(place, LancePlace)
        vectors.make_dataset(place)
        manifest = vectors.manifest_of(place)
    else:
        if name != "made":
            place.create(SCHEMA)
            place.append(rows_of([1, 1_000]))
        named = {**place.sink(), **sink}
        for section in place.sink():
            named[section] = place.sink()[section] | sink.get(section, {})
        manifest = manifest_for(place, write_inputs(folder / "in", files=1, rows=20), sink=named)
    opened = open_sink(manifest.spec.sink, place.settings, written_by="default/write")
    ended = drive(reconciler_for(manifest, place, sink=opened))
    assert isinstance(ended.outcome, Finish), ended.outcome
    return Made(place, manifest)


@pytest.mark.parametrize(("kind", "name"), WRITES)
def test_a_commit_of_each_mode_leaves_the_names_that_the_page_lists_and_no_others(tmp_path: Path, kind: str, name: str) -> None:
    expected = listed(kind, "commit") | (listed(kind, "upsert") if name == "upsert" else set())

    assert written(tmp_path, kind, name).names() == expected


@pytest.mark.parametrize("kind", ["iceberg", "lance"])
def test_a_deletion_leaves_the_names_that_the_page_lists_and_the_blocks_take_it_for_no_commit(tmp_path: Path, kind: str) -> None:
    made = written(tmp_path, kind)
    made.delete(2)

    assert made.names() == listed(kind, "commit") | listed(kind, "deletion")
    assert [has(made, epoch) for epoch in (1, 2, 3)] == [True, False, False]


def has(made: Made, epoch: int, tag: str | None = None) -> bool | None:
    """Ask the page's Python about the table, or about the version of a dataset that has a tag."""
    scope: dict[str, Any] = {}
    for block in fenced(PAGE, "python"):
        exec(block, scope)  # noqa: S102 our own text
    answer: bool | None
    if isinstance(made.place, IcebergPlace):
        answer = scope["iceberg_has"](made.place.table(), f"{made.uid}/{epoch}")
    else:
        assert isinstance(made.place, LancePlace)
        dataset = made.place.dataset()
        answer = scope["lance_has"](dataset.checkout_version(tag) if tag else dataset, f"{made.uid}/{epoch}")
    return answer


def test_what_was_rolled_back_or_cleaned_up_is_not_taken_for_what_is_there(tmp_path: Path) -> None:
    iceberg, lance = written(tmp_path / "iceberg", "iceberg"), written(tmp_path / "lance", "lance", "tag")
    assert isinstance(iceberg.place, IcebergPlace)
    assert isinstance(lance.place, LancePlace)
    table, dataset = iceberg.place.table(), lance.place.dataset()
    first = next(snapshot for snapshot in table.snapshots() if snapshot.parent_snapshot_id is None)

    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    assert [has(iceberg, epoch) for epoch in (1, 2)] == [None, False]

    dataset.checkout_version(2).restore()
    assert has(lance, 1) is False
    lance.place.dataset().cleanup_old_versions(retain_versions=1, error_if_tagged_old_versions=False)
    assert has(lance, 1) is None
    assert has(lance, 1, "epoch-1") is True


@pytest.mark.spark
def test_the_sql_of_the_page_finds_the_epoch_that_is_there_and_no_other(
    rest_catalog: RestCatalog, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    session: Spark = request.getfixturevalue("spark")
    made = written(tmp_path, "iceberg", rest=rest_catalog)
    assert isinstance(made.place, IcebergPlace)
    there, highest = (
        text.replace("local.travel.flights", f"r.{made.place.name}").replace(SHOWN_UID, made.uid) for text in fenced(PAGE, "sql")
    )

    assert session.rows(there.replace(f"{made.uid}/2", f"{made.uid}/1")) == [[True]]
    assert session.rows(there) == [[False]]
    assert session.rows(highest) == [[f"checkpointed-write.{made.uid}", "1"]]
