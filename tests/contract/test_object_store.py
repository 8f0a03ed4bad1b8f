"""What the protocol needs of an object store: one suite, run on every store that is used here, real or fake."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore as ObstoreMemory
from pydantic import SecretStr

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.places.storage import StorageEntry, StorageSettings
from checkpoint_protocol.records import NameRecord
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_listing import NotListed
from checkpoint_protocol.store.object_store import ObjectStore, ObstoreStore, open_store, probe, read_to_end
from checkpoint_protocol.store.parallel import in_threads
from checkpoint_protocol.store.put_once import put_once
from devtools.azure_server import AzureServer
from devtools.gcs_server import GcsServer
from devtools.s3_server import S3Server
from tests.simulation.scheduler import Scheduler
from tests.simulation.store import SimulatedStore
from tests.support.slow import slow_except
from tests.support.stores import (
    IgnoresTheCondition,
    IgnoresTheConditionAndSaysNo,
    LosesAnswers,
    MemoryStore,
    RetriesItsPuts,
    SaysExists,
    SaysMade,
)

#: More than anything here has.
MOST = 4 << 20

STORES = ("folder", "s3", "azure", "gcs", "obstore memory", "fake", "simulated")
#: The simulated one is for one actor at a time.
SHARED_STORES = STORES[:-1]


BucketServer = S3Server | AzureServer
#: With the field of the secret.
SERVERS = {"s3": "secret_access_key", "azure": "account_key"}


def storage_for(server: BucketServer, bucket: str, **fields: Any) -> StorageSettings:
    if isinstance(server, AzureServer):
        own = {"account_name": server.account, "account_key": SecretStr(server.key)}
        return StorageSettings(storage=(StorageEntry(prefix=f"az://{bucket}/", endpoint=server.endpoint, **{**own, **fields}),))
    given = {
        "endpoint": server.endpoint,
        "region": server.region,
        "access_key_id": SecretStr(server.access_key),
        "secret_access_key": SecretStr(server.secret_key),
        **fields,
    }
    return StorageSettings(storage=(StorageEntry(prefix=f"s3://{bucket}/", **given),))


def fresh_bucket(server: BucketServer) -> str:
    return server.make_bucket(f"contract-{secrets.token_hex(6)}")


def on_gcs(server: GcsServer, bucket: str, path: str) -> ObjectStore:
    """Return a store that is reached with a key file, or by anybody (buckets named public-*)."""
    access: dict[str, Any] = {"service_account_file": str(server.key_file)}
    if bucket.startswith("public-"):
        access = {"credentials": "anonymous"}
    entry = StorageEntry(prefix=f"gs://{bucket}/", endpoint=server.endpoint, **access)
    return open_store(f"gs://{bucket}/{path}", StorageSettings(storage=(entry,)))


def open_in(server: BucketServer, bucket: str, path: str, **fields: Any) -> ObjectStore:
    scheme = "az" if isinstance(server, AzureServer) else "s3"
    return open_store(f"{scheme}://{bucket}/{path}", storage_for(server, bucket, **fields))


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> BucketServer:
    server: BucketServer = request.getfixturevalue(f"{request.param}_server")
    return server


def make_store(name: str, folder: Path, request: pytest.FixtureRequest) -> ObjectStore:
    match name:
        case "folder":
            return open_store(str(folder / "größe und maß"), StorageSettings())
        case "s3" | "azure":
            server: BucketServer = request.getfixturevalue(f"{name}_server")
            return open_in(server, fresh_bucket(server), "größe und maß")
        case "gcs":
            gcs: GcsServer = request.getfixturevalue("gcs_server")
            return on_gcs(gcs, gcs.make_bucket(f"contract-{secrets.token_hex(6)}"), "größe und maß")
        case "obstore memory":
            return ObstoreStore("memory://", ObstoreMemory())
        case "fake":
            return MemoryStore()
        case _:
            return SimulatedStore(Scheduler())


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return make_store(request.param, tmp_path, request)


@pytest.fixture(params=SHARED_STORES)
def shared_store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return make_store(request.param, tmp_path, request)


def paths(store: ObjectStore, folder: str) -> list[str]:
    return sorted(stored.path for stored in store.list(folder))


# --- put-if-absent --------------------------------------------------------------------------------------------------------


def test_the_first_put_makes_the_object_and_a_second_changes_nothing(store: ObjectStore) -> None:
    assert store.put_if_absent("a/b.json", b"first") is True
    assert store.put_if_absent("a/b.json", b"second") is False
    assert store.get("a/b.json", MOST) == b"first"


def test_of_many_threads_that_put_one_object_exactly_one_wins_and_its_bytes_stand(shared_store: ObjectStore) -> None:
    writers = 16
    with ThreadPoolExecutor(writers) as pool:
        for race in range(12):
            path = f"race/{race}.json"

            def put(writer: int, path: str = path) -> int | None:
                return writer if shared_store.put_if_absent(path, b"%d" % writer * 5_000) else None

            winners = [winner for winner in pool.map(put, range(writers)) if winner is not None]
            assert len(winners) == 1
            assert shared_store.get(path, MOST) == b"%d" % winners[0] * 5_000


@pytest.mark.parametrize("data", [b"", b"\x00\xff\n", b"x" * (3 << 20)], ids=["empty", "binary", "3 MiB"])
def test_any_bytes_come_back_as_they_were_put(store: ObjectStore, data: bytes) -> None:
    assert store.put_if_absent("some/object.json", data)

    assert store.get("some/object.json", MOST) == data
    assert [(stored.path, stored.size_bytes) for stored in store.list("some/")] == [("some/object.json", len(data))]


def test_an_object_that_was_removed_can_be_put_again(store: ObjectStore) -> None:
    store.put_if_absent("a.json", b"1")
    store.delete(["a.json"])

    assert store.put_if_absent("a.json", b"2")
    assert store.get("a.json", MOST) == b"2"


def test_a_put_whose_client_sent_it_twice_is_recognised_by_its_token(store: ObjectStore) -> None:
    record = NameRecord(token=new_token(), uid="ours")

    assert put_once(RetriesItsPuts(store), "names/a/b.json", record) == record
    assert put_once(store, "names/a/b.json", NameRecord(token=new_token(), uid="theirs")) == record


def test_a_put_whose_answer_was_lost_is_recognised_by_its_token(store: ObjectStore) -> None:
    record = NameRecord(token=new_token(), uid="ours")
    lossy = LosesAnswers(store)
    with pytest.raises(Retryable):
        put_once(lossy, "names/a/b.json", record)

    assert put_once(lossy, "names/a/b.json", record) == record


# --- get ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["none.json", "no/such/folder/none.json", "a", "a/b", "a/b.jso", "a/b.json.tmp"])
def test_what_was_never_put_is_none(store: ObjectStore, path: str) -> None:
    store.put_if_absent("a/b.json", b"1")
    store.put_if_absent("a/b/c.json", b"1")

    assert store.get(path, MOST) is None


# --- list -----------------------------------------------------------------------------------------------------------------


def test_an_object_of_as_many_bytes_as_are_expected_is_read_and_of_one_with_more_only_its_size(store: ObjectStore) -> None:
    store.put_if_absent("a/seal.json", b"x" * 1_000)

    assert store.get("a/seal.json", 1_000) == b"x" * 1_000
    with pytest.raises(Corrupt) as refused:
        store.get("a/seal.json", 999)

    assert refused.value.reason == reasons.RECORD_UNREADABLE
    assert f"{store.uri}/a/seal.json has 1,000 bytes" in refused.value.message
    assert "999 at the most" in refused.value.message


def test_a_body_that_goes_on_after_what_the_store_has_told_is_not_read_to_its_end() -> None:
    taken: list[int] = []

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(1)
            yield b"x" * 100

    with pytest.raises(Corrupt, match="goes on after the 250 bytes"):
        read_to_end(endless(), 250, "s3://b/o")

    assert len(taken) == 3


def test_a_folder_that_is_not_there_is_empty(store: ObjectStore) -> None:
    assert paths(store, "no/such/folder/") == []


def test_a_listing_gives_what_lies_below_the_folder_at_any_depth_and_nothing_beside_it(store: ObjectStore) -> None:
    for path in (
        "a/1/x.json",
        "a/1/deep/er/y.json",
        "a/10/x.json",
        "a/1.json",
        "a/x.json",
        "b/a/1/x.json",
        "a1/x.json",
        "a/2/x.json",
    ):
        store.put_if_absent(path, b"1")

    assert paths(store, "a/1/") == ["a/1/deep/er/y.json", "a/1/x.json"]
    assert paths(store, "a/10/") == ["a/10/x.json"]
    assert paths(store, "a/") == ["a/1.json", "a/1/deep/er/y.json", "a/1/x.json", "a/10/x.json", "a/2/x.json", "a/x.json"]


def test_a_listing_of_more_than_a_page_gives_every_object_once(shared_store: ObjectStore) -> None:
    """S3 gives 1,000 at a time."""
    expected = sorted(f"staged/u/1/1/seals/{task}/0.json" for task in range(1_100))
    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(lambda path: shared_store.put_if_absent(path, b"1"), expected))

    assert paths(shared_store, "staged/u/1/1/seals/") == expected
    assert len(paths(shared_store, "staged/")) == 1_100
    assert paths(shared_store, "staged/u/1/1/seals/109/") == ["staged/u/1/1/seals/109/0.json"]


@pytest.mark.parametrize("shared_store", slow_except(SHARED_STORES, *set(SHARED_STORES) - {"azure"}), indirect=True)
def test_a_listing_of_many_pages_gives_every_object_once_wherever_it_may_be_cut(shared_store: ObjectStore) -> None:
    """Azure gives 5,000 at a time."""
    put = {f"seals/{task}/{link}.json" for task in range(510) for link in range(10)} | {"seals/bundle-0", "sealsx/1", "seal/1"}
    in_threads(lambda path: shared_store.put_if_absent(path, b"x"), sorted(put))
    below = sorted(path for path in put if path.startswith("seals/"))

    for borders in ([], [f"seals/{task}/" for task in range(510)], ["seals/0/", "seals/9/"], ["a", "seals/0/5.json", "z"]):
        assert sorted(stored.path for stored in shared_store.list("seals/", borders)) == below


#: No path of obstore has such a name, and whoever writes into the folder or bucket by other means may give it.
NO_PATHS = ("a\tb", "a\nb", "a\x7fb")


@pytest.mark.parametrize("name", NO_PATHS)
def test_on_disk_a_name_that_is_no_path_hides_no_other_object(name: str, tmp_path: Path) -> None:
    store = open_store(str(tmp_path), StorageSettings())
    given = ["d/1.json", "d/e/2.json", "d/e/f/3.json"]
    for path in given:
        store.put_if_absent(path, b"x")
    (tmp_path / "d/e" / name).write_bytes(b"x")
    (tmp_path / "d" / f"{name} folder").mkdir()
    (tmp_path / "d" / f"{name} folder" / "4.json").write_bytes(b"x")
    (tmp_path / "d" / os.fsdecode(b"\xff")).write_bytes(b"x")

    assert paths(store, "d/") == given
    assert (tmp_path / "d/e" / name).exists()


@pytest.mark.parametrize("name", ["a\tb", "a\x7fb"])
def test_in_a_bucket_a_name_that_is_no_path_hides_its_own_folder_only_and_is_named(
    name: str, s3_server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = fresh_bucket(s3_server)
    store = open_store(f"s3://{bucket}/here", storage_for(s3_server, bucket))
    for path in ("d/1.json", "d/e/2.json", "d/f/3.json"):
        store.put_if_absent(path, b"x")
    (s3_server.objects / bucket / "here/d/e" / name).write_bytes(b"x")
    found: list[str] = []

    with pytest.raises(NotListed, match="remove that object") as caught:
        found.extend(stored.path for stored in store.list("d/"))

    assert sorted(found) == ["d/1.json", "d/f/3.json"]
    assert caught.value.reason == reasons.FOLDER_NOT_LISTED
    assert "d/e/" in caught.value.message
    assert repr(name)[1:-1] in caught.value.message
    assert caught.value.message in caplog.text
    assert store.get("d/e/2.json", MOST) == b"x"

    (s3_server.objects / bucket / "here/d/e" / name).unlink()
    assert paths(store, "d/") == ["d/1.json", "d/e/2.json", "d/f/3.json"]


def test_a_completed_put_is_seen_by_the_next_listing_and_get(store: ObjectStore) -> None:
    for number in range(20):
        store.put_if_absent(f"f/{number}.json", b"1")
        assert len(paths(store, "f/")) == number + 1
        assert store.get(f"f/{number}.json", MOST) == b"1"


# --- delete ---------------------------------------------------------------------------------------------------------------


def test_removing_what_is_not_there_passes(store: ObjectStore) -> None:
    store.put_if_absent("a/1.json", b"1")
    store.delete(["a/none.json", "a/1.json", "a/1.json", "no/such/folder/x.json"])

    assert paths(store, "a/") == []
    store.delete([])


def test_removing_one_object_leaves_its_neighbours(store: ObjectStore) -> None:
    for path in ("a/1.json", "a/10.json", "a/1/x.json"):
        store.put_if_absent(path, b"1")
    store.delete(["a/1.json"])

    assert paths(store, "a/") == ["a/1/x.json", "a/10.json"]


# --- names ----------------------------------------------------------------------------------------------------------------

AWKWARD = ["größe", "日本", "a b", "a%20b", "a%2Fb", "a#b", "a?b", "a+b", "a&b=c", "a~b[1]", "it's"]


@pytest.mark.parametrize("name", AWKWARD)
def test_a_record_with_an_awkward_name_is_put_found_listed_and_removed_under_that_name(store: ObjectStore, name: str) -> None:
    path = layout.name_path(name, name)
    assert store.put_if_absent(path, b"1")
    assert not store.put_if_absent(path, b"2")

    assert store.get(path, MOST) == b"1"
    assert paths(store, f"names/{name}/") == [path]
    store.delete([path])
    assert store.get(path, MOST) is None


def awkward_stores(kind: str, folder: Path, request: pytest.FixtureRequest) -> dict[str, ObjectStore]:
    if kind == "folder":
        return {name: open_store(str(folder / name), StorageSettings()) for name in AWKWARD}
    if kind == "gcs":
        gcs: GcsServer = request.getfixturevalue("gcs_server")
        public = gcs.make_bucket(f"public-{secrets.token_hex(6)}")
        return {name: on_gcs(gcs, public, f"{name}/cp") for name in AWKWARD}
    server: BucketServer = request.getfixturevalue(f"{kind}_server")
    bucket = fresh_bucket(server)
    return {name: open_in(server, bucket, f"{name}/cp") for name in AWKWARD}


@pytest.mark.parametrize("kind", ["folder", "gcs", *SERVERS])
def test_each_uri_is_a_store_of_its_own_however_awkward(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Were "a%20b" read as "a b", or "a#b" as "a", two writes would meet in one store."""
    stores = awkward_stores(kind, tmp_path, request)
    for name, store in stores.items():
        assert store.put_if_absent("names/a/b.json", name.encode()), name

    for name, store in stores.items():
        assert store.get("names/a/b.json", MOST) == name.encode()
        assert paths(store, "names/") == ["names/a/b.json"]


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}", "{}/", "{}//"])
def test_a_folder_is_the_same_store_in_every_form_of_its_uri(tmp_path: Path, form: str) -> None:
    open_store(str(tmp_path / "cp"), StorageSettings()).put_if_absent("a.json", b"1")

    assert open_store(form.format(tmp_path / "cp"), StorageSettings()).get("a.json", MOST) == b"1"


