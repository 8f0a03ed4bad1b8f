"""What rounds add to the metrics: commits, attempts that ended, and rows as they are seen sealed."""

from __future__ import annotations

from checkpoint_operator.cluster.metrics.counters import Metrics
from checkpoint_operator.cluster.session import Session
from checkpoint_operator.cluster.status.attempt_status import cause_of
from checkpoint_operator.core.actions import Close, Commit, Finish, Stall
from checkpoint_operator.loop.reconcile import Round
from checkpoint_operator.progress.epoch_progress import Progress


def count_round(metrics: Metrics, sink_format: str, done: Round) -> None:
    for action in done.actions:
        match action:
            case Commit() if done.key.stage:
                pass  # nothing is in a table yet
            case Commit():
                metrics.commits.labels(sink_format, "committed").inc()
            case Stall(reason, _) if done.seen.last is not None and done.seen.last.is_complete:
                metrics.commits.labels(sink_format, reason).inc()
            case Close(_, _, failure):
                cause = cause_of(failure.reason) if failure is not None else "Completed"
                metrics.attempts.labels(cause).inc()
            case Finish() if done.commit is not None:
                metrics.committed_rows.labels(sink_format).inc(done.commit.rows_written)


def count_progress(metrics: Metrics, session: Session, done: Round, progress: Progress) -> None:
    """Add what is new since the session has counted last. What stages make are no rows of the table."""
    if done.key.stage:
        return
    metrics.staged_rows.inc(max(0, progress.rows_written - session.rows_sealed))
    session.rows_sealed = max(session.rows_sealed, progress.rows_written)
    metrics.quarantined_rows.inc(max(0, progress.rows_quarantined - session.rows_quarantined))
    session.rows_quarantined = max(session.rows_quarantined, progress.rows_quarantined)
    if progress.tasks is not None and session.counted_plan != (done.key.epoch, progress.attempt):
        session.counted_plan = (done.key.epoch, progress.attempt)
        metrics.input_files_done.inc(progress.input_files_done)
