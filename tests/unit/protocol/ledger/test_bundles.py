"""Bundles save reading, and nothing else: what counts, and what it says, is told by the seals."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from checkpoint_control.progress.tallies import Tallies
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import Seal, encode
from checkpoint_protocol.store.bundles import BundledSeal
from checkpoint_protocol.store.object_store import StoredObject
from checkpoint_work.driver.bundling import Bundler, bundling
from tests.support.records import KEY, TOKEN, iceberg_file, plan, seal
from tests.support.stores import MemoryStore, RetriesItsPuts

TASKS = 40
LINKS = 3


@dataclass
class Store(MemoryStore):
    """Gives etags, digests of the bytes or not, and counts what is asked for."""

    digests: bool = True
    gets: Counter[str] = field(default_factory=Counter)

    def get(self, path: str, most_bytes: int) -> bytes | None:
        self.gets[path] += 1
        return super().get(path, most_bytes)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        for stored in super().list(folder, borders):
            data = self.objects[stored.path]
            digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
            yield StoredObject(stored.path, stored.size_bytes, f'"{digest}"' if self.digests else f"{stored.path}-{len(data)}")

    def gets_of_seals(self) -> int:
        return sum(count for path, count in self.gets.items() if "/seals/" in path and "bundle-" not in path)


def sealed(digests: bool = True, last: bool = True) -> tuple[Store, Ledger]:
    """Return a store with a plan and seals of all tasks, and a ledger that knows nothing."""
    store = Store(digests=digests)
    ledger = Ledger(store, KEY)
    ledger.plans.put_plan(plan(*[[(0, task * LINKS, (task + 1) * LINKS)] for task in range(TASKS)]))
    for task in range(TASKS):
        for link in range(LINKS):
            start = task * LINKS + link
            files = [iceberg_file(f"1-1-{task}-{link}.parquet")]
            ledger.seals.put_seal(seal(task, link, [(0, start, start + 1)], files=files, rows=1, last=last and link == LINKS - 1))
    return store, fresh(store)


def fresh(store: Store) -> Ledger:
    store.gets.clear()
    return Ledger(store, KEY)


def bundle(store: Store, **changes: object) -> None:
    """As the driver does; `changes` make each copied seal a lie."""
    ledger = Ledger(store, KEY)
    recorded = ledger.plans.read_plan(1)
    assert recorded is not None
    if not changes:
        assert Bundler(ledger, 1, recorded.token).bundle(1) == TASKS * LINKS
        return
    forge(store, recorded.token, lambda etag, _: etag, **changes)


def forge(store: Store, plan_token: str, etag_of: Callable[[str, bytes], str], **changes: object) -> None:
    """Bundle copies of every seal: `changes` make each a lie, `etag_of` gives its etag from the true one and the copy."""
    ledger = Ledger(store, KEY)
    listing = ledger.seals.list_seals(1)
    copies = []
    for task in range(TASKS):
        for link in range(LINKS):
            told = ledger.seals.read_seal(1, task, link)
            stored = listing.get(task, link)
            assert told is not None
            assert stored is not None
            assert stored[1] is not None
            data = encode(told.model_copy(update=dict(changes)))
            copies.append((BundledSeal(task=task, link=link, size_bytes=len(data), etag=etag_of(stored[1], data)), data))
    ledger.bundles.put_bundle(0, 1, plan_token, copies)


def counted(ledger: Ledger) -> list[tuple[int, int]]:
    return sorted((seal.task, seal.link) for seal in ledger.chains.counted_seals([1]))


EVERY = [(task, link) for task in range(TASKS) for link in range(LINKS)]


@pytest.mark.parametrize("digests", [True, False])
def test_what_is_bundled_is_closed_and_counted_without_reading_a_seal(digests: bool) -> None:
    store, _ = sealed(digests)
    bundle(store)
    ledger = fresh(store)

    assert ledger.chains.close(1).complete
    assert len(ledger.chains.close(1).bundles) == 1
    assert counted(ledger) == EVERY
    assert store.gets_of_seals() == 0


def test_what_is_in_no_bundle_is_read_one_by_one() -> None:
    store, ledger = sealed()
    bundle(store)
    late = seal(TASKS, 0, [(0, 999, 1000)], last=True)
    ledger.seals.put_seal(late)  # of no task of the plan

    assert ledger.chains.close(1).complete
    assert counted(ledger) == EVERY


def test_a_driver_that_died_early_leaves_no_bundle_and_loses_nothing() -> None:
    store, ledger = sealed()

    assert ledger.chains.close(1).bundles == ()
    assert counted(ledger) == EVERY
    assert store.gets_of_seals() == TASKS * LINKS


def test_a_seal_after_the_bundle_is_counted() -> None:
    store, ledger = sealed(last=False)
    bundle(store)
    for task in range(TASKS):
        ledger.seals.put_seal(seal(task, LINKS, last=True))

    assert ledger.chains.close(1).chain_lengths == (LINKS + 1,) * TASKS
    assert ledger.chains.close(1).complete
    assert counted(fresh(store)) == sorted([*EVERY, *((task, LINKS) for task in range(TASKS))])


def test_a_zombie_that_goes_on_sealing_and_bundling_is_not_counted() -> None:
    store, ledger = sealed(last=False)
    assert not ledger.chains.close(1).complete
    ledger.seals.put_seal(seal(0, LINKS, last=True))
    recorded = ledger.plans.read_plan(1)
    assert recorded is not None
    Bundler(Ledger(store, KEY), 1, recorded.token).bundle(1)

    assert counted(fresh(store)) == EVERY


@pytest.mark.parametrize("change", [{"rows_read": 7}, {"last": False}, {"files": ()}])
def test_a_bundle_that_says_other_than_the_seals_is_passed_over(change: dict[str, object]) -> None:
    """Of the same length or not: where etags are digests, the bytes themselves are compared."""
    store, _ = sealed()
    bundle(store, **change)
    ledger = fresh(store)

    assert ledger.chains.close(1).bundles == ()
    # Where the first copy is forged it does not show that etags are digests: then the seal itself is asked.
    assert store.gets[ledger.at.seal(1, 0, 0)] == (0 if "last" in change else 1)
    assert ledger.chains.close(1).complete
    assert {found.rows_read for found in ledger.chains.counted_seals([1])} == {1}
    assert all(found.files for found in ledger.chains.counted_seals([1]))


def _own_digest(_: str, copy: bytes) -> str:
    return f'"{hashlib.md5(copy, usedforsecurity=False).hexdigest()}"'


@pytest.mark.parametrize("digests", [True, False])
@pytest.mark.parametrize("etag_of", [_own_digest, lambda etag, _: f"another than {etag}"], ids=["digest of the copy", "any"])
def test_a_bundle_of_the_right_sizes_under_other_etags_is_passed_over(
    etag_of: Callable[[str, bytes], str], digests: bool
) -> None:
    """What was read under another etag is no copy of what is listed, however well it agrees with itself."""
    store, ledger = sealed(digests)
    recorded = ledger.plans.read_plan(1)
    assert recorded is not None
    forge(store, recorded.token, etag_of, rows_read=7)
    ledger = fresh(store)

    assert ledger.chains.close(1).bundles == ()
    assert counted(ledger) == EVERY
    assert {found.rows_read for found in ledger.chains.counted_seals([1])} == {1}


def test_a_bundle_of_other_sizes_than_the_seals_have_is_passed_over_though_etags_are_no_digests() -> None:
    store, ledger = sealed(digests=False)
    bundle(store, rows_written=1_000_000)
    ledger = fresh(store)

    assert ledger.chains.close(1).bundles == ()
    assert counted(ledger) == EVERY


def test_a_bundle_of_a_driver_whose_plan_does_not_stand_is_passed_over() -> None:
    """It is of this attempt, and its seals may be those of another way to divide the work."""
    store, ledger = sealed(digests=False)
    forge(store, "f" * 32, lambda etag, _: etag, rows_read=7)

    assert ledger.bundles.read_bundle(1, 0) is None
    assert ledger.chains.close(1).bundles == ()
    assert {found.rows_read for found in ledger.chains.counted_seals([1])} == {1}


def test_a_seal_that_two_bundles_hold_counts_once() -> None:
    store, _ = sealed()
    bundle(store)
    bundle(store)
    ledger = fresh(store)

    assert len(ledger.chains.close(1).bundles) == 2
    assert counted(ledger) == EVERY


def test_a_bundle_of_another_driver_or_attempt_is_passed_over() -> None:
    store, ledger = sealed()
    bundle(store)
    at = ledger.at
    copied = store.objects[at.bundle(1, 0)]
    ledger.plans.put_plan(plan([(0, 0, 1)], attempt=2))
    store.objects[at.bundle(2, 0)] = copied

    assert ledger.bundles.read_bundle(2, 0) is None
    assert ledger.chains.close(2).chain_lengths == ()
    assert ledger.chains.close(2).bundles == ()


def test_a_bundle_that_was_cut_off_or_replaced_after_the_closing_loses_nothing() -> None:
    store, ledger = sealed()
    bundle(store)
    closed = ledger.chains.close(1)
    path = ledger.at.bundle(1, closed.bundles[0].number)

    for broken in (store.objects[path][:-9], b"{}", store.objects[path].replace(b'"rows_read":1', b'"rows_read":2')):
        store.objects[path] = broken
        assert counted(fresh(store)) == EVERY
        assert {found.rows_read for found in Ledger(store, KEY).chains.counted_seals([1])} == {1}


def test_a_store_without_etags_has_no_bundles() -> None:
    store = MemoryStore()
    ledger = Ledger(store, KEY)
    ledger.plans.put_plan(plan([(0, 0, 1)]))
    ledger.seals.put_seal(seal(0, 0, [(0, 0, 1)], last=True))

    assert Bundler(ledger, 1, "0" * 32).bundle(1) == 0
    assert ledger.chains.close(1).complete


def test_progress_is_told_from_bundles_and_shows_each_seal_once() -> None:
    store, _ = sealed()
    bundle(store)
    ledger = fresh(store)
    tallies = Tallies(ledger)

    for _ in range(2):
        assert sum(chain.rows_read for chain in tallies.of_tasks(1).values()) == TASKS * LINKS
        assert tallies.shows_every_last(1, TASKS, ledger.seals.list_seals(1))
    assert store.gets_of_seals() == 0
    assert store.gets[ledger.at.bundle(1, 0)] == 1


def test_the_driver_bundles_at_its_end_also_when_its_tasks_fail() -> None:
    store, ledger = sealed()
    recorded = ledger.plans.read_plan(1)
    assert recorded is not None

    with pytest.raises(ValueError, match="a task"), bundling(ledger, 1, recorded.token):
        raise ValueError("a task failed")

    assert fresh(store).seals.list_seals(1).bundles == [0]


def test_a_bundle_has_a_thousand_seals_at_the_most_and_a_rest_waits() -> None:
    store = Store()
    ledger = Ledger(store, KEY)
    recorded = ledger.plans.put_plan(plan([(0, 0, 1)]))
    for link in range(1_010):
        store.objects[ledger.at.seal(1, 0, link)] = encode(_small(link))
    bundler = Bundler(ledger, 1, recorded.token)

    assert bundler.bundle(1_000) == 1_000
    assert bundler.bundle(1_000) == 0
    assert bundler.bundle(1) == 10
    assert bundler.bundle(1) == 0
    assert fresh(store).seals.list_seals(1).bundles == [0, 1]


def _small(link: int) -> Seal:
    return seal(0, link)


def test_a_bundle_whose_put_was_sent_twice_is_stored_once() -> None:
    store, ledger = sealed()
    listed = ledger.seals.list_seals(1).get(0, 0)
    assert listed is not None
    data = store.objects[ledger.at.seal(1, 0, 0)]
    header = BundledSeal(task=0, link=0, size_bytes=len(data), etag=listed[1] or "")

    put = Ledger(RetriesItsPuts(store, times=1), KEY).bundles.put_bundle(0, 1, TOKEN, [(header, data)])

    assert (put, ledger.seals.list_seals(1).bundles) == (0, [0])
