"""Very many large writes of one namespace: a write of another is served as without them, also after a restart."""

from __future__ import annotations

from pathlib import Path

from checkpoint_operator.kube.api_json import weight
from checkpoint_operator.watch.cache import WriteName
from checkpoint_protocol.manifest.spec import API_VERSION, KIND
from tests.controller.harness import World
from tests.support.slow import slow_except_on

CROWD = 5_000
#: After a restart each write is looked for once.
MOST_TURNS = 4 * CROWD


def crowd(world: World) -> None:
    """Each as large as the operator reads it; they share a text, here. Told by the watch, as after a restart."""
    spec = {"text": "x" * 292_000}
    for number in range(CROWD):
        key = WriteName("crowd", f"w-{number:04}")
        metadata = {**key._asdict(), "uid": key.name, "generation": 1, "resourceVersion": "1"}
        world.api.writes[key] = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec, "status": {}}
    world.restart_operator()


def kept(world: World) -> tuple[list[str], int]:
    """Return the names of the crowd's writes that are kept, and their weight."""
    names = sorted(key.name for key in world.cache.write_names() if key.namespace == "crowd")
    return names, sum(weight(world.cache.write(WriteName("crowd", name))) for name in names)


@slow_except_on("world", "lance")
def test_a_write_is_committed_beside_five_thousand_large_ones_of_another_namespace_and_after_a_restart(
    world: World, source: Path
) -> None:
    most = world.cache.most_of_a_namespace
    crowd(world)
    names, taken = kept(world)
    assert 0 < len(names) < 120
    assert taken <= most
    world.apply(source)
    world.until(lambda: world.is_true("Committed"), MOST_TURNS)
    commits = len(world.place.keys())
    assert commits == 1

    crowd(world)
    names_again, taken = kept(world)
    assert names_again == names
    assert taken <= most
    world.edit(checkpoint={**world.manifest["spec"]["checkpoint"], "interval": "2h"})
    world.until(lambda: world.status.observed_generation == 2 and world.is_true("Committed"), MOST_TURNS)
    served = {key.name for key, body in world.api.writes.items() if key.namespace == "crowd" and body["status"]}
    assert served <= set(names)
