"""What becomes of results of other code where a person decides (onCodeChange: Ask). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from checkpoint_control.decision.actions import Action, Stall
from checkpoint_control.decision.observation import Attempt, Change, Observation
from checkpoint_protocol import reasons
from checkpoint_protocol.manifest.quantities import counted

#: Sealed results of other code stay; or they are dropped, as far as they are of the stage at work.
Choice = Literal["Continue", "Restart"]


@dataclass(frozen=True, slots=True)
class Approval:
    """What a person has decided, of the code with this digest only: another edit asks again."""

    choice: Choice
    digest: str

    def __str__(self) -> str:
        return f"{self.choice}-{self.digest}"


def parse_approval(text: str) -> Approval | None:
    """Return the approval that a person has put as `Continue-<digest>` or `Restart-<digest>`; None if it is none."""
    for choice in get_args(Choice):
        if text.startswith(f"{choice}-"):
            return Approval(choice, text.removeprefix(f"{choice}-"))
    return None


def is_of_now(seen: Observation, attempt: Attempt) -> bool:
    """Whether an attempt had the code, and the reading options, that the manifest has now."""
    return attempt.code_digest == seen.code_digest and not attempt.is_read_otherwise


def ask_before_results_are_mixed_or_dropped(seen: Observation) -> tuple[Action, ...] | None:
    """An attempt that was recorded with the code of now shows that this was decided: its record says what it took over."""
    change, last = seen.change, seen.last
    if change is None:
        return None
    if change.redone:
        return (Stall(reasons.CODE_CHANGED, _of_stages(change)),)
    if (
        last is None
        or change.is_of_stage_before
        or last.is_of_other_stage
        or last.is_of_other_reset
        or seen.is_stream
        or is_of_now(seen, last)
    ):
        return None
    counted = {*last.counted, last.number}
    others = [one.number for one in seen.attempts if one.number in counted and one.holds_seals and not is_of_now(seen, one)]
    return (Stall(reasons.CODE_CHANGED, _of_attempts(change, others)),) if others else None


def _of_stages(change: Change) -> str:
    kept = f"; kept: {', '.join(change.kept)}" if change.kept else ""
    return f"stages with sealed rows would be computed again: {', '.join(change.redone)}{kept}; approve that, or undo the edit"


def _of_attempts(change: Change, others: list[int]) -> str:
    of_stage = f" of the stage {change.stage}" if change.stage else ""
    of_other = f"attempt {others[0]}" if len(others) == 1 else f"attempts {', '.join(map(str, others))}"
    return (
        f"{counted(change.rows_sealed, f'row{of_stage} is', f'rows{of_stage} are')} sealed, and {of_other} sealed rows "
        "with other code, or with other options for reading, than the manifest has now; approve Continue (sealed rows stay, and "
        "only the remaining rows are computed) or Restart (all rows are computed again), or undo the edit"
    )
