"""Which exceptions of a step mean that a service did not answer, or asks to be called again later. Pure.

The clients that people use are known by names, so that none of them need be installed.
"""

from __future__ import annotations

import email.utils
import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

#: Of HTTP: Request Timeout, Too Many Requests (RFC 9110, 15.5.9; RFC 6585, 4); all of 5xx besides.
_PASSING_STATUSES: Final = frozenset({408, 429})
TOO_MANY_REQUESTS: Final = 429
_PASSING_GRPC_CODES: Final = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"})
_BUILT_IN: Final = (TimeoutError, ConnectionError)
#: By the first part of the module's name.
_LOST_CONNECTIONS: Final = frozenset(
    {
        "aiohttp.ClientConnectionError",
        "aiohttp.ClientPayloadError",
        "anthropic.APIConnectionError",
        "botocore.ConnectionError",
        "botocore.HTTPClientError",
        "http.IncompleteRead",
        "httpcore.NetworkError",
        "httpcore.ProtocolError",
        "httpcore.TimeoutException",
        "httpx.TransportError",
        "openai.APIConnectionError",
        "requests.ChunkedEncodingError",
        "requests.ConnectionError",
        "requests.Timeout",
        "socket.gaierror",
        "urllib.URLError",
        "urllib3.MaxRetryError",
        "urllib3.ProtocolError",
        "urllib3.TimeoutError",
    }
)


def is_passing(error: BaseException, also: Collection[str] = ()) -> bool:
    """Whether the same call may succeed later.

    An exception that has `is_passing` says it itself (checkpointed_writes.Retryable, RowError). `also`: names of exceptions,
    whole or without their module, and status codes.
    """
    if isinstance(said := getattr(error, "is_passing", None), bool):
        return said
    if isinstance(error, _BUILT_IN):
        return True
    names = set(_names_of(error))
    if not names.isdisjoint(also):
        return True
    status = status_of(error)
    if status is None:
        return not names.isdisjoint(_LOST_CONNECTIONS)
    return status in _PASSING_STATUSES or 500 <= status < 600 or str(status) in also


def status_of(error: BaseException) -> int | None:
    """Return the status code of HTTP that an exception of one of the usual clients carries."""
    return next((int(found) for found in _candidates(error) if isinstance(found, int) and 100 <= found < 600), None)


def _candidates(error: BaseException) -> Iterator[object]:
    """Give what may be a status code, and ask for no more than is wanted: aiohttp warns of who asks for its `code`."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # botocore's
        metadata = response.get("ResponseMetadata")
        response = None
        yield metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None
    for name in ("status_code", "status"):
        yield getattr(error, name, None)
    for name in ("status_code", "status"):
        yield getattr(response, name, None)
    code = getattr(error, "code", None)
    yield 503 if callable(code) and getattr(_called(code), "name", None) in _PASSING_GRPC_CODES else code


def retry_after_s(error: BaseException, now_s: float) -> float | None:
    """Return how long a service asks to wait (RFC 9110, 10.2.3), or the step does. `now_s`: since 1970."""
    said = getattr(error, "retry_after", None)
    if said is None:
        pairs = itertools.chain.from_iterable(_headers_of(error))
        said = next((value for key, value in pairs if str(key).lower() == "retry-after"), None)
    return _seconds_of(said, now_s)


def _headers_of(error: BaseException) -> Iterator[list[tuple[Any, Any]]]:
    """Give the headers that an exception of one of the usual clients carries. Not all of them have a Mapping (urllib)."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # botocore's
        metadata = response.get("ResponseMetadata")
        yield _pairs_of(metadata.get("HTTPHeaders") if isinstance(metadata, Mapping) else None)
    for carrier in (error, response):
        yield _pairs_of(getattr(carrier, "headers", None))
    yield _pairs_of(_called(getattr(error, "trailing_metadata", None)))  # gRPC's


def _pairs_of(headers: Any) -> list[tuple[Any, Any]]:
    """Return headers as pairs: none where these are none."""
    found: Any = _called(headers.items) if hasattr(headers, "items") else headers
    try:
        return [(key, value) for key, value in found or ()]
    except (TypeError, ValueError):
        return []


def _seconds_of(said: object, now_s: float) -> float | None:
    if isinstance(said, bool) or not isinstance(said, int | float | str):
        return None
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(str(said)).timestamp() - now_s
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _called(function: Any) -> object:
    try:
        return function()
    except Exception:
        return None


def _names_of(error: BaseException) -> Iterator[str]:
    """Give the names of an exception's class and of all that it derives from: alone, whole, and with the module's first part."""
    for kind in type(error).__mro__:
        yield from (kind.__name__, f"{kind.__module__}.{kind.__qualname__}", f"{kind.__module__.split('.')[0]}.{kind.__name__}")
