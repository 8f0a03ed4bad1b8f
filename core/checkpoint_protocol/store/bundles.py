"""Bundles: a thousand seals in one object, for whoever has to read them all. Pure.

    the header, a BundleRecord, in one line
    each seal, byte for byte as it was put, in a line of its own

A bundle is a copy. The seals stay the truth: which of them count is told by the listing of the seals and by the closed list,
never by a bundle, and what a bundle says of a seal is believed only where `find_forgery` has compared it with that listing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.records import BundleRecord, decode, encode

#: More seals, or more bytes, begin another bundle.
MOST_SEALS = 1_000
MOST_BYTES = 1 << 20
#: Larger seals are read one by one as fast.
MOST_BYTES_OF_A_SEAL = 256 << 10
#: A bundle has the header, and of seals the one more that made it full. What is larger is no bundle of ours.
MOST_BUNDLE_BYTES = 4 << 20

_MD5 = re.compile(r'"?([0-9a-f]{32})"?')


class BundledSeal(NamedTuple):
    """Which seal a bundle holds a copy of, and the object that was copied."""

    task: int
    link: int
    size_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was read: the header, and the bytes of each of its seals."""

    record: BundleRecord
    digest: str
    _data: bytes
    _start: int

    def seals(self) -> Iterator[tuple[BundledSeal, bytes]]:
        """Give the bytes of each seal with what the header says of it."""
        start = self._start
        for seal in map(BundledSeal._make, self.record.seals):
            yield seal, self._data[start : start + seal.size_bytes]
            start += seal.size_bytes + 1


def encode_bundle(record: BundleRecord, seals: Sequence[bytes]) -> bytes:
    """Return the stored form."""
    return b"\n".join((encode(record), *seals)) + b"\n"


def decode_bundle(data: bytes, where: str) -> Bundle:
    """Read a stored bundle. Corrupt, naming the object, if it is none."""
    header = data[: data.find(b"\n")]
    record = decode(BundleRecord, header, where)
    start = len(header) + 1
    if any(size_bytes > MOST_BYTES_OF_A_SEAL for _, _, size_bytes, _ in record.seals):
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{where} has a seal of more than {MOST_BYTES_OF_A_SEAL:,} bytes")
    if start + sum(size_bytes + 1 for _, _, size_bytes, _ in record.seals) != len(data):
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{where} is not as long as its header says (truncated or overwritten?)")
    return Bundle(record, hashlib.sha256(data).hexdigest(), data, start)


def may_be_digest(etag: str | None) -> bool:
    """Whether an etag looks like an MD5."""
    return _MD5.fullmatch(etag or "") is not None


def is_digest(etag: str | None, data: bytes) -> bool:
    """Whether an etag is the MD5 of the bytes, as many stores make them."""
    match = _MD5.fullmatch(etag or "")
    return match is not None and match[1] == hashlib.md5(data, usedforsecurity=False).hexdigest()


def find_forgery(
    bundle: Bundle, listed: Callable[[int, int], tuple[int, str | None] | None], etags_are_digests: bool
) -> BundledSeal | None:
    """Return a seal that the bundle does not hold as the store does; None if all of it may be believed.

    `listed` gives size and etag of a seal as a listing shows it. An object never changes, so what was read under its etag is a
    copy of it; where etags are digests of the bytes, the bytes themselves are compared with them.
    """
    for seal, data in bundle.seals():
        stored = listed(seal.task, seal.link)
        if stored is None or stored[1] is None or stored != (seal.size_bytes, seal.etag):
            return seal
        if etags_are_digests and not is_digest(seal.etag, data):
            return seal
    return None
