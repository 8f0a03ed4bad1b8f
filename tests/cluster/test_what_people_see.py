"""What is wrong is named in condition and event within thirty seconds, on a real cluster; and going on is one edit away."""

from __future__ import annotations

import json
import time
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


def named(user: User, reason: str) -> str:
    """Wait until the status names it; return the message."""
    user.until(lambda: user.status().get("reason") == reason, WITHIN_S, f"reason {reason}")
    user.until(lambda: reason in {event["reason"] for event in user.events()}, 5, f"an event {reason}")
    message: str = user.status()["message"]
    return message


def test_an_image_that_is_not_there_and_the_right_one_then(user: User) -> None:
    begin(user, image="localhost/nothing:1")
    assert "localhost/nothing:1" in named(user, reasons.IMAGE_UNAVAILABLE)

    spec = user.manifest["spec"]
    del spec["image"]
    user.edit()
    user.wait_for("Committed")

    assert user.ids() == list(range(20))


def test_a_driver_for_which_there_is_no_room(user: User) -> None:
    begin(user, driver={"memory": "900Gi"})

    assert "Insufficient memory" in named(user, reasons.POD_UNSCHEDULABLE)


def test_a_secret_that_is_missing(user: User) -> None:
    begin(user, storageSecretName="nobody-made-it")

    assert "nobody-made-it" in named(user, reasons.POD_INCOMPLETE)


def test_a_config_map_that_is_missing(user: User) -> None:
    begin(user, code={"configMap": {"name": "nobody-made-it"}})

    assert "nobody-made-it" in named(user, reasons.CODE_MISSING)
    assert user.condition("Stalled")["status"] == "True"


def test_a_table_that_is_missing_and_is_made_then(user: User) -> None:
    place = user.make_place("iceberg", with_table=False)
    user.apply(user.write(user.put_rows("a.parquet", 0, 20)))
    assert place.sink()["iceberg"]["table"] in named(user, reasons.TABLE_MISSING)
    assert user.driver_names() == []


def test_code_that_raises_is_named_with_its_row_and_goes_on_when_mended(user: User) -> None:
    begin(user, steps=[{"call": "steps:broken", "input": "row"}])
    user.until(lambda: user.status().get("reason") == reasons.CODE_FAILED, 90, "the code failed")
    assert "boom at" in user.status()["message"]
    assert user.status()["attempt"] == 1, "user errors are not tried again"
    assert user.status()["attempts"][0]["cause"] == "UserCode"

    user.edit(steps=[{"call": "steps:slowly", "input": "row", "arguments": {"seconds": 0}}])
    user.wait_for("Committed")

    assert user.ids() == list(range(20))


def test_a_pod_that_reaches_beyond_itself_is_not_made(user: User) -> None:
    begin(user, driver={"memory": "512Mi", "template": {"spec": {"hostNetwork": True}}})

    assert "spec.driver.template: spec.hostNetwork" in named(user, reasons.ACCESS_NOT_GRANTED)
    assert user.driver_names() == []


def test_a_pod_that_the_namespace_does_not_admit(user: User) -> None:
    annotations = {"container.apparmor.security.beta.kubernetes.io/driver": "unconfined"}
    begin(user, driver={"memory": "512Mi", "template": {"metadata": {"annotations": annotations}}})

    assert "restricted" in named(user, reasons.POD_REFUSED)


@pytest.mark.parametrize(
    "change",
    [{"source": {"files": {"format": "parquet", "paths": ["s3://other/in"]}}}, {"checkpoint": {"uri": "s3://other/cw"}}],
    ids=["source", "checkpoint"],
)
def test_what_a_write_is_cannot_be_edited(user: User, change: dict[str, Any]) -> None:
    begin(user)
    # Until rows of it are sealed, the source may be another one.
    user.wait_for("Committed")

    with pytest.raises(CommandFailed, match=r"fixed|cannot|immutable"):
        user.edit(**change)


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


def test_suspend_ends_the_driver_and_resume_goes_on(user: User) -> None:
    user.make_place("iceberg")
    user.apply(user.write(user.put_rows("a.parquet", 0, 400), 0.05))
    user.wait_until_sealed(100)

    user.edit(suspend=True)
    user.until(lambda: user.status().get("phase") == "Suspended" and not user.driver_names(), 60, "suspended")
    sealed = user.sealed_rows()
    user.edit(suspend=False)
    user.wait_for("Committed")

    assert user.ids() == list(range(400))
    assert sealed >= 100
    assert user.rows_sealed_twice() < 200


def test_every_example_for_clusters_is_admitted(user: User) -> None:
    for path in sorted((ROOT / "examples" / "cluster").glob("*.yaml")):
        user.kubectl("apply", "--dry-run=server", "-n", user.namespace, "-f", str(path))


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


def test_helm_test_passes_with_the_image_and_the_rights_that_the_operator_has(user: User) -> None:
    said = user.installation.cluster.helm("test", RELEASE, "--namespace", NAMESPACE, "--timeout", "100s")

    assert "Phase:" in said
    assert "Succeeded" in said
