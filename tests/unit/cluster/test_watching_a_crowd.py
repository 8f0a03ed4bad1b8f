"""Kopf over HTTP, and a namespace with very many large writes: they are read in pages, off the event loop, and few are kept."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from checkpoint_operator.kube.api_json import weight
from checkpoint_operator.kube.client import PAGE, PLURAL
from checkpoint_operator.watch.cache import Cache, WriteName
from checkpoint_operator.watch.watch_errors import WatchErrors
from checkpoint_operator.watch.watching import Pauses, watch_until
from checkpoint_protocol.manifest.spec import API_VERSION, KIND
from tests.support.http_server import serving_by
from tests.support.waiting import patience, until

CROWD = 5_000
LONG = b"x" * 292_000


def resource(name: str, kind: str) -> dict[str, Any]:
    verbs = ["get", "list", "watch", "patch"]
    return {"name": name, "singularName": kind.lower(), "kind": kind, "namespaced": True, "verbs": verbs}


def group(name: str, version: str) -> dict[str, Any]:
    return {"name": name, "preferredVersion": {"version": version}, "versions": [{"version": version}]}


#: Kopf waits until it knows the kinds of namespaces and of kinds, too.
DISCOVERY: dict[str, Any] = {
    "/api": {"versions": ["v1"]},
    "/apis": {"groups": [group(*API_VERSION.split("/")), group("apiextensions.k8s.io", "v1")]},
    "/api/v1": {"resources": [resource("pods", "Pod"), resource("namespaces", "Namespace")]},
    "/apis/apiextensions.k8s.io/v1": {"resources": [resource("customresourcedefinitions", "CustomResourceDefinition")]},
    f"/apis/{API_VERSION}": {"resources": [resource(PLURAL, KIND)]},
}


def written(namespace: str, number: int, text: bytes) -> bytes:
    metadata = {
        "name": f"w-{number}",
        "namespace": namespace,
        "uid": f"{namespace}-{number}",
        "resourceVersion": str(number + 1),
        "generation": 1,
        "creationTimestamp": f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z",
    }
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {"text": "TEXT"}}
    return json.dumps(body, separators=(",", ":")).encode().replace(b"TEXT", text)


@dataclass
class Server:
    """An API server with a write at home, and a crowd of them elsewhere. `expires`: once, what a page is read from."""

    expires: bool = False
    limits: set[str] = field(default_factory=set)
    events: list[bytes] = field(default_factory=list)
    is_listed: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, bytes]:
        if path in DISCOVERY:
            return 200, json.dumps(DISCOVERY[path]).encode()
        self.limits.update(query.get("limit", ["none"]))
        if path.endswith("/pods"):
            return 200, b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}'
        first = int(query.get("continue", ["0"])[0])
        if first and self.expires:
            self.expires = False
            return 410, b'{"kind":"Status","code":410,"reason":"Expired","message":"too old"}'
        if "/home/" in path:
            return 200, self._list([written("home", 0, b"mine")], "")
        last = min(CROWD, first + int(query["limit"][0]))
        if last == CROWD:
            self.is_listed.set()
        return 200, self._list([written("crowd", n, LONG) for n in range(first, last)], str(last) if last < CROWD else "")

    def _list(self, items: list[bytes], token: str) -> bytes:
        head = {"kind": f"{KIND}List", "apiVersion": API_VERSION, "metadata": {"resourceVersion": "9000", "continue": token}}
        return json.dumps(head).encode()[:-1] + b',"items":[' + b",".join(items) + b"]}"

    def handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = parse_qs(url.query)
                self.close_connection = True
                if "watch" in query:
                    self._send(200, b"".join(server.events) if "/home/" in url.path else b"", None)
                    self.wfile.flush()
                    server.ended.wait()
                    return
                status, text = server.answer(url.path, query)
                self._send(status, text, len(text))

            def _send(self, status: int, text: bytes, length: int | None) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if length is not None:
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        return Handler


@dataclass(slots=True)
class WithThreads(Cache):
    """Notes in which threads it is told of writes."""

    threads: set[str] = field(default_factory=set)

    def hear_write(self, body: Any) -> bool:
        self.threads.add(threading.current_thread().name)
        return Cache.hear_write(self, body)


@contextmanager
def watching(server: Server, cache: Cache, woken: list[WriteName], folder: Path) -> Iterator[None]:
    """The watches, in the thread "loop", while the body runs."""
    with serving_by(server.handler()) as url, pytest.MonkeyPatch.context() as patch:
        cluster = {"clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {"token": "t"}}]}
        context = {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}
        (folder / "kubeconfig").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **cluster, **context}))
        patch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
        stop, loop = asyncio.Event(), asyncio.new_event_loop()
        pauses = Pauses(first_s=0.05, most_s=0.4)
        run = watch_until(stop, cache, woken.append, ("crowd", "home"), WatchErrors(), pauses, 60)
        thread = threading.Thread(target=loop.run_until_complete, args=(run,), name="loop")
        thread.start()
        try:
            yield
        finally:
            server.ended.set()
            loop.call_soon_threadsafe(stop.set)
            thread.join(patience(30))
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


def test_a_crowd_of_large_writes_is_read_in_pages_off_the_loop_and_the_oldest_are_kept(tmp_path: Path) -> None:
    server, cache, woken = Server(), WithThreads(), list[WriteName]()
    tracemalloc.start()
    try:
        with watching(server, cache, woken, tmp_path):
            until(lambda: server.is_listed.is_set() and WriteName("home", "w-0") in woken)
            until(lambda: not cache.has_room(json.loads(written("crowd", CROWD - 1, b""))))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    kept = [key.name for key in cache.write_names() if key.namespace == "crowd"]
    assert kept == [f"w-{number}" for number in range(len(kept))]
    assert 100 < len(kept) < 120
    assert sum(weight(cache.write(WriteName("crowd", name))) for name in kept) <= cache.most_of_a_namespace
    assert {key.name for key in woken if key.namespace == "crowd"} <= {f"w-{number}" for number in range(len(kept))}
    # The share of the namespace, and a few pages: in the server of this test, on their way, and cut into objects.
    assert peak < 4 * cache.most_of_a_namespace
    assert server.limits == {str(PAGE)}
    assert "loop" not in cache.threads


def test_a_list_whose_next_page_has_expired_is_begun_again_and_ends_no_watch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, cache, woken = Server(expires=True), Cache(), list[WriteName]()
    with watching(server, cache, woken, tmp_path):
        until(lambda: cache.write(WriteName("crowd", f"w-{2 * PAGE}")) is not None)

    assert not server.expires
    assert "the watches ended" not in caplog.text


def test_events_of_a_watch_are_taken_off_the_loop_and_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    def event(kind: str, number: int) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), written("home", number, b"told"))

    server, cache, woken = Server(), WithThreads(), list[WriteName]()
    server.events = [event("ADDED", 1), event("DELETED", 0), event("ADDED", 2)]
    with watching(server, cache, woken, tmp_path):
        until(lambda: cache.write(WriteName("home", "w-2")) is not None)

    assert {key.name for key in cache.write_names() if key.namespace == "home"} == {"w-1", "w-2"}
    assert "loop" not in cache.threads
