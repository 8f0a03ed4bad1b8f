"""What the operator counts, in Prometheus' form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_PREFIX: Final = "checkpointed_writes"


class Metrics:
    """All metrics of one process. `watch` is asked at each scrape for what is the case then."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconcile_seconds = Histogram(
            f"{_PREFIX}_reconcile_seconds",
            "Duration of one reconciliation of a write, with all that was done.",
            ["outcome"],
            buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=self.registry,
        )
        self.attempts = Counter(f"{_PREFIX}_attempts", "Attempts that ended, by cause.", ["cause"], registry=self.registry)
        self.commits = Counter(f"{_PREFIX}_commits", "Commits, by outcome.", ["format", "outcome"], registry=self.registry)
        self.committed_rows = Counter(
            f"{_PREFIX}_committed_rows", "Rows that were committed.", ["format"], registry=self.registry
        )
        self.staged_rows = Counter(f"{_PREFIX}_staged_rows", "Rows that were seen sealed.", registry=self.registry)
        self.quarantined_rows = Counter(
            f"{_PREFIX}_quarantined_rows",
            "Rows that were seen quarantined: they failed and have no result.",
            registry=self.registry,
        )
        self.input_files_done = Counter(
            f"{_PREFIX}_input_files_done",
            "Whole input files that plans left out, because earlier attempts had sealed them.",
            registry=self.registry,
        )
        self.errors = Counter(
            f"{_PREFIX}_errors", "Rounds that ended with an error, by reason.", ["reason"], registry=self.registry
        )

    def watch(
        self,
        queue_depth: Callable[[], int],
        ages: Callable[[], Mapping[str, tuple[int, float]]],
        requests: Callable[[], Mapping[tuple[str, str], int]],
        store_requests: Callable[[], Mapping[str, int]],
        watch_errors: Callable[[], Iterable[tuple[str | None, str]]],
        left_out: Callable[[], Mapping[str, int]],
    ) -> None:
        """Register what is looked up at scrape time. `ages`: for each phase, how many writes and the oldest's age in s.

        `watch_errors`: by namespace (None: all) and kind, the watches that do not get through. `left_out`: by namespace, how many
        writes are not served for want of memory.
        """
        self.registry.register(_AtScrape(queue_depth, ages, requests, store_requests, watch_errors, left_out))


class _AtScrape(Collector):
    def __init__(
        self,
        queue_depth: Callable[[], int],
        ages: Callable[[], Mapping[str, tuple[int, float]]],
        requests: Callable[[], Mapping[tuple[str, str], int]],
        store_requests: Callable[[], Mapping[str, int]],
        watch_errors: Callable[[], Iterable[tuple[str | None, str]]],
        left_out: Callable[[], Mapping[str, int]],
    ) -> None:
        self._watch_errors = watch_errors
        self._left_out = left_out
        self._queue_depth = queue_depth
        self._ages = ages
        self._requests = requests
        self._store_requests = store_requests

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(f"{_PREFIX}_queue_depth", "Writes that wait for a worker.", value=self._queue_depth())
        count = GaugeMetricFamily(f"{_PREFIX}_writes", "Writes, by phase.", labels=["phase"])
        oldest = GaugeMetricFamily(
            f"{_PREFIX}_oldest_in_phase_seconds", "How long the oldest write of a phase is in it.", labels=["phase"]
        )
        for phase, (number, age_s) in self._ages().items():
            count.add_metric([phase], number)
            oldest.add_metric([phase], age_s)
        yield count
        yield oldest
        watches = GaugeMetricFamily(
            f"{_PREFIX}_watches_failing",
            "1 for each watch that the API server does not grant; an empty namespace stands for all.",
            labels=["namespace", "kind"],
        )
        for namespace, kind in self._watch_errors():
            watches.add_metric([namespace or "", kind], 1)
        yield watches
        left_out = GaugeMetricFamily(
            f"{_PREFIX}_writes_not_served",
            "Writes that are not served, because older ones take all the memory that their namespace may have.",
            labels=["namespace"],
        )
        for namespace, number in self._left_out().items():
            left_out.add_metric([namespace], number)
        yield left_out
        yield _counted("api_requests", "Requests to the API server.", ["verb", "kind"], self._requests())
        yield _counted("store_requests", "Requests to checkpoint stores.", ["request"], self._store_requests())


def _counted(name: str, text: str, labels: list[str], counts: Mapping[Any, int]) -> Metric:
    metric = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
    for key, number in counts.items():
        metric.add_metric([key] if isinstance(key, str) else list(key), number)
    return metric
