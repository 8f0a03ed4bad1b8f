"""A write whose source leads to its own sink or checkpoints is refused before it reads what it has written."""

from __future__ import annotations

from pathlib import Path

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.reconcile import Round
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import InputRecord
from checkpoint_protocol.store.object_store import open_store
from tests.support.checks import assert_exactly_once
from tests.support.places import IcebergPlace, LancePlace, Place
from tests.support.reading import FilesReader
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, write_inputs

ROWS = 400


def finish(place: Place, source: object, /, **spec: object) -> Round:
    paths = [str(path) for path in source] if isinstance(source, list) else [str(source)]
    section = {"files": {"format": "parquet", "paths": paths}}
    return drive(reconciler_for(manifest_for(place, section, **spec), place))  # type: ignore[arg-type]


def assert_refused(place: Place, ended: Round, *parts: str) -> None:
    """The next epoch has stalled, and no attempt of it was recorded."""
    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.MANIFEST_INVALID
    assert all(part in ended.outcome.message for part in parts), ended.outcome.message
    assert Ledger(open_store(place.checkpoint_uri, place.settings), ended.key).inputs.read_input() is None


def data_folder(place: Place) -> Path:
    """Return where the table keeps its data files, as the table says."""
    if isinstance(place, LancePlace):
        return Path(place.uri) / "data"
    assert isinstance(place, IcebergPlace)
    return Path(place.table().location().removeprefix("file://")) / "data"


def test_a_folder_that_holds_the_table_is_refused_before_an_attempt(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    for folder in (tmp_path, data_folder(disk_place), data_folder(disk_place).parent):
        ended = finish(disk_place, [source, folder], name=f"write-{len(str(folder))}")
        assert_refused(disk_place, ended, str(folder), "leads into")
        assert Ledger(open_store(disk_place.checkpoint_uri, disk_place.settings), ended.key).attempts.list_attempts() == []


def test_a_pattern_beside_the_table_is_not_refused(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    base = data_folder(disk_place).parent.parent
    write_inputs(base)
    for nonce in ("1", "2"):
        ended = finish(disk_place, base / "*.parquet", runNonce=nonce)
        assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(disk_place, range(ROWS))


def test_a_link_into_the_table_is_refused_by_the_driver(iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    finish(iceberg_place, source)
    (source / "more").symlink_to(data_folder(iceberg_place))

    ended = finish(iceberg_place, source, runNonce="2")

    assert_refused(iceberg_place, ended, f"{source}/more/", "leads into the data of the sink's table")
    assert_exactly_once(iceberg_place, range(ROWS))


def test_a_table_that_is_made_in_the_source_folder_is_refused_before_a_task(tmp_path: Path, disk_place: Place) -> None:
    is_lance = isinstance(disk_place, LancePlace)
    source = write_inputs(Path(disk_place.base_uri) / ("" if is_lance else "warehouse"))
    sink = {**disk_place.sink(), "create": True}

    ended = finish(disk_place, source, sink=sink, checkpoint={"uri": str(tmp_path / "checkpoints")})

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.MANIFEST_INVALID
    assert "leads into" in ended.outcome.message
    assert not disk_place.exists() or disk_place.rows() == []


def test_a_folder_that_holds_the_checkpoints_is_refused(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    ended = finish(disk_place, source, checkpoint={"uri": f"{source}/checkpoints"})
    assert isinstance(ended.outcome, Stall)
    assert "the checkpoint store" in ended.outcome.message
    source = write_inputs(tmp_path / "other")
    hidden = finish(disk_place, source, checkpoint={"uri": f"{source}/_checkpoints"})
    assert isinstance(hidden.outcome, Finish)


def test_an_epoch_whose_input_is_fixed_reads_it_whatever_else_lies_there(disk_place: Place, tmp_path: Path) -> None:
    """As an older release has left it, which did not refuse the source."""
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    manifest = manifest_for(disk_place, source, checkpoint={"uri": f"{source}/checkpoints"})
    reconciler = reconciler_for(manifest, disk_place)
    files, schema = FilesReader(manifest.spec.source, disk_place.settings).describe([f"{source}/*.parquet"])
    record = InputRecord(token=new_token(), files=files, arrow_schema=encode_schema(schema))
    reconciler.current_ledger().inputs.put_input(record)

    assert isinstance(drive(reconciler).outcome, Finish)
    assert_exactly_once(disk_place, range(ROWS))
