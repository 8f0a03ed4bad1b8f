"""A record that was put by anybody but the operator and the drivers of its write counts for nothing, and is named."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import ClaimRecord, ClosedRecord, CommitRecord, IcebergBase, InputRecord, encode
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.macs import WriteKeys, sign
from checkpoint_protocol.store.object_store import open_store
from checkpoint_work.process.settings import authenticated
from tests.controller.harness import KEYS_SECRET, World
from tests.support.driver_threads import Killed
from tests.support.writes import SCHEMA


def nothing() -> InputRecord:
    """An input without files: whoever builds on it commits nothing."""
    return InputRecord(token=new_token(), files=(), arrow_schema=encode_schema(SCHEMA))


def begin(world: World, source: Path) -> EpochKey:
    """Apply a write whose first driver is held before it does anything."""
    world.kubelet.instead[1] = {"phase": "Pending"}
    world.apply(source)
    world.until(lambda: bool(world.api.pods))
    return EpochKey(world.body()["metadata"]["uid"], 1)


def plain(world: World, key: EpochKey) -> Ledger:
    """The records of the write as one sees them who may write into the bucket, and has no key."""
    return Ledger(open_store(world.place.checkpoint_uri, world.place.settings), key)


def go_on(world: World) -> None:
    """Let the driver that was held be one that runs."""
    world.kubelet.instead.clear()
    (pod,) = world.api.pods.values()
    world.kubelet.run(pod)


def test_an_input_without_files_that_a_stranger_puts_first_commits_nothing_and_is_named(world: World, source: Path) -> None:
    key = begin(world, source)
    plain(world, key).inputs.put_input(nothing())

    go_on(world)
    world.until(lambda: world.status.reason == reasons.RECORD_FORGED)

    assert f"staged/{key}/input.json has no MAC" in (world.status.message or "")
    assert not world.is_true("Committed")
    assert world.place.rows() == []

    # The way out of the message.
    plain(world, key).store.delete([layout.EpochLayout(key).input])
    world.api.annotate(world.key, "checkpointed.dev/retry", "1")
    world.until_committed()
    assert len(world.place.rows()) == 200


def test_a_record_that_was_signed_for_another_write_is_none_of_this_one(world: World, source: Path) -> None:
    key = begin(world, source)
    theirs = world.record_keys.of("f" * 32)
    path = layout.EpochLayout(key).input
    plain(world, key).store.put_if_absent(path, sign(path, encode(nothing()), theirs))

    go_on(world)
    world.until(lambda: world.status.reason == reasons.RECORD_FORGED)

    assert "has a MAC that is not of this write's key" in (world.status.message or "")
    assert world.place.rows() == []


def test_a_record_of_this_write_counts_in_its_own_place_only(world: World, source: Path) -> None:
    """What a neighbour copies from one place of the write to another."""
    key = begin(world, source)
    at = layout.EpochLayout(key)
    keys = world.record_keys.of(key.uid)
    plain(world, key).store.put_if_absent(at.input, sign(at.input_since(2), encode(nothing()), keys))

    go_on(world)
    world.until(lambda: world.status.reason == reasons.RECORD_FORGED)

    assert world.place.rows() == []


def test_a_list_of_seals_that_a_stranger_closes_an_attempt_with_is_not_believed(world: World, source: Path) -> None:
    key = begin(world, source)
    closed = ClosedRecord(token=new_token(), attempt=1, plan_token=None, chain_lengths=(), complete=False)
    plain(world, key).attempts.put_closed(closed)

    go_on(world)
    world.until(lambda: world.status.reason == reasons.RECORD_FORGED)

    assert f"control/{key}/closed/1.json" in (world.status.message or "")


def committed(key: EpochKey) -> CommitRecord:
    return CommitRecord(
        token=new_token(),
        key=str(key),
        target="t",
        table_identity=None,
        commit_id=1,
        rows_read=1_000_000,
        rows_written=1_000_000,
        files=1,
        attempts=1,
        code_digests=(),
    )


@pytest.mark.parametrize(
    "put",
    [
        lambda ledger: ledger.commits.put_commit(committed(ledger.key)),
        lambda ledger: ledger.commits.put_claim(
            ClaimRecord(token=new_token(), index=0, base=IcebergBase(table_uuid="0" * 32, snapshot_id=None))
        ),
        lambda ledger: ledger.commits.put_deleted(),
        lambda ledger: ledger.attempts.put_closed(
            ClosedRecord(token=new_token(), attempt=1, plan_token=None, chain_lengths=(), complete=False)
        ),
    ],
    ids=["commit record", "claim", "deletion record", "closed list"],
)
def test_what_only_a_controller_says_is_not_believed_of_a_driver(
    world: World, source: Path, put: Callable[[Ledger], object]
) -> None:
    """A driver has the keys of its write, and may often write anywhere in the bucket."""
    key = begin(world, source)
    (pod,) = world.api.pods.values()
    theirs = authenticated(open_store(world.place.checkpoint_uri, world.place.settings), world.kubelet.record_keys_of(pod))
    before = {stored.path for stored in theirs.list("control/")}
    put(Ledger(theirs, key))
    (path,) = {stored.path for stored in theirs.list("control/")} - before

    go_on(world)
    world.until(lambda: world.status.reason == reasons.RECORD_FORGED)

    assert f"{path} is signed as a driver of this write signs" in (world.status.message or "")
    assert not world.is_true("Committed")
    assert world.place.rows() == []

    # The way out of the message.
    theirs.delete([path])
    world.api.annotate(world.key, "checkpointed.dev/retry", "1")
    world.until_committed()
    assert len(world.place.rows()) == 200


def test_the_keys_of_a_write_stand_in_its_secret_and_nowhere_else_in_the_cluster(
    world: World, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may read pods may often not read Secrets."""
    caplog.set_level("DEBUG")
    world.apply(source)
    world.until_committed()

    keys = world.record_keys.of(world.body()["metadata"]["uid"])
    (key,) = keys.keys.values()
    told = json.dumps([list(world.api.pods.values()), world.body(), world.api.events]) + caplog.text
    assert world.api.pods
    for text in (key, base64.b64encode(key.encode()).decode()[:40], *(keys.control or {}).values()):
        assert text not in told
    (secret,) = secrets_of(world)
    assert WriteKeys.model_validate_json(base64.b64decode(secret["data"]["record-keys.json"])).keys == keys.keys

    world.delete()
    assert secrets_of(world) == []