@pytest.mark.parametrize("uri", ["s3://bucket/cp", "s3://bucket/cp/", "s3://bucket/cp//"])
def test_a_slash_at_the_end_of_a_uri_means_nothing(uri: str) -> None:
    assert (
        open_store(uri, StorageSettings(storage=(StorageEntry(prefix="s3://", credentials="anonymous"),))).uri == "s3://bucket/cp"
    )


@pytest.mark.parametrize("uri", ["ftp://host/x", "s3://bucket/../x", "s3://bucket/a/./x", "s3://bucket/a//x", "nonsense://x"])
def test_a_uri_that_is_no_store_or_leaves_it_is_refused(uri: str) -> None:
    with pytest.raises(NeedsChange) as caught:
        open_store(uri, StorageSettings())

    assert caught.value.reason == reasons.MANIFEST_INVALID
    assert uri in caught.value.message
    assert "\n" not in caught.value.message


# --- probe ----------------------------------------------------------------------------------------------------------------


def test_a_store_that_honours_put_if_absent_is_taken_and_left_as_it_was(store: ObjectStore) -> None:
    probe(store)

    assert paths(store, "") == []


@pytest.mark.parametrize("store_type", [IgnoresTheCondition, IgnoresTheConditionAndSaysNo, SaysMade])
def test_a_store_that_ignores_the_condition_is_refused_and_left_as_it_was(store_type: Callable[[], ObjectStore]) -> None:
    store = store_type()

    with pytest.raises(NeedsChange, match="does not honour put-if-absent") as caught:
        probe(store)
    assert caught.value.reason == reasons.STORE_UNSAFE
    assert paths(store, "") == []


