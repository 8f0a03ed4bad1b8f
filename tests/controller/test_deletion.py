"""A CheckpointedWrite is deleted, and whatever is in its way is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_commit.ports import Sink
from checkpoint_operator.config import OperatorConfig
from checkpoint_operator.ends.deleting import ABANDON_ANNOTATION, FINALIZER
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import ObjectStore, open_store
from checkpoint_protocol.writes import read_deleted
from tests.controller.harness import WORKLOADS, World
from tests.support.places import on_disk
from tests.support.slow import slow_except_on


def begin(world: World, source: Path) -> None:
    world.kubelet.instead[1] = {"phase": "Running"}
    world.apply(source)
    world.until(lambda: bool(world.api.pods))


def is_gone(world: World) -> bool:
    return world.key not in world.api.writes


def staged(world: World) -> list[str]:
    store = open_store(world.place.checkpoint_uri, world.place.settings)
    (uid,) = {stored.path.split("/")[1] for stored in store.list("control")}
    return [stored.path for stored in store.list(layout.staged_folder(uid))]


def test_a_write_that_runs_is_deleted_with_its_driver_and_what_it_staged(world: World, source: Path) -> None:
    begin(world, source)

    world.api.delete(world.key)
    world.until(lambda: is_gone(world))

    assert not world.api.pods
    assert staged(world) == []
    assert world.place.keys() == []


def test_a_write_goes_with_its_namespace_whose_roles_have_gone_before(world: World, source: Path) -> None:
    begin(world, source)

    def forbid(request: str) -> None:
        if "pod" in request or "event" in request:
            raise Retryable(reasons.API_FORBIDDEN, f"{request}: 403")

    world.api.before = forbid
    world.api.delete(world.key)
    world.until(lambda: is_gone(world))

    assert staged(world) == []


def test_an_api_server_that_does_not_answer_holds_a_deletion_up_and_is_asked_again(world: World, source: Path) -> None:
    begin(world, source)
    world.api.delete(world.key)
    world.api.down = True
    world.pass_time(60)
    assert world.key in world.api.writes

    world.api.down = False
    world.until(lambda: is_gone(world))

    assert staged(world) == []


def test_a_deletion_that_is_held_up_by_its_store_says_so_and_can_be_abandoned(world: World, source: Path) -> None:
    begin(world, source)

    def open_nothing(namespace: str, uri: str) -> ObjectStore:
        raise Retryable(reasons.STORE_UNAVAILABLE, f"{uri} does not answer")

    world.operator.controller.open_store = open_nothing
    world.api.delete(world.key)
    world.until(lambda: world.status.phase == "Deleting")
    assert world.status.reason == reasons.STORE_UNAVAILABLE
    assert f"{ABANDON_ANNOTATION}=true" in (world.status.message or "")

    world.api.annotate(world.key, ABANDON_ANNOTATION, "true")

    world.until(lambda: is_gone(world))


def test_a_deletion_that_is_abandoned_keeps_commits_from_landing_where_the_store_answers(world: World, source: Path) -> None:
    """It is abandoned for the table's sake, say; a committer that was paused must still find the note when it wakes up."""
    begin(world, source)
    uid = world.body()["metadata"]["uid"]

    def open_no_sink(*_: object) -> Sink:
        raise Retryable(reasons.CATALOG_UNAVAILABLE, "the catalog does not answer")

    world.operator.controller.open_sink = open_no_sink
    world.api.annotate(world.key, ABANDON_ANNOTATION, "true")
    world.api.delete(world.key)
    world.until(lambda: is_gone(world))

    assert read_deleted(open_store(world.place.checkpoint_uri, world.place.settings), uid) is not None
    assert not world.api.pods


def test_a_pod_of_another_owner_under_the_name_of_our_driver_outlives_the_deletion(world: World, source: Path) -> None:
    begin(world, source)
    (place, pod), *_ = world.api.pods.items()
    stranger = {"kind": "CheckpointedWrite", "name": "write", "uid": "another-uid"}
    world.api.pods[place] = {**pod, "metadata": {**pod["metadata"], "ownerReferences": [stranger]}}

    world.api.delete(world.key)
    world.until(lambda: is_gone(world))

    assert place in world.api.pods


@slow_except_on("world", "iceberg")
def test_finalizers_of_others_stay_when_ours_comes_and_when_it_goes(world: World, source: Path) -> None:
    theirs = "example.com/theirs"
    world.kubelet.instead[1] = {"phase": "Running"}
    world.apply(source)
    world.api.patch_write(*world.key, {"metadata": {"finalizers": [theirs]}})
    world.until(lambda: bool(world.api.pods))
    assert world.body()["metadata"]["finalizers"] == [theirs, FINALIZER]

    world.api.delete(world.key)
    world.until(lambda: world.body()["metadata"]["finalizers"] == [theirs])

    assert not world.api.pods
    assert staged(world) == []


@pytest.mark.parametrize("when", ["before the first look", "after the commit"])
def test_a_deletion_at_another_time_ends_too(world: World, source: Path, when: str) -> None:
    world.apply(source)
    if when == "after the commit":
        world.until_committed()

    world.api.delete(world.key)
    world.until(lambda: is_gone(world))

    assert len(world.place.rows()) == (200 if when == "after the commit" else 0)


@pytest.mark.parametrize("annotations", [{}, {ABANDON_ANNOTATION: "true"}], ids=["cleaned up", "abandoned"])
def test_an_object_that_was_made_with_our_finalizer_reaches_no_disk_by_its_deletion(
    tmp_path: Path, source: Path, annotations: dict[str, str]
) -> None:
    config = OperatorConfig(namespaces=("default",), workloads=WORKLOADS, allow_local_paths=False)
    world = World(on_disk(tmp_path / "place", "lance"), config=config)
    world.apply(source)
    world.api.writes[world.key]["metadata"] |= {"finalizers": [FINALIZER], "annotations": annotations}

    world.api.delete(world.key)
    world.until(lambda: is_gone(world))

    assert not Path(world.place.checkpoint_uri).exists()
