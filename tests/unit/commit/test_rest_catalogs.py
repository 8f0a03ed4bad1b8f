"""What a REST catalog answers decides about paths, and about nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import TableResponse

from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_commit.catalogs.vended import keys_of_table, vended_keys
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
    #: Of the catalog's settings.
    entry: dict[str, str] = field(default_factory=dict)

    def paths(self) -> list[str]:
        return [path for _, path, _, _ in self.asked]

    def opened(self, **entry: Any) -> Catalog:
        settings = Settings.model_validate({"catalogs": {"rest": {"type": "rest", "uri": self.url, **self.entry, **entry}}})
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


@pytest.fixture(params=[{}, {"credentials": "vended"}], ids=["own-keys", "vended"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving(Server({"/v1/config": {"defaults": {}, "overrides": {}}}, entry=request.param)) as started:
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


@pytest.fixture
def place(tmp_path: Path) -> IcebergPlace:
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    place.create(ROWS.schema)
    return place


#: All that pyiceberg's own catalog would do with the answer of a server.
GIVEN = {"token": "theirs", "py-io-impl": "os.system", "s3.endpoint": "http://127.0.0.1:9", "header.X-Evil": "1"}
S3_KEYS = {"s3.access-key-id": "theirs", "s3.secret-access-key": "their secret"}


def test_what_comes_with_a_table_is_neither_a_token_nor_a_class_nor_an_address(server: Server, place: IcebergPlace) -> None:
    given = {**GIVEN, **S3_KEYS}
    credentials = [{"prefix": prefix, "config": given} for prefix in ("file", "s3://bucket")]
    server.answers["/tables/rows"] = table_answer(place, config=given, **{"storage-credentials": credentials})

    table = server.opened(token="ours").load_table("space.rows")

    assert table.config == {}
    assert not given.keys() & table.io.properties.keys()
    found = [(keys.prefix, keys.values) for keys in keys_of_table(table)]
    taken = ("s3://bucket", {"access_key_id": "theirs", "secret_access_key": "their secret"})
    assert found == ([taken] if server.entry else [])


S3 = {"access_key_id": "theirs", "secret_access_key": "their secret"}
END = datetime(2030, 1, 2, tzinfo=UTC)
END_MS = str(int(END.timestamp() * 1000))


@pytest.mark.parametrize(
    ("prefix", "config", "found"),
    [
        ("s3://b/t", S3_KEYS, ("s3://b/t", S3, None)),
        ("s3", S3_KEYS, ("s3", S3, None)),
        ("s3a://b/t", {**S3_KEYS, "s3.session-token": "t"}, ("s3://b/t", {**S3, "token": "t"}, None)),
        ("s3://b/t", {**S3_KEYS, "s3.session-token-expires-at-ms": END_MS}, ("s3://b/t", S3, END)),
        ("s3://b/t", {**S3_KEYS, "s3.session-token-expires-at-ms": "9" * 40}, ("s3://b/t", S3, None)),
        ("gs://b/t", {"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": END_MS}, ("gs://b/t", {"token": "t"}, END)),
        (
            "abfss://c@a.dfs.core.windows.net/t",
            {"adls.sas-token.a": "s", "adls.sas-token-expires-at-ms.a": END_MS},
            ("az://c@a.dfs.core.windows.net/t", {"sas_token": "s"}, END),
        ),
        ("s3://b/t", {"s3.access-key-id": "half"}, None),
        ("gs://b/t", S3_KEYS, None),
        ("file:///etc", {**S3_KEYS, "gcs.oauth2.token": "t"}, None),
    ],
)
def test_keys_are_taken_for_the_kind_of_store_that_they_are_for(
    prefix: str, config: dict[str, str], found: tuple[str, dict[str, str], datetime | None] | None, place: IcebergPlace
) -> None:
    answer = table_answer(place, **{"storage-credentials": [{"prefix": prefix, "config": {**GIVEN, **config}}]})

    taken = vended_keys(TableResponse.model_validate(answer))

    assert [(keys.prefix, keys.values, keys.expires_at) for keys in taken] == ([found] if found else [])
    assert not [keys for keys in taken if "theirs" in repr(keys)]


def test_an_answer_that_is_larger_than_what_is_read_of_a_table_is_refused(server: Server) -> None:
    server.answers["/tables/rows"] = {"metadata": "x" * (1 << 20)}
    catalog = server.opened()

    with pytest.raises(NeedsChange, match="1,048,576 bytes"):
        catalog.load_table("space.rows")
