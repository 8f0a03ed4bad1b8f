"""What the watches tell: which of it is a reason to look at a write."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint_operator.pods.driver_pod import ROLE_LABEL, WRITE_LABEL
from checkpoint_operator.watch.cache import Cache, WriteName, write_of
from checkpoint_protocol.manifest.spec import API_VERSION, KIND


def body(version: int, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "n", "name": "w", "uid": "u", "generation": 1, "resourceVersion": str(version), **metadata},
        "status": {"message": f"written at {version}"},
    }


def test_a_write_that_was_not_known_is_a_reason_to_look() -> None:
    assert Cache().put_write(body(1))


def test_a_status_that_another_operator_has_written_is_kept_and_no_reason_to_look() -> None:
    cache = Cache()
    cache.put_write(body(1))

    assert not cache.put_write(body(2))

    known = cache.write(("n", "w"))  # type: ignore[arg-type]
    assert known is not None
    assert known["status"] == {"message": "written at 2"}


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 2},
        {"uid": "another"},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"annotations": {"checkpointed.dev/abandon": "true"}},
        {"finalizers": []},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_a_person_or_another_controller_has_a_say_in_is_a_reason_to_look(change: dict[str, Any]) -> None:
    cache = Cache()
    cache.put_write(body(1))

    assert cache.put_write(body(2, **change))


def test_what_is_older_than_what_is_known_is_passed_over() -> None:
    cache = Cache()
    cache.put_write(body(2))

    assert not cache.put_write(body(1, generation=2))


def test_a_pod_that_is_gone_does_not_come_back_with_the_late_answer_to_the_request_that_made_it() -> None:
    cache = Cache()
    cache.remove_pod(body(2))

    assert not cache.put_pod(body(1))

    assert cache.pod("n", "w") is None


def test_another_pod_of_the_same_name_is_taken_in() -> None:
    cache = Cache()
    cache.remove_pod(body(2))

    assert cache.put_pod(body(3, uid="another"))


def test_what_a_list_or_an_answer_of_ours_shows_was_not_told_by_the_watch() -> None:
    cache = Cache()
    cache.put_write(body(2))
    assert not cache.has_heard(body(2))

    cache.hear_write(body(1))
    assert (cache.has_heard(body(1)), cache.has_heard(body(2))) == (True, False)
    assert not cache.is_behind(body(2)), "what is known is not set back"
    cache.hear_write(body(2))
    assert cache.has_heard(body(1)), "what is older was left out, or came before"
    assert cache.has_heard(body(2))
    assert not cache.has_heard(body(3, uid="another"))


def test_a_write_that_is_gone_was_not_told_of_any_more() -> None:
    cache = Cache()
    cache.hear_write(body(1))
    cache.remove_write(body(1))

    assert not cache.has_heard(body(1))


def test_late_word_that_an_object_is_gone_leaves_the_one_that_has_its_name_since() -> None:
    cache = Cache()
    now = body(2, uid="another")
    cache.hear_write(now)
    cache.put_pod(now)

    cache.remove_write(body(1))
    cache.remove_pod(body(1))

    assert cache.write(WriteName("n", "w")) is not None
    assert cache.has_heard(now)
    assert cache.pod("n", "w") is not None


@pytest.mark.parametrize(("state", "at_work"), [({"running": {}}, True), ({"terminated": {"exitCode": 0}}, False)])
def test_a_driver_that_has_ended_is_at_work_no_more_though_a_container_beside_it_keeps_its_pod(
    state: dict[str, Any], at_work: bool
) -> None:
    cache = Cache()
    containers = [{"name": "driver", "state": state}, {"name": "proxy", "state": {"running": {}}}]
    labels = {WRITE_LABEL: "w", ROLE_LABEL: "driver"}
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": "w", "uid": "u", "controller": True}
    pod = body(1, name="w-1", uid="p", labels=labels, ownerReferences=[owner])
    cache.put_pod(pod | {"status": {"phase": "Running", "containerStatuses": containers}})

    assert cache.writes_at_work("n") == ({WriteName("n", "w")} if at_work else set())


@pytest.mark.parametrize(
    "owner",
    [
        {"apiVersion": "batch/v1", "kind": "Job"},
        {"apiVersion": "example.com/v1", "kind": KIND},
        {"apiVersion": API_VERSION, "kind": "X"},
    ],
    ids=["another kind", "our kind of another group", "another kind of our group"],
)
def test_a_pod_with_our_label_that_belongs_to_something_else_is_no_writes(owner: dict[str, str]) -> None:
    pod = body(1, labels={WRITE_LABEL: "w"}, ownerReferences=[{**owner, "name": "w", "uid": "u"}])

    assert write_of(pod) is None
    assert write_of(body(1, labels={WRITE_LABEL: "w"}, ownerReferences=[{"apiVersion": API_VERSION, "kind": KIND, "name": "w"}]))


def test_writes_without_executors_are_counted_while_they_run_in_one_namespace_and_without_the_one_that_asks() -> None:
    cache = Cache()
    since = {"starvedSince": "2026-01-01T00:00:00Z"}
    for name, status in {
        "asks": {"phase": "Running", **since},
        "starved": {"phase": "Running", **since},
        "at-work": {"phase": "Running"},
        "was-starved-when-its-manifest-became-wrong": {"phase": "Stalled", **since},
    }.items():
        cache.put_write({**body(1, name=name, uid=name), "status": status})
    cache.put_write({**body(1, namespace="another", uid="another"), "status": {"phase": "Running", **since}})

    assert cache.count_starved("n", WriteName("n", "asks")) == 1
