"""What libraries say is cut to the cause: the texts are those of the libraries that are pinned."""

from __future__ import annotations

import obstore
import pytest
import requests
from obstore.store import S3Store

from checkpoint_protocol.errors import cause_of, one_line
from checkpoint_protocol.store.object_store import translate_store_error
from devtools.ports import free_port
from tests.support.waiting import patience

#: Lance names the folders in which it was built.
_IN_RUST = "/build/lance/rust"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            (
                "HTTPConnectionPool(host='127.0.0.1', port=9): Max retries exceeded with url: /v1/config?token=x (Caused by "
                "NewConnectionError(\"HTTPConnection(host='127.0.0.1', port=9): Failed to establish a new "
                "connection: [Errno 111] "
                'Connection refused"))'
            ),
            "127.0.0.1:9: Connection refused",
        ),
        (
            (
                "HTTPConnectionPool(host='no.such.host', port=9): Max retries exceeded with url: /v1/config (Caused by "
                "NameResolutionError(\"HTTPConnection(host='no.such.host', port=9): Failed to resolve 'no.such.host' ([Errno -2] "
                'Name or service not known)"))'
            ),
            "no.such.host:9: Failed to resolve 'no.such.host' (Name or service not known)",
        ),
        (
            (
                "HTTPSConnectionPool(host='h', port=443): Max retries exceeded with url: / (Caused by SSLError("
                "SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
                "self-signed certificate "
                "(_ssl.c:1016)')))"
            ),
            "h:443: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1016)",
        ),
        (
            (
                "HTTPConnectionPool(host='h', port=80): Max retries exceeded with url: / (Caused by ProtocolError('Connection "
                "aborted.', RemoteDisconnected('Remote end closed connection without response')))"
            ),
            "h:80: Remote end closed connection without response",
        ),
        (
            "HTTPConnectionPool(host='h', port=80): Read timed out. (read timeout=60)",
            "h:80: Read timed out. (read timeout=60)",
        ),
        (
            (
                "Generic S3 error: Error performing list request: Error performing GET http://127.0.0.1:9/b?list-type=2 in "
                "101.884935ms, after 1 retries, max_retries: 1, retry_timeout: 1s  - HTTP error: error sending request\n\n"
                'Debug source:\nGeneric {\n  Os {\n    code: 111,\n    message: "Connection refused",\n  },\n}'
            ),
            "GET http://127.0.0.1:9/b: error sending request: Connection refused",
        ),
        (
            (
                "Generic S3 error: Error performing GET http://h/b/x in 2.6ms - HTTP error: error sending "
                "request\n\nDebug source:\n"
                'ConnectError(\n  "dns error",\n  Custom {\n    error: "failed to lookup address information: '
                "Name or service not "
                'known",\n  },\n)'
            ),
            "GET http://h/b/x: error sending request: failed to lookup address information: Name or service not known",
        ),
        (
            (
                "Object at location /tmp/x not found: No such file or directory (os error 2)\n\nDebug source:\nNotFound {\n    "
                'message: "No such file or directory",\n}'
            ),
            "Object at location /tmp/x not found: No such file or directory (os error 2)",
        ),
        (
            (
                "LanceError(IO): Generic S3 error: Error performing GET http://127.0.0.1:9/b?prefix=x in 227.489µs - HTTP error: "
                f"error sending request, {_IN_RUST}/lance-io/src/object_store.rs:1576:42"
            ),
            "GET http://127.0.0.1:9/b: error sending request",
        ),
        (
            (
                f"Dataset at path x.lance was not found: Not found: x.lance/_versions, "
                f"{_IN_RUST}/lance-table/src/io/commit.rs:653:26, {_IN_RUST}/lance/src/dataset/builder.rs:921:29"
            ),
            "Dataset at path x.lance was not found: Not found: x.lance/_versions",
        ),
        (
            (
                "When reading information for key 'x' in bucket 'b': AWS Error NETWORK_CONNECTION during HeadObject operation: "
                "curlCode: 7, Could not connect to server; Details: Failed to connect to 127.0.0.1:9 after 0 "
                "ms: Could not connect"
            ),
            "Failed to connect to 127.0.0.1:9 after 0 ms: Could not connect",
        ),
        (
            (
                "When reading information for key 'x' in bucket 'b': AWS Error UNKNOWN (HTTP status 400) during "
                "HeadObject operation: "
                "No response body."
            ),
            (
                "When reading information for key 'x' in bucket 'b': AWS Error UNKNOWN (HTTP status 400) during "
                "HeadObject operation: "
                "No response body."
            ),
        ),
        (
            "RESTError 500: Received unexpected JSON Payload: oops, <b>, errors: Invalid JSON: expected value at line 1 column 1",
            "HTTP 500: oops, <b>",
        ),
        (
            (
                "broker:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT, 1 "
                "identical error(s) suppressed)"
            ),
            "broker:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused",
        ),
        (
            (
                "Generic S3 error: Error performing GET http://h/b/x in 2.6ms - Server returned non-2xx status code: 403 "
                "Forbidden: <Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>ASIAKEY</AWSAccessKeyId><StringToSign>"
                "AWS4-HMAC-SHA256\n20261128/x</StringToSign><SignatureProvided>0123"
                "</SignatureProvided><StringToSignBytes>41 57</StringToSignBytes>"
                "<CanonicalRequest>GET\nx-amz-security-token:SECRET"
            ),
            ("GET http://h/b/x: Server returned non-2xx status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code>"),
        ),
        ("a text of our own (with what it explains); do this", "a text of our own (with what it explains); do this"),
    ],
)
def test_a_text_of_a_library_is_cut_to_its_cause(text: str, cause: str) -> None:
    assert cause_of(text) == one_line(text) == cause
    assert cause_of(cause) == cause


def test_a_connection_that_is_refused_is_one_short_line_from_each_library_that_opens_one() -> None:
    port = free_port()
    with pytest.raises(requests.ConnectionError) as asked:
        requests.get(f"http://127.0.0.1:{port}/v1/config", timeout=patience(5))
    store = S3Store(
        "b",
        endpoint=f"http://127.0.0.1:{port}",
        access_key_id="a",
        secret_access_key="b",
        region="r",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    with pytest.raises(obstore.exceptions.GenericError) as put:
        obstore.put(store, "x", b"1")

    assert one_line(asked.value) == f"127.0.0.1:{port}: Connection refused"
    assert one_line(put.value) == f"PUT http://127.0.0.1:{port}/b/x: error sending request: Connection refused"
    assert (
        "x: error sending request: Connection refused; check its endpoint" in translate_store_error(put.value, "s3://b/").message
    )


@pytest.mark.parametrize("part", ["/", "HTTPConnectionPool(", "A('", "Error performing GET "])
def test_a_text_of_any_length_is_cut(part: str) -> None:
    assert len(one_line(part * (1_000_000 // len(part)))) == 400
