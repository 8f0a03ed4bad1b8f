"""What changes outside of the manifest only: looked at again slowly, and at once when a person asks as the message says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from checkpoint_operator.status.round_status import APPROVE_ANNOTATION, RETRY_ANNOTATION
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from tests.controller.harness import World
from tests.support.driver_threads import Killed
from tests.support.places import on_disk
from tests.support.slow import slow_except_on


def ids(world: World) -> list[int]:
    return sorted(row["id"] for row in world.place.rows())


def put_the_files_there(source: Path, place: Path) -> None:
    shutil.copytree(source, place)


def test_missing_files_that_are_put_there_are_found_within_the_hour_without_an_edit(
    world: World, source: Path, tmp_path: Path
) -> None:
    late = tmp_path / "late"
    world.apply(late)
    world.until_stalled()
    assert world.status.reason == reasons.SOURCE_MISSING

    put_the_files_there(source, late)
    world.pass_time(3600)

    assert world.is_true("Committed")
    assert ids(world) == list(range(200))


@slow_except_on("world", "iceberg")
def test_missing_files_are_looked_for_ever_more_slowly_and_never_exhaust_the_backoff(world: World, tmp_path: Path) -> None:
    world.apply(tmp_path / "never", backoffLimit=0)
    world.until_stalled()

    world.pass_time(24 * 3600)

    assert world.status.reason == reasons.SOURCE_MISSING
    assert 24 <= world.kubelet.drivers_run <= 52


def test_the_retry_annotation_that_the_message_names_looks_for_the_files_at_once(
    world: World, source: Path, tmp_path: Path
) -> None:
    late = tmp_path / "late"
    world.apply(late)
    world.until_stalled()
    assert f"{RETRY_ANNOTATION}=" in (world.status.message or "")
    put_the_files_there(source, late)
    before_s = world.clock.now_s

    world.api.annotate(world.key, RETRY_ANNOTATION, "1")
    world.until_committed()

    assert world.clock.now_s - before_s < 60
    assert ids(world) == list(range(200))


def test_the_same_retry_annotation_asks_once_and_another_value_asks_again(world: World, tmp_path: Path) -> None:
    world.apply(tmp_path / "never")
    world.until_stalled()

    # Less in all than the shortest time after which the operator itself tries again.
    world.api.annotate(world.key, RETRY_ANNOTATION, "1")
    world.pass_time(60)
    world.restart_operator()
    world.pass_time(60)
    assert world.kubelet.drivers_run == 2

    world.api.annotate(world.key, RETRY_ANNOTATION, "2")
    world.pass_time(60)
    assert world.kubelet.drivers_run == 3


@slow_except_on("world", "lance")
def test_the_retry_annotation_asks_for_new_tries_after_the_backoff_was_exhausted(world: World, source: Path) -> None:
    def die(number: int) -> None:
        if world.kubelet.drivers_run == 1:
            raise Killed

    world.kubelet.between_tasks = die
    world.apply(source, backoffLimit=0)
    world.until_stalled()
    assert world.status.reason == reasons.BACKOFF_LIMIT_EXCEEDED

    world.api.annotate(world.key, RETRY_ANNOTATION, "again")
    world.until_committed()

    assert ids(world) == list(range(200))


def test_refused_credentials_are_named_and_tried_again_when_they_were_mended(world: World, source: Path) -> None:
    def refuse(number: int) -> None:
        if world.kubelet.drivers_run == 1:
            raise NeedsChange(reasons.CREDENTIALS_REFUSED, "s3://bucket/ refused the credentials of its storage entry")

    world.kubelet.between_tasks = refuse
    world.apply(source)
    world.until_stalled()
    assert world.status.reason == reasons.CREDENTIALS_REFUSED
    assert [attempt.cause for attempt in world.status.attempts or ()] == ["Credentials"]

    world.pass_time(3600)

    assert world.is_true("Committed")


@slow_except_on("world", "lance")
def test_what_a_person_must_change_in_the_manifest_is_not_tried_again(world: World, source: Path) -> None:
    def raise_always(number: int) -> None:
        raise NeedsChange(reasons.CODE_FAILED, "step enrich raised on row 7")

    world.kubelet.between_tasks = raise_always
    world.apply(source)
    world.until_stalled()

    world.pass_time(24 * 3600)

    assert world.kubelet.drivers_run == 1


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_file_that_was_replaced_and_is_put_back_goes_on_without_an_edit(
    world: World, source: Path, tmp_path: Path, is_replaced: bool
) -> None:
    victim, kept = source / "part-3.parquet", tmp_path / "kept.parquet"

    def take_it_away(number: int) -> None:
        if world.kubelet.drivers_run == 1:
            victim.rename(kept)
            if is_replaced:
                shutil.copy(source / "part-0.parquet", victim)
            raise Killed

    world.kubelet.between_tasks = take_it_away
    world.apply(source)
    world.until_stalled()
    assert world.status.reason == reasons.SOURCE_CHANGED

    kept.rename(victim)
    world.api.annotate(world.key, RETRY_ANNOTATION, "the file is back")
    world.until_committed()

    assert ids(world) == list(range(200))


def test_a_missing_table_is_made_when_create_is_set_as_the_message_says(tmp_path: Path, source: Path) -> None:
    world = World(on_disk(tmp_path, "iceberg"))
    world.apply(source)
    world.until_stalled()
    assert world.status.reason == reasons.TABLE_MISSING
    assert "set sink.create: true" in (world.status.message or "")

    world.edit(sink={**world.place.sink(), "create": True})
    world.until_committed()

    assert ids(world) == list(range(200))


def test_changed_code_waits_for_the_annotation_that_the_message_names_and_for_no_other(world: World, source: Path) -> None:
    def change_the_code_and_die(number: int) -> None:
        if number == 2 and world.kubelet.drivers_run == 1:
            world.edit(image="registry.example.com/mended:2")
            raise Killed

    world.kubelet.between_tasks = change_the_code_and_die
    world.apply(source, onCodeChange="Ask")
    world.until_stalled()
    assert world.status.reason == reasons.CODE_CHANGED
    (value,) = re.findall(rf"{APPROVE_ANNOTATION}=(Continue-[0-9a-f]{{16}}) ", world.status.message or "")

    world.api.annotate(world.key, APPROVE_ANNOTATION, f"Continue-{'0' * 16}")
    world.pass_time(120)
    world.restart_operator()
    world.pass_time(120)
    assert world.kubelet.drivers_run == 1

    world.api.annotate(world.key, APPROVE_ANNOTATION, value)
    world.until_committed()

    assert world.kubelet.drivers_run == 2
    assert ids(world) == list(range(200))


def test_a_file_that_was_moved_and_is_moved_back_goes_on_within_the_hour_without_an_edit(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()
    (source / "part-3.parquet").rename(source / "part-9.parquet")
    world.apply(source, runNonce="again")
    world.until_stalled()
    assert world.status.reason == reasons.SOURCE_MOVED

    (source / "part-9.parquet").rename(source / "part-3.parquet")
    world.pass_time(3600)

    assert world.is_true("Committed")
    assert ids(world) == list(range(200))
