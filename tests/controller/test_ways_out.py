"""A person does what the message of a stalled write says, and the write goes on. Other tests that show it: see test_ways_out of
the project's own tests, which has all reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import StringType

from checkpoint_operator.status.round_status import RETRY_ANNOTATION
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.store.authenticated_store import AuthenticatedStore
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.object_store import ObjectStore, open_store
from tests.controller.harness import World
from tests.support.driver_threads import Killed
from tests.support.places import IcebergPlace, on_disk
from tests.support.writes import SCHEMA, rows_of, write_inputs

WITHIN = "def below(row, end):\n    return row if row['id'] < end else None\n"


@pytest.fixture
def iceberg(tmp_path: Path) -> World:
    place = on_disk(tmp_path, "iceberg")
    place.create(SCHEMA)
    return World(place)


def ids(world: World) -> list[int]:
    return sorted(row["id"] for row in world.place.rows())


def once(world: World, do: Callable[[], None]) -> Callable[[int], None]:
    """For between_tasks: the first driver does this before its third task, and dies."""

    def between_tasks(number: int) -> None:
        if world.kubelet.drivers_run == 1 and number == 2:
            do()
            raise Killed

    return between_tasks


def retry(world: World) -> None:
    world.api.annotate(world.key, RETRY_ANNOTATION, "mended")


def stalled_with(world: World, reason: str, *words: str) -> None:
    world.until_stalled()
    assert world.status.reason == reason, world.status.message
    for word in words:
        assert word in (world.status.message or ""), world.status.message


# --- the store ------------------------------------------------------------------------------------------------------------


def test_another_store_is_taken_where_the_first_ignores_put_if_absent(iceberg: World, source: Path, tmp_path: Path) -> None:
    world, unsafe, safe = iceberg, str(tmp_path / "unsafe"), str(tmp_path / "safe")

    def store_at(namespace: str, uri: str) -> ObjectStore:
        if uri == unsafe:
            raise NeedsChange(reasons.STORE_UNSAFE, f"{uri} took a second object under a name that was taken")
        return AuthenticatedStore(open_store(uri, world.place.settings), world.record_keys)

    world.operator.controller.open_store = store_at
    world.apply(source, checkpoint={"uri": unsafe, "interval": "1h"})
    stalled_with(world, reasons.STORE_UNSAFE)

    world.edit(checkpoint={"uri": safe, "interval": "1h"})
    world.until_committed()

    assert ids(world) == list(range(200))


def test_a_record_that_cannot_be_read_is_restored_from_a_backup(world: World, source: Path) -> None:
    backup: dict[str, bytes] = {}

    def put_instead(data: bytes) -> None:
        store, path = world.store(), EpochLayout(EpochKey(world.status.write_uid or "", 1)).input
        backup.setdefault(path, store.get(path, 1 << 20) or b"")
        store.delete([path])
        store.put_if_absent(path, data)

    # As of a later release, with the MAC of one that has the keys.
    world.kubelet.between_tasks = once(world, lambda: put_instead(b'{"of": "a later release"}'))
    world.apply(source)
    stalled_with(world, reasons.RECORD_UNREADABLE, "input.json")

    put_instead(*backup.values())
    retry(world)
    world.until_committed()

    assert ids(world) == list(range(200))


def test_room_that_is_made_on_a_full_disk_is_used_by_the_next_attempt(iceberg: World, source: Path) -> None:
    world = iceberg

    def run_full(number: int) -> None:
        if world.kubelet.drivers_run == 1 and number == 2:
            raise Retryable(reasons.DISK_FULL, "no space is left in /tmp")

    world.kubelet.between_tasks = run_full
    world.apply(source)
    world.until_committed()

    assert ids(world) == list(range(200))
    assert "no space is left" in ((world.status.attempts or ())[0].message or "")


def test_a_write_in_the_operators_own_namespace_is_served_in_another(iceberg: World, source: Path) -> None:
    world, elsewhere = iceberg, iceberg.key
    world.apply(source)
    world.api.delete(elsewhere)
    world.key = elsewhere._replace(namespace=world.config.own_namespace)
    world.api.apply({**world.manifest, "metadata": {"name": elsewhere.name, "namespace": world.config.own_namespace}})
    stalled_with(world, reasons.ACCESS_NOT_GRANTED, "apply it in another namespace")

    world.key = elsewhere
    world.apply(source)
    world.until_committed()

    assert ids(world) == list(range(200))


# --- the source -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["moved back", "Skip", "Process"])
def test_a_moved_file_is_moved_back_or_it_is_said_what_it_is(iceberg: World, source: Path, way: str) -> None:
    world = iceberg
    world.apply(source)
    world.until_committed()
    old, new = source / "part-1.parquet", source / "renamed.parquet"
    old.rename(new)
    world.edit(runNonce="2")
    stalled_with(world, reasons.SOURCE_MOVED, "renamed.parquet", "part-1.parquet")

    if way == "moved back":
        new.rename(old)
        retry(world)
    else:
        world.edit(onReplaced=way)
    world.until(lambda: world.status.epoch == 2 and world.is_true("Committed"))

    twice = list(range(50, 100)) if way == "Process" else []
    assert ids(world) == sorted([*range(200), *twice])


# --- the code -------------------------------------------------------------------------------------------------------------


def test_a_service_that_answers_again_is_called_by_the_next_attempt_and_nothing_has_counted(iceberg: World, source: Path) -> None:
    world = iceberg

    def is_down(number: int) -> None:
        if world.kubelet.drivers_run <= 3:
            raise Retryable(reasons.SERVICE_UNAVAILABLE, "the service of step ask answers nobody")

    world.kubelet.between_tasks = is_down
    world.apply(source, backoffLimit=0)
    world.until_committed()

    assert world.status.attempt == 4
    assert ids(world) == list(range(200))


def test_a_table_that_is_changed_as_the_message_says_takes_the_output(source: Path, tmp_path: Path) -> None:
    place = on_disk(tmp_path, "iceberg")
    place.create(pa.schema([SCHEMA.field("id")]))
    assert isinstance(place, IcebergPlace)
    world = World(place)
    world.apply(source)
    stalled_with(world, reasons.OUTPUT_SCHEMA_WRONG, "text")

    with place.table().update_schema() as changed:
        changed.union_by_name(SCHEMA)
    world.edit(backoffLimit=7)
    world.until_committed()

    assert ids(world) == list(range(200))


def test_rows_outside_of_the_condition_are_left_out_as_the_message_says(iceberg: World, source: Path) -> None:
    world = iceberg
    world.api.config_maps["default", "code"] = {"data": {"cw_within.py": WITHIN}}
    code = {"configMap": {"name": "code"}}
    world.apply(source, sink={**world.place.sink(), "mode": "OverwriteWhere", "where": "id < 150"}, code=code)
    stalled_with(world, reasons.OUTPUT_OUTSIDE_WHERE, "leave such rows out in a step")

    world.edit(steps=[{"call": "cw_within:below", "input": "row", "arguments": {"end": 150}}])
    world.until_committed()

    assert ids(world) == list(range(150))


def test_rows_outside_of_the_condition_are_left_out_by_the_source_while_nothing_is_sealed(iceberg: World, tmp_path: Path) -> None:
    world, source = iceberg, tmp_path / "in"
    write_inputs(source, files=1, rows=50)
    world.apply(source, sink={**world.place.sink(), "mode": "OverwriteWhere", "where": "id >= 10"})
    stalled_with(world, reasons.OUTPUT_OUTSIDE_WHERE, "source.where, as long as nothing is sealed")

    world.edit(source={"files": {"format": "parquet", "paths": [str(source)]}, "where": "id >= 10"})
    world.until_committed()

    assert ids(world) == list(range(10, 50))


# --- the table ------------------------------------------------------------------------------------------------------------


def rename(place: IcebergPlace, old: str, new: str) -> None:
    namespace = place.name.partition(".")[0]
    place.opened().rename_table(f"{namespace}.{old}", f"{namespace}.{new}")


def test_the_former_table_is_restored_after_another_took_its_name(iceberg: World, source: Path) -> None:
    world, place = iceberg, iceberg.place
    assert isinstance(place, IcebergPlace)

    def replace() -> None:
        rename(place, "rows", "former")
        place.create(SCHEMA)

    world.kubelet.between_tasks = once(world, replace)
    world.apply(source)
    stalled_with(world, reasons.TABLE_REPLACED, "restore that one")

    rename(place, "rows", "other")
    rename(place, "former", "rows")
    retry(world)
    world.until_committed()

    assert ids(world) == list(range(200))


def test_a_new_name_computes_everything_again_for_the_new_table(iceberg: World, source: Path) -> None:
    world, place = iceberg, iceberg.place
    assert isinstance(place, IcebergPlace)

    def replace() -> None:
        place.opened().drop_table(place.name)
        place.create(SCHEMA)

    world.kubelet.between_tasks = once(world, replace)
    world.apply(source)
    stalled_with(world, reasons.TABLE_REPLACED, "give the write a new name")

    world.key = world.key._replace(name="again")
    world.manifest["metadata"]["name"] = "again"
    world.api.apply(world.manifest)
    world.until_committed()

    assert ids(world) == list(range(200))


def test_another_tag_is_named_or_the_one_that_is_there_dropped(world: World, source: Path) -> None:
    place = world.place
    place.append(rows_of([1000]))
    kind, sink = next(iter(place.sink().items()))
    if isinstance(place, IcebergPlace):
        head = place.table().metadata.current_snapshot_id
        assert head is not None
        place.table().manage_snapshots().create_tag(head, "nightly").commit()
    else:
        place.dataset().tags.create("nightly", place.dataset().version)  # type: ignore[attr-defined]
    world.apply(source, sink={kind: {**sink, "tag": "nightly"}})
    stalled_with(world, reasons.TAG_EXISTS, "nightly")

    world.edit(sink={kind: {**sink, "tag": "nightly-{epoch}"}})
    world.until_committed()

    assert len(ids(world)) == 201


def test_a_change_of_the_table_is_undone_and_what_is_staged_is_committed(iceberg: World, source: Path) -> None:
    world, place = iceberg, iceberg.place
    assert isinstance(place, IcebergPlace)

    def change() -> None:
        with place.table().update_schema(allow_incompatible_changes=True) as changed:
            changed.add_column("more", StringType(), required=True)

    world.kubelet.after_all = change
    world.apply(source)
    stalled_with(world, reasons.SCHEMA_CHANGED, "undo that")

    world.kubelet.after_all = lambda: None
    with place.table().update_schema() as changed:
        changed.delete_column("more")
    retry(world)
    world.until_committed()

    assert ids(world) == list(range(200))
    assert world.kubelet.drivers_run == 1


def test_a_staged_file_that_was_taken_away_is_restored(world: World, source: Path, tmp_path: Path) -> None:
    kept = tmp_path / "taken"
    taken: list[Path] = []

    def take() -> None:
        files = [path for kind in ("*.parquet", "*.lance") for path in tmp_path.rglob(kind)]
        taken.extend(path for path in files if path.is_file() and source not in path.parents)
        taken[0].rename(kept)

    world.kubelet.after_all = take
    world.apply(source)
    stalled_with(world, reasons.STAGED_FILE_MISSING, "is gone")

    kept.rename(taken[0])
    retry(world)
    world.until_committed()

    assert ids(world) == list(range(200))


def test_a_property_that_cannot_be_followed_is_corrected(iceberg: World, source: Path) -> None:
    world, place = iceberg, iceberg.place
    assert isinstance(place, IcebergPlace)
    with place.table().transaction() as changed:
        changed.set_properties({"write.target-file-size-bytes": "big"})
    world.apply(source)
    stalled_with(world, reasons.TABLE_UNSUPPORTED, "correct or remove it")

    with place.table().transaction() as changed:
        changed.remove_properties("write.target-file-size-bytes")
    retry(world)
    world.until_committed()

    assert ids(world) == list(range(200))


UPSERT = {"mode": "Upsert", "upsertKeys": ["id"]}


def test_rows_without_a_key_are_left_out_as_the_message_says(iceberg: World, tmp_path: Path) -> None:
    world, source = iceberg, tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table({"id": [1, None, 3], "text": ["a", "b", "c"]}, schema=SCHEMA), source / "a.parquet")
    world.apply(source, sink={**world.place.sink(), **UPSERT})
    stalled_with(world, reasons.OUTPUT_KEY_NULL, "leave such rows out in a step (or by source.where")

    world.edit(source={"files": {"format": "parquet", "paths": [str(source)]}, "where": "id IS NOT NULL"})
    world.until_committed()

    assert ids(world) == [1, 3]


def test_of_rows_with_one_key_the_last_is_taken_once_the_manifest_says_by_which_column(iceberg: World, tmp_path: Path) -> None:
    world, source = iceberg, tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table({"id": [1, 1, 3], "text": ["a", "b", "c"]}, schema=SCHEMA), source / "a.parquet")
    sink = {**world.place.sink(), **UPSERT}
    world.apply(source, sink=sink)
    stalled_with(world, reasons.OUTPUT_KEY_REPEATED, "onDuplicate", "orderBy")

    world.edit(sink={**sink, "onDuplicate": "Last", "orderBy": "text"})
    world.until_committed()

    assert sorted((row["id"], row["text"]) for row in world.place.rows()) == [(1, "b"), (3, "c")]


# --- the driver -----------------------------------------------------------------------------------------------------------


def waiting(reason: str, message: str) -> Mapping[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "driver", "image": "spark:1", "state": state}]}


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient memory"}
OBSTACLES: dict[str, tuple[Mapping[str, Any], dict[str, Any]]] = {
    reasons.POD_UNSCHEDULABLE: ({"phase": "Pending", "conditions": [UNSCHEDULABLE]}, {"driver": {"memory": "512Mi"}}),
    reasons.POD_INCOMPLETE: (
        waiting("CreateContainerConfigError", 'secret "no-such" not found'),
        {"storageSecretName": "storage"},
    ),
    reasons.IMAGE_UNAVAILABLE: (waiting("ErrImagePull", "no such image"), {"image": "spark:2"}),
}


@pytest.mark.parametrize("reason", OBSTACLES)
def test_a_driver_that_cannot_start_is_replaced_by_one_of_the_corrected_manifest(
    iceberg: World, source: Path, reason: str
) -> None:
    world = iceberg
    status, corrected = OBSTACLES[reason]
    world.kubelet.instead[1] = status
    world.apply(source, backoffLimit=0)
    world.until(lambda: world.status.reason == reason)

    world.edit(**corrected)
    world.until_committed()

    assert ids(world) == list(range(200))
    assert [attempt.number for attempt in world.status.attempts or ()] == [1, 2]


def test_a_driver_that_was_killed_for_memory_goes_on_with_more(iceberg: World, source: Path) -> None:
    world = iceberg

    def die(number: int) -> None:
        if world.kubelet.drivers_run == 1:
            raise Killed("OOMKilled")

    world.kubelet.between_tasks = die
    world.apply(source, backoffLimit=0)
    stalled_with(world, reasons.BACKOFF_LIMIT_EXCEEDED, "spec.driver.memory")

    world.edit(driver={"memory": "4Gi"})
    world.until_committed()

    assert ids(world) == list(range(200))
    limits = [pod["spec"]["containers"][0]["resources"] for pod in world.api.pods.values()]
    assert any("4" in str(each) for each in limits)


def test_a_raised_deadline_lets_a_slow_driver_be(iceberg: World, source: Path) -> None:
    world = iceberg
    world.kubelet.instead |= {1: {"phase": "Running"}, 2: {"phase": "Running"}}
    checkpoint = {"uri": world.place.checkpoint_uri, "interval": "3s"}
    world.apply(source, checkpoint=checkpoint, progressDeadlineSeconds=60)
    world.until(lambda: world.status.attempt == 2)
    assert world.status.attempts is not None
    assert world.status.attempts[0].cause == "NoProgress"

    world.edit(progressDeadlineSeconds=100_000)
    world.pass_time(1000)

    assert world.status.attempt == 2
    assert world.status.phase == "Running"
