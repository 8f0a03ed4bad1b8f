"""The merges of an upsert into a Lance dataset: stages of its epoch, each of which has read the dataset at one version.

merge-<version>     reads the fragments of that version; `since` names the version of an earlier merge, whose fragments are
                        left out: they were merged by it, or by the one that it goes on from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from checkpoint_commit.changes import StagedChange, as_staged
from checkpoint_commit.lance.changes.upsert import Merged
from checkpoint_commit.results import gather
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import LanceDeletes

_PREFIX: Final = "merge-"


def stage_name(at_version: int) -> str:
    return f"{_PREFIX}{at_version}"


@dataclass(frozen=True, slots=True)
class DoneMerges:
    """What the merges of an epoch that are done have found, and the versions that they have read. `merged`: None if none is."""

    merged: Merged | None
    versions: tuple[int, ...]


def read_merges(ledger: Ledger) -> DoneMerges:
    """Return what is known by now. What one merge has found of a fragment holds also where a later one begins anew."""
    merged, versions = Merged(), []
    for key in writes.list_stages(ledger.store, ledger.key):
        number = key.stage.removeprefix(_PREFIX)
        if not key.stage.startswith(_PREFIX) or not number.isdecimal():
            continue
        stage = Ledger(ledger.store, key, ledger.pause, ledger.map_all)
        if (record := stage.commits.read_commit()) is None:
            continue
        results = gather(stage, record.attempts, as_staged)
        read = stage.inputs.read_input(results.input_since)
        assert isinstance(results.change, StagedChange)
        if read is None:
            raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: the input of the stage {key} is gone")
        merged.add(read.files, [_deletes(file, key.stage) for file in results.change.files])
        versions.append(int(number))
    return DoneMerges(merged if versions else None, tuple(sorted(versions)))


def _deletes(file: object, stage: str) -> LanceDeletes:
    if not isinstance(file, LanceDeletes):
        raise NeedsChange(
            reasons.STAGED_RESULT_REFUSED, f"a seal of the stage {stage} names {file!r:.200}, which says of no fragment what goes"
        )
    return file
