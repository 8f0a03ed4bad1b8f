"""What rounds add to the metrics: commits, attempts that ended, and rows as they are seen sealed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoint_control.decision.actions import Close, Commit, Stall
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.progress.epoch_progress import Progress
from checkpoint_operator.metrics.counters import Metrics
from checkpoint_operator.pods.driver_status import start_of
from checkpoint_operator.session import Session
from checkpoint_operator.status.object_status import cause_of


def count_round(metrics: Metrics, session: Session, done: Round) -> None:
    sink_format = session.spec.sink.format
    for action in done.actions:
        match action:
            case Commit() if done.key.stage:
                pass  # nothing is in a table yet
            case Commit():
                metrics.commits.labels(sink_format, "committed").inc()
                session.committing = done.key.epoch
            case Stall(reason, _) if done.seen.last is not None and done.seen.last.is_complete:
                metrics.commits.labels(sink_format, reason).inc()
            case Close(_, _, failure):
                cause = cause_of(failure.reason) if failure is not None else "Completed"
                metrics.attempts.labels(cause).inc()
    if done.commit is not None and not done.key.stage and session.committing == done.key.epoch:
        session.committing = 0
        metrics.committed_rows.labels(sink_format).inc(done.commit.rows_written)
        # A small epoch is sealed and committed between two looks.
        _count_rows(metrics, session, done.key.epoch, done.commit.rows_written, done.commit.rows_failed)


def count_progress(metrics: Metrics, session: Session, done: Round, progress: Progress) -> None:
    """Add what is new since the session has counted last. What stages make are no rows of the table."""
    if not done.key.stage and done.seen.is_committed and session.counted_epoch != done.key.epoch:
        return  # an operator before has committed and counted it
    _count_rows(metrics, session, done.key.epoch, 0 if done.key.stage else progress.rows_written, progress.rows_failed)
    if not done.key.stage and progress.tasks is not None and session.counted_plan != (done.key.epoch, progress.attempt):
        session.counted_plan = (done.key.epoch, progress.attempt)
        metrics.input_files_done.inc(progress.input_files_done)


def count_start(metrics: Metrics, session: Session, done: Round, progress: Progress, pod: Mapping[str, Any] | None) -> None:
    """Add how long a driver's pod took until its tasks ran, once they do. Kubernetes tells its times in whole seconds."""
    tasks = next((one for one in progress.entered if one.phase == "RunningTasks"), None)
    if tasks is None or pod is None or session.counted_start == (done.key, progress.attempt):
        return
    session.counted_start = (done.key, progress.attempt)
    start = start_of(pod)
    if start.scheduled_s is not None:
        metrics.driver_start_seconds.labels("scheduled").observe(start.scheduled_s)
    if start.container_s is not None:
        metrics.driver_start_seconds.labels("container").observe(start.container_s)
        metrics.driver_start_seconds.labels("tasks").observe(start.container_s + tasks.after_ms / 1000)


def _count_rows(metrics: Metrics, session: Session, epoch: int, sealed: int, failed: int) -> None:
    if session.counted_epoch != epoch:
        session.counted_epoch, session.rows_sealed, session.rows_failed = epoch, 0, 0
    metrics.staged_rows.inc(max(0, sealed - session.rows_sealed))
    metrics.quarantined_rows.inc(max(0, failed - session.rows_failed))
    session.rows_sealed = max(session.rows_sealed, sealed)
    session.rows_failed = max(session.rows_failed, failed)
