"""Lists of the API server are read in pages, and begun again where it does not keep what the next page is read from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes import client

from checkpoint_operator.kube.client import PAGE, KubernetesApi
from checkpoint_protocol.errors import Retryable


@dataclass
class Answer:
    status: int
    body: Any

    def read(self) -> bytes:
        return json.dumps(self.body).encode()


@dataclass
class Pages(client.ApiClient):
    """A client whose server has `count` objects, and gives no more of them at once than it is asked for.

    `expires`: of which requests for a next page the token is too old.
    """

    count: int
    expires: Sequence[int] = ()
    queries: list[dict[str, list[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(client.Configuration())

    def call_api(self, method: str, url: str, *_: Any, **__: Any) -> Any:
        self.queries.append(query := parse_qs(urlsplit(url).query))
        if len(self.queries) in self.expires:
            return Answer(
                410, {"kind": "Status", "code": 410, "reason": "Expired", "message": "The provided continue is too old"}
            )
        first, limit = int(query.get("continue", ["0"])[0]), int(query.get("limit", [str(self.count)])[0])
        last = min(self.count, first + limit)
        items = [
            {
                "metadata": {
                    "namespace": "n",
                    "name": f"w-{number}",
                    "uid": "u",
                    "labels": {"a": "x" * 1000},
                    "managedFields": [{}],
                }
            }
            for number in range(first, last)
        ]
        return Answer(200, {"metadata": {"continue": str(last) if last < self.count else ""}, "items": items})


KINDS: list[Callable[[KubernetesApi], Sequence[Any]]] = [
    lambda api: api.list_writes(None),
    lambda api: api.list_driver_pods("n"),
]


@pytest.mark.parametrize("listing", KINDS, ids=["writes", "pods"])
def test_a_long_list_is_read_in_pages_of_which_what_tells_objects_apart_is_kept(
    listing: Callable[[KubernetesApi], Sequence[Any]],
) -> None:
    pages = Pages(5 * PAGE + 1)

    found = listing(KubernetesApi(pages))

    assert [body["metadata"]["name"] for body in found] == [f"w-{number}" for number in range(5 * PAGE + 1)]
    assert {name for body in found for name in body["metadata"]} == {"namespace", "name", "uid"}
    assert [query["limit"] for query in pages.queries] == [[str(PAGE)]] * 6
    assert not any("resourceVersion" in query for query in pages.queries), "the API server ignores the limit then"


@pytest.mark.parametrize("listing", KINDS, ids=["writes", "pods"])
def test_a_list_whose_next_page_has_expired_is_begun_again(listing: Callable[[KubernetesApi], Sequence[Any]]) -> None:
    pages = Pages(3 * PAGE, expires=[3])

    found = listing(KubernetesApi(pages))

    assert [body["metadata"]["name"] for body in found] == [f"w-{number}" for number in range(3 * PAGE)]
    assert len(pages.queries) == 6


def test_a_list_that_expires_each_time_is_given_up_for_now() -> None:
    pages = Pages(3 * PAGE, expires=range(2, 100, 2))

    with pytest.raises(Retryable, match="did not keep the list"):
        KubernetesApi(pages).list_writes(None)

    assert len(pages.queries) == 6
