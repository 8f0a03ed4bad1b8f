"""The cumulative index: the next epoch costs the same however many were before, and knows what each of them has taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from checkpoint_control.loop.keys_objects import compacting
from checkpoint_formats.keys_objects import put_together, read_object, write_object
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger.epoch_index import EpochIndex
from checkpoint_protocol.records import (
    InputRecord,
    KeyColumn,
    KeysCovered,
    KeysObject,
    OverwriteAll,
    PlanRecord,
    StageIdentity,
    TakenRecord,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.keys import key_set
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import StoredObject
from checkpoint_protocol.store.parts import digest_of
from tests.support.records import KEY, end_epoch, input_of, launch, ledger_over, rows_file, seal
from tests.support.stores import MemoryStore, Wrapped

UID = KEY.uid


@dataclass
class Counting(Wrapped):
    """Counts requests. Its listings are sorted, and cost a request for each thousand objects that are looked at."""

    requests: list[str] = field(default_factory=list)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.requests.append(f"put {path}")
        return super().put_if_absent(path, data)

    def get(self, path: str, most_bytes: int) -> bytes | None:
        self.requests.append(f"get {path}")
        return super().get(path, most_bytes)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        self.requests.append(f"list {folder}")
        for number, stored in enumerate(sorted(self.inner.list(folder), key=lambda one: one.path), 1):
            if number % 1000 == 0:
                self.requests.append(f"list {folder}")
            yield stored

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.requests.append(f"delete {path}")
            super().delete([path])


def put_epoch(store: MemoryStore, number: int, *files: SourceFile) -> None:
    ledger = ledger_over(store, key=EpochKey(UID, number))
    ledger.inputs.put_input(input_of(*files))
    end_epoch(ledger)


def file_of(epoch: int, number: int = 0) -> SourceFile:
    return rows_file(10, path=f"/in/{epoch}-{number}.parquet")


def index_over(store: MemoryStore | Wrapped) -> EpochIndex:
    return EpochIndex(store, UID, lambda _: None, compacting(store, UID))


def taken(index: EpochIndex, epoch: int) -> list[str]:
    return [file.path for file in index.files(index.up_to(epoch))]


def requests_of_epoch(store: MemoryStore, number: int) -> list[str]:
    """Return the requests by which an epoch learns what all before it have taken: its operator's, and its driver's."""
    counting = Counting(store)
    assert writes.last_epoch(counting, UID) == number - 1
    index_over(counting).ensure(number - 1)
    driver = index_over(counting)
    assert len(list(driver.files(driver.up_to(number - 1)))) == (number - 1) * 2
    return counting.requests


def test_epoch_ten_thousand_and_one_costs_as_many_requests_as_epoch_two() -> None:
    store = MemoryStore()
    put_epoch(store, 1, file_of(1), file_of(1, 1))
    second = requests_of_epoch(store, 2)
    for number in range(2, 10_001):
        put_epoch(store, number, file_of(number), file_of(number, 1))
        if number == 9_998:
            index_over(store).ensure(number)  # by a release that knew no index
        elif number > 9_998:
            index_over(store).ensure(number - 1)

    late = requests_of_epoch(store, 10_001)

    assert len(late) <= len(second) + 10, late


def test_the_last_epoch_is_found_from_the_index_on_and_no_epoch_before_it_is_listed() -> None:
    store = MemoryStore()
    for number in range(1, 5):
        put_epoch(store, number, file_of(number))
    index_over(store).ensure(3)
    counting = Counting(store)

    assert writes.last_epoch(counting, UID) == 4
    assert counting.requests == [f"list control/{UID}/0-index/", f"list control/{UID}/4/", f"list control/{UID}/5/"]


def test_files_that_are_many_go_into_parts_which_are_put_together_and_none_is_left_behind() -> None:
    store = MemoryStore()
    index = index_over(store)
    for number in range(1, 13):
        put_epoch(store, number, *(file_of(number, place) for place in range(1_100)))
        index.ensure(number)

    assert taken(index, 12) == [file_of(number, place).path for number in range(1, 13) for place in range(1_100)]
    kept = [index.read(number) for number in (10, 11, 12)]
    named = {layout.index_part(UID, part.token) for record in kept if record is not None for part in record.parts}
    folders = (layout.index_folder(UID), layout.index_parts(UID))
    there = {path for path in store.objects if path.startswith(folders)}
    assert there == named | {layout.index_path(UID, number) for number in (10, 11, 12)}
    assert len(index.up_to(12).parts) <= 5


def test_an_index_whose_maker_died_is_made_by_whoever_comes_next_of_the_one_before() -> None:
    store = MemoryStore()
    index = index_over(store)
    for number in range(1, 6):
        put_epoch(store, number, file_of(number))
        if number in (1, 2):
            index.ensure(number)
    for number in (1, 2):
        store.delete([ledger_over(store, key=EpochKey(UID, number)).at.input])  # what the index replaces

    assert taken(index, 5) == [file_of(number).path for number in range(1, 6)], "also before anybody has put it"
    index.ensure(5)
    assert isinstance(index.read(5), TakenRecord)
    assert taken(index, 5) == [file_of(number).path for number in range(1, 6)]


def test_of_two_that_make_an_index_the_first_put_stands_and_both_name_the_same_parts() -> None:
    store, other = MemoryStore(), MemoryStore()
    for number in (1, 2):
        put_epoch(store, number, *(file_of(number, place) for place in range(1_100)))
    other.objects |= store.objects
    index, second = index_over(store), index_over(other)

    first = index.ensure(2)

    assert second.ensure(2).parts == first.parts
    assert index.ensure(2) == first


def test_without_a_record_of_an_epoch_nothing_is_known_and_that_is_told() -> None:
    for name in ("input", "done", "launch"):
        store = MemoryStore()
        put_epoch(store, 1, file_of(1))
        at = ledger_over(store).at
        store.delete([{"input": at.input, "done": at.commit_record, "launch": at.launch(1)}[name]])

        with pytest.raises(Corrupt, match="is gone, so what epoch 1 has taken is unknown"):
            index_over(store).ensure(1)
        assert index_over(store).read(1) is None


def test_a_part_that_is_gone_or_another_stops_whoever_reads_it() -> None:
    store = MemoryStore()
    put_epoch(store, 1, *(file_of(1, place) for place in range(1_100)))
    (part,) = index_over(store).ensure(1).parts
    path = layout.index_part(UID, part.token)
    for data in (None, b"{}"):
        store.delete([path])
        if data is not None:
            store.put_if_absent(path, data)
        with pytest.raises(Corrupt, match=part.token):
            taken(index_over(store), 1)


def test_an_epoch_that_ended_by_a_deletion_has_taken_nothing_and_one_that_overwrites_begins_anew() -> None:
    store = MemoryStore()
    index = index_over(store)
    put_epoch(store, 1, file_of(1))
    deleted = ledger_over(store, key=EpochKey(UID, 2))
    deleted.inputs.put_input(input_of(file_of(2)))
    end_epoch(deleted, was_deleted=True)
    put_epoch(store, 3, file_of(3))
    assert taken(index, 3) == [file_of(1).path, file_of(3).path]
    assert index.ensure(3).not_committed == (2,)

    whole = ledger_over(store, key=EpochKey(UID, 4))
    whole.inputs.put_input(input_of(file_of(4)))
    end_epoch(whole, launch().model_copy(update={"operation": OverwriteAll(base=None)}))

    assert taken(index, 4) == [file_of(4).path]
    assert index.ensure(4).not_committed == (2,)


def put_keyed_epoch(store: MemoryStore, number: int, objects: int) -> list[int]:
    """Put an epoch that has sealed as many objects of a key each; return the keys."""
    ledger = ledger_over(store, key=EpochKey(UID, number))
    columns = (KeyColumn(name="id", type="bigint"),)
    ledger.inputs.put_input(InputRecord(token=new_token(), files=(), arrow_schema="", keys=columns))
    ledger.plans.put_plan(
        PlanRecord(token=new_token(), attempt=1, tasks=(), done_files=0, done_rows=0, partitions=1, skipped=key_set(0, 0, 0))
    )
    keys = list(range(number * 1000, number * 1000 + objects))
    named = []
    for key in keys:
        data = write_object(pa.table({"source": pa.array([0], pa.int32()), "k0": pa.array([key])}))
        path = ledger.at.keys_object(1, 0, new_token())
        store.put_if_absent(path, data)
        named.append(KeysObject(path=path, rows=1, size_bytes=len(data), values_bytes=12, digest=digest_of(data)))
    covered = KeysCovered(objects=tuple(named), keys=key_set(objects, sum(keys), 0))
    ledger.seals.put_seal(seal(rows=objects, last=True).model_copy(update={"covered": covered}))
    ledger.chains.close(1)
    end_epoch(ledger)
    return keys


def test_keys_of_many_epochs_lie_in_a_few_objects_and_add_up_to_the_same() -> None:
    store = MemoryStore()
    index, keys = index_over(store), []
    for number in range(1, 31):
        keys += put_keyed_epoch(store, number, 3)
        index.ensure(number)

    found = index.up_to(30).keys
    assert found is not None
    assert len(found.objects) <= 12
    assert found.with_result == key_set(90, sum(keys), 0)
    tables = [read_object(store.objects[item.path]) for item in found.objects]
    assert sorted(key for table in tables for key in table["k0"].to_pylist()) == sorted(keys)
    made = [path for path in store.objects if path.startswith(layout.index_parts(UID))]
    assert len(made) <= 3, "those that no kept index names are gone"


def test_keys_are_put_together_without_being_read() -> None:
    """A few megabytes of Parquet may stand for any number of gigabytes, and a driver may have written it."""
    store = MemoryStore()
    found = []
    for number in range(20):
        data = b"anything, but no Parquet " + str(number).encode()
        store.put_if_absent(f"keys-{number}", data)
        found.append(KeysObject(path=f"keys-{number}", rows=1, size_bytes=len(data), values_bytes=12, digest=digest_of(data)))

    (made,) = compacting(store, UID)(found)

    assert (made.rows, made.values_bytes) == (20, 240)
    data = store.objects[made.path]
    assert put_together([data]) == data, "what is together already is so once"
    assert all(f"Parquet {number}".encode() in data for number in range(20))
    touched = [found[0].model_copy(update={"digest": "0" * 64}), *found[1:]]
    with pytest.raises(Corrupt, match="keys-0 has another digest"):
        compacting(store, UID)(touched)


@pytest.mark.parametrize("count", [0, 2, 1 << 60, (1 << 64) - 1])
def test_keys_that_have_not_the_parts_that_they_name_are_corrupt(count: int) -> None:
    data = bytes(8) + count.to_bytes(8, "little") + b"CWKEYS01"

    for cut in (data, data[8:], data[16:], data[-10:]):
        with pytest.raises(Corrupt) as refused:
            put_together([cut])
        assert refused.value.reason == reasons.RECORD_UNREADABLE


def test_a_stage_that_reads_its_own_result_stops_whoever_follows_it() -> None:
    """A driver may put any record of its write: its key is in the pod."""
    store = MemoryStore()
    reads = StageIdentity(name="clean", reads="clean-1", hash_in="0" * 64, algorithm=1)
    for key in (KEY, KEY.of_stage("clean-1")):
        end_epoch(ledger_over(store, key=key), launch().model_copy(update={"stage": reads}))

    with pytest.raises(Corrupt, match="reads its own result"):
        index_over(store).ensure(1)
