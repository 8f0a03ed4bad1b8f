"""The driver's bundles: while its tasks seal, it copies what they have sealed into objects of a thousand seals each.

Whoever closes and commits the attempt then asks once for a thousand of them. Nothing rests on it: a driver that dies leaves seals
that are in no bundle, and those are read one by one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.store.bundles import MOST_BYTES, MOST_BYTES_OF_A_SEAL, MOST_SEALS, BundledSeal
from checkpoint_protocol.store.parallel import streamed

_INTERVAL_S: Final = 10.0
#: A pass may take a twentieth of the time, so that listing many seals again and again disturbs nobody.
_SHARE: Final = 20
#: Fewer than these are read one by one as fast.
_WORTH_IT: Final = 32
#: The driver does not wait longer for its last pass: it may be on its way out.
_PATIENCE_S: Final = 60.0


@dataclass(slots=True)
class Bundler:
    """Copies the seals of one attempt, each once."""

    ledger: Ledger
    attempt: int
    plan_token: str
    _bundled: dict[int, int] = field(default_factory=dict)
    _next_number: int = 0

    def bundle(self, at_least: int) -> int:
        """Copy the seals that a listing shows and no bundle of ours has, if there are so many; return how many were copied.

        Only what can be read back is copied, under the etag that the listing shows: never what a task says that it has put.
        Raises CheckpointError where the store does not answer; what was not bundled then is, the next time.
        """
        listing = self.ledger.seals.list_seals(self.attempt)
        new = [
            (task, link, stored)
            for task, length in sorted(listing.lengths().items())
            for link in range(self._bundled.get(task, 0), length)
            if (stored := listing.get(task, link)) is not None and stored[0] <= MOST_BYTES_OF_A_SEAL
        ]
        rest = len(new) % MOST_SEALS
        new = new[: len(new) - rest] if rest < at_least else new
        pending: list[tuple[BundledSeal, bytes]] = []
        size_bytes = copied = 0
        ledger = self.ledger
        texts = streamed(
            ledger.map_all,
            lambda seal: ledger.store.get(ledger.at.seal(self.attempt, seal[0], seal[1]), MOST_BYTES_OF_A_SEAL),
            new,
        )
        for (task, link, stored), data in zip(new, texts, strict=True):
            if data is None or stored[1] is None or len(data) != stored[0]:
                continue  # whoever closes will read it, and say what is wrong
            pending.append((BundledSeal(task=task, link=link, size_bytes=len(data), etag=stored[1]), data))
            size_bytes += len(data)
            if len(pending) >= MOST_SEALS or size_bytes >= MOST_BYTES:
                copied += self._put(pending)
                pending, size_bytes = [], 0
        return copied + (self._put(pending) if pending else 0)

    def _put(self, seals: list[tuple[BundledSeal, bytes]]) -> int:
        self._next_number = self.ledger.bundles.put_bundle(self._next_number, self.attempt, self.plan_token, seals) + 1
        for header, _ in seals:
            self._bundled[header.task] = max(self._bundled.get(header.task, 0), header.link + 1)
        return len(seals)


@contextmanager
def bundling(ledger: Ledger, attempt: int, plan_token: str, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Bundle what is sealed while the body runs, and the rest at its end. Never fails: what it cannot do, nobody needs."""
    bundler = Bundler(Ledger(ledger.store, ledger.key), attempt, plan_token)
    ended = threading.Event()

    def run() -> None:
        pause_s = _INTERVAL_S
        while not ended.wait(pause_s):
            started = clock()
            _try(bundler, MOST_SEALS)
            pause_s = max(_INTERVAL_S, (clock() - started) * _SHARE)
        _try(bundler, _WORTH_IT)

    thread = threading.Thread(target=run, name="bundler", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_PATIENCE_S)


def _try(bundler: Bundler, at_least: int) -> None:
    with suppress(CheckpointError):  # the next pass does it, or nobody
        bundler.bundle(at_least)
