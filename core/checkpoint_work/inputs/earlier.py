"""What earlier epochs have taken, and an epoch does not take again."""

from __future__ import annotations

from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import index_of
from checkpoint_protocol.records import LaunchRecord, TakenRecord, takes_the_whole_source


def taken_before(ledger: Ledger, launch: LaunchRecord) -> TakenRecord:
    """Return what the epochs before this one have taken; nothing where the operation puts its rows in the place of theirs.

    What an epoch that overwrites does not read is not in the table afterwards, so it reads the whole source. A stage reads what
    its epoch gives it, and that in whole; but the first one of a pipeline takes of the source what its epoch does.
    """
    if launch.stage is not None:
        is_whole = launch.stage.takes_all
    else:
        is_whole = bool(ledger.key.stage) or takes_the_whole_source(launch.operation)
    of_others = 0 if is_whole else ledger.key.epoch - 1
    return index_of(ledger).up_to(of_others)
