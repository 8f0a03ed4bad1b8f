"""Stores that refuse a token which has expired: with 400, whose reason stands in the body, and HEAD has none."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from pydantic import SecretStr

from checkpoint_formats.files.buckets import Buckets
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.source_paths import locate
from checkpoint_protocol.places.storage import StorageEntry
from checkpoint_protocol.store.object_store import translate_store_error
from tests.support.http_server import serving_by

EXPIRED = b"<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"


class _Refusing(BaseHTTPRequestHandler):
    """Knows one token. To GET it says why it refuses others, unless `says_why` is False."""

    says_why = True

    def _refuse(self) -> None:
        is_good = self.headers["x-amz-security-token"] == "good"
        body = b"" if self.command == "HEAD" or is_good or not self.says_why else EXPIRED
        self.send_response(200 if is_good else 400)
        if is_good:
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Wed, 25 Nov 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET = do_PUT = _refuse  # noqa: N815 as the library calls them

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    with serving_by(_Refusing) as url:
        yield url


class _Silent(_Refusing):
    says_why = False


@pytest.fixture
def silent_endpoint() -> Iterator[str]:
    with serving_by(_Silent) as url:
        yield url


def settings_at(endpoint: str, session: str = "old") -> Settings:
    entry = StorageEntry(
        prefix="s3://bucket",
        endpoint=endpoint,
        region="us-east-1",
        access_key_id=SecretStr("a"),
        secret_access_key=SecretStr("b"),
        session_token=SecretStr(session),
    )
    return Settings(storage=(entry,))


def test_a_bare_400_is_asked_for_its_reason(endpoint: str) -> None:
    with pytest.raises(NeedsChange) as refused:
        Buckets(settings_at(endpoint)).head(locate("s3://bucket/folder/x.parquet"))

    assert refused.value.reason == reasons.CREDENTIALS_REFUSED
    assert "ExpiredToken" in refused.value.message
    assert "check the credentials of this prefix" in refused.value.message


def test_a_store_that_never_says_why_takes_a_new_token(silent_endpoint: str) -> None:
    with pytest.raises(NeedsChange, match="as for a token that has expired; check the credentials") as refused:
        Buckets(settings_at(silent_endpoint)).head(locate("s3://bucket/x.parquet"))
    assert refused.value.reason == reasons.CREDENTIALS_REFUSED

    assert Buckets(settings_at(silent_endpoint, "good")).head(locate("s3://bucket/x.parquet")) is not None


@pytest.mark.parametrize(
    "text",
    [
        "Generic S3 error: Error performing HEAD http://h/b/x in 2.4ms - Server returned non-2xx status code: 400 Bad Request: ",
        "When reading key 'x': AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: No response body.",
    ],
    ids=["obstore", "pyarrow"],
)
def test_where_nobody_can_ask_again_credentials_are_named(text: str) -> None:
    said = translate_store_error(OSError(text), "s3://b/x")

    assert isinstance(said, NeedsChange)
    assert said.reason == reasons.CREDENTIALS_REFUSED
    assert "as for a token that has expired; check the credentials of this prefix" in said.message


def test_a_400_that_says_what_is_wrong_is_no_matter_of_credentials() -> None:
    text = "Server returned non-2xx status code: 400 Bad Request: <Error><Code>EntityTooLarge</Code></Error>"

    assert translate_store_error(OSError(text), "s3://b/x").reason == reasons.STORE_UNAVAILABLE
