"""What the operator counts, in Prometheus' form: rounds, requests to stores, writes by phase."""

from __future__ import annotations

import collections
import datetime
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from checkpoint_operator.status.object_status import status_of
from checkpoint_operator.watch.cache import Cache
from checkpoint_protocol.store.object_store import ObjectStore, StoredObject

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
        self.driver_start_seconds = Histogram(
            f"{_PREFIX}_driver_start_seconds",
            "From the creation of a driver's pod until it was scheduled, its container was started, and its first tasks ran.",
            ["until"],
            buckets=(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800),
            registry=self.registry,
        )
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


@dataclass(slots=True)
class StoreCounts:
    """Requests of all stores of this process, by kind."""

    _counts: collections.Counter[str] = field(default_factory=collections.Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, request: str) -> None:
        with self._lock:
            self._counts[request] += 1

    def by_request(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


@dataclass(frozen=True, slots=True)
class CountingStore:
    """Implements ObjectStore over another."""

    inner: ObjectStore
    counts: StoreCounts

    @property
    def uri(self) -> str:
        return self.inner.uri

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.counts.add("put")
        return self.inner.put_if_absent(path, data)

    def get(self, path: str, most_bytes: int) -> bytes | None:
        self.counts.add("get")
        return self.inner.get(path, most_bytes)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        self.counts.add("list")
        return self.inner.list(folder, borders)

    def delete(self, paths: Iterable[str]) -> None:
        self.counts.add("delete")
        self.inner.delete(paths)


def ages_by_phase(cache: Cache, now_s: float) -> dict[str, tuple[int, float]]:
    """Return for each phase the number of writes and the age in seconds of the one that is longest in it."""
    found: dict[str, tuple[int, float]] = {}
    for name in cache.write_names():
        body = cache.write(name)
        if body is None:
            continue
        status = status_of(body)
        since = max((condition.last_transition_time for condition in status.conditions or ()), default=None)
        since = since or body["metadata"].get("creationTimestamp")
        age_s = max(0.0, now_s - datetime.datetime.fromisoformat(since).timestamp()) if since else 0.0
        phase = status.phase or "Pending"
        number, oldest = found.get(phase, (0, 0.0))
        found[phase] = (number + 1, max(oldest, age_s))
    return found
