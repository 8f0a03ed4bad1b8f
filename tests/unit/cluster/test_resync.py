"""The watch may be dead without a word: what the API server lists, and the watch has not told for long, shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from checkpoint_operator.pods.driver_pod import DRIVER_CONTAINER, ROLE_LABEL
from checkpoint_operator.watch.cache import Cache, WriteName
from checkpoint_operator.watch.resync import DEAD_AFTER_S, Resync
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from tests.support.fake_cluster import FakeApi

MANIFEST: dict[str, Any] = {"apiVersion": "x", "kind": "y", "metadata": {"name": "a"}, "spec": {}}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def world() -> tuple[FakeApi, Cache, Resync, list[WriteName]]:
    """An API whose watch feeds one cache, and a resync over another, which the test feeds."""
    told, woken = Cache(), list[WriteName]()
    api = FakeApi(Cache(), lambda key: None)
    return api, told, Resync(api, told, woken.append, ["default"], clock=Clock()), woken


def later(resync: Resync, seconds: float = DEAD_AFTER_S) -> bool:
    """Run it twice, so long apart: what the watch would have told by then."""
    assert isinstance(resync.clock, Clock)
    assert resync.run()
    resync.clock.now += seconds
    return resync.run()


def test_all_writes_are_woken() -> None:
    api, told, resync, woken = world()
    key = api.apply(MANIFEST)
    told.hear_write(api.writes[key])

    assert resync.run()
    assert woken == [key]


def test_a_write_that_the_watch_does_not_tell_is_known_from_the_list() -> None:
    api, told, resync, woken = world()
    key = api.apply(MANIFEST)

    resync.run()

    assert told.write(key) is not None
    assert woken == [key]


def test_a_change_that_the_watch_does_not_tell_is_known_from_the_list() -> None:
    api, told, resync, _ = world()
    key = api.apply(MANIFEST)
    told.hear_write(api.writes[key])
    api.apply({**MANIFEST, "spec": {"changed": True}})

    resync.run()

    known = told.write(key)
    assert known is not None
    assert known["spec"] == {"changed": True}


def test_a_write_that_only_a_stale_list_still_shows_is_not_known_again() -> None:
    class Stale(FakeApi):
        def list_writes(self, namespace: str | None) -> Sequence[Mapping[str, Any]]:
            return [gone]

    told = Cache()
    api = Stale(Cache(), lambda key: None)
    key = api.apply(MANIFEST)
    gone = api.writes[key]
    api.delete(key)
    resync = Resync(api, told, lambda key: None, [None])

    resync.run()

    assert told.write(key) is None


def test_a_watch_that_has_told_all_is_alive() -> None:
    api, told, resync, _ = world()
    key = api.apply(MANIFEST)
    told.hear_write(api.writes[key])

    assert later(resync)


def test_a_watch_that_lags_for_a_moment_is_alive() -> None:
    api, told, resync, _ = world()
    key = api.apply(MANIFEST)
    assert resync.run()
    told.hear_write(api.writes[key])

    assert later(resync)


def test_a_watch_that_may_still_recover_by_itself_is_alive() -> None:
    api, _, resync, _ = world()
    api.apply(MANIFEST)

    assert later(resync, DEAD_AFTER_S - 1)


def test_a_watch_that_never_tells_of_a_write_is_dead() -> None:
    api, _, resync, _ = world()
    api.apply(MANIFEST)

    assert not later(resync)


def test_a_watch_that_never_tells_of_a_change_is_dead() -> None:
    api, told, resync, _ = world()
    key = api.apply(MANIFEST)
    told.hear_write(api.writes[key])
    api.apply({**MANIFEST, "spec": {"changed": True}})

    assert not later(resync)


def test_a_dead_watch_is_found_however_often_the_write_changes_by_our_own_hand() -> None:
    api, told, resync, _ = world()
    key = api.apply(MANIFEST)
    for number in range(4):
        told.put_write(api.patch_status("default", "a", {"status": {"rowsSealed": number}}))
        resync.run()
    assert told.write(key) is not None

    assert not later(resync)


def test_a_watch_that_lags_behind_a_write_that_changes_all_the_time_is_alive() -> None:
    api, told, resync, _ = world()
    key = api.apply(MANIFEST)
    assert isinstance(resync.clock, Clock)
    for number in range(4):
        told.hear_write(api.writes[key])
        api.apply({**MANIFEST, "spec": {"changed": number}})
        assert resync.run()
        resync.clock.now += DEAD_AFTER_S


# --- one namespace of several -------------------------------------------------------------------------------------------------


class PartlyForbidden(FakeApi):
    """Refuses to list one namespace."""

    forbidden: str | None = None

    def list_writes(self, namespace: str | None) -> Sequence[Mapping[str, Any]]:
        if namespace == self.forbidden:
            raise Retryable(reasons.API_FORBIDDEN, "403")
        return super().list_writes(namespace)


def in_namespace(namespace: str, name: str = "a") -> dict[str, Any]:
    return {**MANIFEST, "metadata": {"namespace": namespace, "name": name}}


def test_a_namespace_that_is_forbidden_keeps_nobody_from_the_others_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    told, woken = Cache(), list[WriteName]()
    api = PartlyForbidden(told, lambda key: None)
    resync = Resync(api, told, woken.append, ["first", "second"])
    keys = [api.apply(in_namespace("first")), api.apply(in_namespace("second"))]
    api.forbidden = "first"

    assert [resync.run(), resync.run(), resync.run()] == [True, True, True]
    assert woken == [keys[1]] * 3
    assert told.write(keys[0]) is not None, "what cannot be listed is not gone"
    assert len([record for record in caplog.records if "first" in record.getMessage()]) == 1
    api.forbidden = None
    resync.run()
    assert "the writes of namespace first are listed again" in caplog.text


def test_a_change_in_a_namespace_that_must_not_be_watched_is_no_sign_of_death_and_one_beside_it_is() -> None:
    api, told = FakeApi(Cache(), lambda key: None), Cache()
    resync = Resync(api, told, lambda key: None, ["first", "second"], lambda namespace: namespace == "first", Clock())
    key = api.apply(in_namespace("first"))
    assert later(resync)
    assert told.write(key) is not None, "what is not watched is still listed"

    api.apply(in_namespace("second"))
    assert not later(resync)


def test_a_watch_that_was_forbidden_until_now_has_time_to_tell() -> None:
    forbidden = [True]
    api, told = FakeApi(Cache(), lambda key: None), Cache()
    resync = Resync(api, told, lambda key: None, ["default"], lambda namespace: forbidden[0], Clock())
    api.apply(MANIFEST)
    assert later(resync)

    forbidden[0] = False
    assert not later(resync)


def test_a_namespace_whose_list_was_not_answered_in_between_has_time_to_tell() -> None:
    told = Cache()
    api = PartlyForbidden(Cache(), lambda key: None)
    resync = Resync(api, told, lambda key: None, ["default"], clock=Clock())
    api.apply(MANIFEST)
    assert resync.run()
    api.forbidden = "default"
    assert later(resync)
    api.forbidden = None

    assert resync.run()
    assert not later(resync)


# --- writes that went while the watch was away ----------------------------------------------------------------------------------


def test_a_write_that_went_unseen_is_forgotten_and_looked_at_once_more() -> None:
    api, told, resync, woken = world()
    key = api.apply(MANIFEST)
    told.hear_write(api.writes[key])
    api.delete(key)

    resync.run()
    assert told.write(key) is not None, "a list may be older than what is known"
    resync.run()
    assert told.write(key) is None
    assert woken == [key]


def test_a_write_that_a_stale_list_does_not_show_is_kept() -> None:
    class Stale(FakeApi):
        def list_writes(self, namespace: str | None) -> Sequence[Mapping[str, Any]]:
            return []

    told = Cache()
    api = Stale(told, lambda key: None)
    key = api.apply(MANIFEST)
    resync = Resync(api, told, lambda key: None, [None])
    for _ in range(3):
        resync.run()

    assert told.write(key) is not None


# --- pods that went while the watch was away ------------------------------------------------------------------------------------


def driver(api: FakeApi, told: Cache, phase: str = "Running") -> dict[str, Any]:
    metadata = {"namespace": "default", "name": "driver", "uid": "u1", "labels": {ROLE_LABEL: DRIVER_CONTAINER}}
    pod = {"metadata": metadata, "status": {"phase": phase}}
    api.put_pod(pod)
    told.put_pod(pod)
    return pod


def test_a_driver_whose_pod_went_unseen_is_forgotten_before_its_write_is_looked_at() -> None:
    api, told, resync, woken = world()
    key = api.apply(MANIFEST)
    told.hear_write(api.writes[key])
    pod = driver(api, told)
    api.remove_pod(pod)

    resync.run()
    assert told.pod("default", "driver") is not None, "a list may be older than what is known"
    resync.run()
    assert told.pod("default", "driver") is None
    assert woken == [key, key]


def test_a_driver_whose_pod_a_stale_list_does_not_show_is_kept() -> None:
    class Stale(FakeApi):
        def list_driver_pods(self, namespace: str | None) -> Sequence[Mapping[str, Any]]:
            return []

    told = Cache()
    api = Stale(Cache(), lambda key: None)
    driver(api, told)
    resync = Resync(api, told, lambda key: None, [None])
    for _ in range(3):
        resync.run()

    assert told.pod("default", "driver") is not None


def test_a_driver_whose_name_another_pod_has_taken_is_forgotten() -> None:
    api, told, resync, _ = world()
    pod = driver(api, told)
    api.put_pod({**pod, "metadata": {**pod["metadata"], "uid": "u2"}})
    for _ in range(2):
        resync.run()

    assert told.pod("default", "driver") is None


def test_pods_that_have_ended_are_not_asked_for() -> None:
    api, told, resync, _ = world()
    driver(api, told, phase="Succeeded")
    asked = list[str]()
    api.before = asked.append

    resync.run()

    assert asked == ["list writes"]


# --- writes that have no room ----------------------------------------------------------------------------------------------


def crowded() -> tuple[FakeApi, Cache, Resync, list[WriteName], list[str]]:
    """Three writes of a namespace, of which two have room: a, which the watch has told, and b."""
    told, woken, warned = Cache(100_000), list[WriteName](), list[str]()
    api = FakeApi(Cache(), lambda key: None)
    for name in "abc":
        api.apply({**MANIFEST, "metadata": {"name": name}, "spec": {"long": "x" * 40_000}})

    def warn(body: Mapping[str, Any], reason: str, message: str) -> None:
        warned.append(f"{body['metadata']['name']}: {reason}: {message}")

    resync = Resync(api, told, woken.append, ["default"], clock=Clock(), warn=warn)
    told.hear_write(api.writes[WriteName("default", "a")])
    return api, told, resync, woken, warned


def test_writes_that_have_no_room_are_told_once_and_neither_woken_nor_a_sign_of_a_dead_watch() -> None:
    api, told, resync, woken, warned = crowded()
    told.hear_write(api.writes[WriteName("default", "b")])

    assert later(resync)

    assert [key.name for key in woken] == ["a", "b", "a", "b"]
    assert resync.left_out == {"default": 1}
    (said,) = warned
    assert said.startswith("c: NotServed: 1 write of the namespace (this one and all that are younger) cannot be served")


def test_a_write_that_had_no_room_is_served_once_another_is_deleted_as_the_message_says() -> None:
    api, told, resync, woken, _ = crowded()
    resync.run()
    assert {key.name for key in told.write_names()} == {"a", "b"}

    gone = WriteName("default", "a")
    told.remove_write(api.writes[gone])
    api.delete(gone)
    woken.clear()
    resync.run()

    assert {key.name for key in told.write_names()} == {"b", "c"}
    assert [key.name for key in woken] == ["b", "c"]
    assert resync.left_out == {"default": 0}


def test_a_write_that_had_no_room_is_served_by_an_operator_that_has_more_memory_for_its_namespace() -> None:
    api, _, _, woken, _ = crowded()
    more = Cache(200_000)

    Resync(api, more, woken.append, ["default"], clock=Clock()).run()

    assert {key.name for key in more.write_names()} == {"a", "b", "c"}
