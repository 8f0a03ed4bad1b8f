"""What a user does: apply manifests with kubectl, wait, look, and make a mess."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import API_VERSION, KIND
from checkpoint_protocol.store.object_store import open_raw_store, open_store
from devtools.kubernetes import CommandFailed
from tests.cluster.barriers import Barrier
from tests.cluster.installation import WORKLOADS, Installation
from tests.cluster.lake import SCHEMA
from tests.support.places import Place
from tests.support.records import seals_shown
from tests.support.waiting import Late, patience, until

PATIENCE_S = 60.0

#: Steps that take their time, or wait at a barrier from some row on, so that there is a middle to be killed in.
SLOW = """
import asyncio, time, urllib.request

from checkpointed_writes import row_key

is_open = False

def slowly(row, seconds, barrier=None, first=0):
    global is_open
    time.sleep(seconds)
    if barrier and row["id"] >= first and not is_open:
        urllib.request.urlopen(barrier, timeout=9000).close()
        is_open = True
    return {"id": row["id"], "text": f"zeile {row['id']}"}

async def waits(row, seconds):
    assert len(row_key()) == 32
    await asyncio.sleep(seconds)
    return slowly(row, 0)

def broken(row):
    raise ValueError("boom at " + str(row["id"]))
"""


@dataclass
class User:
    """Works with one write at a time in the workload namespace."""

    installation: Installation
    folder: Path
    name: str = field(default_factory=lambda: f"w{uuid.uuid4().hex[:8]}")
    namespace: str = WORKLOADS
    place: Place | None = None
    manifest: dict[str, Any] = field(default_factory=dict)
    barrier: Barrier | None = None

    @property
    def kubectl(self) -> Callable[..., str]:
        return self.installation.cluster.kubectl

    # --- prepare ----------------------------------------------------------------------------------------------------------

    def make_place(self, kind: str, with_table: bool = True) -> Place:
        self.place = self.installation.lake.make_place(self.folder, kind)
        if with_table:
            self.place.create(SCHEMA)
        return self.place

    def put_rows(self, name: str, first: int, count: int) -> str:
        """Put a Parquet file of numbered rows into the input; return the input's URI."""
        assert self.place is not None
        path = self.folder / name
        numbers = range(first, first + count)
        table = pa.table({"id": list(numbers), "text": [None] * count}, schema=SCHEMA)
        pq.write_table(table, path, row_group_size=max(1, count // 4))
        store = open_raw_store(f"{self.place.base_uri}/input", self.place.settings)
        obstore.put(store, name, path.read_bytes())
        return f"{self.place.base_uri}/input"

    def put_object(self, name: str, data: bytes) -> str:
        """Put an object beside the input; return its URI."""
        assert self.place is not None
        obstore.put(open_raw_store(f"{self.place.base_uri}/code", self.place.settings), name, data)
        return f"{self.place.base_uri}/code/{name}"

    def put_code(self, text: str = SLOW, name: str | None = None) -> str:
        """Make the ConfigMap with the steps' code; return its name."""
        name = name or f"{self.name}-code"
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"steps.py": text}}
        self.kubectl("apply", "-n", self.namespace, "-f", "-", manifest=json.dumps(body))
        return name

    def write_with_barrier(self, source: str, /, first: int, *, executors: int = 0, **spec: Any) -> dict[str, Any]:
        """Return a manifest whose step waits from row `first` on until `barrier` is open; those before are sealed then."""
        manifest = self.write(source, executors=executors, **spec)
        self.barrier = self.installation.lake.barriers.make()
        manifest["spec"]["steps"][0]["arguments"] |= {"barrier": self.barrier.uri, "first": first}
        # A seal each so many rows, however fast they are.
        manifest["spec"]["checkpoint"]["maximumRows"] = 25
        return manifest

    def open_barrier(self) -> None:
        if self.barrier is not None:
            self.barrier.open()

    def write(self, source: str, /, seconds: float = 0.0, *, executors: int = 0, **spec: Any) -> dict[str, Any]:
        """Return a manifest whose step takes so many seconds per row, in two task slots.

        `executors`: 0: the driver's own pod does the tasks, so that one Java starts for an attempt and not two.
        """
        assert self.place is not None
        steps = [{"call": "steps:slowly", "input": "row", "arguments": {"seconds": seconds}}]
        sections = {
            "source": {"files": {"format": "parquet", "paths": [source]}},
            "code": spec.get("code") or {"configMap": {"name": self.put_code()}},
            "steps": steps,
            "sink": self.place.sink(),
            "checkpoint": {"uri": self.place.checkpoint_uri, "interval": "1s", "minimumBytes": "1"},
            "driver": {"memory": "512Mi" if executors else "1Gi", "cores": 1 if executors else 2, "template": _small("driver")},
            "executor": {"instances": executors, "memory": "512Mi", "cores": 2, "template": _small("executor")},
            "sparkConf": {
                # One real core is asked for by two task slots: this machine is small.
                "spark.kubernetes.executor.request.cores": "100m",
                # For seconds, time for the best machine code is not earned back.
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            },
            **spec,
        }
        return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": self.name}, "spec": sections}

    # --- apply and wait ---------------------------------------------------------------------------------------------------

    def apply(self, manifest: dict[str, Any]) -> None:
        self.manifest = manifest
        self.kubectl("apply", "-n", self.namespace, "-f", "-", manifest=json.dumps(manifest))

    def edit(self, **spec: Any) -> None:
        self.apply({**self.manifest, "spec": {**self.manifest["spec"], **spec}})

    def get(self) -> dict[str, Any]:
        body: dict[str, Any] = self.installation.cluster.get("cw", self.name, "-n", self.namespace)
        return body

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.get().get("status") or {}
        return status

    def condition(self, kind: str) -> dict[str, Any]:
        return next((found for found in self.status().get("conditions", ()) if found["type"] == kind), {})

    def wait_for(self, condition: str, seconds: float = PATIENCE_S) -> None:
        """As a user does: kubectl wait."""
        try:
            waiting = (
                "wait",
                f"cw/{self.name}",
                "-n",
                self.namespace,
                f"--for=condition={condition}",
                f"--timeout={patience(seconds):.0f}s",
            )
            self.kubectl(*waiting, seconds=patience(seconds) + 10)
        except CommandFailed as error:
            raise Late(f"{error}\n{self.report()}") from error

    def until(self, holds: Callable[[], bool], seconds: float = PATIENCE_S, what: str = "it") -> None:
        """Wait until something holds."""
        until(holds, what, seconds, every=0.3, report=self.report)

    def wait_until_sealed(self, rows: int) -> None:
        """Wait until so many rows are sealed, which the store tells."""
        self.until(lambda: self.sealed_rows() >= rows, what=f"{rows} rows sealed")

    def wait_until_sealed_by(self, attempt: int, rows: int) -> None:
        self.until(lambda: self.rows_sealed_by(attempt) >= rows, what=f"{rows} rows sealed by attempt {attempt}")

    # --- look -------------------------------------------------------------------------------------------------------------

    @property
    def uid(self) -> str:
        uid: str = self.get()["metadata"]["uid"]
        return uid

    def ledger(self, epoch: int = 1) -> Ledger:
        assert self.place is not None
        return Ledger(open_store(self.place.checkpoint_uri, self.place.settings), EpochKey(self.uid, epoch))

    def sealed_rows(self) -> int:
        """Rows in all seals of all attempts that exist now."""
        return sum(self.rows_sealed_by(attempt) for attempt in self.ledger().attempts.list_attempts())

    def rows_sealed_by(self, attempt: int) -> int:
        return sum(seal.rows_read for seal in seals_shown(self.ledger(), attempt))

    def rows_sealed_twice(self) -> int:
        """Rows that were computed and sealed by more than one attempt."""
        ledger = self.ledger()
        (last,) = ledger.attempts.list_attempts()[-1:]
        launch = ledger.attempts.read_launch(last)
        assert launch is not None
        counted = sum(seal.rows_read for seal in ledger.chains.counted_seals((*launch.counted, last)))
        return self.sealed_rows() - counted

    def rows_taken_over(self, attempt: int) -> int:
        plan = self.ledger().plans.read_plan(attempt)
        assert plan is not None
        return plan.done_rows

    def ids(self) -> list[int]:
        assert self.place is not None
        return sorted(row["id"] for row in self.place.rows())

    def pods(self, role: str) -> list[dict[str, Any]]:
        selector = f"checkpointed.dev/write={self.name},checkpointed.dev/role={role}"
        pods: list[dict[str, Any]] = self.installation.cluster.get("pods", "-n", self.namespace, "-l", selector)["items"]
        return pods

    def driver_names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods("driver")]

    def running_driver(self) -> str:
        """Wait for a driver whose container runs; return its pod's name."""
        found: list[str] = []

        def is_there() -> bool:
            found[:] = [pod["metadata"]["name"] for pod in self.pods("driver") if pod["status"].get("phase") == "Running"]
            return bool(found)

        self.until(is_there, what="a driver runs")
        return found[-1]

    def events(self) -> list[dict[str, Any]]:
        items = self.installation.cluster.get("events.events.k8s.io", "-n", self.namespace)["items"]
        return [event for event in items if event.get("regarding", {}).get("name") == self.name]

    def warnings(self) -> list[dict[str, Any]]:
        return [event for event in self.events() if event["type"] != "Normal"]

    def report(self) -> str:
        """What a person would look at, for a test that failed."""
        parts = []
        for command in (
            ["get", "cw", self.name, "-n", self.namespace, "-o", "yaml"],
            ["get", "pods", "-n", self.namespace, "-o", "wide"],
            ["logs", "-n", self.namespace, "-l", f"checkpointed.dev/write={self.name}", "--tail=60", "--prefix"],
        ):
            try:
                parts.append(self.kubectl(*command))
            except CommandFailed as error:
                parts.append(str(error))
        return "\n---\n".join([*parts, self.installation.logs()])

    def exec(self, pod: str, *command: str) -> str:
        return self.kubectl("exec", "-n", self.namespace, pod, "--", *command)

    def leave(self) -> None:
        """Delete what was made, without waiting for what a test has broken."""
        self.open_barrier()
        self.kubectl("delete", "cw", self.name, "-n", self.namespace, "--ignore-not-found", "--wait=false")
        self.kubectl("delete", "configmap", f"{self.name}-code", "-n", self.namespace, "--ignore-not-found")


def is_commit(method: str, path: str, body: bytes) -> bool:
    """Whether a request to the catalog commits rows of a write; a tombstone has none."""
    return method == "POST" and b'"add-snapshot"' in body and b'.deleted"' not in body


def _small(container: str) -> dict[str, Any]:
    """Let pods ask for little: the test machine has two cores."""
    resources = {"requests": {"cpu": "100m"}}
    return {"spec": {"terminationGracePeriodSeconds": 5, "containers": [{"name": container, "resources": resources}]}}
