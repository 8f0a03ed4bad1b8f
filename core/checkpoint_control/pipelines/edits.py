"""What an edit costs of a pipeline's results, for a person who is to approve it (onCodeChange: Ask). Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from checkpoint_control.pipelines.decisions import Cause, Decision, Seen, named
from checkpoint_control.pipelines.found import see_stages
from checkpoint_control.pipelines.sealed import digests_of_sealed
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.pipelines import parts_of
from checkpoint_protocol.manifest.spec import Spec

_EDITS: Final[frozenset[Cause]] = frozenset({"code", "input", "arguments"})


def redone_by_an_edit(epoch: Ledger, spec: Spec, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """Return the stages with sealed rows that are to be done anew, where a person has not asked for it.

    `spec.reset` asks for it. A stage that has begun anew was approved, and what comes after it with it.
    """
    first = next((number for number, one in enumerate(decisions) if one.what != "keep"), None)
    redone = [one for one in decisions if one.what == "redo"]
    if first is None or not redone:
        return ()
    seen = see_stages(epoch, parts_of(spec.stages, spec.reset))
    if not _is_edited(decisions[first], decisions[first - 1] if first else None, seen):
        return ()
    return tuple(one for one in redone if any(_holds_rows(epoch, there) for there in seen[one.name]))


def _is_edited(one: Decision, before: Decision | None, seen: Mapping[str, Sequence[Seen]]) -> bool:
    """Whether the first stage that is not kept is one because of an edit, and has not begun since."""
    if one.what != "redo":
        return one.what == "begin"  # it may have come between two that are done
    if one.because == ("upstream",) and before is not None:
        # Of the same stage before, another result: that was approved. Another stage before: one was taken out.
        read = named(seen[one.name][-1].reads)
        return read is None or read.stage != before.name
    return bool(_EDITS & set(one.because))


def _holds_rows(epoch: Ledger, there: Seen) -> bool:
    own = replace(epoch, key=epoch.key.of_stage(there.folder)) if there.folder else epoch
    return bool(digests_of_sealed(own, there.attempt))
