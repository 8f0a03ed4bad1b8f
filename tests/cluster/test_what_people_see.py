"""What is wrong is named in condition and event within thirty seconds, on a real cluster; and going on is one edit away."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from checkpoint_protocol import reasons
from devtools.kubernetes import CommandFailed
from tests.cluster.installation import NAMESPACE, RELEASE, ROOT
from tests.cluster.user import User

WITHIN_S = 30.0


def begin(user: User, **spec: Any) -> None:
    user.make_place("iceberg")
    user.apply(user.write(user.put_rows("a.parquet", 0, 20), **spec))


def named(user: User, reason: str, seconds: float = WITHIN_S) -> str:
    """Wait until the status names it; return the message."""
    user.until(lambda: user.status().get("reason") == reason, seconds, f"reason {reason}")
    user.until(lambda: reason in {event["reason"] for event in user.events()}, 5, f"an event {reason}")
    message: str = user.status()["message"]
    return message


@dataclass(frozen=True)
class Broken:
    """A write that does not work: what is wrong with it, and what the status says."""

    reason: str
    words: str
    spec: dict[str, Any] = field(default_factory=dict)
    has_table: bool = True
    seconds: float = WITHIN_S


_APPARMOR = {"container.apparmor.security.beta.kubernetes.io/driver": "unconfined"}
BROKEN = {
    "image": Broken(reasons.IMAGE_UNAVAILABLE, "localhost/nothing:1", {"image": "localhost/nothing:1"}),
    "memory": Broken(reasons.POD_UNSCHEDULABLE, "Insufficient memory", {"driver": {"memory": "900Gi"}}),
    "secret": Broken(reasons.POD_INCOMPLETE, "nobody-made-it", {"storageSecretName": "nobody-made-it"}),
    "code": Broken(reasons.CODE_MISSING, "nobody-made-it", {"code": {"configMap": {"name": "nobody-made-it"}}}),
    "table": Broken(reasons.TABLE_MISSING, ".rows", has_table=False),
    "step": Broken(reasons.CODE_FAILED, "boom at", {"steps": [{"call": "steps:broken", "input": "row"}]}, seconds=120),
    "access": Broken(
        reasons.ACCESS_NOT_GRANTED,
        "spec.driver.template: spec.hostNetwork",
        {"driver": {"memory": "512Mi", "template": {"spec": {"hostNetwork": True}}}},
    ),
    "admission": Broken(
        reasons.POD_REFUSED,
        "restricted",
        {"driver": {"memory": "512Mi", "template": {"metadata": {"annotations": _APPARMOR}}}},
    ),
}


def test_eight_broken_writes_that_are_applied_together_each_name_what_is_wrong(users: Callable[[], User]) -> None:
    each = {name: users() for name in BROKEN}
    for name, broken in BROKEN.items():
        user = each[name]
        user.make_place("iceberg", with_table=broken.has_table)
        user.apply(user.write(user.put_rows("a.parquet", 0, 20), **broken.spec))

    for name, broken in BROKEN.items():
        assert broken.words in named(each[name], broken.reason, broken.seconds)
    assert [each[name].driver_names() for name in ("table", "access", "admission")] == [[], [], []]


@pytest.mark.slow
def test_an_image_that_is_not_there_and_the_right_one_then(user: User) -> None:
    begin(user, image="localhost/nothing:1")
    assert "localhost/nothing:1" in named(user, reasons.IMAGE_UNAVAILABLE)

    spec = user.manifest["spec"]
    del spec["image"]
    user.edit()
    user.wait_for("Committed")

    assert user.ids() == list(range(20))


@pytest.mark.slow
def test_a_config_map_that_is_missing(user: User) -> None:
    begin(user, code={"configMap": {"name": "nobody-made-it"}})

    assert "nobody-made-it" in named(user, reasons.CODE_MISSING)
    assert user.condition("Stalled")["status"] == "True"


@pytest.mark.slow
def test_a_table_that_is_missing_and_is_made_then(user: User) -> None:
    place = user.make_place("iceberg", with_table=False)
    user.apply(user.write(user.put_rows("a.parquet", 0, 20)))
    assert place.sink()["iceberg"]["table"] in named(user, reasons.TABLE_MISSING)
    assert user.driver_names() == []


@pytest.mark.slow
def test_code_that_raises_is_named_with_its_row_and_goes_on_when_mended(user: User) -> None:
    begin(user, steps=[{"call": "steps:broken", "input": "row"}])
    user.until(lambda: user.status().get("reason") == reasons.CODE_FAILED, 90, "the code failed")
    assert "boom at" in user.status()["message"]
    assert user.status()["attempt"] == 1, "user errors are not tried again"
    assert user.status()["attempts"][0]["cause"] == "UserCode"

    user.edit(steps=[{"call": "steps:slowly", "input": "row", "arguments": {"seconds": 0}}])
    user.wait_for("Committed")

    assert user.ids() == list(range(20))


@pytest.mark.parametrize(
    "change",
    [{"source": {"files": {"format": "parquet", "paths": ["s3://other/in"]}}}, {"checkpoint": {"uri": "s3://other/cw"}}],
    ids=["source", "checkpoint"],
)
@pytest.mark.slow
def test_what_a_write_is_cannot_be_edited(user: User, change: dict[str, Any]) -> None:
    begin(user)
    # Until rows of it are sealed, the source may be another one.
    user.wait_for("Committed")

    with pytest.raises(CommandFailed, match=r"fixed|cannot|immutable"):
        user.edit(**change)


@pytest.mark.slow
def test_the_backoff_is_exhausted_and_more_is_allowed_then(user: User) -> None:
    user.make_place("iceberg")
    # The kubelet may notice a deadline late: a row takes so long that no driver is done before that.
    manifest = user.write(user.put_rows("a.parquet", 0, 20), 60.0, backoffLimit=0)
    driver = manifest["spec"]["driver"]
    deadline = {**driver["template"]["spec"], "activeDeadlineSeconds": 1}
    manifest["spec"]["driver"] = {**driver, "template": {"spec": deadline}}
    user.apply(manifest)
    user.until(lambda: user.status().get("reason") == reasons.BACKOFF_LIMIT_EXCEEDED, 60, "the backoff is exhausted")

    fast = [{**step, "arguments": {"seconds": 0.0}} for step in manifest["spec"]["steps"]]
    user.edit(backoffLimit=3, driver=driver, steps=fast)
    user.wait_for("Committed")

    assert user.ids() == list(range(20))


@pytest.mark.slow
def test_suspend_ends_the_driver_and_resume_goes_on(user: User) -> None:
    user.make_place("iceberg")
    user.apply(user.write_with_barrier(user.put_rows("a.parquet", 0, 400), first=200))
    user.wait_until_sealed(100)
    sealed = user.sealed_rows()

    user.edit(suspend=True)
    user.until(lambda: user.status().get("phase") == "Suspended" and not user.driver_names(), 60, "suspended")
    user.open_barrier()
    user.edit(suspend=False)
    user.wait_for("Committed")

    assert user.ids() == list(range(400))
    assert user.rows_taken_over(2) >= sealed, "what was sealed is not computed again"


@pytest.mark.slow
def test_every_example_for_clusters_is_admitted(user: User) -> None:
    for path in sorted((ROOT / "examples" / "cluster").glob("*.yaml")):
        user.kubectl("apply", "--dry-run=server", "-n", user.namespace, "-f", str(path))


@pytest.mark.slow
def test_a_life_costs_at_most_ten_changes_in_the_api_and_one_each_half_minute_three_events_and_none_when_it_is_over(
    user: User,
) -> None:
    user.until(lambda: user.installation.cluster.get("cw", "-n", user.namespace)["items"] == [], what="nobody else is there")
    before, events, began = changes_in_the_api(user), events_in_the_api(user), time.monotonic()
    begin(user)
    user.wait_for("Committed")
    # The finalizer, the pod as a trial and the pod. Then a status where it says something else: the driver starts, its pod waits,
    # it plans, it starts Spark, tasks run, all are sealed, committed. On a fast machine a look misses some. Then progress.
    most = 3 + 7 + (time.monotonic() - began) // 30
    user.until(lambda: all(pod["status"].get("phase") == "Succeeded" for pod in user.pods("driver")), what="the driver has ended")
    time.sleep(5)

    after = changes_in_the_api(user)
    assert 4 <= after - before <= most
    assert events_in_the_api(user) - events == 3, "started, sealed, committed"
    time.sleep(20)
    assert changes_in_the_api(user) == after
    metrics_count_what_happened(user)


def metrics_count_what_happened(user: User) -> None:
    metrics = user.installation.metrics()
    assert metrics['checkpointed_writes_commits_total{format="iceberg",outcome="committed"}'] >= 1
    assert any(name.startswith("checkpointed_writes_reconcile_seconds_count") for name in metrics), json.dumps(metrics)


def changes_in_the_api(user: User) -> float:
    """How many requests of the operator have changed something, but for events."""
    return sum(count for name, count in api_requests(user).items() if 'verb="GET"' not in name and 'kind="event"' not in name)


def events_in_the_api(user: User) -> float:
    return sum(count for name, count in api_requests(user).items() if 'kind="event"' in name)


def api_requests(user: User) -> dict[str, float]:
    return {name: count for name, count in user.installation.metrics().items() if "_api_requests_total" in name}


@pytest.mark.slow
def test_helm_test_passes_with_the_image_and_the_rights_that_the_operator_has(user: User) -> None:
    said = user.installation.cluster.helm("test", RELEASE, "--namespace", NAMESPACE, "--timeout", "100s")

    assert "Phase:" in said
    assert "Succeeded" in said


@pytest.mark.slow
def test_a_driver_without_progress_is_given_up_though_no_operator_lives_as_long_as_the_deadline(user: User) -> None:
    user.make_place("iceberg")
    user.apply(user.write_with_barrier(user.put_rows("a.parquet", 0, 100), 50, progressDeadlineSeconds=60))
    user.wait_until_sealed(25)

    def is_given_up_by_a_new_operator() -> bool:
        user.installation.stop_operator()
        user.installation.start_operator()
        return bool(user.status()["attempts"][0].get("cause") == "NoProgress")

    user.until(is_given_up_by_a_new_operator, 240, "the attempt to be given up")
    user.open_barrier()

    user.wait_for("Committed")
    assert user.ids() == list(range(100))
