"""Stages that the commit of a micro-batch needs, such as the merge of an upsert: the driver does them while it waits for it.

It does those whose launch record names it (`driven_by`), and only their first attempt. If one fails, the driver ends, and the
next attempt has a driver of its own: the micro-batch is sealed by then, and is not staged again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import DrivenBy
from checkpoint_protocol.writes import list_stages
from checkpoint_work.process.at_work import AtWork


@dataclass(slots=True)
class StagesOfCommit:
    """Those of one epoch. `life`: the attempt that this driver was started for; `run`: does the first attempt of a stage."""

    at_work: AtWork
    life: DrivenBy
    run: Callable[[Ledger], None]
    #: Those whose launch record was read: it never changes.
    _seen: set[EpochKey] = field(default_factory=set)

    def do_recorded(self) -> None:
        """Do those that are recorded for this driver by now. Where one fails, it stays what the driver is at work on."""
        epoch = self.at_work.now
        for key in list_stages(epoch[0].store, epoch[0].key):
            stage = Ledger(epoch[0].store, key)
            if key in self._seen or (launch := stage.attempts.read_launch(1)) is None:
                continue
            self._seen.add(key)
            if launch.driven_by == self.life:
                self.at_work.now = (stage, 1)
                self.run(stage)
                self.at_work.now = epoch