def test_a_store_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(NeedsChange) as caught:
        probe(SaysExists())
    assert caught.value.reason == reasons.STORE_UNSAFE


def test_a_store_that_once_takes_a_fresh_name_for_another_is_taken() -> None:
    store = SaysExists(times=1)

    probe(store)

    assert paths(store, "") == []


def test_a_store_whose_client_sends_puts_twice_is_taken() -> None:
    probe(RetriesItsPuts())


def test_two_probes_at_once_do_not_meet(shared_store: ObjectStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: probe(shared_store), range(8)))


# --- who may not, what is not there, who does not answer ------------------------------------------------------------------

Call = Callable[[ObjectStore], object]
CALLS: dict[str, Call] = {
    "put": lambda store: store.put_if_absent("a/b.json", b"1"),
    "get": lambda store: store.get("a/b.json", MOST),
    "list": lambda store: list(store.list("a/")),
    "delete": lambda store: store.delete(["a/b.json"]),
}


def failure(call: str, store: ObjectStore) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        CALLS[call](store)
    assert store.uri in caught.value.message
    assert "\n" not in caught.value.message
    assert "Debug source" not in caught.value.message
    assert len(caught.value.message) < 1_200
    return caught.value


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_secret_is_for_a_person_and_is_not_repeated(
    server: BucketServer, call: str, request: pytest.FixtureRequest
) -> None:
    wrong = "bm90LXRoZS1rZXk="
    secret = SERVERS[request.node.callspec.params["server"]]
    store = open_in(server, fresh_bucket(server), "cp", **{secret: SecretStr(wrong)})

    error = failure(call, store)

    assert isinstance(error, NeedsChange)
    assert error.reason == reasons.CREDENTIALS_REFUSED
    assert wrong not in error.message


