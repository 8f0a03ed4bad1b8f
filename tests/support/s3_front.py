"""A front before an S3 server that notes which objects are read, and how often the bucket is listed."""

from __future__ import annotations

import urllib.parse
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import requests

from tests.support.http_server import serving_by
from tests.support.waiting import patience


@dataclass
class ReadingFront:
    """Forwards GET and HEAD. `read` are the paths of objects, by how often each was asked for; `lists` counts the pages."""

    behind: str
    read: Counter[str] = field(default_factory=Counter)
    lists: int = 0
    url: str = ""

    def forget(self) -> None:
        self.read.clear()
        self.lists = 0

    def _note(self, path: str) -> None:
        parts = urllib.parse.urlsplit(path)
        if "list-type" in urllib.parse.parse_qs(parts.query):
            self.lists += 1
        else:
            self.read[urllib.parse.unquote(parts.path)] += 1

    @contextmanager
    def serving(self) -> Iterator[ReadingFront]:
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                front._note(self.path)
                # With the header Host as it came: it is signed.
                headers = dict(self.headers)
                answer = requests.request(self.command, f"{front.behind}{self.path}", headers=headers, timeout=patience(60))
                self.send_response(answer.status_code)
                for name, value in answer.headers.items():
                    if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                        self.send_header(name, value)
                if "Content-Length" not in answer.headers:
                    self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            do_GET = do_HEAD = _serve  # noqa: N815 names of http.server

            def log_message(self, format: str, *args: object) -> None:
                pass

        with serving_by(Handler) as self.url:
            yield self
