"""A schema registry as clients meet it: schemas by id, and versions of subjects, over HTTP on loopback."""

from __future__ import annotations

import base64
import itertools
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from fastavro import parse_schema, schemaless_writer

from tests.support.http_server import serving_by

_FIRST_IDS: Final = itertools.count(100_000, 1_000)
JSON: Final = "application/vnd.schemaregistry.v1+json"


@dataclass
class Registry:
    """`password`: of the user `lake`, None: anybody is served. `status`: what it answers instead, as one that is down does.

    `failing`: so many of the next requests are answered by 503. `asked` are the paths of all requests. Ids are those of no other
    registry, unless `first_id` says it: a port may come again.
    """

    password: str | None = None
    status: int | None = None
    failing: int = 0
    body: bytes | None = None
    url: str = ""
    first_id: int = field(default_factory=lambda: next(_FIRST_IDS))
    asked: list[str] = field(default_factory=list)
    _schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    _subjects: dict[str, list[int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def register(self, subject: str, schema: Any, references: Sequence[Mapping[str, Any]] = (), kind: str = "AVRO") -> int:
        """Return the id of a new version of a subject. Files of Protobuf are given in base64; their texts are not kept."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        found: dict[str, Any] = {"schema": text, "references": [*references]} if references else {"schema": text}
        if kind != "AVRO":
            found["schemaType"] = kind
        with self._lock:
            number = self.first_id + len(self._schemas)
            self._schemas[number] = found
            self._subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        with self._lock:
            self.asked.append(path)
            if self.failing:
                self.failing -= 1
                return 503, b"it is down"
            if self.status is not None:
                return self.status, self.body or b"it is down"
            if self.password is not None and authorization != self._expected():
                return 401, _error(401, "Unauthorized")
            is_serialized = "format=serialized" in urlsplit(path).query
            match [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]:
                case ["schemas", "ids", number]:
                    found = self._schemas.get(int(number))
                    if found is None:
                        return 404, _error(40403, "Schema not found")
                    return 200, json.dumps(_as_asked(found, is_serialized=is_serialized)).encode()
                case ["subjects", subject, "versions", version]:
                    return self._version(subject, version, is_serialized=is_serialized)
                case _:
                    return 404, b"<html>no such page</html>"

    def _version(self, subject: str, version: str, *, is_serialized: bool) -> tuple[int, bytes]:
        numbers = self._subjects.get(subject)
        if numbers is None:
            return 404, _error(40401, f"Subject '{subject}' not found.")
        at = len(numbers) if version == "latest" else int(version)
        if not 1 <= at <= len(numbers):
            return 404, _error(40402, f"Version {version} not found.")
        number = numbers[at - 1]
        found = _as_asked(self._schemas[number], is_serialized=is_serialized)
        return 200, json.dumps({"subject": subject, "version": at, "id": number, **found}).encode()

    def _expected(self) -> str:
        return "Basic " + base64.b64encode(f"lake:{self.password}".encode()).decode()


def _as_asked(schema: dict[str, Any], *, is_serialized: bool) -> dict[str, Any]:
    if schema.get("schemaType") != "PROTOBUF" or is_serialized:
        return schema
    return {**schema, "schema": 'syntax = "proto3"; // and what the file has'}


def _error(code: int, message: str) -> bytes:
    return json.dumps({"error_code": code, "message": message}).encode()


@contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    """Serve while the body runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body = registry.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", registry.body.decode() if registry.body else "/")
            self.send_header("Content-Type", JSON)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with serving_by(Handler) as registry.url:
        yield registry


def avro_value(schema_id: int, schema: Any, value: Any, others: Sequence[Any] = ()) -> bytes:
    """Return a value as a serializer of Confluent writes it: a zero byte, the id of the schema, Avro. `others`: it refers to."""
    named: dict[str, Any] = {}
    for other in others:
        parse_schema(other, named_schemas=named)
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(schema, named_schemas=named), value, strict=True)
    return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()