@pytest.mark.parametrize("call", CALLS)
def test_an_account_that_the_store_does_not_know_is_never_an_absent_object(s3_server: S3Server, call: str) -> None:
    """This server answers 404 to it, AWS 403."""
    bucket = fresh_bucket(s3_server)

    failure(call, open_store(f"s3://{bucket}/cp", storage_for(s3_server, bucket, access_key_id=SecretStr("nobody"))))


@pytest.mark.parametrize("call", CALLS)
def test_a_bucket_that_is_not_there_is_for_a_person_and_never_an_absent_object(server: BucketServer, call: str) -> None:
    store = open_in(server, "no-such-bucket-here", "cp")

    error = failure(call, store)

    assert isinstance(error, NeedsChange)
    assert "does not exist" in error.message

    assert open_in(server, fresh_bucket(server), "cp").get("x", 1) is None


@pytest.mark.parametrize("call", CALLS)
def test_on_gcs_a_refusal_and_a_bucket_that_is_not_there_are_for_a_person(
    gcs_server: GcsServer, call: str, tmp_path: Path
) -> None:
    bucket = gcs_server.make_bucket(f"contract-{secrets.token_hex(6)}")
    entry = StorageEntry(prefix="gs://", endpoint=gcs_server.endpoint, credentials="anonymous")
    refused = failure(call, open_store(f"gs://{bucket}/cp", StorageSettings(storage=(entry,))))
    missing = failure(call, on_gcs(gcs_server, "public-that-is-not-there", "cp"))

    assert [type(refused), refused.reason] == [NeedsChange, reasons.CREDENTIALS_REFUSED]
    assert isinstance(missing, NeedsChange)
    assert "does not exist" in missing.message


