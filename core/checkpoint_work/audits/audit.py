"""The driver of an audit: it calls the function of `sink.audit` with the table, which is the only task of its plan.

What passes is sealed as a whole, so that the attempt is complete. What does not ends with a failure that says the function's
words, after which nothing is tried again before the code is edited, or a person asks for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LaunchRecord, PlanRecord, PositionsCovered, Seal
from checkpoint_protocol.store.object_store import open_store
from checkpoint_protocol.tables.iceberg import AUDIT_BRANCH_PREFIX
from checkpoint_work.audits.staged_table import MakeFrame, StagedTable
from checkpoint_work.inputs.epoch_input import fix_input, list_source
from checkpoint_work.process.reporting import Activity, InHand, telling_of_task
from checkpoint_work.process.settings import log_traceback, masked
from checkpoint_work.steps.calling import event_loop
from checkpoint_work.steps.calling.event_loop import awaited
from checkpoint_work.steps.failing.failures import cause_of
from checkpoint_work.steps.loading import closing_steps, load

#: Starts Spark for DataFrames of the table.
OpenFrames = Callable[[int], AbstractContextManager[MakeFrame]]
_WAYS_OUT: Final = (
    "nothing is committed, and the rows stay there to be looked at. Edit the code, and they are audited again; to have them "
    "audited again as it is, run again (in a cluster: annotate with checkpointed.dev/retry); to give them up, delete the write"
)


def run_audit(
    ledger: Ledger,
    launch: LaunchRecord,
    function: str,
    storage: StorageSettings,
    parallelism: int,
    open_frames: OpenFrames | None,
    activity: Activity | None,
) -> None:
    """Do one attempt to its end. NeedsChange(AuditRefused) where the function does not let the rows pass."""
    record = fix_input(ledger, launch, partial(list_source, launch, storage, ledger.store.uri))
    store, in_hand, at = open_store(ledger.store.uri, storage), InHand(), ledger.at.work(launch.attempt, 0)
    whole = tuple(piece for index, file in enumerate(record.files) for piece in file.ranges(index) if piece.start != piece.end)
    if activity is not None:
        activity.know(record.files)
        activity.enter("RunningTasks")
    # A second driver of the attempt ends here, before it asks anything.
    ledger.plans.put_plan(
        PlanRecord(token=new_token(), attempt=launch.attempt, tasks=(whole,), done_files=0, done_rows=0, in_driver=True)
    )
    with ExitStack() as opened, closing_steps(), telling_of_task(store.overwrite, store.delete, at, 0, in_hand):
        made: list[MakeFrame] = []

        def make_frame(*arguments: Any) -> Any:
            if not made:
                assert open_frames is not None
                made.append(opened.enter_context(open_frames(parallelism)))
            return made[0](*arguments)

        table = StagedTable(ledger.key, launch.source, record, storage, make_frame, lambda rows: in_hand.add(rows, rows))
        _call(Step(call=function, name=f"sink.audit: {function}"), table, f"{AUDIT_BRANCH_PREFIX}{ledger.key.uid}")
    ledger.seals.put_seal(
        Seal(
            token=new_token(),
            attempt=launch.attempt,
            task=0,
            link=0,
            covered=PositionsCovered(ranges=whole),
            rows_read=0,
            rows_written=0,
            code_digest=launch.code_digest,
            files=(),
            last=True,
        )
    )


def _call(step: Step, table: StagedTable, branch: str) -> None:
    loaded = load(step)
    try:
        said = loaded.function(table)
        if inspect.isawaitable(said):
            said = event_loop.run(awaited(said))
    except (KeyboardInterrupt, Retryable, Corrupt):
        raise  # not what the function says: a store that does not answer, while it reads
    except MemoryError as error:
        raise Retryable(reasons.DRIVER_FAILED, f"{step.label} took more memory than there is: {cause_of(error, step)}") from error
    except BaseException as error:  # user code: sys.exit is no Exception
        log_traceback(error)
        raise _refused(step, table, branch, f"it raised {cause_of(error, step)}") from error
    if said is None or said is True:
        return
    if said is False:
        raise _refused(step, table, branch, "it returned False")
    if isinstance(said, str):
        raise _refused(step, table, branch, masked(said[:4_000]) or "it returned an empty text")
    raise _refused(
        step,
        table,
        branch,
        f"it returned {type(said).__name__}; it has to return nothing (or True) where the rows may be published, and a text (or "
        "False) that says why not",
    )


def _refused(step: Step, table: StagedTable, branch: str, why: str) -> NeedsChange:
    return NeedsChange(
        reasons.AUDIT_REFUSED,
        f"{step.label} refuses the rows ({table.name}, branch {branch}, snapshot {table.snapshot_id}): {why}; {_WAYS_OUT}",
    )
