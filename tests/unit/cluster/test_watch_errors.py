"""Which watches do not get through: told when it changes, and counted by namespace and kind."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from checkpoint_operator.kube.client import PLURAL
from checkpoint_operator.metrics.counters import Metrics
from checkpoint_operator.watch.watch_errors import Watched, WatchErrors

WRITES = "/apis/checkpointed.dev/v1alpha1/namespaces/team/checkpointedwrites"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().partition(";")[0] for record in caplog.records]


def test_an_error_that_lasts_is_told_once_and_when_it_changes_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    errors = WatchErrors(clock=lambda: now[0])
    refused, down = "403 Forbidden", "503 Service Unavailable"
    for problem in (None, None, refused, refused, refused, refused, down, None, None):
        errors.note(WRITES, problem)
        now[0] += 2.0

    assert told(caplog) == [
        "checkpointedwrites in namespace team cannot be watched: 403 Forbidden",
        "checkpointedwrites in namespace team cannot be watched: 503 Service Unavailable",
        "checkpointedwrites in namespace team are watched again",
    ]


def test_an_error_that_is_over_in_a_moment_is_not_told_and_stands_in_the_metrics(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    errors = WatchErrors(clock=lambda: now[0])
    for _ in range(3):
        errors.note(WRITES, "429 Too Many Requests")
        assert errors.now() == {Watched("team", PLURAL): "429 Too Many Requests"}
        now[0] += 1.0
        errors.note(WRITES, None)
        assert errors.now() == {}
        now[0] += 60.0

    assert told(caplog) == []


@pytest.mark.parametrize(
    ("path", "watched"),
    [
        (WRITES, Watched("team", "checkpointedwrites")),
        ("/api/v1/namespaces/team/pods", Watched("team", "pods")),
        ("/apis/checkpointed.dev/v1alpha1/checkpointedwrites", Watched(None, "checkpointedwrites")),
        ("/api/v1/pods", Watched(None, "pods")),
        ("/apis", Watched("", "/apis")),
        ("/api/v1", Watched("", "/api/v1")),
        ("/apis/checkpointed.dev/v1alpha1", Watched("", "/apis/checkpointed.dev/v1alpha1")),
    ],
)
def test_a_request_belongs_to_the_watch_of_its_namespace_and_kind(path: str, watched: Watched) -> None:
    errors = WatchErrors()
    errors.note(path, "403 Forbidden")

    assert errors.now() == {watched: "403 Forbidden"}
    assert errors.is_forbidden(*watched)
    assert not errors.is_forbidden("other", watched.kind)
    assert not errors.is_forbidden(watched.namespace, "secrets")


def test_a_watch_that_was_forbidden_and_is_not_tried_any_more_is_not_told_as_forbidden() -> None:
    now = [0.0]
    errors = WatchErrors(clock=lambda: now[0])
    errors.note(WRITES, "403 Forbidden")
    now[0] = 90.0
    assert errors.is_forbidden("team", PLURAL)
    errors.note(WRITES, "403 Forbidden")
    now[0] = 180.0
    assert errors.is_forbidden("team", PLURAL)

    now[0] = 300.0
    assert not errors.is_forbidden("team", PLURAL)


@pytest.mark.parametrize("problem", ["404 Not Found", "503 Service Unavailable", "ClientConnectorCertificateError"])
def test_no_other_error_is_told_as_forbidden(problem: str) -> None:
    errors = WatchErrors()
    errors.note(WRITES, problem)

    assert not errors.is_forbidden("team", PLURAL)


def test_a_kind_is_unknown_where_a_watch_of_it_is_not_found_in_whatever_namespace() -> None:
    errors = WatchErrors()
    errors.note("/api/v1/namespaces/team/pods", "404 Not Found")
    errors.note(WRITES, "403 Forbidden")
    errors.note("/apis/checkpointed.dev/v1alpha1", "404 Not Found")
    assert not errors.is_unknown(PLURAL)

    errors.note(WRITES, "404 Not Found")
    assert errors.is_unknown(PLURAL)
    errors.note(WRITES, None)
    assert not errors.is_unknown(PLURAL)


def test_a_scrape_shows_the_watches_that_are_refused() -> None:
    metrics, errors = Metrics(), WatchErrors()
    metrics.watch(lambda: 0, dict, dict, dict, errors.now, lambda: {"team": 3})
    errors.note(WRITES, "403 Forbidden")
    errors.note("/api/v1/pods", "503 Service Unavailable")

    text = generate_latest(metrics.registry).decode()

    assert 'checkpointed_writes_writes_not_served{namespace="team"} 3.0' in text
    assert 'checkpointed_writes_watches_failing{kind="checkpointedwrites",namespace="team"} 1.0' in text
    assert 'checkpointed_writes_watches_failing{kind="pods",namespace=""} 1.0' in text
