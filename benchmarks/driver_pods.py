"""1,000 CheckpointedWrites on a real API server without nodes: how fast does the operator ask for their driver pods?

etcd, kube-apiserver and kube-controller-manager run on loopback; the operator is its own process with the rights of the chart's
service account; checkpoint store and SQLite catalog lie in a temporary folder. In the same run, before the operator starts, a
bare client asks the API server in a plain loop for the same: each write, its finalizer, its status and its pod. One pair: a
thousand writes are a sample of their own.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow as pa
import yaml
from kubernetes import client, config
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks import environments
from benchmarks.bench import Bench
from benchmarks.pairs import Ratio
from benchmarks.results import Result, with_ratio
from checkpoint_operator.kube.client import PLURAL
from checkpoint_protocol.manifest.spec import API_VERSION, KIND
from devtools.kubernetes import start_api_server_only
from devtools.kubernetes.api_server_only import ApiServer
from devtools.ports import free_port

_ROOT: Final = Path(__file__).resolve().parent.parent
_NAMESPACE: Final = "writes"
_KIND_IN: Final = tuple(API_VERSION.split("/"))
_PATIENCE_S: Final = 600.0


def measure(bench: Bench) -> Iterator[Result]:
    folder, count = bench.folder, 30 if bench.small else 1000
    with start_api_server_only(folder / "api") as server:
        server.kubectl("apply", "--server-side", "-f", str(_ROOT / "crds"))
        server.kubectl("create", "namespace", "bare")
        load_kube_config: Any = config.load_kube_config
        load_kube_config(str(server.kubeconfig))
        bare_s = _ask_for_the_same(folder, count)
        bench.say(f"a bare client took {bare_s:.1f} s for {count} writes")
        with _operator(folder, server) as (process, metrics_port):
            made = _apply_writes(folder, count)
            seen, most_bytes = _await_pods(count, process)
            requests = _writes_to_the_api(metrics_port)
    ages = sorted(seen[name] - made[name] for name in made)
    whole_s = max(seen.values()) - min(made.values())
    told = (
        f"{count / whole_s * 60:,.0f} pods a minute; {sum(requests.values()) / count:.1f} writes to the API for each; "
        f"{most_bytes / 1e6:,.0f} MB resident at the most"
    )
    bench.say(f"the operator took {whole_s:.1f} s: {told}")
    yield with_ratio(
        "driver-pods",
        f"driver pods a minute, {count:,} writes at once on a real API server: the operator / a bare client asking for the same",
        Ratio(bare_s / whole_s, bare_s / whole_s, bare_s / whole_s),
        target=0.5,
        pairs=1,
        at_least=True,
        raw={
            "seconds": {"operator": round(whole_s, 2), "bare": round(bare_s, 2)},
            "seconds_from_write_to_pod": {
                "p50": round(statistics.median(ages), 2),
                "p99": round(ages[int(len(ages) * 0.99) - 1], 2),
                "most": round(ages[-1], 2),
            },
            "operator_most_resident_mb": round(most_bytes / 1e6),
            "api_writes": requests,
        },
        seen=[told],
    )


# --- the cluster's side -----------------------------------------------------------------------------------------------------


def _ask_for_the_same(folder: Path, count: int) -> float:
    """Make writes and pods in a namespace that nobody watches; return the seconds that it took."""
    writes: Any = client.CustomObjectsApi()
    pods: Any = client.CoreV1Api()
    started = time.monotonic()
    for number in range(count):
        name = f"write-{number}"
        writes.create_namespaced_custom_object(*_KIND_IN, "bare", PLURAL, _write(folder, name))
        finalizers = {"metadata": {"finalizers": ["checkpointed.dev/bare"]}}
        writes.patch_namespaced_custom_object(*_KIND_IN, "bare", PLURAL, name, finalizers)
        status = {"status": {"phase": "Pending", "attempts": [{"number": 1, "pod": name}]}}
        writes.patch_namespaced_custom_object_status(*_KIND_IN, "bare", PLURAL, name, status)
        spec = {"containers": [{"name": "driver", "image": "none"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}, "spec": spec}
        pods.create_namespaced_pod("bare", pod, _preload_content=False)
    return time.monotonic() - started


def _apply_writes(folder: Path, count: int) -> dict[str, float]:
    """Create the writes one after the other; return when each was answered."""
    api: Any = client.CustomObjectsApi()
    made: dict[str, float] = {}
    for number in range(count):
        name = f"write-{number}"
        api.create_namespaced_custom_object(*_KIND_IN, _NAMESPACE, PLURAL, _write(folder, name))
        made[name] = time.monotonic()
    return made


def _write(folder: Path, name: str) -> dict[str, Any]:
    spec = {
        "source": {"files": {"format": "parquet", "paths": [str(folder / "input")]}},
        "sink": {"iceberg": {"catalog": "local", "table": "db.rows"}},
        "checkpoint": {"uri": str(folder / "checkpoints")},
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def _await_pods(count: int, process: psutil.Process) -> tuple[dict[str, float], int]:
    """Watch until each write has its pod; return when each was seen, and the most memory that the operator had."""
    seen: dict[str, float] = {}
    most_bytes = 0
    until = time.monotonic() + _PATIENCE_S
    api: Any = client.CoreV1Api()
    while len(seen) < count:
        if process.status() == psutil.STATUS_ZOMBIE or time.monotonic() > until:
            raise SystemExit(
                f"{count - len(seen)} of {count} writes have no pod; the operator ended, or {_PATIENCE_S:.0f} s have passed"
            )
        answer = api.list_namespaced_pod(_NAMESPACE, _preload_content=False, resource_version="0")
        now = time.monotonic()
        for pod in json.loads(answer.data)["items"]:
            seen.setdefault(pod["metadata"]["labels"]["checkpointed.dev/write"], now)
        most_bytes = max(most_bytes, process.memory_info().rss)
        time.sleep(0.25)
    for _ in range(40):  # and the statuses that follow
        most_bytes = max(most_bytes, process.memory_info().rss)
        time.sleep(0.25)
    return seen, most_bytes


# --- the operator -----------------------------------------------------------------------------------------------------------


@contextmanager
def _operator(folder: Path, server: ApiServer) -> Iterator[tuple[psutil.Process, int]]:
    """Run the operator's process with the rights that the chart gives it."""
    server.helm(
        "install",
        "operator",
        str(_ROOT / "charts" / "checkpointed-write-operator"),
        "--namespace=operator",
        "--create-namespace",
        f"--set=watch.namespaces={{{_NAMESPACE}}}",
        "--set=image.repository=none",
        "--set=workloads.image.repository=none",
        "--skip-crds",
    )
    accounts = server.get("serviceaccounts", "-n", "operator")["items"]
    account = next(item["metadata"]["name"] for item in accounts if item["metadata"]["name"] != "default")
    kubeconfig = server.service_account_kubeconfig("operator", account)
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{warehouse}"}
    made = SqlCatalog("local", uri=catalog["uri"], warehouse=catalog["warehouse"])
    made.create_namespace("db")
    made.create_table("db.rows", pa.schema([("id", pa.int64())]))
    ports = {"healthPort": free_port(), "metricsPort": free_port()}
    operator_config = {
        "namespaces": [_NAMESPACE],
        "ownNamespace": "operator",
        "recordKeys": {"secretName": "operator-checkpointed-write-operator-record-keys"},
        "workloads": {"image": "none"},
        "allowLocalPaths": True,
        # All of them at once: what is measured is how fast they are asked for.
        "driversPerNamespace": 0,
        **ports,
    }
    (folder / "operator.yaml").write_text(yaml.safe_dump(operator_config))
    (folder / "settings.yaml").write_text(yaml.safe_dump({"catalogs": {"local": catalog}}))
    command = [environments.python_of_operator(), "-m", "checkpoint_operator.main"]
    command += ["--config", str(folder / "operator.yaml"), "--settings", str(folder / "settings.yaml")]
    with (folder / "operator.log").open("wb") as log:
        # With the chart's setting for its memory.
        code = os.pathsep.join(str(_ROOT / name) for name in ("core", "operator"))
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "MALLOC_ARENA_MAX": "2", "PYTHONPATH": code}
        running = subprocess.Popen(command, stderr=log, env=environment)
    try:
        _await_ready(running, ports["healthPort"], folder / "operator.log")
        yield psutil.Process(running.pid), ports["metricsPort"]
    finally:
        running.send_signal(signal.SIGTERM)
        killer = threading.Timer(40, running.kill)
        killer.start()
        running.wait()
        killer.cancel()


def _await_ready(running: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and running.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"the operator did not become ready:\n{log.read_text()[-4000:]}")


def _writes_to_the_api(metrics_port: int) -> dict[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = {}
    for line in lines:
        if line.startswith("checkpointed_writes_api_requests_total{") and 'verb="GET"' not in line:
            labels, number = line.rsplit(" ", 1)
            found[labels.partition("{")[2].rstrip("}").replace('"', "")] = int(float(number))
    return found
