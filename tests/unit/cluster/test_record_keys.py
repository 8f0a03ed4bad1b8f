"""The operator's keys for records: made once, renewed, shared by several operators, and never guessed at."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest

from checkpoint_operator.kube.api import Conflict
from checkpoint_operator.record_keys import RecordKeys
from checkpoint_operator.watch.cache import Cache
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from tests.support.fake_cluster import FakeApi

NAMESPACE, NAME = "operator", "record-keys"
DAY_S = 86_400


def api_with_secret() -> FakeApi:
    api = FakeApi(Cache(), lambda key: None)
    api.put_secret(NAMESPACE, NAME)
    return api


def entries(api: FakeApi) -> Mapping[str, Any]:
    """The keys: all entries but that of the cluster's id."""
    return {name: value for name, value in (api.secrets[NAMESPACE, NAME].get("data") or {}).items() if name != "cluster"}


def test_the_first_operator_makes_a_key_and_the_others_find_it() -> None:
    api = api_with_secret()
    first, second = RecordKeys(api, NAMESPACE, NAME), RecordKeys(api, NAMESPACE, NAME)

    first.load()
    second.load()

    assert len(entries(api)) == 1
    assert first.of("uid") == second.of("uid")
    assert first.of("uid").keys != first.of("another").keys


def test_of_two_operators_that_begin_at_once_one_makes_the_key() -> None:
    api = api_with_secret()
    rival = RecordKeys(api, NAMESPACE, NAME)
    patch = api.patch_secret

    def late(namespace: str, name: str, change: Mapping[str, Any]) -> Mapping[str, Any] | None:
        api.patch_secret = patch  # type: ignore[method-assign]
        rival.load()
        return patch(namespace, name, change)

    api.patch_secret = late  # type: ignore[method-assign, assignment]
    slow = RecordKeys(api, NAMESPACE, NAME)
    slow.load()

    assert len(entries(api)) == 1
    assert slow.of("uid") == rival.of("uid")


def test_the_id_of_the_cluster_is_made_once_and_every_operator_finds_it() -> None:
    api = api_with_secret()
    first = RecordKeys(api, NAMESPACE, NAME)
    first.load()
    later = RecordKeys(api, NAMESPACE, NAME, renew_after_s=1, now=lambda: 9_999_999_999.0)
    later.load()

    assert len(entries(api)) == 2
    assert later.cluster == first.cluster != ""


def test_the_secret_of_a_release_without_clusters_gets_an_id_and_keeps_its_keys() -> None:
    api = api_with_secret()
    RecordKeys(api, NAMESPACE, NAME).load()
    before = entries(api)
    del api.secrets[NAMESPACE, NAME]["data"]["cluster"]

    keys = RecordKeys(api, NAMESPACE, NAME)
    keys.load()

    assert keys.cluster
    assert entries(api) == before


@pytest.mark.parametrize("text", ["", "%", "YQ=="])
def test_an_id_of_the_cluster_that_somebody_changed_is_named_and_not_replaced(text: str) -> None:
    api = api_with_secret()
    api.secrets[NAMESPACE, NAME]["data"] = {"cluster": text}

    with pytest.raises(NeedsChange, match="'cluster' of the Secret operator/record-keys is not as the operator made it"):
        RecordKeys(api, NAMESPACE, NAME).load()

    api.secrets[NAMESPACE, NAME]["data"] = {"cluster": base64.b64encode(b"0a" * 8).decode()}
    brought_back = RecordKeys(api, NAMESPACE, NAME)
    brought_back.load()
    assert brought_back.cluster == "0a" * 8


def test_a_key_that_is_old_is_followed_by_a_newer_one_and_still_believed() -> None:
    api, now = api_with_secret(), [1_000.0]
    keys = RecordKeys(api, NAMESPACE, NAME, renew_after_s=DAY_S, now=lambda: now[0])
    keys.load()
    before = keys.of("uid")

    now[0] += DAY_S - 1
    keys.load()
    assert keys.of("uid") == before
    now[0] += 1
    keys.load()

    after = keys.of("uid")
    assert after.current != before.current
    assert after.keys[before.current] == before.keys[before.current]


def test_a_key_that_another_operator_has_made_is_looked_for_when_it_is_met_and_not_all_the_time() -> None:
    api, now = api_with_secret(), [0.0]
    keys = RecordKeys(api, NAMESPACE, NAME, clock=lambda: now[0])
    keys.load()
    other = RecordKeys(api, NAMESPACE, NAME, renew_after_s=1, now=lambda: 9_999_999_999.0)
    other.load()
    newer = other.of("uid").current
    asked: list[str] = []
    api.before = asked.append

    assert newer not in keys.of("uid", newer).keys, "it has only just looked"
    now[0] = 31.0
    assert newer in keys.of("uid", newer).keys
    for _ in range(10):
        keys.of("uid", "strange")
    assert asked == ["get secret"]


@pytest.mark.parametrize("entry", [("key", "YQ=="), ("1-0a0a0a0a", "YQ=="), ("1-0a0a0a0a", "%"), ("1-0A", "a" * 43 + "=")])
def test_an_entry_that_is_no_key_is_named_and_nothing_is_signed(entry: tuple[str, str]) -> None:
    api = api_with_secret()
    api.secrets[NAMESPACE, NAME]["data"] = dict([entry])

    with pytest.raises(NeedsChange, match=f"entry '{entry[0]}' of the Secret operator/record-keys") as caught:
        RecordKeys(api, NAMESPACE, NAME).load()

    assert caught.value.reason == reasons.CREDENTIALS_REFUSED
    assert entry[1] not in caught.value.message

    del api.secrets[NAMESPACE, NAME]["data"][entry[0]]
    RecordKeys(api, NAMESPACE, NAME).load()
    assert len(entries(api)) == 1


def test_without_its_secret_the_operator_says_which() -> None:
    with pytest.raises(NeedsChange, match=r"operator/record-keys.*helm upgrade makes it"):
        RecordKeys(FakeApi(Cache(), lambda key: None), NAMESPACE, NAME).load()


def test_a_secret_that_is_changed_all_the_time_is_told() -> None:
    api = api_with_secret()
    left_alone = api.patch_secret

    def refuse(*_: object) -> Mapping[str, Any]:
        raise Conflict("it was changed")

    api.patch_secret = refuse  # type: ignore[method-assign, assignment]
    with pytest.raises(NeedsChange, match="changed again and again"):
        RecordKeys(api, NAMESPACE, NAME).load()

    api.patch_secret = left_alone  # type: ignore[method-assign]
    RecordKeys(api, NAMESPACE, NAME).load()
    assert len(entries(api)) == 1


def test_a_key_has_as_many_bytes_as_sha256_makes() -> None:
    api = api_with_secret()
    RecordKeys(api, NAMESPACE, NAME).load()

    (text,) = entries(api).values()
    assert len(base64.b64decode(text)) == 32
