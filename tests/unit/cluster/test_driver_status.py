"""What pods say, and what we make of it."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint_control.decision.observation import DriverState, Failure
from checkpoint_operator.pods.driver_status import observe_pod
from checkpoint_protocol import reasons
from checkpoint_protocol.progress_reports import LastWords


def pod(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "driver", "annotations": {"checkpointed.dev/generation": "3"}, **metadata}, "status": status}


def container(state: dict[str, Any], name: str = "driver") -> dict[str, Any]:
    return {"containerStatuses": [{"name": name, "image": "spark:1", "state": state}]}


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    return container({"terminated": {"exitCode": code, "reason": reason}})


def waits(reason: str, message: str = "") -> dict[str, Any]:
    return {"phase": "Pending", **container({"waiting": {"reason": reason, "message": message}})}


DISRUPTED = {
    "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drain"}]
}
NO_ROOM = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]}

CASES: dict[str, tuple[dict[str, Any], DriverState, str | None]] = {
    "it is scheduled and nothing runs yet": ({"phase": "Pending"}, DriverState.STARTING, None),
    "its container is made": (waits("ContainerCreating"), DriverState.STARTING, None),
    "its container runs": ({"phase": "Running", **container({"running": {}})}, DriverState.RUNNING, None),
    "it ended well": ({"phase": "Succeeded", **ended(0, "Completed")}, DriverState.GONE, reasons.DRIVER_FAILED),
    "it ended with an error": ({"phase": "Failed", **ended(1)}, DriverState.GONE, reasons.DRIVER_FAILED),
    "it was killed": ({"phase": "Failed", **ended(137)}, DriverState.GONE, reasons.DRIVER_FAILED),
    "it took too much memory": ({"phase": "Failed", **ended(137, "OOMKilled")}, DriverState.GONE, reasons.DRIVER_OUT_OF_MEMORY),
    "its command is not there": ({"phase": "Failed", **ended(128, "StartError")}, DriverState.GONE, reasons.IMAGE_UNAVAILABLE),
    "it ended before the phase says so": ({"phase": "Running", **ended(1)}, DriverState.GONE, reasons.DRIVER_FAILED),
    "another container ended": (
        {"phase": "Running", **container({"terminated": {"exitCode": 0}}, "sidecar")},
        DriverState.RUNNING,
        None,
    ),
    "it is failed and no container says why": ({"phase": "Failed"}, DriverState.GONE, reasons.DRIVER_FAILED),
    "it was evicted": ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, DriverState.GONE, reasons.DRIVER_EVICTED),
    "its node is lost": ({"phase": "Running", "reason": "NodeLost"}, DriverState.GONE, reasons.NODE_LOST),
    "it is about to be taken away": ({"phase": "Running", **DISRUPTED}, DriverState.GONE, reasons.DRIVER_EVICTED),
    "its image cannot be pulled": (waits("ErrImagePull", "not found"), DriverState.STARTING, reasons.IMAGE_UNAVAILABLE),
    "its image is waited for": (waits("ImagePullBackOff", "back-off"), DriverState.STARTING, reasons.IMAGE_UNAVAILABLE),
    "its image's name is wrong": (waits("InvalidImageName"), DriverState.STARTING, reasons.IMAGE_UNAVAILABLE),
    "a Secret is missing": (waits("CreateContainerConfigError", "secret"), DriverState.STARTING, reasons.POD_INCOMPLETE),
    "no node has room": ({"phase": "Pending", **NO_ROOM}, DriverState.STARTING, reasons.POD_UNSCHEDULABLE),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_made_of_a_pod(case: str) -> None:
    status, state, reason = CASES[case]

    observed = observe_pod(pod(status), generation=3)

    assert observed.state is state
    assert (observed.problem.reason if observed.problem else None) == reason
    assert not observed.is_outdated


def test_the_last_words_of_a_driver_are_told() -> None:
    state = {"terminated": {"exitCode": 1, "reason": "Error", "message": "ManifestInvalid: storage settings"}}

    observed = observe_pod(pod({"phase": "Failed", **container(state)}), generation=3)

    assert observed.problem is not None
    assert "ManifestInvalid: storage settings" in observed.problem.message


OF_DRIVERS = sorted(reason for name, reason in vars(reasons).items() if name.isupper() and reasons.is_of_drivers(str(reason)))


@pytest.mark.parametrize("reason", OF_DRIVERS)
def test_a_driver_that_can_reach_no_store_ends_with_the_reason_that_it_had(reason: str) -> None:
    """Refused credentials are then looked at again after a while, and are no failures that add up."""
    said = LastWords(family="NeedsChange", reason=reason, message="the store said no\nin two lines").model_dump_json()
    state = {"terminated": {"exitCode": 1, "reason": "Error", "message": said}}

    assert observe_pod(pod({"phase": "Failed", **container(state)}), generation=3).problem == Failure(
        "NeedsChange", reason, "the store said no in two lines"
    )


@pytest.mark.parametrize(
    "said",
    [
        LastWords(family="NeedsChange", reason="BackoffLimitExceeded", message="x").model_dump_json(),
        LastWords(family="NeedsChange", reason="CredentialsRefused", message="x").model_dump_json()[:-1],
        '{"kind": "work", "family": "NeedsChange", "reason": "CredentialsRefused", "message": "x"}',
        "[]",
        "{",
    ],
    ids=["a reason of the operator", "cut off", "another object", "no object", "no JSON"],
)
def test_other_last_words_are_text(said: str) -> None:
    state = {"terminated": {"exitCode": 1, "reason": "Error", "message": said}}
    problem = observe_pod(pod({"phase": "Failed", **container(state)}), generation=3).problem

    assert problem is not None
    assert problem.reason == reasons.DRIVER_FAILED
    assert said in problem.message


def test_no_pod_is_a_driver_that_nobody_has_started() -> None:
    assert observe_pod(None, generation=3).state is DriverState.NOT_STARTED


def test_a_pod_that_is_being_deleted_is_gone() -> None:
    observed = observe_pod(pod({"phase": "Running"}, deletionTimestamp="2026-01-01T00:00:00Z"), generation=3)

    assert observed.state is DriverState.GONE
    assert observed.problem is not None
    assert observed.problem.reason == reasons.DRIVER_DELETED


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (ended(143), reasons.DRIVER_DELETED),
        (ended(137), reasons.DRIVER_DELETED),
        (ended(137, "OOMKilled"), reasons.DRIVER_OUT_OF_MEMORY),
        (ended(1), reasons.DRIVER_FAILED),
    ],
    ids=["by the signal to end", "by the signal that follows", "for its memory", "by itself"],
)
def test_a_driver_that_ended_while_its_pod_is_being_deleted_was_deleted_if_a_signal_ended_it(
    how: dict[str, Any], reason: str
) -> None:
    observed = observe_pod(pod({"phase": "Failed", **how}, deletionTimestamp="2026-01-01T00:00:00Z"), generation=3)

    assert observed.problem is not None
    assert observed.problem.reason == reason


def test_a_pod_of_an_earlier_manifest_is_outdated() -> None:
    assert observe_pod(pod({"phase": "Pending"}), generation=4).is_outdated
    assert observe_pod({"metadata": {"name": "driver"}, "status": {}}, generation=4).is_outdated


def test_a_long_message_of_the_cluster_is_cut_and_stays_one_line() -> None:
    observed = observe_pod(pod(waits("ErrImagePull", "x\n" * 5000)), generation=3)

    assert observed.problem is not None
    assert len(observed.problem.message) <= 1000
    assert "\n" not in observed.problem.message


def test_last_words_of_a_driver_are_printable() -> None:
    ended = {"exitCode": 1, "message": "x \x1b[31m y"}
    pod = {
        "metadata": {},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "driver", "state": {"terminated": ended}}]},
    }

    problem = observe_pod(pod, 1).problem

    assert problem is not None
    assert problem.message.endswith(r"x \x1b[31m y")
