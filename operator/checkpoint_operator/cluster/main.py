"""The operator's process: reads its configuration, watches, works, ends cleanly.

    checkpointed-write-operator --config FILE --settings FILE [--check]

Exit codes: 0 ended as told, 1 cannot work here (why is said in one line), 2 a file is wrong.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml
from prometheus_client import start_http_server

from checkpoint_operator.catalogs import CatalogBook
from checkpoint_operator.cluster.cache import Cache, WriteName
from checkpoint_operator.cluster.check import check_settings
from checkpoint_operator.cluster.code_source import CodeSource
from checkpoint_operator.cluster.config import DEFAULT_PATH, OperatorConfig, load_config
from checkpoint_operator.cluster.controller import Controller
from checkpoint_operator.cluster.counting_store import CountingStore, StoreCounts
from checkpoint_operator.cluster.health import Health, serve
from checkpoint_operator.cluster.kube import PLURAL, KubernetesApi, connect
from checkpoint_operator.cluster.metrics import Metrics
from checkpoint_operator.cluster.overview import ages_by_phase
from checkpoint_operator.cluster.resync import Resync
from checkpoint_operator.cluster.watch_troubles import WatchTroubles
from checkpoint_operator.cluster.watching import watch
from checkpoint_operator.cluster.work_queue import WorkQueue
from checkpoint_operator.cluster.workers import Workers
from checkpoint_operator.sink_formats.registry import open_sink
from checkpoint_operator.source_tables import open_source
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest import ManifestInvalid, validate_model
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.settings_place import CHART_VALUES
from checkpoint_protocol.store import ObjectStore, open_store, probe

EXIT_DONE, EXIT_FAILED, EXIT_WRONG = 0, 1, 2
_SETTINGS_PATH: Final = Path("/etc/checkpointed-writes/settings/settings.yaml")
#: Less than a pod's grace period, so that what is in hand ends by itself.
_PATIENCE_S: Final = 25.0


def main() -> int:
    arguments = _parse(sys.argv[1:])
    try:
        config = load_config(arguments.config)
        settings = load_settings(arguments.settings)
    except ManifestInvalid as error:
        for problem in error.problems:
            sys.stderr.write(f"error: {problem}\n")
        return EXIT_WRONG
    _log_as_json(config.log_level)
    try:
        api = connect()
        api.check()
    except CheckpointError as error:
        sys.stderr.write(f"error: {error.reason}: {error.message}\n")
        return EXIT_FAILED
    if arguments.check:
        return _check(config, settings)
    try:
        run(config, settings, api)
    except CheckpointError as error:
        logging.getLogger(__name__).error("%s", error.message, extra={"reason": error.reason})
        return EXIT_FAILED
    return EXIT_DONE


def _check(config: OperatorConfig, settings: Settings) -> int:
    """Say of each thing that is needed whether it answers. The API server has."""
    watched = "all namespaces" if config.all_namespaces else ", ".join(config.namespaces)
    sys.stdout.write(f"ready: the API server answers, CheckpointedWrites are installed; would watch {watched}\n")
    code = EXIT_DONE
    for what, trouble in check_settings(settings):
        if trouble is None:
            sys.stdout.write(f"ready: {what} answers\n")
        else:
            sys.stdout.write(f"error: {what}: {trouble.reason}: {trouble.message}\n")
            code = EXIT_FAILED
    return code


def run(config: OperatorConfig, settings: Settings, api: KubernetesApi) -> None:
    """Work until the process is told to end (SIGTERM, SIGINT). Raises CheckpointError if only another process can go on."""
    cache, metrics, health = Cache(), Metrics(), Health()
    queue: WorkQueue[WriteName] = WorkQueue()
    counts, troubles = StoreCounts(), WatchTroubles()
    catalogs = CatalogBook(settings)
    controller = Controller(
        api=api,
        cache=cache,
        config=config,
        settings=settings,
        metrics=metrics,
        open_store=_store_opener(settings, counts),
        open_sink=lambda spec: open_sink(spec, settings, catalogs),
        open_source=lambda source: open_source(source, settings, catalogs),
        code_source=CodeSource(api, settings, config.workloads),
        instance=socket.gethostname(),
        wake=queue.add,
    )
    metrics.watch(
        queue_depth=queue.count_due,
        ages=lambda: ages_by_phase(cache, time.time()),
        requests=lambda: dict(api.requests),
        store_requests=counts.by_request,
        watch_troubles=troubles.now,
    )
    watched: tuple[str | None, ...] = (None,) if config.all_namespaces else config.namespaces
    resync = Resync(api, cache, queue.add, watched, lambda namespace: troubles.is_forbidden(namespace, PLURAL))
    workers = Workers(queue, controller.look, api.check, resync.run, health, metrics, config.resync_seconds)
    _load_table_libraries(settings)
    probes = serve(health, config.health_port)
    exposition, _ = start_http_server(config.metrics_port, registry=metrics.registry)
    workers.start()
    try:
        watch(cache, queue.add, () if config.all_namespaces else config.namespaces, troubles)
    finally:
        if not workers.stop(_PATIENCE_S):
            logging.getLogger(__name__).warning("some work was cut off; the next process completes it")
        probes.shutdown()
        exposition.shutdown()


def _load_table_libraries(settings: Settings) -> None:
    """Before the first write waits for it: loading them takes seconds. Lance is loaded when a write needs it, for its memory."""
    if settings.catalogs:
        importlib.import_module("checkpoint_operator.commit.iceberg_table")
        importlib.import_module("pyiceberg.io.pyarrow")
    for kind in {catalog.type for catalog in settings.catalogs.values()}:
        importlib.import_module(f"pyiceberg.catalog.{kind}")


def _store_opener(settings: Settings, counts: StoreCounts) -> Callable[[str], ObjectStore]:
    """Return what opens checkpoint stores, each probed for put-if-absent once in this process's life."""
    opened: dict[str, CountingStore] = {}
    lock = threading.Lock()

    def open_once(uri: str) -> ObjectStore:
        with lock:
            known = opened.get(uri)
        if known is None:
            known = CountingStore(open_store(uri, settings), counts)
            probe(known)
            with lock:
                opened[uri] = known
        return known

    return open_once


def load_settings(path: Path) -> Settings:
    """Read what the chart has made of its values, or the Secret that they name."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ManifestInvalid((f"{path}: cannot be read: {error.strerror}",)) from error
    except (UnicodeDecodeError, yaml.YAMLError):
        # Not the parser's words: they quote the text, and secrets may stand in it.
        raise ManifestInvalid((f"{path}: is not YAML",)) from None
    return validate_model(Settings, document or {}).standing_in(CHART_VALUES)


class _JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the write where one is concerned."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in ("write", "reason"):
            if (value := getattr(record, name, None)) is not None:
                line[name] = str(value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _log_as_json(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level != "debug":
        # Kopf says at "info" of each event of each pod that it was handled.
        logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
        # And of each try of a request that is refused; WatchTroubles says it once.
        logging.getLogger("kopf._cogs.clients").setLevel(logging.CRITICAL)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="checkpointed-write-operator", description="Reconciles CheckpointedWrites.")
    parser.add_argument("--config", type=Path, default=DEFAULT_PATH, help=f"operator configuration (default {DEFAULT_PATH})")
    parser.add_argument("--settings", type=Path, default=_SETTINGS_PATH, help="catalogs and storage (default %(default)s)")
    parser.add_argument("--check", action="store_true", help="say whether the operator could work here, and end")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