@pytest.mark.parametrize("call", CALLS)
def test_on_gcs_a_key_that_the_store_does_not_know_is_for_a_person(gcs_server: GcsServer, call: str, tmp_path: Path) -> None:
    bucket = gcs_server.make_bucket(f"contract-{secrets.token_hex(6)}")
    with GcsServer(tmp_path) as other:
        wrong = StorageEntry(prefix="gs://", endpoint=gcs_server.endpoint, service_account_file=str(other.key_file))
        error = failure(call, open_store(f"gs://{bucket}/cp", StorageSettings(storage=(wrong,))))

    assert [type(error), error.reason] == [NeedsChange, reasons.CREDENTIALS_REFUSED]


@pytest.mark.slow  # as long as the retries of a store take
def test_a_store_that_nobody_serves_is_retryable_within_a_bounded_time() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
    storage = StorageSettings(
        storage=(
            StorageEntry(prefix="s3://b/", endpoint=endpoint, access_key_id=SecretStr("a"), secret_access_key=SecretStr("b")),
        )
    )
    store = open_store("s3://b/cp", storage)
    with ThreadPoolExecutor(len(CALLS)) as pool:
        errors = list(pool.map(lambda call: failure(call, store), CALLS))

    assert {type(error) for error in errors} == {Retryable}
    assert {error.reason for error in errors} == {reasons.STORE_UNAVAILABLE}


