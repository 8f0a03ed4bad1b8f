"""What a REST catalog answers decides about paths, and about nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.places.settings import Settings
from tests.support.http_server import serving_by
from tests.support.places import IcebergPlace, on_disk
from tests.unit.commit.test_tables_that_lead_elsewhere import ROWS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@dataclass
class Server:
    """Answers by what its paths end in. `asked`: method, path, and the headers with names in small letters, of each request."""

    answers: dict[str, Any] = field(default_factory=dict)
    #: Where it sends those who ask for a path with this end.
    sends_on: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    def paths(self) -> list[str]:
        return [path for _, path, _, _ in self.asked]

    def opened(self, **entry: Any) -> Catalog:
        settings = Settings.model_validate({"catalogs": {"rest": {"type": "rest", "uri": self.url, **entry}}})
        return open_catalog("rest", settings, most_metadata_bytes=1 << 20)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            path = self.path.partition("?")[0]
            server.asked.append((self.command, path, {name.lower(): value for name, value in self.headers.items()}, body))
            target = next((to for end, to in server.sends_on.items() if path.endswith(end)), None)
            answer = next((answer for end, answer in server.answers.items() if path.endswith(end)), None)
            self.send_response(307 if target is not None else 200 if answer is not None else 404)
            data = json.dumps(
                answer if answer is not None else {"error": {"message": "none", "type": "none", "code": 404}}
            ).encode()
            if target is not None:
                self.send_header("Location", target)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer  # noqa: N815 names of http.server

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving_by(Handler) as server.url:
        yield server


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server({"/v1/config": {"defaults": {}, "overrides": {}}})) as started:
        yield started


@pytest.fixture
def stranger() -> Iterator[Server]:
    with serving(Server({"": {"access_token": "x", "token_type": "bearer"}})) as started:
        yield started


def config(server: Server, part: str, **properties: Any) -> None:
    server.answers["/v1/config"] = {"defaults": {}, "overrides": {}, part: properties}


@pytest.mark.parametrize("part", ["defaults", "overrides"])
def test_a_server_names_no_code_to_run(server: Server, part: str, tmp_path: Path) -> None:
    made = tmp_path / "made-by-the-server"
    auth = {"type": "custom", "impl": "pathlib.Path.touch", "custom": {"self": str(made)}}
    ran = {"type": "custom", "impl": "subprocess.Popen", "custom": {"args": ["touch", str(made)]}}
    for answered in (auth, ran):
        config(server, part, auth=answered, **{"py-io-impl": "os.system", "py-catalog-impl": "os.system"})

        catalog = server.opened()

        assert catalog.properties == {"uri": server.url}
    assert not made.exists()


@pytest.mark.parametrize("part", ["defaults", "overrides"])
def test_no_answer_takes_credentials_to_another_address(server: Server, stranger: Server, part: str) -> None:
    elsewhere = {"uri": stranger.url, "oauth2-server-uri": f"{stranger.url}/token"}
    config(server, part, **elsewhere, **{"header.X-Evil": "1", "ssl": {"cabundle": "/etc/hosts"}, "rest.sigv4-enabled": "true"})
    server.answers |= {"/v1/oauth/tokens": {"access_token": "t", "token_type": "bearer"}, "/v1/namespaces": {"namespaces": []}}

    assert server.opened(token="secret").list_namespaces() == []
    assert server.opened(credential="id:secret").list_namespaces() == []

    assert stranger.asked == []
    assert all("x-evil" not in headers for _, _, headers, _ in server.asked)


@pytest.mark.parametrize("path", ["/v1/config", "/v1/oauth/tokens"])
def test_a_server_that_sends_requests_on_to_another_one_is_not_followed(server: Server, stranger: Server, path: str) -> None:
    server.answers["/v1/oauth/tokens"] = {"access_token": "t", "token_type": "bearer"}
    server.sends_on[path] = f"{stranger.url}{path}"

    with pytest.raises(NeedsChange, match=r"change catalogs\.rest\.uri in the settings") as caught:
        server.opened(credential="id:secret")

    assert caught.value.reason == reasons.CATALOG_UNAVAILABLE
    assert stranger.asked == []
    stranger.answers = server.answers
    assert stranger.opened(credential="id:secret").name == "rest", "by the uri that it has moved to"


def test_a_server_of_tokens_that_sends_requests_on_to_another_one_is_not_followed(server: Server, stranger: Server) -> None:
    server.sends_on["/token"] = f"{stranger.url}/token"

    with pytest.raises(NeedsChange, match=r"change catalogs\.rest\.oauth2_server_uri in the settings"):
        server.opened(credential="id:secret", oauth2_server_uri=f"{server.url}/token")

    assert stranger.asked == []
    assert server.opened(credential="id:secret", oauth2_server_uri=f"{stranger.url}/token").name == "rest", (
        "where it has moved to"
    )


def test_a_server_may_send_requests_on_to_another_path_of_its_own(server: Server) -> None:
    server.sends_on["/v1/config"] = "/other/config"
    server.answers["/other/config"] = {"defaults": {}, "overrides": {"prefix": "p"}}

    assert server.opened().properties["prefix"] == "p"
    server.asked.clear()
    keys = {"access_key_id": "key", "secret_access_key": "secret"}
    server.opened(signing={"region": "eu-central-1", "name": "glue", **keys})
    first, again = (headers["authorization"] for _, _, headers, _ in server.asked)
    assert first != again, "signed anew, for the other path"


def test_a_server_says_how_its_paths_are_made(server: Server) -> None:
    config(server, "overrides", prefix="main|warehouse", **{"namespace-separator": "%2E"})
    server.answers["/namespaces"] = {"namespaces": []}

    catalog: Any = server.opened()

    assert catalog.list_namespaces() == []
    assert server.paths()[-1] == "/v1/main%7Cwarehouse/namespaces"
    assert catalog._encode_namespace_path(("a", "b")) == "a.b"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("prefix", value) for value in ("../../other", "a/%2e%2e/b", "a?b", "a#b", "a\\b", 1, ["a"])],
        *[("namespace-separator", value) for value in ("/../", "%2F", "?", "ab")],
    ],
)
def test_a_server_whose_paths_lead_out_of_the_catalog_is_refused(server: Server, name: str, value: object) -> None:
    config(server, "overrides", **{name: value})

    with pytest.raises(CheckpointError, match=name):
        server.opened()
    config(server, "overrides")
    assert server.opened().name == "rest", "corrected"


def table_answer(place: IcebergPlace, **more: Any) -> dict[str, Any]:
    location = place.table().metadata_location
    return {"metadata-location": location, "metadata": json.loads(Path(location.removeprefix("file://")).read_text()), **more}


def test_what_comes_with_a_table_is_neither_a_token_nor_a_class_nor_a_credential(server: Server, tmp_path: Path) -> None:
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    place.create(ROWS.schema)
    given = {"token": "theirs", "py-io-impl": "os.system", "s3.access-key-id": "theirs"}
    credentials = [{"prefix": "file", "config": given}]
    server.answers["/tables/rows"] = table_answer(place, config=given, **{"storage-credentials": credentials})

    table = server.opened(token="ours").load_table("space.rows")

    assert table.config == {}
    assert not given.keys() & table.io.properties.keys()


def test_an_answer_that_is_larger_than_what_is_read_of_a_table_is_refused(server: Server) -> None:
    server.answers["/tables/rows"] = {"metadata": "x" * (1 << 20)}
    catalog = server.opened()

    with pytest.raises(NeedsChange, match="1,048,576 bytes"):
        catalog.load_table("space.rows")
