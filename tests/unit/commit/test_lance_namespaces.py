"""What a namespace says of a table: the URI takes the place of the name, and is trusted no more than one of a manifest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import lance
import pytest
from lance.namespace import DeregisterTableRequest, RegisterTableRequest

from checkpoint_commit.catalogs.source_tables import open_source
from checkpoint_commit.lance.namespaces import located, why_led_elsewhere
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Retryable
from checkpoint_protocol.manifest.spec import Spec, validate_model
from checkpoint_protocol.places.patterns import Tenant
from checkpoint_protocol.places.settings import Settings
from tests.support.http_server import serving_by
from tests.support.places import NamedLancePlace, in_lake
from tests.support.writes import manifest_for, rows_of

TABLE = ["raw", "events"]


@pytest.fixture
def place(tmp_path: Path) -> NamedLancePlace:
    return in_lake(tmp_path)


def spec_for(place: NamedLancePlace, source: Any = "/in/*", **sink: Any) -> Spec:
    return manifest_for(place, source, sink=sink).spec


def error_of(spec: Spec, settings: Settings, **options: Any) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        located(spec, settings, **options)
    return caught.value


# --- of a folder ----------------------------------------------------------------------------------------------------------


def test_a_table_that_is_missing_is_declared_only_where_a_write_that_creates_it_begins(place: NamedLancePlace) -> None:
    creating = spec_for(place, create=True)

    assert located(creating, place.settings) == creating, "nothing is changed by a look"
    refused = error_of(spec_for(place), place.settings, begins=True)
    found = located(creating, place.settings, begins=True)

    assert refused.reason == reasons.TABLE_MISSING
    assert "there is no Lance table raw.events of the namespace 'lake'; make it" in refused.message
    assert found.sink.named.uris == {"uri": place.uri}
    assert located(spec_for(place), place.settings, begins=True).sink.identity == {"lance": {"uri": place.uri}}


def test_a_source_that_is_missing_is_read_once_it_is_made_or_its_name_is_corrected(place: NamedLancePlace) -> None:
    def reading(table: str) -> Spec:
        return spec_for(place, {"lance": {"namespace": "lake", "table": table}}, create=True)

    refused = error_of(reading("in"), place.settings, begins=True)
    lance.write_dataset(rows_of([1]), f"{place.base_uri}/in.lance")

    assert refused.reason == reasons.SOURCE_MISSING
    assert located(reading("in"), place.settings, begins=True).source.members[0].uris == {"uri": f"{place.base_uri}/in.lance"}


def test_a_name_that_leads_elsewhere_is_told_until_it_leads_there_again(place: NamedLancePlace) -> None:
    sink = located(spec_for(place, create=True), place.settings, begins=True).sink.lance
    assert sink is not None
    lake, folder = place.lake, Path(place.uri).name

    lake.deregister_table(DeregisterTableRequest(id=TABLE))
    gone = why_led_elsewhere(sink, place.settings)
    lake.register_table(RegisterTableRequest(id=TABLE, location="other"))
    elsewhere = why_led_elsewhere(sink, place.settings)
    lake.deregister_table(DeregisterTableRequest(id=TABLE))
    lake.register_table(RegisterTableRequest(id=TABLE, location=folder))

    assert gone is not None
    assert f"is gone, and led to {sink.uri} when the write began" in gone
    assert elsewhere is not None
    assert f"leads to {place.base_uri}/other now, and led to {sink.uri} when the write began" in elsewhere
    assert why_led_elsewhere(sink, place.settings) is None


def test_a_source_whose_name_leads_elsewhere_is_told_before_an_attempt_reads_it(place: NamedLancePlace) -> None:
    lance.write_dataset(rows_of([1]), f"{place.base_uri}/in.lance")
    source = located(spec_for(place, {"lance": {"namespace": "lake", "table": "in"}}, create=True), place.settings).source
    pin = open_source(source, place.settings)

    assert pin() == ()
    shutil.rmtree(f"{place.base_uri}/in.lance")
    with pytest.raises(CheckpointError, match="source: the Lance table in of the namespace 'lake' is gone") as caught:
        pin()

    assert caught.value.reason == reasons.SOURCE_CHANGED


def test_two_names_of_one_dataset_are_refused_as_one_name_twice(place: NamedLancePlace) -> None:
    lance.write_dataset(rows_of([1]), f"{place.base_uri}/one.lance")
    place.lake.register_table(RegisterTableRequest(id=TABLE, location="one.lance"))

    refused = error_of(spec_for(place, {"lance": {"uri": f"{place.base_uri}/one.lance"}}), place.settings, begins=True)

    assert "source and sink are one table" in refused.message


@pytest.mark.parametrize(
    ("grants", "sink", "is_granted"),
    [
        ([], {}, False),
        ([{"namespaces": ["team-b"]}], {}, False),
        ([{"namespaces": ["team-a"], "tables": ["raw.other"]}], {}, False),
        ([{"namespaces": ["team-a"]}], {"mode": "OverwriteAll"}, False),
        ([{"namespaces": ["team-a"], "overwrites": True}], {"mode": "OverwriteAll"}, True),
        ([{"namespaces": ["team-*"], "tables": ["raw.*"]}], {}, True),
    ],
)
def test_a_table_is_used_by_whom_it_is_granted_to(
    grants: list[dict[str, Any]], sink: dict[str, Any], is_granted: bool, tmp_path: Path
) -> None:
    place = in_lake(tmp_path, grants=grants)
    settings, spec = place.settings.used_by(Tenant("team-a", is_only=False)), spec_for(place, create=True, **sink)

    if is_granted:
        assert located(spec, settings, begins=True).sink.named.uris == {"uri": place.uri}
    else:
        refused = error_of(spec, settings, begins=True)
        assert refused.reason == reasons.ACCESS_NOT_GRANTED
        assert "the table raw.events of the Lance namespace 'lake'; the administrator" in refused.message


# --- of a server ----------------------------------------------------------------------------------------------------------


@dataclass
class Server:
    answer: dict[str, Any] = field(default_factory=dict)
    location: str | None = None
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    url: str = ""

    def settings(self, uri: str | None = None, token: str = "right", **more: Any) -> Settings:  # noqa: S107 of this server
        lake = {"type": "rest", "uri": uri or self.url, "token": token, "headers": {"x-api-key": "k"}}
        return validate_model(Settings, {"namespaces": {"lake": lake}, **more})


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            found.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            is_right = self.headers["Authorization"] == "Bearer right"
            data = json.dumps(found.answer).encode()
            self.send_response(401 if not is_right else 307 if found.location is not None else 200)
            if found.location is not None:
                self.send_header("Location", found.location)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving_by(Handler) as found.url:
        yield found


BUCKET = {"prefix": "s3://bucket/", "credentials": "anonymous"}


def test_a_server_is_asked_for_a_table_with_what_the_settings_say(place: NamedLancePlace, server: Server) -> None:
    server.answer = {"location": "s3://bucket/raw/events/", "storage_options": {"aws_endpoint": "http://elsewhere"}}

    found = located(spec_for(place), server.settings(storage=[BUCKET]), begins=True)

    (path, headers), *more = server.asked
    assert (path, more) == ("/v1/table/raw%24events/describe?delimiter=%24", [])
    assert (headers["authorization"], headers["x-api-key"]) == ("Bearer right", "k")
    assert found.sink.named.uris == {"uri": "s3://bucket/raw/events"}


@pytest.mark.parametrize(
    "location", ["/etc", "file:///etc", "memory://x", "s3://other/x", "s3://bucket/../x", "FILE:///x", "", None]
)
def test_a_location_that_a_manifest_could_not_name_is_refused(place: NamedLancePlace, server: Server, location: object) -> None:
    server.answer = {"location": location}
    # Not a name of this machine, though it leads there.
    settings = server.settings(server.url.replace("127.0.0.1", "0.0.0.0"), storage=[BUCKET])  # noqa: S104 nothing is bound

    refused = error_of(spec_for(place), settings, begins=True)

    assert "raw.events of the namespace 'lake'" in refused.message
    assert not isinstance(refused, Retryable)


def test_a_location_whose_storage_is_not_granted_is_refused(place: NamedLancePlace, server: Server) -> None:
    server.answer = {"location": "s3://bucket/x"}
    others = {**BUCKET, "namespaces": ["team-b"]}
    lake = {"type": "rest", "uri": server.url, "token": "right", "grants": [{"namespaces": ["team-a"]}]}
    settings = validate_model(Settings, {"namespaces": {"lake": lake}, "storage": [others]})

    refused = error_of(spec_for(place), settings.used_by(Tenant("team-a", is_only=False)), begins=True)

    assert refused.reason == reasons.ACCESS_NOT_GRANTED


def test_a_table_whose_versions_the_server_keeps_is_refused_and_another_one_is_used(
    place: NamedLancePlace, server: Server
) -> None:
    server.answer = {"location": "s3://bucket/x", "managed_versioning": True}
    settings = server.settings(storage=[BUCKET])

    refused = error_of(spec_for(place), settings, begins=True)
    server.answer |= {"managed_versioning": False}

    assert refused.reason == reasons.TABLE_UNSUPPORTED
    assert "managed_versioning" in refused.message
    assert located(spec_for(place), settings, begins=True).sink.named.uris == {"uri": "s3://bucket/x"}


def test_a_token_that_is_refused_is_told_and_another_one_is_taken(place: NamedLancePlace, server: Server) -> None:
    server.answer = {"location": "s3://bucket/x"}

    refused = error_of(spec_for(place), server.settings(token="wrong", storage=[BUCKET]), begins=True)

    assert refused.reason == reasons.CREDENTIALS_REFUSED
    assert "wrong" not in refused.message
    located(spec_for(place), server.settings(storage=[BUCKET]), begins=True)


def test_a_request_is_not_sent_on_to_another_server(place: NamedLancePlace, server: Server) -> None:
    server.location = server.url.replace("127.0.0.1", "localhost") + "/elsewhere"

    refused = error_of(spec_for(place), server.settings(), begins=True)

    assert "which gets none: they hold credentials; if it has moved, change namespaces.lake.uri" in refused.message
    assert len(server.asked) == 1


def test_a_server_that_does_not_answer_may_do_so_at_another_address(place: NamedLancePlace, server: Server) -> None:
    server.answer = {"location": "s3://bucket/x"}

    refused = error_of(spec_for(place), server.settings("http://127.0.0.1:9", storage=[BUCKET]), begins=True)

    assert isinstance(refused, Retryable)
    assert refused.reason == reasons.CATALOG_UNAVAILABLE
    located(spec_for(place), server.settings(storage=[BUCKET]), begins=True)
