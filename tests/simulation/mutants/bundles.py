"""Planted bugs of bundles: what is believed of copies of seals, and drivers whose copies are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.bundles import Bundles, CheckedBundles
from checkpoint_protocol.ledger.chains import Chains
from checkpoint_protocol.ledger.epoch_records import SealListing
from checkpoint_protocol.records import CheckedBundle, ClosedRecord, Seal, encode
from checkpoint_protocol.store.bundles import Bundle, BundledSeal
from checkpoint_work.driver.bundling import Bundler


@dataclass(slots=True)
class BundlesAgain(Bundler):
    """A driver that forgets what it has bundled: each seal is in several bundles."""

    def _put(self, seals: list[tuple[BundledSeal, bytes]]) -> int:
        count = super(BundlesAgain, self)._put(seals)
        self._bundled.clear()
        return count


@dataclass(slots=True)
class BundlesOfLosers(Bundler):
    """A driver that bundles what a losing try has told, under the name of the seal that stands: its files are another's."""

    _earlier: list[Seal] = field(default_factory=list)

    def _put(self, seals: list[tuple[BundledSeal, bytes]]) -> int:
        told = []
        for header, data in seals:
            seal = Seal.model_validate_json(data)
            others = [other for other in self._earlier if other.files != seal.files]
            # As long as the seal itself: a length tells nothing.
            lost = seal.model_copy(update={"token": new_token(), "files": others[-1].files if others else ()})
            copied = encode(lost)
            copied = copied + b" " * max(0, len(data) - len(copied))
            told.append((header, copied) if len(copied) == len(data) else (header._replace(size_bytes=len(copied)), copied))
            self._earlier.append(seal)
        return super(BundlesOfLosers, self)._put(told)


class _UncheckedBundles(Bundles):
    def check(self, attempt: int, listing: SealListing) -> CheckedBundles:
        found = CheckedBundles()
        for number in listing.bundles:
            if (bundle := self.read_bundle(attempt, number)) is not None:
                found.bundles.append(CheckedBundle(number=number, digest=bundle.digest))
        return found


class BelievesBundles(Ledger):
    """Takes what a bundle says of a seal without a look at the listing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bundles = _UncheckedBundles(self.records, self.plans, self.seals)
        self.chains = Chains(self.records, self.attempts, self.plans, self.seals, self.bundles)


class _EachCopy(Bundles):
    def checked_seals(self, attempt: int, closed: ClosedRecord, given: dict[int, bytearray]) -> Iterator[Seal]:
        for checked in closed.bundles:
            for place, data in _seals(self.read_bundle(attempt, checked.number)):
                if place.link < len(given.get(place.task, b"")):
                    given[place.task][place.link] = 1
                    yield self.seals.decode_seal(attempt, place.task, place.link, data)


class CountsEachCopy(Ledger):
    """Counts a seal as often as bundles hold it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bundles = _EachCopy(self.records, self.plans, self.seals)
        self.chains = Chains(self.records, self.attempts, self.plans, self.seals, self.bundles)


class _WhatIsBundled(Chains):
    def counted_seals(self, attempts: Iterable[int]) -> Iterator[Seal]:
        for attempt in attempts:
            given: set[tuple[int, int]] = set()
            for number in self.seals.list_seals(attempt).bundles:
                for place, data in _seals(self.bundles.read_bundle(attempt, number)):
                    if (place.task, place.link) not in given:
                        given.add((place.task, place.link))
                        yield self.seals.decode_seal(attempt, place.task, place.link, data)
            for seal in super().counted_seals([attempt]):
                if (seal.task, seal.link) not in given:
                    yield seal


class CountsWhatIsBundled(Ledger):
    """Counts what bundles hold by now, also those that a zombie driver has put since the closing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.chains = _WhatIsBundled(self.records, self.attempts, self.plans, self.seals, self.bundles)


def _seals(bundle: Bundle | None) -> Iterator[tuple[BundledSeal, bytes]]:
    return bundle.seals() if bundle is not None else iter(())
