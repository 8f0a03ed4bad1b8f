"""Of the writes of a namespace, the oldest are kept that have room together, in whatever order they become known."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from typing import Any

import pytest

from checkpoint_operator.kube.api_json import weight
from checkpoint_operator.watch.cache import Cache, WriteName

ROOM_FOR_TWO = 100_000


def write(name: str, size: int = 40_000, version: int = 1, namespace: str = "n", **metadata: Any) -> dict[str, Any]:
    """`name`: its last letter says how old it is, "a" being the oldest."""
    created = f"2026-01-{ord(name[-1]) - 96:02}T00:00:00Z"
    known = {"namespace": namespace, "name": name, "uid": name, "generation": 1, "resourceVersion": str(version)}
    return {"metadata": {"creationTimestamp": created, **known, **metadata}, "spec": {"long": "x" * size}}


def names(cache: Cache) -> str:
    return "".join(sorted(key.name for key in cache.write_names()))


@pytest.mark.parametrize("order", list(itertools.permutations("abcd")), ids="".join)
def test_the_oldest_are_kept_whatever_the_order_in_which_they_are_told(order: tuple[str, ...]) -> None:
    cache = Cache(ROOM_FOR_TWO)
    # The youngest would have room beside the first two; but then it would depend on the order who is kept.
    sizes = {"a": 40_000, "b": 40_000, "c": 40_000, "d": 1_000}
    for name in order:
        cache.hear_write(write(name, sizes[name]))

    assert names(cache) == "ab"


def test_a_write_that_has_no_room_is_no_reason_to_reconcile_and_others_namespaces_have_theirs() -> None:
    cache = Cache(ROOM_FOR_TWO)
    assert [cache.hear_write(write(name)) for name in "abc"] == [True, True, False]

    assert cache.hear_write(write("d", namespace="other"))
    assert not cache.has_room(write("c"))


def test_a_write_has_room_again_once_an_older_one_is_gone_and_room_is_made() -> None:
    cache = Cache(ROOM_FOR_TWO)
    for name in "abc":
        cache.hear_write(write(name))
    cache.remove_write(write("a"))
    assert not cache.hear_write(write("c")), "an even younger one may have been told before"

    cache.make_room("n")
    assert cache.hear_write(write("c"))
    assert names(cache) == "bc"


def test_a_write_that_is_deleted_comes_before_those_that_stay_so_that_its_object_can_go() -> None:
    cache = Cache(ROOM_FOR_TWO)
    for name in "abc":
        cache.hear_write(write(name))

    assert cache.hear_write(write("c", version=2, deletionTimestamp="2026-02-01T00:00:00Z"))
    assert names(cache) == "ac"


def test_a_write_that_is_made_larger_displaces_the_younger_ones_only() -> None:
    cache = Cache(ROOM_FOR_TWO)
    for name in "ab":
        cache.hear_write(write(name))
    cache.hear_write(write("a", 90_000, version=2, generation=2))
    assert names(cache) == "a"

    cache.hear_write(write("a", 200_000, version=3, generation=3))
    assert names(cache) == ""


def test_another_object_of_a_name_is_as_young_as_it_is() -> None:
    cache = Cache(ROOM_FOR_TWO)
    for name in "abc":
        cache.hear_write(write(name))
    cache.hear_write(write("a", version=2, uid="again", creationTimestamp="2026-01-31T00:00:00Z"))

    assert names(cache) == "b"


@pytest.mark.parametrize(
    "value",
    [[{}] * 40_000, [{"a": 1}] * 20_000, [[]] * 40_000, ["ab"] * 40_000, [1.5] * 40_000, {str(n): "" for n in range(40_000)}],
    ids=["mappings", "mappings of one", "lists", "texts", "numbers", "names"],
)
def test_small_values_weigh_at_least_what_they_take_in_memory(value: Any) -> None:
    text = json.dumps(value)
    tracemalloc.start()
    try:
        parsed = json.loads(text)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert taken <= weight(parsed) <= 10 * taken


def test_five_thousand_writes_that_are_made_large_keep_no_more_than_the_share_of_their_namespace() -> None:
    cache = Cache()
    crowd: list[Any] = [{}] * 48_000

    for number in range(5_000):
        cache.hear_write({**write(f"w{number:04}a", version=number), "spec": {"crowd": crowd}})
    cache.hear_write(write("mine", 1_000, namespace="other"))

    kept = [body for key in cache.write_names() if (body := cache.write(key)) is not None]
    assert sum(map(weight, kept)) <= cache.most_of_a_namespace + weight(write("mine", 1_000))
    assert [body["metadata"]["name"] for body in kept] == ["w0000a", "w0001a", "w0002a", "mine"]
    assert cache.write(WriteName("other", "mine")) is not None
