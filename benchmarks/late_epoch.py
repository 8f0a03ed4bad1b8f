"""Epoch 10,001 beside epoch 2: what each pays to know which files the epochs before it have taken, in requests and in seconds.

The operator looks for the last epoch and makes sure of the cumulative index, and the driver reads what that names. Each epoch
before has taken two files. All is on disk, where a request costs little: in a bucket the requests are what counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.bench import Bench
from benchmarks.pairs import Ran, interleave, ratio_of
from benchmarks.results import Result, with_ratio
from checkpoint_control.loop.keys_objects import compacting
from checkpoint_protocol import writes
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import EpochIndex
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.store.object_store import ObjectStore, StoredObject, open_store
from tests.support.records import end_epoch, input_of, rows_file
from tests.support.stores import Wrapped

_EPOCHS: Final = 10_000
_SMALL_EPOCHS: Final = 20
_FILES: Final = 2
_UID: Final = "ab" * 16
#: One look takes milliseconds.
_LOOKS: Final = 20
#: What epoch 10,001 may pay beside epoch 2.
_MORE_REQUESTS: Final = 10
_PAGE: Final = 1_000


def measure(bench: Bench) -> Iterator[Result]:
    late = _SMALL_EPOCHS if bench.small else _EPOCHS
    numbers = {"late": late + 1, "second": 2}
    stores = {name: _store_before(bench.folder / name, number) for name, number in numbers.items()}
    sides = {name: _Looks(stores[name], number) for name, number in numbers.items()}
    times = interleave(sides, True, bench.rounds, 1, bench.say)
    requests = {name: side.requests for name, side in sides.items()}
    bench.say(f"requests: epoch {numbers['late']:,} {requests['late']}, epoch 2 {requests['second']}")
    raw = {"requests": requests, "seconds": {name: [round(one / _LOOKS, 5) for one in each] for name, each in times.items()}}
    about = f"to know what all epochs before have taken, {_FILES} files each: epoch {numbers['late']:,}"
    bound = requests["second"] + _MORE_REQUESTS
    yield with_ratio(
        "late-epoch-requests",
        f"{about}, {requests['late']} requests / those of epoch 2 and {_MORE_REQUESTS}",
        ratio_of([requests["late"]], [bound]),
        1.0,
        1,
        raw=raw,
    )
    middle = sorted(times["late"])[bench.rounds // 2] / _LOOKS
    yield with_ratio(
        "late-epoch-seconds",
        f"{about}, {middle:.3f} s on disk / 1 s",
        ratio_of([one / _LOOKS for one in times["late"]], [1.0] * bench.rounds),
        1.0,
        bench.rounds,
        raw=raw,
    )


def _store_before(folder: Path, number: int) -> ObjectStore:
    """Return a store of a write whose next epoch has this number."""
    folder.mkdir(parents=True)
    store = open_store(folder.as_uri(), StorageSettings())
    for epoch in range(1, number):
        ledger = Ledger(store, EpochKey(_UID, epoch))
        ledger.inputs.put_input(input_of(*(rows_file(10, path=_file(epoch, place)) for place in range(_FILES))))
        end_epoch(ledger)
        # As the operator does after each commit.
        _index_over(store).ensure(epoch)
    return store


def _file(epoch: int, place: int) -> str:
    return f"/in/{epoch:06}-{place}.parquet"


def _index_over(store: ObjectStore) -> EpochIndex:
    return EpochIndex(store, _UID, lambda _: None, compacting(store, _UID))


class _Looks:
    """A side: an epoch learns what those before it have taken, some times."""

    def __init__(self, store: ObjectStore, number: int) -> None:
        self.number = number
        self.requests = 0
        self._store = store

    def __call__(self) -> Ran:
        counting = _Counting(self._store)
        before = self.number - 1
        began = time.perf_counter()
        for _ in range(_LOOKS):
            last = writes.last_epoch(counting, _UID)
            _index_over(counting).ensure(before)
            driver = _index_over(counting)
            taken = [file.path for file in driver.files(driver.up_to(before))]
        seconds = time.perf_counter() - began
        self.requests = counting.requests // _LOOKS
        expected = [_file(epoch, place) for epoch in range(1, self.number) for place in range(_FILES)]
        return Ran(seconds, last == before and sorted(taken) == expected)


@dataclass
class _Counting(Wrapped):
    """Counts requests. A listing costs one for each thousand objects that are looked at."""

    requests: int = 0

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.requests += 1
        return super().put_if_absent(path, data)

    def get(self, path: str, most_bytes: int) -> bytes | None:
        self.requests += 1
        return super().get(path, most_bytes)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        self.requests += 1
        for number, stored in enumerate(super().list(folder, borders), 1):
            self.requests += number % _PAGE == 0
            yield stored

    def delete(self, paths: Iterable[str]) -> None:
        self.requests += 1
        super().delete(paths)
