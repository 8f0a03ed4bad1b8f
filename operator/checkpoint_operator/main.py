"""The operator's process: reads its configuration, watches, works, ends cleanly.

    checkpointed-write-operator --config FILE --settings FILE [--check]
    checkpointed-write-operator --config FILE --before-uninstall

Exit codes: 0 ended as told, 1 cannot work here (why is said in one line), 2 a file is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Final

import yaml
from prometheus_client import start_http_server

from checkpoint_commit.catalogs.named import CatalogBook
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.yaml_documents import parse_document
from checkpoint_operator.check import check_settings
from checkpoint_operator.code_source import CodeSource
from checkpoint_operator.config import DEFAULT_PATH, OperatorConfig, load_config
from checkpoint_operator.controller import Controller
from checkpoint_operator.kube.client import PLURAL, KubernetesApi, connect
from checkpoint_operator.metrics.counters import CountingStore, Metrics, StoreCounts, ages_by_phase
from checkpoint_operator.metrics.health import Health, serve
from checkpoint_operator.record_keys import RecordKeys
from checkpoint_operator.watch.cache import Cache, WriteName
from checkpoint_operator.watch.resync import Resync
from checkpoint_operator.watch.watch_errors import WatchErrors
from checkpoint_operator.watch.watching import watch
from checkpoint_operator.watch.work_queue import WorkQueue
from checkpoint_operator.watch.workers import WORKERS, WORKERS_OF_A_NAMESPACE, Workers
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.spec import ManifestInvalid, validate_model
from checkpoint_protocol.places.secrets import Secrets, secrets_of
from checkpoint_protocol.places.setting_values import CHART_VALUES
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import entry_of
from checkpoint_protocol.printable import printable, printable_json
from checkpoint_protocol.store.authenticated_store import AuthenticatedStore
from checkpoint_protocol.store.memory import MemoryBudget
from checkpoint_protocol.store.object_store import ObjectStore, open_store, probe

EXIT_DONE, EXIT_FAILED, EXIT_WRONG = 0, 1, 2
_SETTINGS_PATH: Final = Path("/etc/checkpointed-writes/settings/settings.yaml")
#: Less than a pod's grace period, so that what is in hand ends by itself.
_PATIENCE_S: Final = 25.0
#: Where the configuration has neither a name nor keys that one is kept with.
_ANY_CLUSTER: Final = "unnamed"
_MOST_TOLD: Final = 10
_OF_SETTINGS: Final = "settings in the chart's values (or the Secret that settings.existingSecret names)"


def main() -> int:
    arguments = _parse(sys.argv[1:])
    try:
        config = load_config(arguments.config)
        if arguments.before_uninstall:
            return _before_uninstall(config)
        settings = load_settings(arguments.settings)
        if not config.allow_local_paths:
            settings = settings.in_buckets_only()
    except ManifestInvalid as error:
        for problem in error.problems:
            sys.stderr.write(f"error: {printable(problem)}\n")
        return EXIT_WRONG
    _log_as_json(config.log_level, secrets_of(settings, os.environ))
    try:
        api = connect()
        api.check()
    except CheckpointError as error:
        sys.stderr.write(f"error: {error.reason}: {printable(error.message)}\n")
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
    for what, problem in check_settings(settings):
        if problem is None:
            sys.stdout.write(f"ready: {what} answers\n")
        else:
            sys.stdout.write(f"error: {what}: {problem.reason}: {printable(problem.message)}\n")
            code = EXIT_FAILED
    return code


def _before_uninstall(config: OperatorConfig) -> int:
    """Refuse if there are writes that only an operator can let go of."""
    try:
        api = connect()
        lists = [api.list_writes(namespace) for namespace in _watched(config)]
    except CheckpointError as error:
        sys.stderr.write(f"error: {error.reason}: {printable(error.message)}\n")
        return EXIT_FAILED
    found = [f"{it['namespace']}/{it['name']}" for it in (write["metadata"] for write in chain(*lists))]
    if not found:
        return EXIT_DONE
    more = f" and {len(found) - _MOST_TOLD:,} more" if len(found) > _MOST_TOLD else ""
    sys.stderr.write(
        f"error: {len(found):,} CheckpointedWrites are there ({', '.join(found[:_MOST_TOLD])}{more}). Only the operator removes "
        "their finalizer, so without it neither they nor their namespaces can be deleted. Delete them first: kubectl delete "
        "checkpointedwrites --all --all-namespaces. To keep them for the same installation later: helm uninstall --no-hooks\n"
    )
    return EXIT_FAILED


def _watched(config: OperatorConfig) -> tuple[str | None, ...]:
    return (None,) if config.all_namespaces else config.namespaces


def run(config: OperatorConfig, settings: Settings, api: KubernetesApi) -> None:
    """Work until the process is told to end (SIGTERM, SIGINT). Raises CheckpointError if only another process can go on."""
    cache, metrics, health = Cache(config.writes_memory_per_namespace), Metrics(), Health()
    queue = _queue(config)
    counts, errors = StoreCounts(), WatchErrors()
    memory = MemoryBudget(config.record_memory)
    catalogs = CatalogBook(settings)
    keys = _record_keys(config, api)
    settings_of = functools.cache(lambda namespace: settings.used_by(config.tenant(namespace)))
    controller = Controller(
        api=api,
        cache=cache,
        config=config,
        metrics=metrics,
        settings_of=settings_of,
        catalogs=catalogs,
        open_store=_store_opener(settings_of, counts, memory, keys),
        open_sink=lambda namespace, spec, written_by: open_sink(spec, settings_of(namespace), catalogs, written_by),
        code_source=CodeSource(api, settings_of, config.workloads, memory),
        instance=socket.gethostname(),
        secrets=secrets_of(settings, os.environ),
        wake=queue.add,
        record_keys=keys,
        cluster=config.cluster_name or (keys.cluster if keys is not None else _ANY_CLUSTER),
    )
    resync = Resync(
        api, cache, queue.add, _watched(config), lambda namespace: errors.is_forbidden(namespace, PLURAL), warn=controller.warn
    )
    metrics.watch(
        queue_depth=queue.count_due,
        ages=lambda: ages_by_phase(cache, time.time()),
        requests=lambda: dict(api.requests),
        store_requests=counts.by_request,
        watch_errors=errors.now,
        left_out=lambda: dict(resync.left_out),
    )

    def run_resync() -> bool:
        if keys is not None:
            keys.refresh()
        return resync.run()

    workers = Workers(queue, controller.reconcile, api.check, run_resync, health, metrics, config.resync_seconds, memory=memory)
    _load_table_libraries(settings)
    probes = serve(health, config.health_port)
    exposition, _ = start_http_server(config.metrics_port, registry=metrics.registry)
    workers.start()
    try:
        watch(cache, queue.add, () if config.all_namespaces else config.namespaces, errors)
    finally:
        if not workers.stop(_PATIENCE_S):
            logging.getLogger(__name__).warning("some work was cut off; the next process completes it")
        probes.shutdown()
        exposition.shutdown()


def _load_table_libraries(settings: Settings) -> None:
    """Before the first write waits for it: loading them takes seconds. Lance is loaded when a write needs it, for its memory."""
    if settings.catalogs:
        importlib.import_module("checkpoint_commit.iceberg.table")
        importlib.import_module("pyiceberg.io.pyarrow")
    for kind in {catalog.type for catalog in settings.catalogs.values()}:
        # Where boto3 is missing, the first write that needs it says so.
        with contextlib.suppress(ImportError):
            importlib.import_module(f"pyiceberg.catalog.{kind}")


def _queue(config: OperatorConfig) -> WorkQueue[WriteName]:
    is_shared = config.all_namespaces or len(config.namespaces) > 1
    return WorkQueue(group_of=lambda key: key.namespace, most_of_a_group=WORKERS_OF_A_NAMESPACE if is_shared else WORKERS)


def _record_keys(config: OperatorConfig, api: KubernetesApi) -> RecordKeys | None:
    if config.record_keys is None:
        return None
    settings = config.record_keys
    renew_after_s = settings.renew_after_days * 86_400.0
    keys = RecordKeys(api, config.own_namespace, settings.secret_name, settings.accept_unsigned, renew_after_s)
    keys.load()
    return keys


def _store_opener(
    settings_of: Callable[[str], Settings], counts: StoreCounts, memory: MemoryBudget, keys: RecordKeys | None
) -> Callable[[str, str], ObjectStore]:
    """Return what opens checkpoint stores for a namespace, each probed for put-if-absent once in this process's life."""
    opened: dict[str, ObjectStore] = {}
    lock = threading.Lock()

    def open_once(namespace: str, uri: str) -> ObjectStore:
        settings = settings_of(namespace)
        # Also where another namespace has opened it.
        entry_of(uri, settings)
        with lock:
            known = opened.get(uri)
        if known is None:
            counted = CountingStore(open_store(uri, settings, memory), counts)
            probe(counted)
            known = counted if keys is None else AuthenticatedStore(counted, keys)
            with lock:
                opened[uri] = known
        return known

    return open_once


