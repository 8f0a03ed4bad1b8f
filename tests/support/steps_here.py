"""The steps of a task in the test's own process, as `task_process` makes them."""

from __future__ import annotations

from collections.abc import Iterable

from checkpoint_formats.port import Stager
from checkpoint_formats.rows.batch_sizing import MOST_ROWS
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.steps.calling.calls import Surroundings
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.flow import Flow
from checkpoint_work.steps.row_numbers import asking_for_numbers


def steps_here(
    stager: Stager,
    steps: Iterable[Step] = (),
    *,
    sets_apart: bool = False,
    most_rows: int = MOST_ROWS,
    around: Surroundings | None = None,
) -> Flow:
    """Return steps whose results are for this stager. `sets_apart`: rows that fail are quarantined."""
    return Flow(Pipeline(steps, around=around), asking_for_numbers(stager.arrow_schema), sets_apart, most_rows)
