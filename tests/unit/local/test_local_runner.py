"""How often a run on one machine looks at its store. What it does with what it sees is decided elsewhere."""

from __future__ import annotations

import pytest

from checkpoint_operator.local.runner import Runner
from checkpoint_protocol.manifest.spec import parse_manifest
from checkpoint_protocol.places.settings import Settings
from tests.support.stores import MemoryStore, Wrapped


class Somewhere(Wrapped):
    """A store that is at a URI."""

    at = ""

    @property
    def uri(self) -> str:
        return self.at


class Drivers:
    """Of two drivers that run, one ends after so many questions."""

    def __init__(self, ends_after: int) -> None:
        self._left = ends_after

    def count_running(self) -> int:
        self._left -= 1
        return 2 if self._left >= 0 else 1


def waited_s(uri: str, look_s: float, ends_after: int = 10_000) -> float:
    """Return how long a runner waits after a look that took so long."""
    pauses: list[float] = []
    manifest = {
        "apiVersion": "checkpointed.dev/v1alpha1",
        "kind": "CheckpointedWrite",
        "metadata": {"name": "x"},
        "spec": {
            "source": {"files": {"format": "csv", "paths": ["/in"]}},
            "sink": {"none": {}},
            "checkpoint": {"uri": uri},
        },
    }
    runner = Runner(parse_manifest(manifest), Settings(), 2, lambda report: None, sleep=pauses.append)
    runner.drivers = Drivers(ends_after)  # type: ignore[assignment]
    store = Somewhere(MemoryStore())
    store.at = uri
    runner._wait_for_a_change(store, look_s)
    return sum(pauses)


@pytest.mark.parametrize(("uri", "expected_s"), [("/checkpoints", 0.1), ("s3://bucket/checkpoints", 2.0)])
def test_a_bucket_is_looked_at_less_often_than_a_folder(uri: str, expected_s: float) -> None:
    assert waited_s(uri, look_s=0.001) == pytest.approx(expected_s)


@pytest.mark.parametrize("uri", ["/checkpoints", "s3://bucket/checkpoints"])
def test_a_look_takes_a_tenth_of_the_time_at_the_most(uri: str) -> None:
    """With a hundred thousand seals it takes seconds, of the cores that the tasks run on."""
    assert waited_s(uri, look_s=3.0) == pytest.approx(30.0)


def test_the_end_of_a_driver_ends_the_waiting_at_once() -> None:
    assert waited_s("s3://bucket/checkpoints", look_s=3.0, ends_after=3) < 0.1
