"""What rounds add to the metrics: the rows of each epoch once, whichever rounds see them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from checkpoint_control.decision.actions import Commit, OpenEpoch, Stall, Wait
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.progress.epoch_progress import Progress
from checkpoint_operator.metrics.counters import Metrics
from checkpoint_operator.metrics.round_metrics import count_progress, count_round
from checkpoint_operator.session import Session
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from tests.unit.cluster.test_pods import OWNER, spec_of
from tests.unit.cluster.test_status_of_rounds import AT_WORK, SEALED, ended
from tests.unit.decision.observations import COMMITTED

NOTHING = Progress(1, 4, 0, 0, 0, 0, 0)


class Counted:
    """The metrics of a process in which one write has a session."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        nothing: Any = None
        self.session = Session(OWNER, spec_of(), nothing)

    def look(self, *rounds: Round, sealed: int = 0, failed: int = 0, skipped: int = 0) -> None:
        """Do rounds, and tell how far the last one's epoch is."""
        for done in rounds:
            count_round(self.metrics, self.session, done)
        progress = replace(NOTHING, rows_written=sealed, rows_failed=failed, input_files_done=skipped)
        count_progress(self.metrics, self.session, rounds[-1], progress)

    @property
    def rows(self) -> tuple[float | None, float | None, float | None]:
        """Those that were seen sealed, that failed, and that were committed."""
        sample = self.metrics.registry.get_sample_value
        return (
            sample("checkpointed_writes_staged_rows_total"),
            sample("checkpointed_writes_quarantined_rows_total"),
            sample("checkpointed_writes_committed_rows_total", {"format": spec_of().sink.format}),
        )


@pytest.fixture
def counted() -> Counted:
    return Counted()


def of(epoch: int, done: Round, stage: str = "") -> Round:
    return replace(done, key=EpochKey(OWNER.uid, epoch, stage))


def commit_of(epoch: int, rows: int, failed: int = 0, before: int = 0) -> tuple[Round, Round]:
    """Return the round that commits an epoch, and the next one, which has seen the commit."""
    record = COMMITTED.model_copy(update={"rows_written": rows, "rows_quarantined": failed, "rows_quarantined_before": before})
    return of(epoch, ended(Commit(1), SEALED)), of(epoch, ended(OpenEpoch(epoch + 1, after=epoch), SEALED, commit=record))


def at_work(epoch: int, stage: str = "") -> Round:
    return of(epoch, ended(Wait("the driver"), AT_WORK), stage)


def test_epochs_that_are_done_between_two_looks_are_counted_with_their_commit(counted: Counted) -> None:
    counted.look(*commit_of(1, 10), *commit_of(2, 7, failed=2), at_work(3))

    assert counted.rows == (17, 2, 17)


def test_input_files_that_the_last_attempt_skipped_are_counted_once_also_when_no_look_saw_it_at_work(counted: Counted) -> None:
    counted.look(*commit_of(1, 10), sealed=10, skipped=3)
    counted.look(commit_of(1, 10)[1], sealed=10, skipped=3)

    assert counted.metrics.registry.get_sample_value("checkpointed_writes_input_files_done_total") == 3


def test_what_was_seen_sealed_is_not_counted_again_with_its_commit_nor_after_it(counted: Counted) -> None:
    counted.look(at_work(1), sealed=4, failed=1)
    counted.look(at_work(1), sealed=9, failed=1)
    counted.look(*commit_of(1, 10, failed=2), sealed=10, failed=2)
    counted.look(commit_of(1, 10, failed=2)[1], sealed=10, failed=2)

    assert counted.rows == (10, 2, 10)


def test_a_smaller_epoch_is_counted_from_its_first_row(counted: Counted) -> None:
    counted.look(at_work(1), sealed=10, failed=5)
    counted.look(*commit_of(1, 10, failed=5), at_work(2), sealed=2, failed=1)

    assert counted.rows == (12, 6, 10)


def test_what_an_operator_before_has_committed_is_not_counted_by_the_next(counted: Counted) -> None:
    counted.look(commit_of(1, 10)[1], sealed=10)

    assert counted.rows == (0, 0, None)


def test_rows_of_stages_are_none_of_the_table_and_those_that_fail_in_them_are(counted: Counted) -> None:
    counted.look(at_work(1, "first-0123456789abcdef-1"), sealed=100, failed=3)
    counted.look(at_work(1), sealed=90, failed=3)
    counted.look(at_work(1, "merge-1"), sealed=500)
    counted.look(*commit_of(1, 96, failed=1, before=3))

    assert counted.rows == (96, 4, 96)


def test_a_commit_that_was_refused_commits_no_rows(counted: Counted) -> None:
    counted.look(of(1, ended(Stall(reasons.SCHEMA_CHANGED, "the column is gone"), SEALED)), sealed=10)

    assert counted.rows[2] is None
