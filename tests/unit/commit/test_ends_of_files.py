"""The ends of staged files, in a store that is not asked for the end of a file: Azure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Final

import pytest

from checkpoint_commit.staged_files import FileEnd, Tails
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import StorageEntry
from tests.support.http_server import serving_by

DATA: Final = bytes(range(200))


class Handler(BaseHTTPRequestHandler):
    """Knows one blob, as Azure gives it."""

    def _answer(self) -> None:
        is_there = self.path.partition("?")[0].endswith("/a.lance")
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("x-ms-range") or self.headers.get("range") or "")
        first, last = (int(asked[1]), min(int(asked[2]), len(DATA) - 1)) if asked else (0, len(DATA) - 1)
        body = DATA[first : last + 1] if is_there else b""
        self.send_response((206 if asked else 200) if is_there else 404)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(DATA)}")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Wed, 25 Nov 2026 12:00:00 GMT")
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_GET = do_HEAD = _answer  # noqa: N815 names of http.server

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def tails() -> Iterator[Tails]:
    with serving_by(Handler) as url:
        entry = StorageEntry(prefix="az://lake/", endpoint=f"{url}/account", account_name="account", credentials="anonymous")
        yield Tails(Settings(storage=(entry,)))


@pytest.mark.parametrize("most_bytes", [1, 40, 200, 1_000])
def test_the_end_of_a_file_is_read_where_it_has_to_be_asked_for_by_its_place(tails: Tails, most_bytes: int) -> None:
    assert tails.end_of("az://lake/data/a.lance", most_bytes) == FileEnd(DATA[-most_bytes:], len(DATA))


def test_a_file_that_is_gone_is_told(tails: Tails) -> None:
    with pytest.raises(NeedsChange, match="is gone"):
        tails.end_of("az://lake/data/b.lance", 40)