def test_a_server_that_dies_and_comes_back_is_retryable_and_then_has_everything(tmp_path: Path) -> None:
    with S3Server(tmp_path) as server:
        bucket = fresh_bucket(server)
        store = open_store(f"s3://{bucket}/cp", storage_for(server, bucket))
        store.put_if_absent("a/b.json", b"1")
        server.kill()
        assert isinstance(failure("get", store), Retryable)
        server.start()

        assert store.get("a/b.json", MOST) == b"1"


def test_on_gcs_a_server_that_is_stopped_is_retryable(tmp_path: Path) -> None:
    with GcsServer(tmp_path) as server:
        store = on_gcs(server, server.make_bucket("public-1"), "cp")
        store.put_if_absent("a/b.json", b"1")
        server.stop()

        assert isinstance(failure("get", store), Retryable)


def test_a_lease_on_a_blob_hides_nothing_and_is_named_to_whoever_would_remove_it(azure_server: AzureServer) -> None:
    bucket = fresh_bucket(azure_server)
    store = open_in(azure_server, bucket, "cp")
    store.put_if_absent("a/b.json", b"1")
    lease = {"x_ms_lease_action": "acquire", "x_ms_lease_duration": "-1"}
    azure_server.request("PUT", f"{bucket}/cp/a/b.json", "comp=lease", **lease)

    assert not store.put_if_absent("a/b.json", b"2")
    assert store.get("a/b.json", MOST) == b"1"
    assert paths(store, "a/") == ["a/b.json"]
    with pytest.raises(NeedsChange, match="holds a lease on it"):
        store.delete(["a/b.json"])


def test_what_azure_says_is_the_same_each_time(azure_server: AzureServer) -> None:
    store = open_in(azure_server, fresh_bucket(azure_server), "cp", account_key=SecretStr("bm90LXRoZS1rZXk="))

    assert "Time:" not in failure("get", store).message
    assert failure("get", store).message == failure("get", store).message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_we_may_not_write_to_is_for_a_person(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "cp"), StorageSettings())
    (tmp_path / "cp").chmod(0o500)
    try:
        assert failure("put", store).reason == reasons.CREDENTIALS_REFUSED
    finally:
        (tmp_path / "cp").chmod(0o700)


def test_a_checkpoint_uri_that_is_a_file_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "cp").write_text("x")

    with pytest.raises(CheckpointError, match="cp"):
        open_store(str(tmp_path / "cp"), StorageSettings())


def test_a_full_disk_or_any_other_error_of_a_folder_is_never_an_absent_object(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "cp"), StorageSettings())
    store.put_if_absent("a/b.json", b"1")
    (tmp_path / "cp" / "a" / "loop").symlink_to("loop")

    with pytest.raises(CheckpointError):
        store.get("a/loop", MOST)
