"""Which exceptions of a step are tried again, and how long the service asks to wait."""

from __future__ import annotations

import asyncio
import copy
import http.client
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
import requests

from checkpoint_work.steps.calling.service_errors import is_passing, retry_after_s, status_of
from checkpointed_writes import Retryable, RetryAfter, RowError
from tests.support.http_service import Service, serving
from tests.support.waiting import patience


def http_error(status: int, **headers: str) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return requests.HTTPError(response=response)


def of_urllib(status: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://127.0.0.1/", status, "said", Message(), None)


def of_aws(status: int) -> Exception:
    """Return what botocore's ClientError is."""
    return Coded(response={"ResponseMetadata": {"HTTPStatusCode": status}})


def of_module(module: str, *names: str) -> BaseException:
    """Return an exception of a class of a library that is not installed; each of the names derives from the one before."""
    kind: type[Exception] = Exception
    for name in names:
        kind = type(name, (kind,), {"__module__": module})
    return kind()


class Coded(Exception):
    """As the clients of OpenAI and Anthropic have it, and aiohttp's ClientResponseError."""

    def __init__(self, **fields: Any) -> None:
        super().__init__("said")
        vars(self).update(fields)


class Overloaded(Exception):
    pass


class StillOverloaded(Overloaded):
    pass


class OfGrpc(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._name = name

    def code(self) -> Any:
        return SimpleNamespace(name=self._name, value=(14, self._name))


PASSING: dict[str, BaseException] = {
    "a timeout": TimeoutError(),
    "a lost connection": ConnectionResetError(),
    "a name that is not found": socket.gaierror(),
    "no connection, by urllib": urllib.error.URLError("refused"),
    "an answer that was cut, by requests": requests.exceptions.ChunkedEncodingError(),
    "no connection, by requests": requests.ConnectionError(),
    "a timeout, by requests": requests.ReadTimeout(),
    "no connection, by boto": of_module("botocore.exceptions", "ConnectionError", "EndpointConnectionError"),
    "no connection, by httpx": of_module("httpx", "TransportError", "NetworkError", "ConnectError"),
    "no connection, by OpenAI": of_module("openai", "APIError", "APIConnectionError", "APITimeoutError"),
    "no connection, by aiohttp": of_module("aiohttp.client_exceptions", "ClientConnectionError", "ServerDisconnectedError"),
    "an answer that was cut": http.client.IncompleteRead(b""),
    "408": http_error(408),
    "429": of_urllib(429),
    "429 as status_code": Coded(status_code=429),
    "502 as status": Coded(status=502),
    "500 of S3": of_aws(500),
    "599": http_error(599),
    "gRPC's UNAVAILABLE": OfGrpc("UNAVAILABLE"),
    "one that says so itself": Coded(is_passing=True),
    "the one for steps": Retryable("the queue is full"),
    "the same, with a time": RetryAfter(3),
}
LASTING: dict[str, BaseException] = {
    "a value": ValueError(),
    "a file": FileNotFoundError(),
    "400": http_error(400),
    "404 of urllib, which is a URLError": of_urllib(404),
    "403 of S3": of_aws(403),
    "a code that is none of HTTP": Coded(code=4290),
    "gRPC's INVALID_ARGUMENT": OfGrpc("INVALID_ARGUMENT"),
    "409": Coded(status_code=409),
    "one of the user's": StillOverloaded(),
    "the one for steps": RowError("no question"),
}


@pytest.mark.parametrize("error", PASSING.values(), ids=PASSING)
def test_what_may_succeed_later_is_tried_again(error: BaseException) -> None:
    assert is_passing(error)


@pytest.mark.parametrize("error", LASTING.values(), ids=LASTING)
def test_what_fails_for_a_reason_of_the_row_is_not(error: BaseException) -> None:
    assert not is_passing(error)


@pytest.mark.parametrize("name", ["Overloaded", f"{__name__}.Overloaded", f"{__name__.split('.')[0]}.StillOverloaded"])
def test_exceptions_are_named_alone_or_with_their_module_and_those_derived_from_them_count(name: str) -> None:
    assert is_passing(StillOverloaded(), [name])
    assert not is_passing(ValueError(), [name])


def test_a_row_that_is_at_fault_is_not_tried_again_whatever_is_named() -> None:
    assert not is_passing(RowError(), ["RowError", "Exception"])


@pytest.mark.parametrize("error", [Retryable("full", retry_after=2.0), RetryAfter(2.0, "full"), RowError("full")])
def test_what_steps_raise_arrives_whole_in_another_process_and_is_named_as_it_is_imported(error: Exception) -> None:
    arrived = copy.deepcopy(error)  # as pickle does

    assert type(arrived) is type(error)
    assert str(arrived) == "full"
    assert getattr(arrived, "retry_after", None) == getattr(error, "retry_after", None)
    assert type(error).__module__ == "checkpointed_writes"


def test_a_status_code_can_be_named() -> None:
    assert is_passing(Coded(status_code=409), ["409"])
    assert is_passing(http_error(404), ["requests.HTTPError"])


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (http_error(429, Retry_After="7"), 7.0),
        (http_error(503, retry_after="0.5"), 0.5),
        (http_error(503, Retry_After="Tue, 24 Nov 2026 00:01:00 GMT"), 60.0),
        (http_error(503, Retry_After="Mon, 23 Nov 2026 23:59:00 GMT"), 0.0),
        (http_error(503, Retry_After="soon"), None),
        (http_error(503, Retry_After="nan"), None),
        (http_error(503), None),
        (Coded(status=429, headers={"retry-after": "3"}), 3.0),
        (Coded(retry_after=2), 2.0),
        (RetryAfter(2.5), 2.5),
        (Retryable("soon"), None),
        (Coded(retry_after=True), None),
        (TimeoutError(), None),
    ],
)
def test_the_service_says_how_long_to_wait(error: BaseException, seconds: float | None) -> None:
    assert retry_after_s(error, now_s=1_795_478_400.0) == seconds


