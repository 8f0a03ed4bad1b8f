"""What REST catalogs ask of their clients: tokens of OAuth2, and signed requests. The catalog is Iceberg's, behind a front."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from checkpoint_commit.catalogs.named import CatalogBook
from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_control.decision.actions import Finish
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store.object_store import open_store
from devtools.rest_catalog import RestCatalog
from tests.support.catalog_front import TOKENS, Asked, Front
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import IcebergPlace, on_disk
from tests.support.waiting import patience
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs


@pytest.fixture
def front(rest_catalog: RestCatalog) -> Iterator[Front]:
    with Front(rest_catalog.uri).serving() as front:
        yield front


def settings_of(front: Front, **entry: Any) -> Settings:
    return Settings.model_validate({"catalogs": {"test": {"type": "rest", "uri": front.url, **entry}}})


def with_oauth(front: Front, **entry: Any) -> Settings:
    return settings_of(front, **{"credential": "id:secret", "oauth2_server_uri": f"{front.url}{TOKENS}", **entry})


def write_through(settings: Settings, rest: RestCatalog, folder: Path) -> None:
    """Make a table by these settings, run a write to it, and read it without them."""
    direct = on_disk(folder, "iceberg", rest)
    assert isinstance(direct, IcebergPlace)
    place = replace(direct, settings=settings)
    place.create(SCHEMA)
    store = open_store(place.checkpoint_uri, settings)
    manifest = manifest_for(place, write_inputs(folder / "in", files=2, rows=10))
    ended = drive(reconciler_for(manifest, place, DirectDrivers(store, settings), store))
    assert isinstance(ended.outcome, Finish), ended.outcome
    assert len(direct.keys()) == 1
    assert sorted(direct.rows(), key=lambda row: row["id"]) == rows_of(range(20)).to_pylist()


# --- tokens ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expired", [401, 419])
def test_a_write_whose_tokens_expire_after_each_request_renews_them_and_commits_once(
    expired: int, front: Front, rest_catalog: RestCatalog, tmp_path: Path
) -> None:
    front.refuses = lambda asked: None if front.spends_token(asked) else expired

    write_through(with_oauth(front, scope="all", audience="tables", resource="urn:lake"), rest_catalog, tmp_path)

    refused = [at for at, asked in enumerate(front.asked) if asked.status == expired]
    assert refused
    for at in refused:
        first, renewal, again = front.asked[at : at + 3]
        assert (renewal.path, renewal.status) == (TOKENS, 200)
        assert "authorization" not in renewal.headers
        assert (again.method, again.path, again.body) == (first.method, first.path, first.body)
        assert again.status != expired
    own = {"grant_type": ["client_credentials"], "client_id": ["id"], "client_secret": ["secret"]}
    assert all(form == own | {"scope": ["all"], "audience": ["tables"], "resource": ["urn:lake"]} for form in front.forms)


def refused(front: Front, then: str = "", **entry: Any) -> CheckpointError:
    """Return the error with which a table is asked for. `then`: the secret that is valid after the first token."""
    settings = with_oauth(front, **entry)
    book = CatalogBook(settings, answer_within_s=patience(0.2))

    def ask() -> None:
        book.open("test")
        front.secret = then or front.secret
        front.asked.clear()
        PyicebergTable("test", "db.rows", settings, book).describe()

    with pytest.raises(CheckpointError) as caught:
        ask()
    return caught.value


def test_a_catalog_that_refuses_a_new_token_too_is_asked_once_more_and_then_said_to_refuse(front: Front) -> None:
    front.refuses = lambda asked: None if asked.path == "/v1/config" else 401

    assert refused(front).reason == reasons.CREDENTIALS_REFUSED

    assert [asked.path == TOKENS for asked in front.asked] == [False, True, False]


@pytest.mark.parametrize("then", ["", "another"], ids=["at first", "when a token is renewed"])
def test_a_credential_that_is_refused_is_said_to_be_refused(front: Front, then: str) -> None:
    front.refuses = lambda asked: None if front.spends_token(asked) and asked.path == "/v1/config" else 401

    error = refused(front, then=then, credential="id:secret" if then else "id:wrong")

    assert isinstance(error, NeedsChange)
    assert error.reason == reasons.CREDENTIALS_REFUSED
    assert "invalid_client: unknown secret; check its credentials: catalogs.test" in error.message


def test_an_answer_with_a_token_that_is_not_understood_is_not_said(front: Front) -> None:
    front.token_answer = (200, {"access_token": "geheim-geheim"})

    error = refused(front)

    assert isinstance(error, Retryable)
    assert "geheim" not in error.message


def test_a_server_of_tokens_that_does_not_answer_is_given_up_and_asked_once(front: Front) -> None:
    ended = threading.Event()
    front.before_token = lambda: ended.wait(patience(60))

    error = refused(front)
    ended.set()

    assert isinstance(error, Retryable)
    assert [asked.path for asked in front.asked] == [TOKENS]


# --- signatures -----------------------------------------------------------------------------------------------------------

SIGNING = {"region": "eu-central-1", "name": "s3tables", "access_key_id": "key", "secret_access_key": "geheim"}


def is_signed(asked: Asked, front: Front, signing: dict[str, str]) -> bool:
    """Whether botocore, with these keys, signs what has arrived in the same way."""
    given, of_body = asked.headers["authorization"], hashlib.sha256(asked.body).hexdigest()
    names = given.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert {name for name in asked.headers if name.startswith("x-amz-")} < set(names)
    headers = {name: asked.headers[name] for name in names} | {"x-amz-content-sha256": of_body}
    request = AWSRequest(method=asked.method, url=f"{front.url}{asked.path}", headers=headers, data=asked.body)
    request.context["timestamp"] = asked.headers["x-amz-date"]
    keys = Credentials(signing["access_key_id"], signing["secret_access_key"])
    signer = SigV4Auth(keys, signing["name"], signing["region"])
    signature = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    return (
        given == f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={';'.join(names)}, Signature={signature}"
        and asked.headers.get("x-amz-security-token") == signing.get("session_token")
    )


@pytest.mark.parametrize("more", [{}, {"session_token": "session"}], ids=["keys", "keys of a session"])
def test_a_write_whose_requests_are_signed_commits_once(
    more: dict[str, str], front: Front, rest_catalog: RestCatalog, tmp_path: Path
) -> None:
    signing = SIGNING | more
    front.refuses = lambda asked: None if is_signed(asked, front, signing) else 403
    warehouse = "arn:aws:s3tables:eu-central-1:111122223333:bucket/lake"

    write_through(settings_of(front, signing=signing, warehouse=warehouse), rest_catalog, tmp_path)

    assert all(asked.status != 403 for asked in front.asked)
    assert {"GET", "POST"} <= {asked.method for asked in front.asked}
    assert any("?warehouse=arn" in asked.path for asked in front.asked)


def test_a_signature_with_another_key_is_said_to_be_refused(front: Front) -> None:
    front.refuses = lambda asked: None if is_signed(asked, front, SIGNING) else 403

    with pytest.raises(NeedsChange) as caught:
        CatalogBook(settings_of(front, signing=SIGNING | {"secret_access_key": "another"})).open("test")

    assert caught.value.reason == reasons.CREDENTIALS_REFUSED
    assert CatalogBook(settings_of(front, signing=SIGNING)).open("test").name == "test"
