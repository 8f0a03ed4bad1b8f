"""A server before a REST catalog, which refuses or forwards each request, with a server of tokens beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

import requests

from tests.support.http_server import serving_by
from tests.support.waiting import patience

TOKENS = "/token"


@dataclass
class Asked:
    """One request, and with which status it was answered. Names of headers are in small letters."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int = 0


@dataclass
class Front:
    """`refuses`: the status that a request is refused with; None if it is forwarded. Each token is good for one request."""

    behind: str
    refuses: Callable[[Asked], int | None] = lambda _: None
    secret: str = "secret"
    before_token: Callable[[], object] = lambda: None
    token_answer: tuple[int, dict[str, str]] | None = None
    asked: list[Asked] = field(default_factory=list)
    forms: list[dict[str, list[str]]] = field(default_factory=list)
    live: set[str] = field(default_factory=set)
    url: str = ""

    def spends_token(self, asked: Asked) -> bool:
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        is_live = token in self.live
        self.live.discard(token)
        return is_live

    def _answer(self, asked: Asked) -> tuple[int, bytes]:
        if asked.path == TOKENS:
            status, answer = self._token(parse_qs(asked.body.decode()))
            return status, json.dumps(answer).encode()
        if (refused := self.refuses(asked)) is not None:
            return refused, json.dumps({"error": {"message": "no", "type": "Refused", "code": refused}}).encode()
        headers = {name: value for name, value in asked.headers.items() if name in ("content-type", "accept")}
        to = f"{self.behind}{asked.path}"
        got = requests.request(asked.method, to, headers=headers, data=asked.body, timeout=patience(60))
        return got.status_code, got.content

    def _token(self, form: dict[str, list[str]]) -> tuple[int, dict[str, str]]:
        self.forms.append(form)
        self.before_token()
        if self.token_answer is not None:
            return self.token_answer
        if form["client_secret"] != [self.secret]:
            return 401, {"error": "invalid_client", "error_description": "unknown secret"}
        token = f"token-{len(self.forms)}"
        self.live.add(token)
        return 200, {"access_token": token, "token_type": "bearer"}

    @contextmanager
    def serving(self) -> Iterator[Front]:
        front = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                asked = Asked(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                front.asked.append(asked)
                asked.status, data = front._answer(asked)
                self.send_response(asked.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "0" if self.command == "HEAD" else str(len(data)))
                self.end_headers()
                if self.command != "HEAD" and asked.status != 204:
                    self.wfile.write(data)

            do_GET = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815 names of http.server

            def log_message(self, format: str, *args: object) -> None:
                pass

        with serving_by(Handler) as self.url:
            yield self
