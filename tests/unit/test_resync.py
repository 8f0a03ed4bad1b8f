"""The watch may be dead without a word: what the API server lists, and the watch has not told for long, shows it."""

from __future__ import annotations

from typing import Any

from checkpoint_operator.cluster.cache import Cache, WriteName
from checkpoint_operator.cluster.resync import Resync
from tests.support.fake_cluster import FakeApi

MANIFEST: dict[str, Any] = {"apiVersion": "x", "kind": "y", "metadata": {"name": "a"}, "spec": {}}


def world() -> tuple[FakeApi, Cache, Resync, list[WriteName]]:
    """An API whose watch feeds one cache, and a resync over another, which the test feeds."""
    told, woken = Cache(), list[WriteName]()
    api = FakeApi(Cache(), lambda key: None)
    return api, told, Resync(api, told, woken.append, ["default"]), woken


def test_all_writes_are_woken() -> None:
    api, told, resync, woken = world()
    key = api.apply(MANIFEST)
    told.put_write(api.writes[key])

    assert resync.run()
    assert woken == [key]


def test_a_watch_that_has_told_all_is_alive() -> None:
    api, told, resync, _ = world()
    key = api.apply(MANIFEST)
    told.put_write(api.writes[key])

    assert [resync.run(), resync.run()] == [True, True]


def test_a_watch_that_lags_for_a_moment_is_alive() -> None:
    api, told, resync, _ = world()
    key = api.apply(MANIFEST)
    assert resync.run()
    told.put_write(api.writes[key])

    assert resync.run()


def test_a_watch_that_never_tells_of_a_write_is_dead() -> None:
    api, _, resync, _ = world()
    api.apply(MANIFEST)

    assert [resync.run(), resync.run()] == [True, False]


def test_a_watch_that_never_tells_of_a_change_is_dead() -> None:
    api, told, resync, _ = world()
    key = api.apply(MANIFEST)
    told.put_write(api.writes[key])
    api.apply({**MANIFEST, "spec": {"changed": True}})

    assert [resync.run(), resync.run()] == [True, False]


def test_a_write_that_changes_all_the_time_is_no_sign_of_death() -> None:
    api, told, resync, _ = world()
    key = api.apply(MANIFEST)
    told.put_write(api.writes[key])
    for number in range(4):
        api.apply({**MANIFEST, "spec": {"changed": number}})
        assert resync.run()