def load_settings(path: Path) -> Settings:
    """Read what the chart has made of its values, or the Secret that they name."""
    whole = f"{_OF_SETTINGS}, which the pod has as {path}"
    try:
        document = parse_document(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ManifestInvalid((f"{whole}: cannot be read: {error.strerror}",)) from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        # Not the parser's words: they quote the text, and secrets may stand in it.
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        place = "" if mark is None else f": line {mark.line + 1}, column {mark.column + 1}"
        raise ManifestInvalid((f"{whole}: is not YAML{place}",)) from None
    try:
        return validate_model(Settings, document or {}).found_in(CHART_VALUES)
    except ManifestInvalid as error:
        raise ManifestInvalid(tuple(f"{_OF_SETTINGS}: {problem}" for problem in error.problems)) from None


class _JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the write where one is concerned. Without known secrets."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

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
        # Masked before JSON escapes what may be in a secret.
        return printable_json(json.dumps({name: self._secrets.mask(text) for name, text in line.items()}, ensure_ascii=False))


def _log_as_json(level: str, secrets: Secrets) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines(secrets))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level != "debug":
        # Kopf says at "info" of each event of each pod that it was handled.
        logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
        # And of each try of a request that is refused; WatchErrors says it once.
        logging.getLogger("kopf._cogs.clients").setLevel(logging.CRITICAL)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="checkpointed-write-operator", description="Reconciles CheckpointedWrites.")
    parser.add_argument("--config", type=Path, default=DEFAULT_PATH, help=f"operator configuration (default {DEFAULT_PATH})")
    parser.add_argument("--settings", type=Path, default=_SETTINGS_PATH, help="catalogs and storage (default %(default)s)")
    parser.add_argument("--check", action="store_true", help="say whether the operator could work here, and end")
    parser.add_argument(
        "--before-uninstall", action="store_true", help="fail if there are writes that only the operator can let go of"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
