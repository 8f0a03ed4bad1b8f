"""Bundles in the store: put by drivers, and believed where they hold what a listing shows of the seals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger.epoch_records import EpochRecords, SealListing
from checkpoint_protocol.ledger.inputs import Plans
from checkpoint_protocol.ledger.seals import Seals
from checkpoint_protocol.records import BundleRecord, CheckedBundle, ClosedRecord, Seal
from checkpoint_protocol.store.bundles import (
    MOST_BUNDLE_BYTES,
    Bundle,
    BundledSeal,
    decode_bundle,
    encode_bundle,
    find_forgery,
    is_digest,
    may_be_digest,
)
from checkpoint_protocol.store.macs import without_mac
from checkpoint_protocol.store.memory import reading
from checkpoint_protocol.store.parallel import streamed
from checkpoint_protocol.store.put_once import put_object

#: A bundle takes some megabytes.
_READERS: Final = 4


@dataclass(slots=True)
class CheckedBundles:
    """The bundles that hold what a listing shows, and which of the tasks' newest seals are the last ones."""

    bundles: list[CheckedBundle] = field(default_factory=list)
    newest_is_last: dict[int, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bundles:
    """The bundles, by attempt and number."""

    records: EpochRecords
    plans: Plans
    seals: Seals

    def put_bundle(self, number: int, attempt: int, plan_token: str, seals: Sequence[tuple[BundledSeal, bytes]]) -> int:
        """Store copies of seals in one object, under this number or the next free one; return it.

        Idempotent enough: put twice, whoever reads takes each seal once.
        """
        record = BundleRecord(
            token=new_token(), attempt=attempt, plan_token=plan_token, seals=tuple(header for header, _ in seals)
        )
        data = encode_bundle(record, [seal for _, seal in seals])
        while (
            without_mac(
                put_object(
                    self.records.store, self.records.at.bundle(attempt, number), data, self.records.pause, MOST_BUNDLE_BYTES
                )
            )
            != data
        ):
            number += 1
        return number

    def read_bundle(self, attempt: int, number: int, *, keeps: bool = False) -> Bundle | None:
        """Return a bundle; None if it is not there, cannot be read, or belongs to another attempt or driver. `keeps`: see `get`.

        It is a copy: then the seals themselves are read, and nothing is lost.
        """
        path = self.records.at.bundle(attempt, number)
        plan = self.plans.read_plan(attempt)
        if plan is None:
            return None
        try:
            with reading():
                data = self.records.get(path, MOST_BUNDLE_BYTES, keeps=keeps)
                bundle = decode_bundle(without_mac(data), self.records.where(path)) if data is not None else None
        except Corrupt:
            return None
        if bundle is None:
            return None
        is_ours = (bundle.record.attempt, bundle.record.plan_token) == (attempt, plan.token)
        return bundle if is_ours else None

    def read_bundles(self, attempt: int, numbers: Sequence[int]) -> Iterator[Bundle]:
        """Give those of these bundles that `read_bundle` does, in their order, a few of them ahead."""
        for bundle in streamed(self.records.map_all, lambda number: self.read_bundle(attempt, number), numbers, _READERS):
            if bundle is not None:
                yield bundle

    def check(self, attempt: int, listing: SealListing) -> CheckedBundles:
        """Compare the bundles with what the listing shows."""
        checked = CheckedBundles()
        if not listing.bundles:
            return checked
        lengths = listing.lengths()

        def check(number: int) -> tuple[CheckedBundle, dict[int, bool]] | None:
            bundle = self.read_bundle(attempt, number, keeps=True)
            if bundle is None or find_forgery(bundle, listing.get, self._etags_are_digests(attempt, bundle, listing)) is not None:
                return None
            newest = {
                seal.task: self.seals.decode_seal(attempt, seal.task, seal.link, data).last
                for seal, data in bundle.seals()
                if seal.link == lengths.get(seal.task, 0) - 1
            }
            return CheckedBundle(number=number, digest=bundle.digest), newest

        for known in streamed(self.records.map_all, check, listing.bundles, _READERS):
            if known is not None:
                checked.bundles.append(known[0])
                checked.newest_is_last.update(known[1])
        return checked

    def _etags_are_digests(self, attempt: int, bundle: Bundle, listing: SealListing) -> bool:
        """Whether this store's etags are digests of the bytes, as one of the seals shows.

        A copy whose digest is the etag that is listed has shown it. Where it is not, the copy may be a forgery: the seal itself
        is read.
        """
        for place, copied in bundle.seals():
            stored = listing.get(place.task, place.link)
            if stored is None or not may_be_digest(etag := stored[1]):
                return False
            if is_digest(etag, copied):
                return True
            with reading():
                data = self.records.store.get(self.records.at.seal(attempt, place.task, place.link), Seal.most_bytes)
                return data is None or is_digest(etag, data)
        return False

    def checked_seals(self, attempt: int, closed: ClosedRecord, given: dict[int, bytearray]) -> Iterator[Seal]:
        """Give the seals that count and that checked bundles hold, each once, and note them in `given`, by task."""

        def get(checked: CheckedBundle) -> Bundle | None:
            bundle = self.read_bundle(attempt, checked.number)
            return bundle if bundle is not None and bundle.digest == checked.digest else None

        folder = self.records.at.seals(attempt)
        for bundle in streamed(self.records.map_all, get, closed.bundles, _READERS):
            for place, data in bundle.seals() if bundle is not None else ():
                links = given.get(place.task, b"")
                if place.link < len(links) and not links[place.link]:
                    given[place.task][place.link] = 1
                    yield self.seals.decode_seal(attempt, place.task, place.link, data, folder)
