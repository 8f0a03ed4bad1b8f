"""Which watches do not get through: told when it changes, and counted by namespace and kind."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from checkpoint_operator.cluster.metrics import Metrics
from checkpoint_operator.cluster.watch_troubles import Watched, WatchTroubles

WRITES = "/apis/checkpointed.dev/v1alpha1/namespaces/team/checkpointedwrites"


def test_a_trouble_is_told_when_it_comes_when_it_changes_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    troubles = WatchTroubles()
    for trouble in (None, None, "403 Forbidden", "403 Forbidden", "503 Service Unavailable", None, None):
        troubles.note(WRITES, trouble)

    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "checkpointedwrites in namespace team cannot be watched: 403 Forbidden",
        "checkpointedwrites in namespace team cannot be watched: 503 Service Unavailable",
        "checkpointedwrites in namespace team are watched again",
    ]


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
    troubles = WatchTroubles()
    troubles.note(path, "403 Forbidden")

    assert troubles.now() == {watched: "403 Forbidden"}
    assert troubles.has(watched.namespace)
    assert not troubles.has("other")


def test_the_discovery_is_no_watch_of_all_namespaces() -> None:
    troubles = WatchTroubles()
    troubles.note("/apis/checkpointed.dev/v1alpha1", "404 Not Found")

    assert not troubles.has(None)


def test_a_scrape_shows_the_watches_that_are_refused() -> None:
    metrics, troubles = Metrics(), WatchTroubles()
    metrics.watch(lambda: 0, dict, dict, dict, troubles.now)
    troubles.note(WRITES, "403 Forbidden")
    troubles.note("/api/v1/pods", "503 Service Unavailable")

    text = generate_latest(metrics.registry).decode()

    assert 'checkpointed_writes_watches_in_trouble{kind="checkpointedwrites",namespace="team"} 1.0' in text
    assert 'checkpointed_writes_watches_in_trouble{kind="pods",namespace=""} 1.0' in text