def secrets_of(world: World) -> list[dict[str, Any]]:
    return [secret for (namespace, _), secret in world.api.secrets.items() if namespace == "default"]


def test_a_write_has_one_secret_however_many_attempts_and_operators_it_has(world: World, source: Path) -> None:
    def die(number: int) -> None:
        if number == 2 and world.kubelet.drivers_run < 3:
            raise Killed

    world.kubelet.between_tasks = die
    world.apply(source)
    world.until(lambda: world.kubelet.drivers_run == 1 and not world.kubelet.join())
    world.restart_operator()
    world.until_committed()

    assert world.kubelet.drivers_run == 3
    assert len(secrets_of(world)) == 1


def test_an_operator_that_dies_between_the_secret_and_the_pod_is_followed_by_one_that_makes_the_pod(
    world: World, source: Path
) -> None:
    made: list[str] = []

    def die(request: str) -> None:
        made.append(request)
        if request == "create pod":
            raise Retryable(reasons.API_UNAVAILABLE, "no answer")

    world.api.before = die
    world.apply(source)
    world.until(lambda: "create pod" in made)
    assert made[made.index("create pod") - 1] == "create secret"
    assert not world.api.pods

    world.api.before = lambda request: None
    world.restart_operator()
    world.until_committed()
    assert len(secrets_of(world)) == 1


