"""Kubernetes events, for what a person may have to act on, and for the steps of a write's life. Pure: the transition from one
status to the next says what to tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from checkpoint_operator.crd.status_model import CommitStatus, Status
from checkpoint_protocol import reasons
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.spec import API_VERSION, KIND

_MOST_NOTE: Final = 1024
#: Reasons of a phase that nobody has to act on.
_NO_PROBLEM: Final = ("Waiting", "DriverStarting", reasons.DRIVER_QUEUED)
#: Ends of attempts that a person has asked for.
_WANTED: Final = frozenset({"Completed", "Suspended"})


def warnings_between(before: Status, after: Status) -> list[tuple[str, str]]:
    """Return (reason, message) for each thing that has come up: a stall, an obstacle, an attempt that failed, rows that fail."""
    found = []
    is_same = (before.epoch, before.stage) == (after.epoch, after.stage)
    known = {attempt.number for attempt in before.attempts or () if attempt.closed_at is not None} if is_same else set()
    for attempt in after.attempts or ():
        if attempt.closed_at is not None and attempt.cause not in _WANTED and attempt.number not in known:
            why = attempt.message or "its driver did not say why it ended"
            found.append(("AttemptFailed", f"attempt {attempt.number}{_of_stage(after)} ({attempt.cause}): {why}"))
    if after.rows_quarantined and (not before.rows_quarantined or before.epoch != after.epoch):
        count = f"({after.rows_quarantined:,} so far, see status.rowsQuarantined)"
        how = "`checkpointed-write inspect` lists them with step, error and traceback"
        found.append(("RowsQuarantined", f"rows of epoch {after.epoch} failed and are quarantined {count}; {how}"))
    last = (after.attempts or (None,))[-1]
    is_told = after.phase == "Pending" and last is not None and last.closed_at is not None
    is_problem = after.phase not in ("Committed", "Suspended") and after.reason not in (None, *_NO_PROBLEM)
    if is_problem and not is_told and (after.reason, after.phase) != (before.reason, before.phase):
        found.append((after.reason or "", after.message or ""))
    return found


def steps_between(before: Status, after: Status) -> list[tuple[str, str]]:
    """Return (reason, message) for each step that is done: an attempt at work, all of an epoch sealed, its commit; and that an
    object goes on with the write of an earlier one. None of them comes with progress, so that an attempt has three at most.
    """
    found = []
    is_new_object = before.observed_uid != after.observed_uid
    if is_new_object and after.write_uid != after.observed_uid:
        found.append(("Attached", f"continues the write {after.write_uid}, which an earlier object of this name began"))
    is_same_epoch = before.epoch == after.epoch
    is_other = (before.epoch, before.stage, before.attempt) != (after.epoch, after.stage, after.attempt)
    if after.phase == "Running" and (is_other or before.phase != "Running"):
        found.append(
            (
                "Started",
                f"the driver of attempt {after.attempt}{_of_stage(after)} of epoch {after.epoch} is running: {after.driver_pod}",
            )
        )
    # After a stage that the commit needed, it was told before.
    is_sealed = after.phase in ("Sealed", "Committing") and after.stage is None and (before.stage is None or not is_same_epoch)
    # An epoch of no rows has nothing to seal, and a look that only a driver can take has one where there is nothing new.
    if is_sealed and after.rows_sealed != 0 and (is_other or before.phase not in ("Sealed", "Committing")):
        rows = f" ({after.rows_sealed:,})" if after.rows_sealed else ""
        found.append(("Sealed", f"all rows of epoch {after.epoch}{rows} are sealed; the commit is next"))
    if (
        after.phase == "Committed"
        and after.commit is not None
        and (before.commit is None or before.commit.key != after.commit.key)
        and not (is_new_object and after.write_uid != after.observed_uid)  # it was committed before
    ):
        found.append(("Committed", _said_of_commit(after.epoch, after.rows_committed, after.commit)))
    return found


def _said_of_commit(epoch: int | None, rows: int | None, commit: CommitStatus) -> str:
    if commit.id is None and not rows:
        return f"epoch {epoch} had no rows, so nothing was committed to {commit.target}"
    what = (
        f"the rows of epoch {epoch} are"
        if rows is None
        else counted(rows, f"row of epoch {epoch} is", f"rows of epoch {epoch} are")
    )
    version = f", version {commit.id}" if commit.id is not None else ""
    return f"{what} in {commit.target}{version}"


def _of_stage(status: Status) -> str:
    return f" of stage {status.stage}" if status.stage is not None else ""


def event_body(
    body: Mapping[str, Any],
    name: str,
    reason: str,
    message: str,
    now: str,
    instance: str,
    kind: Literal["Normal", "Warning"] = "Warning",
) -> dict[str, Any]:
    """Return an event about a CheckpointedWrite. `now`: RFC 3339 with microseconds."""
    metadata = body["metadata"]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "eventTime": now,
        "reportingController": "checkpointed.dev/operator",
        "reportingInstance": instance[:128],
        "action": "Reconcile",
        "type": kind,
        "reason": reason[:128],
        "note": message[:_MOST_NOTE],
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
    }
