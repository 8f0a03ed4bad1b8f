"""Code from an object: which version lies there is asked each time, and each version is fetched and checked once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from checkpoint_control.code.archive import CodeVersion
from checkpoint_operator.code_source import CodeSource
from checkpoint_operator.config import WorkloadDefaults
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.memory import MemoryBudget
from tests.support.archives import zip_of
from tests.support.stores import MemoryStore
from tests.support.waiting import patience
from tests.unit.cli.test_code_digest import spec

URI = "s3://bucket/steps.zip"


@dataclass
class Bucket:
    """The objects of a bucket, with their etags; notes what is asked of it."""

    objects: dict[str, tuple[str | None, bytes]] = field(default_factory=dict)
    looks: int = 0
    fetches: int = 0
    meanwhile: Callable[[], None] = lambda: None

    def version_of(self, uri: str, _settings: Any) -> CodeVersion:
        self.looks += 1
        if uri not in self.objects:
            raise NeedsChange(reasons.CODE_MISSING, f"there is no object {uri}")
        etag, data = self.objects[uri]
        return CodeVersion(etag, len(data))

    def fetch(self, uri: str, settings: Any, version: CodeVersion) -> bytes:
        self.fetches += 1
        self.meanwhile()
        self.looks -= 1
        if self.version_of(uri, settings) != version:
            raise Retryable(reasons.CODE_MISSING, "it was replaced")
        return self.objects[uri][1]


def source_over(bucket: Bucket) -> CodeSource:
    return CodeSource(
        api=None,  # type: ignore[arg-type]
        settings_of=lambda _: Settings(),
        workloads=WorkloadDefaults(image="spark:1"),
        memory=MemoryBudget(64 << 20),
        version_of=bucket.version_of,
        fetch=bucket.fetch,
    )


UID = "u"
WITH_URI = spec(code={"uri": URI})


def test_a_version_that_can_be_used_is_fetched_once_however_often_it_is_looked_at() -> None:
    bucket, store = Bucket({URI: ("one", zip_of({"a.py": "x = 1"}))}), MemoryStore()
    source = source_over(bucket)

    answers = {source.resolve("team", UID, WITH_URI, store) for _ in range(5)}

    assert len(answers) == 1
    ((_, archive),) = answers
    assert archive is not None
    assert store.objects[layout.code_path("u", archive)] == bucket.objects[URI][1]
    assert (bucket.looks, bucket.fetches) == (5, 1)


def test_a_version_that_cannot_be_used_is_fetched_and_checked_once_and_says_the_same_each_time() -> None:
    bucket = Bucket({URI: ("one", b"no archive")})
    source = source_over(bucket)

    told = []
    for _ in range(3):
        with pytest.raises(NeedsChange, match="no zip archive") as refused:
            source.resolve("team", UID, WITH_URI, MemoryStore())
        told.append((refused.value.reason, refused.value.message))

    assert len(set(told)) == 1
    assert (bucket.looks, bucket.fetches) == (3, 1)


def test_another_version_is_taken_at_the_next_look() -> None:
    bucket, store = Bucket({URI: ("one", b"no archive")}), MemoryStore()
    source = source_over(bucket)
    with pytest.raises(NeedsChange):
        source.resolve("team", UID, WITH_URI, store)

    bucket.objects[URI] = ("two", zip_of({"a.py": "x = 1"}))
    first = source.resolve("team", UID, WITH_URI, store)
    bucket.objects[URI] = ("three", zip_of({"a.py": "x = 2"}))

    assert source.resolve("team", UID, WITH_URI, store) != first


def test_each_write_has_the_code_in_its_own_store() -> None:
    bucket, store, other = Bucket({URI: ("one", zip_of({"a.py": "x = 1"}))}), MemoryStore(), MemoryStore()
    source = source_over(bucket)

    for each in (store, other, store, other):
        source.resolve("team", UID, WITH_URI, each)

    assert store.objects == other.objects != {}
    assert bucket.fetches == 2


def test_what_one_namespace_was_told_no_other_is() -> None:
    bucket = Bucket({URI: ("one", b"no archive")})
    source = source_over(bucket)

    for namespace in ("one", "two"):
        with pytest.raises(NeedsChange):
            source.resolve(namespace, UID, WITH_URI, MemoryStore())

    assert bucket.fetches == 2


def test_without_etags_nothing_is_remembered() -> None:
    bucket, store = Bucket({URI: (None, zip_of({"a.py": "x = 1"}))}), MemoryStore()
    source = source_over(bucket)

    source.resolve("team", UID, WITH_URI, store)
    source.resolve("team", UID, WITH_URI, store)

    assert bucket.fetches == 2


def test_an_object_that_is_replaced_while_it_is_fetched_is_fetched_again_later() -> None:
    bucket, store = Bucket({URI: ("one", zip_of({"a.py": "x = 1"}))}), MemoryStore()
    source = source_over(bucket)

    def replace() -> None:
        bucket.objects[URI] = ("two", zip_of({"a.py": "x = 2"}))

    bucket.meanwhile = replace
    with pytest.raises(Retryable):
        source.resolve("team", UID, WITH_URI, store)
    bucket.meanwhile = lambda: None

    source.resolve("team", UID, WITH_URI, store)
    assert list(store.objects.values()) == [bucket.objects[URI][1]]


def test_a_download_that_takes_long_holds_up_no_other() -> None:
    other = "s3://bucket/other.zip"
    bucket = Bucket({URI: ("one", zip_of({"a.py": "x = 1"})), other: ("one", zip_of({"b.py": "x = 2"}))})
    source, begun, go_on = source_over(bucket), threading.Event(), threading.Event()

    def wait() -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(patience(30))

    bucket.meanwhile = wait
    slow = threading.Thread(target=source.resolve, args=("team", UID, WITH_URI, MemoryStore()))
    slow.start()
    assert begun.wait(patience(30))

    source.resolve("team", "v", spec(code={"uri": other}), MemoryStore())

    go_on.set()
    slow.join(patience(30))
    assert bucket.fetches == 2


def test_code_that_is_gone_is_told_though_it_was_there() -> None:
    bucket, store = Bucket({URI: ("one", zip_of({"a.py": "x = 1"}))}), MemoryStore()
    source = source_over(bucket)
    source.resolve("team", UID, WITH_URI, store)
    bucket.objects.clear()

    with pytest.raises(NeedsChange, match="there is no object"):
        source.resolve("team", UID, WITH_URI, store)

    bucket.objects[URI] = ("two", zip_of({"a.py": "x = 2"}))
    assert source.resolve("team", UID, WITH_URI, store)


def test_code_that_vanishes_while_it_is_fetched_and_comes_back_as_it_was_is_taken() -> None:
    bucket, store = Bucket({URI: ("one", zip_of({"a.py": "x = 1"}))}), MemoryStore()
    source, there = source_over(bucket), dict(bucket.objects)
    bucket.meanwhile = bucket.objects.clear
    with pytest.raises(NeedsChange, match="there is no object"):
        source.resolve("team", UID, WITH_URI, store)
    bucket.objects, bucket.meanwhile = there, lambda: None

    source.resolve("team", UID, WITH_URI, store)

    assert len(store.objects) == 1
