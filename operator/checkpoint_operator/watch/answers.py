"""What the API server answers to Kopf goes into the cache, object by object and in a thread; Kopf learns how far it has come.

Kopf itself parses a list as a whole, on the event loop that all watches share, and keeps each object of it for seconds: a
namespace with very many large ones would end the operator for all, and again after each restart.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import aiohttp
from aiohttp.connector import Connection

from checkpoint_operator.kube import api_json
from checkpoint_operator.kube.api import Object
from checkpoint_operator.kube.client import PLURAL
from checkpoint_operator.watch.cache import Cache, WriteName, name_of, write_of
from checkpoint_operator.watch.watch_errors import watched

PODS: Final = "pods"
_CHANGES: Final = ("ADDED", "MODIFIED", "DELETED")
_GONE: Final = 410

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hearing:
    """Puts what the watches tell into the cache, and wakes the write that it concerns."""

    cache: Cache
    wake: Callable[[WriteName], None]

    def take(self, kind: str, is_gone: bool, body: Object) -> None:
        """Take an object as it is now, or was when it went. What cannot be taken ends no watch: the next object may be good."""
        try:
            if kind == PLURAL:
                self._take_write(is_gone, body)
            else:
                self._take_pod(is_gone, body)
        except Exception:
            _log.exception("an object of the %s that are watched could not be taken in", kind)

    def _take_write(self, is_gone: bool, body: Object) -> None:
        if is_gone:
            self.wake(self.cache.remove_write(body))
        elif self.cache.hear_write(body):
            self.wake(name_of(body))

    def _take_pod(self, is_gone: bool, body: Object) -> None:
        if is_gone:
            self.cache.remove_pod(body)
        elif not self.cache.put_pod(body):
            return
        if (key := write_of(body)) is not None:
            self.wake(key)


def answers_into(hearing: Hearing) -> type[aiohttp.ClientResponse]:
    """Return the class of a session's answers."""

    class Answer(_Answer):
        into = hearing

    return Answer


class _Answer(aiohttp.ClientResponse):
    into: ClassVar[Hearing]

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        await super().start(connection)
        if self.status == _GONE and "continue" in self.url.query:
            # Kopf would end all watches for it; after an answer that breaks off, it begins this list again.
            raise aiohttp.ClientPayloadError("the rest of a list is not kept any more")
        if self._kind in (PLURAL, PODS) and self.status < 300:
            self.content = _Lines(self.content, self._take_lines)  # type: ignore[assignment]
        return self

    async def json(self, **_: Any) -> Any:
        is_list = self._kind in (PLURAL, PODS) and self.status < 300
        # Not `read`, which would keep it: answers stand in cycles, and wait for the garbage collector.
        return await asyncio.to_thread(self._take_list if is_list else api_json.loads, await self.content.read())

    @property
    def _kind(self) -> str:
        return watched(self.url.path).kind

    def _take_list(self, text: bytes) -> Any:
        """Take the objects of a list one after the other; return it without them."""
        rest, objects = api_json.split_list(text)
        for one in objects:
            self.into.take(self._kind, False, json.loads(one))
        return json.loads(rest)

    def _take_lines(self, lines: Iterable[bytes]) -> bytes:
        return b"".join(self._take_event(line) + b"\n" for line in lines if line)

    def _take_event(self, line: bytes) -> bytes:
        """Take the object of an event; return what says which version has come, without it."""
        event = api_json.loads(line, api_json.OF_A_WATCH)
        if event.get("type") not in _CHANGES:
            return line
        self.into.take(self._kind, event["type"] == "DELETED", event["object"])
        version = {"resourceVersion": event["object"]["metadata"]["resourceVersion"]}
        return json.dumps({"type": "BOOKMARK", "object": {"metadata": version}}).encode()


class _Lines:
    """The body of a watch's answer, whose lines are taken in a thread."""

    def __init__(self, content: aiohttp.StreamReader, take: Callable[[Iterable[bytes]], bytes]) -> None:
        self._content = content
        self._take = take

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        unended = b""
        async for data in self._content.iter_chunked(size):
            *lines, unended = (unended + data).split(b"\n")
            if lines:
                yield await asyncio.to_thread(self._take, lines)
        if unended:
            yield await asyncio.to_thread(self._take, [unended])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)
