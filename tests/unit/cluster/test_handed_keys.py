"""Keys that a catalog hands out, in a cluster: in one Secret of the namespace, mounted by the pods of the write, and renewed."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from checkpoint_operator.pods.driver_pod import HANDED_KEYS_SECRET, handed_keys_secret, pod_name
from checkpoint_operator.pods.handed_keys import HandedKeysEntry
from checkpoint_operator.pods.pod_drivers import PodDrivers
from checkpoint_operator.watch.cache import Cache
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.places.handed_keys import HandedKeys, RenewedKeys, written
from checkpoint_work.process.settings import KEYS_FILE_VARIABLE
from tests.support.fake_cluster import FakeApi
from tests.support.records import launch
from tests.unit.cluster.test_pods import DEFAULTS, KEY, OWNER, spec_of

START = datetime(2030, 1, 1, tzinfo=UTC)
PLACE = (OWNER.namespace, HANDED_KEYS_SECRET)


@dataclass
class Catalog:
    """Hands out keys that live for a hundred seconds, each time others."""

    passed_s: float = 0.0
    asked: int = 0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed_s)

    def load(self) -> tuple[Sequence[HandedKeys], bool]:
        self.asked += 1
        return [keys(f"key-{self.asked}", self.passed_s + 100)], True


def keys(name: str, ends_s: float) -> HandedKeys:
    return HandedKeys(prefix="s3://b", values={"access_key_id": name}, expires_at=START + timedelta(seconds=ends_s))


def entry_for(api: FakeApi, catalog: Catalog) -> HandedKeysEntry:
    return HandedKeysEntry(api, OWNER.namespace, RenewedKeys(catalog.load, catalog.now), catalog.now)


def drivers_of(api: FakeApi, catalog: Catalog, **spec: Any) -> PodDrivers:
    return PodDrivers(api, api.cache, OWNER, spec_of(**spec), "s3://b/cw", DEFAULTS, None, entry_for(api, catalog))


def entries(api: FakeApi) -> dict[str, str]:
    return {name: base64.b64decode(text).decode() for name, text in api.secrets[PLACE]["data"].items()}


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi(Cache(), lambda key: None)


def test_driver_and_executors_mount_the_entry_of_their_write_which_is_there_before_the_pod(api: FakeApi) -> None:
    drivers_of(api, Catalog()).start(KEY, launch(1))

    pod = api.pods[OWNER.namespace, pod_name(OWNER.name, KEY, 1)]
    assert api.writes_made.index("create secret") < api.writes_made.index("create pod")
    assert "key-1" in entries(api)[KEY.uid]
    container = pod["spec"]["containers"][0]
    environment = {item["name"]: item.get("value", "") for item in container["env"]}
    executor = json.loads(environment["CHECKPOINTED_WRITE_EXECUTOR_TEMPLATE"])
    for one in (pod, executor):
        (volume,) = [volume for volume in one["spec"]["volumes"] if "secret" in volume]
        assert volume["secret"] == {"secretName": HANDED_KEYS_SECRET, "items": [{"key": KEY.uid, "path": "keys.json"}]}
        inside = one["spec"]["containers"][0]
        (mount,) = [mount for mount in inside["volumeMounts"] if mount["name"] == volume["name"]]
        assert mount["readOnly"]
        (said,) = [item["value"] for item in inside["env"] if item["name"] == KEYS_FILE_VARIABLE]
        assert said == f"{mount['mountPath']}/keys.json"
    assert "key-1" not in json.dumps(pod)


def test_the_keys_are_renewed_while_the_pod_is_there_and_in_no_other_round(api: FakeApi) -> None:
    catalog = Catalog()
    drivers = drivers_of(api, catalog)
    drivers.start(KEY, launch(1))
    found = []

    for passed_s in (10, 49, 51, 60):
        catalog.passed_s = passed_s
        drivers.observe(KEY, 1)
        found.append([name for name in ("key-1", "key-2") if name in entries(api)[KEY.uid]])
    changes = len(api.writes_made)
    drivers.observe(KEY, 1)

    assert found == [["key-1"], ["key-1"], ["key-2"], ["key-2"]]
    assert len(api.writes_made) == changes


def test_entries_of_others_stay_until_their_keys_have_expired(api: FakeApi) -> None:
    others = {"living": written([keys("living", 60), keys("dead", 5)]), "dead": written([keys("dead", 5)]), "odd": b"not ours"}
    others["yet to be made"] = written([])
    secret = handed_keys_secret({name: encoded(text) for name, text in others.items()})
    api.create_secret(OWNER.namespace, secret)
    catalog = Catalog(passed_s=10)

    entry_for(api, catalog).renew("mine")

    assert sorted(entries(api)) == ["living", "mine", "odd", "yet to be made"]


def test_of_two_writes_that_begin_at_once_both_have_their_entry(api: FakeApi) -> None:
    def rival_comes_first(request: str) -> None:
        if request == "create secret":
            api.before = lambda _: None
            entry_for(api, Catalog()).renew("rival")

    api.before = rival_comes_first
    entry_for(api, Catalog()).renew("mine")

    assert sorted(entries(api)) == ["mine", "rival"]


def test_an_entry_that_could_not_be_put_is_put_the_next_time(api: FakeApi) -> None:
    entry = entry_for(api, Catalog())

    api.down = True
    with pytest.raises(Retryable):
        entry.renew("mine")
    api.down = False
    entry.renew("mine")

    assert "key-1" in entries(api)["mine"]