def _by_urllib(url: str) -> None:
    try:
        urllib.request.urlopen(url, timeout=patience(30)).close()  # noqa: S310 it is on loopback
    except urllib.error.HTTPError as error:
        error.close()
        raise


def _by_requests(url: str) -> None:
    requests.get(url, timeout=patience(30)).raise_for_status()


def _by_aiohttp(url: str) -> None:
    async def ask() -> None:
        async with aiohttp.ClientSession(raise_for_status=True) as session, session.get(url):
            pass

    asyncio.run(ask())


@pytest.mark.parametrize("ask", [_by_urllib, _by_requests, _by_aiohttp])
def test_each_client_tells_how_long_a_service_asks_to_wait(ask: Callable[[str], None]) -> None:
    refusing = Service(latency_s=0, answer=lambda _: 429, headers={"Retry-After": "7"})
    with serving(refusing) as service, pytest.raises(Exception, match="429") as raised:
        ask(f"{service.url}/1")

    assert is_passing(raised.value)
    assert retry_after_s(raised.value, now_s=0) == 7.0


@pytest.mark.parametrize(
    "error",
    [
        Coded(response={"ResponseMetadata": {"HTTPStatusCode": 429, "HTTPHeaders": {"retry-after": "7"}}}),
        Coded(response=SimpleNamespace(headers=Message())),
        Coded(trailing_metadata=lambda: (("x", "y"), ("retry-after", "7"))),
        Coded(headers=[("Retry-After", "7")]),
    ],
    ids=["boto", "a message", "gRPC", "pairs"],
)
def test_headers_are_found_wherever_a_client_has_them(error: Any) -> None:
    if isinstance(getattr(getattr(error, "response", None), "headers", None), Message):
        error.response.headers["Retry-After"] = "7"

    assert retry_after_s(error, now_s=0) == 7.0


@pytest.mark.parametrize("headers", [None, 7, "text", [1], {"a": 1}])
def test_what_are_no_headers_say_nothing(headers: object) -> None:
    assert retry_after_s(Coded(headers=headers, trailing_metadata=7), now_s=0) is None


def test_of_an_exception_without_one_there_is_no_status() -> None:
    assert status_of(ValueError()) is None
