"""A manifest that is too large to be kept is refused, and what was begun before it was made so is not lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_operator.kube import api_json
from checkpoint_protocol import reasons
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import open_store
from tests.controller.harness import World

#: Each step has no more than it may have.
TOO_MANY = [{"call": "steps:double", "arguments": {"unused": "x" * (api_json.MOST_SPEC_BYTES // 2 - 100)}}] * 3


def begin(world: World, source: Path) -> None:
    world.kubelet.instead[1] = {"phase": "Running"}
    world.apply(source)
    world.until(lambda: bool(world.api.pods))


def staged(world: World) -> list[str]:
    store = open_store(world.place.checkpoint_uri, world.place.settings)
    (uid,) = {stored.path.split("/")[1] for stored in store.list("control")}
    return [stored.path for stored in store.list(layout.staged_folder(uid))]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_running_write_whose_manifest_is_made_too_large_says_so_and_goes_on_once_it_is_corrected(
    world: World, source: Path, restarts: bool
) -> None:
    begin(world, source)
    before = world.manifest
    world.edit(steps=TOO_MANY)
    if restarts:
        world.restart_operator()
    world.until_stalled()

    assert world.status.reason == reasons.MANIFEST_INVALID
    message = world.status.message or ""
    assert "spec: it has 786," in message
    assert "is not read above 524,288; put long arguments into a file of spec.code" in message
    assert any("is not read above 524,288" in event["note"] for event in world.api.warnings)
    kept = world.cache.write(world.key)
    assert kept is not None
    assert len(str(kept["spec"])) < 1000
    assert len(world.api.pods) == 1, "its driver goes on"

    world.kubelet.instead.clear()
    (pod,) = world.api.pods.values()
    ended = {"name": "driver", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    world.api.set_pod_status(pod, {"phase": "Failed", "containerStatuses": [ended]})
    world.api.apply(before)
    world.until_committed()

    assert len(world.place.keys()) == 1


def test_a_write_whose_manifest_was_made_too_large_is_deleted_with_all_that_it_has_staged(world: World, source: Path) -> None:
    begin(world, source)
    world.edit(steps=TOO_MANY)
    world.restart_operator()
    world.until_stalled()

    world.delete()

    assert not world.api.pods
    assert staged(world) == []


def test_long_arguments_are_put_into_a_file_of_the_code_as_the_message_says(world: World, source: Path) -> None:
    """What the steps' file reads beside it is the author's; the arguments that are left out are what counts here."""
    world.apply(source, steps=TOO_MANY)
    world.until_stalled()
    assert "put long arguments into a file of spec.code" in (world.status.message or "")

    world.edit(steps=[])
    world.until_committed()

    assert len(world.place.keys()) == 1


def test_a_write_that_was_too_large_from_the_beginning_is_deleted(world: World, source: Path) -> None:
    world.apply(source, steps=TOO_MANY)
    world.until_stalled()

    world.delete()

    assert world.key not in world.api.writes
