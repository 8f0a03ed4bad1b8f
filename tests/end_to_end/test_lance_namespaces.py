"""Tables of Lance namespaces, in a folder and behind pylance's own server: written and read by name, and read by others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lance
import pytest
from lance.namespace import DeregisterTableRequest, RegisterTableRequest, RestAdapter

from checkpoint_commit.lance.namespaces import located
from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.storage import lance_options
from checkpoint_protocol.store.object_store import open_store
from devtools.ports import LOOPBACK, free_port
from tests.support.command_line import CommandLine
from tests.support.crashes import Died, DyingAtItsCommit, DyingStore, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import NamedLancePlace, in_lake, on_s3
from tests.support.writes import drive, manifest_for, reconciler_for, rows_of, write_inputs

UPSERT: dict[str, Any] = {"mode": "Upsert", "upsertKeys": ["id"]}


@pytest.fixture(params=["directory", "rest", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NamedLancePlace]:
    port = free_port() if request.param == "rest" else None
    bucket = on_s3(tmp_path, "lance", request.getfixturevalue("s3_server")) if request.param == "s3" else None
    found = in_lake(tmp_path, port, bucket)
    with nullcontext() if port is None else RestAdapter("dir", {"root": found.base_uri}, host=LOOPBACK, port=port):
        yield found


def read_by_others(place: NamedLancePlace) -> list[int]:
    """Return what plain Lance finds by the name, which is what it finds by the URI."""
    found = lance.dataset(namespace_client=place.lake, table_id=place.table.split("."), storage_options=place.options).to_table()
    assert found == place.dataset().to_table()
    return sorted(found["id"].to_pylist())


def as_it_begins(manifest: CheckpointedWrite, place: NamedLancePlace) -> CheckpointedWrite:
    return manifest.model_copy(update={"spec": located(manifest.spec, place.settings, begins=True)})


def die_at_the_commit(manifest: CheckpointedWrite, place: NamedLancePlace, *, after: bool) -> None:
    store, effects, first = (
        open_store(place.checkpoint_uri, place.settings),
        DyingAtItsCommit(after=after),
        as_it_begins(manifest, place),
    )
    drivers = DirectDrivers(store, place.settings)
    with pytest.raises(Died):
        drive(reconciler_for(first, place, drivers, DyingStore(store, effects), dying_sink(first, place.settings, effects)))
    drivers.finish()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("sink", [{}, UPSERT], ids=["append", "upsert"])
def test_a_death_on_either_side_of_the_commit_leaves_every_row_once(
    place: NamedLancePlace, sink: dict[str, Any], after: bool, tmp_path: Path
) -> None:
    path = write_inputs(tmp_path / "in", files=2, rows=10)
    manifest = manifest_for(place, f"{path}/*", sink={**sink, "create": True})
    die_at_the_commit(manifest, place, after=after)

    drivers = DirectDrivers(open_store(place.checkpoint_uri, place.settings), place.settings)
    ended = drive(reconciler_for(as_it_begins(manifest, place), place, drivers))

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert drivers.started == 0
    assert read_by_others(place) == list(range(20))


def test_a_name_that_leads_elsewhere_at_the_commit_is_told_and_no_dataset_gets_the_rows(
    place: NamedLancePlace, tmp_path: Path
) -> None:
    path = write_inputs(tmp_path / "in", files=2, rows=10)
    manifest = manifest_for(place, f"{path}/*", sink={"create": True})
    begun = as_it_begins(manifest, place)
    lake, table, was, options = place.lake, place.table.split("."), place.uri, place.options
    lance.write_dataset(rows_of([]), was, storage_options=options)
    drivers = DirectDrivers(open_store(place.checkpoint_uri, place.settings), place.settings)
    reconciler = reconciler_for(begun, place, drivers)
    while not drivers.started:
        reconciler.step()
    drivers.finish()
    lance.write_dataset(rows_of([]), f"{place.base_uri}/other", storage_options=options)
    lake.deregister_table(DeregisterTableRequest(id=table))
    lake.register_table(RegisterTableRequest(id=table, location="other"))

    ended = drive(reconciler)

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.TABLE_REPLACED
    assert f"led to {was} when the write began" in ended.outcome.message
    assert lance.dataset(was, storage_options=options).count_rows() == place.dataset().count_rows() == 0
    with pytest.raises(NeedsChange, match=rf"raw.events of the namespace 'lake' leads to {place.uri} now") as caught:
        reconciler_for(as_it_begins(manifest, place), place).step()
    assert caught.value.reason == reasons.IDENTITY_CHANGED


@pytest.mark.spark
def test_the_command_reads_and_writes_tables_by_their_names(place: NamedLancePlace, tmp_path: Path) -> None:
    lance.write_dataset(
        rows_of(range(30)), f"{place.base_uri}/in.lance", storage_options=lance_options(place.base_uri, place.settings)
    )
    source = {"lance": {"namespace": "lake", "table": "in"}}
    command = CommandLine(tmp_path / "cli", place, manifest_for(place, source, sink={"create": True}))

    ended, output = command.run()

    assert ended == 0, output
    assert read_by_others(place) == list(range(30))
    assert command.run()[0] == 0, "again, where there is nothing to do"
    assert read_by_others(place) == list(range(30))
