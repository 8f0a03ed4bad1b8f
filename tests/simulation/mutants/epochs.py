"""Planted bugs of epochs that follow one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checkpoint_control.decision.actions import OpenEpoch
from checkpoint_control.decision.triggers import News
from checkpoint_control.loop.reconcile import Reconciler, Round
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.taking import EarlierOf
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger.epoch_index import index_of
from checkpoint_protocol.records import TakenRecord, decode, encode
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.put_once import put_once
from checkpoint_work.inputs.epoch_input import Budget
from tests.simulation.store import SimulatedStore


class GoesByAnEarlierIndex:
    """The store, which gives the index of the epoch before in place of each: what the last epoch has taken is not in it."""

    def __init__(self, inner: SimulatedStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, path: str, most_bytes: int) -> bytes | None:
        folder, _, name = path.rpartition("/")
        epoch = int(name.removesuffix(".json")) if folder.endswith("/0-index") else 0
        older = self._inner.get(f"{folder}/{epoch - 1}.json", most_bytes) if epoch > 1 else None
        if older is None:
            return self._inner.get(path, most_bytes)
        return encode(decode(TakenRecord, older, path).model_copy(update={"epoch": epoch}))


class TakesTheNewestByName(Budget):
    """Goes by a watermark: what has an older name than something that was taken was there before, and was taken, too."""

    def within(self, found: Sequence[FoundFile], earlier: EarlierOf) -> Sequence[FoundFile]:
        newest = max(earlier.files, default="")
        return super().within([file for file in found if file.path in earlier.files or file.path > newest], earlier)


class BeginsBesideTheOneAtWork(Reconciler):
    """Begins the next epoch when this one has a plan, of what the one before it has left: as if it had taken nothing."""

    def step(self) -> Round:
        ledger, looks = self.current_ledger(), self.observer.looks
        if looks is None or looks.is_asked or ledger.key.epoch > 3 or ledger.plans.read_plan(1) is None:
            return super().step()
        index, epoch = index_of(ledger), ledger.key.epoch
        try:
            before = index.up_to(epoch - 1)
        except Corrupt:
            return super().step()
        copy = before.model_copy(update={"token": new_token(), "epoch": epoch})
        put_once(ledger.store, layout.index_path(ledger.key.uid, epoch), copy, ledger.pause)
        opened = OpenEpoch(epoch + 1, epoch, News())
        seen = self.observer.observe()
        self._act(seen, opened)
        return Round(ledger.key, seen, (opened,))