def test_a_secret_that_somebody_deleted_is_there_again_for_the_next_attempt(world: World, source: Path) -> None:
    key = begin(world, source)
    (pod,) = world.api.pods.values()
    (name,) = [name for namespace, name in world.api.secrets if namespace == "default"]
    del world.api.secrets["default", name]

    world.kubelet.instead.clear()
    world.api.remove_pod(pod)
    world.until_committed()

    assert key.epoch == 1
    assert [name for namespace, name in world.api.secrets if namespace == "default"] == [name]


@pytest.mark.parametrize(
    "change", [lambda stored: stored.replace(b'"rows_read":', b'"rows_read":1', 1), lambda stored: stored[:-5]]
)
def test_a_seal_that_is_changed_where_it_lies_is_not_committed(
    world: World, source: Path, change: Callable[[bytes], bytes]
) -> None:
    def kill(number: int) -> None:
        if number == 2:
            raise Killed

    world.kubelet.between_tasks = kill
    world.apply(source)
    world.until(lambda: world.kubelet.drivers_run == 1 and not world.kubelet.join())
    key = EpochKey(world.body()["metadata"]["uid"], 1)
    ledger = plain(world, key)
    path = ledger.at.seal(1, 0, 0)
    stored = ledger.store.get(path, 1 << 20)
    assert stored is not None
    ledger.store.delete([path])
    ledger.store.put_if_absent(path, change(stored))
    world.kubelet.between_tasks = lambda number: None

    world.until(lambda: world.status.reason in (reasons.RECORD_FORGED, reasons.RECORD_UNREADABLE))

    assert path in (world.status.message or "")
    assert world.place.rows() == []


def keys_of(world: World) -> list[str]:
    return [name for name in world.api.secrets[world.config.own_namespace, KEYS_SECRET]["data"] if name != "cluster"]


def test_a_key_that_is_renewed_while_a_driver_is_at_work_breaks_nothing(world: World, source: Path) -> None:
    """The driver knows the keys of when it was launched, and waits for records that the operator signs later."""

    def renew(number: int) -> None:
        if number == 1:
            (entry,) = keys_of(world)
            made_at = int(entry.split("-")[0])
            world.record_keys.now = lambda: made_at + 10.0
            world.record_keys.renew_after_s = 5.0
            world.record_keys.load()
            raise Killed

    world.kubelet.between_tasks = renew
    world.apply(source)
    world.until(lambda: world.kubelet.drivers_run == 1 and not world.kubelet.join())
    world.kubelet.between_tasks = lambda number: None
    world.until_committed()

    assert len(world.place.rows()) == 200
    assert len(keys_of(world)) == 2


def test_a_write_that_a_release_without_keys_began_is_named_and_goes_on_where_unsigned_records_are_accepted(
    world: World, source: Path
) -> None:
    keyed, world.operator.controller.record_keys = world.operator.controller.record_keys, None
    signed = world.operator.controller.open_store
    world.operator.controller.open_store = lambda namespace, uri: open_store(uri, world.place.settings)
    key = begin(world, source)
    world.operator.controller.record_keys, world.operator.controller.open_store = keyed, signed
    world.operator.controller._sessions.clear()
    world.api.annotate(world.key, "checkpointed.dev/retry", "1")
    world.until(lambda: world.status.reason == reasons.RECORD_FORGED)
    assert "recordKeys.acceptUnsigned" in (world.status.message or "")

    world.record_keys.accepts_unsigned = True
    world.record_keys._of.cache_clear()  # type: ignore[attr-defined]
    go_on(world)
    world.until_committed()

    assert len(world.place.rows()) == 200
    assert key.uid


def test_no_key_stands_in_a_status_or_an_event_or_a_stored_object(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()
    keys: WriteKeys = world.record_keys.of(world.body()["metadata"]["uid"])
    store = open_store(world.place.checkpoint_uri, world.place.settings)
    everything = b"".join(
        store.get(stored.path, 1 << 20) or b"" for folder in ("control/", "staged/") for stored in store.list(folder)
    )
    told = f"{world.body()}{world.api.events}"

    assert b'{"mac":{"key":"' in everything
    assert keys.control is not None
    for key in (*keys.keys.values(), *keys.control.values()):
        assert key.encode() not in everything
        assert key not in told
