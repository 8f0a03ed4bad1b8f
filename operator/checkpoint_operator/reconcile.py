"""One write: observe, decide, act, again. The same loop in a cluster and on one machine; only the ports differ.

`observing.py` reads, `core/rules.py` decides, and this carries the decision out. Each action is safe to do twice, and to be
cut off in: the next round begins from what is stored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import assert_never

from checkpoint_operator.commit.changes import changes_nothing
from checkpoint_operator.commit.outcomes import CommitOutcome, Committed, Rejected, TryLater, Unknown
from checkpoint_operator.commit.results import Results, gather
from checkpoint_operator.core.actions import (
    Action,
    Close,
    Commit,
    Finish,
    MakeTable,
    OpenEpoch,
    RecordAttempt,
    Stall,
    StartDriver,
    StopDriver,
    Wait,
)
from checkpoint_operator.core.observation import Failure, Observation
from checkpoint_operator.core.rules import decide
from checkpoint_operator.observing import Observer
from checkpoint_operator.table_facts import refuse_own_outputs
from checkpoint_operator.tallies import Tallies
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import CommitRecord, FailureRecord, LaunchRecord, TargetRecord, operation_of


@dataclass(frozen=True, slots=True)
class Round:
    """What a round observed, what it decided, and how that ended: where an action could not be done, a Stall stands in its place.

    `is_decision`: nothing was carried out yet. For people such a round is told, too: whatever dies in it, its attempt is known.
    """

    key: EpochKey
    seen: Observation
    actions: tuple[Action, ...]
    is_decision: bool = False

    @property
    def outcome(self) -> Finish | Stall | None:
        """How the write ended, or None if there are more rounds to come."""
        last = self.actions[-1]
        return last if isinstance(last, Finish | Stall) else None

    @property
    def commit(self) -> CommitRecord | None:
        """The record of the epoch's commit, once it was seen in the table."""
        return self.seen.commit


@dataclass(slots=True)
class Reconciler:
    """The loop's body."""

    observer: Observer
    #: Entered around reading what is committed and committing it. Raises Retryable if it is not this write's turn.
    commit_turn: Callable[[], AbstractContextManager[object]] = nullcontext
    #: Called with each round between its decision and its actions.
    announce: Callable[[Round], None] = lambda decided: None

    def current_ledger(self) -> Ledger:
        return self.observer.current_ledger

    def current_tallies(self) -> Tallies:
        return self.observer.current_tallies

    def step(self) -> Round:
        """Do one round. Raises CheckpointError where a port does; the next round begins from what is stored."""
        seen = self.observer.observe()
        actions = decide(seen)
        *stops, last = actions
        if not isinstance(last, RecordAttempt):
            return self._carry_out(Round(self.current_ledger().key, seen, actions))
        # What no catalog has a say in comes first: it may not answer.
        for action in stops:
            self._act(seen, action)
        seen = self.observer.observe_tables(seen, last)
        rest = decide(seen)[len(stops) :]
        done = self._carry_out(Round(self.current_ledger().key, seen, rest))
        return dataclasses.replace(done, actions=(*stops, *done.actions))

    def watch(self) -> Round:
        """Observe whether the write has come to its end by the work of another, and carry out nothing that changes the store."""
        seen = self.observer.observe_end()
        key, actions = self.current_ledger().key, decide(seen)
        if isinstance(actions[-1], OpenEpoch):
            self._act(seen, actions[-1])
        return Round(key, seen, actions, is_decision=True)

    def _carry_out(self, decided: Round) -> Round:
        done: list[Action] = []
        is_commit = any(isinstance(action, Commit) for action in decided.actions)
        with self.commit_turn() if is_commit else nullcontext():
            self.announce(dataclasses.replace(decided, is_decision=True))
            for action in decided.actions:
                ended = self._act(decided.seen, action)
                done.append(ended or action)
                if ended is not None:
                    break
        return dataclasses.replace(decided, actions=tuple(done))

    def _act(self, seen: Observation, action: Action) -> Stall | None:
        """Carry out one action; return Stall if it shows that a person must act."""
        ledger = self.current_ledger()
        match action:
            case Commit(attempt):
                return self._commit(ledger, attempt)
            case Close(attempt, _, failure):
                self._close(ledger, attempt, failure)
            case StopDriver(attempt):
                self.observer.drivers.stop(ledger.key, attempt)
            case MakeTable(attempt):
                return self._make_table(ledger, attempt)
            case StartDriver(attempt):
                launch = ledger.attempts.read_launch(attempt)
                assert launch is not None
                self.observer.expect_start(attempt)
                self.observer.drivers.start(ledger.key, launch)
            case RecordAttempt():
                self._record(ledger, seen, action)
            case OpenEpoch(epoch):
                self.observer.open_epoch(epoch)
            case Finish() | Wait() | Stall():
                pass
            case _:
                assert_never(action)
        return None

    def _close(self, ledger: Ledger, attempt: int, failure: Failure | None) -> None:
        if failure is not None and ledger.attempts.read_failure(attempt) is None:
            ledger.attempts.put_failure(
                FailureRecord.model_validate({"token": new_token(), "attempt": attempt, **dataclasses.asdict(failure)})
            )
        ledger.chains.close(attempt)

    def _record(self, ledger: Ledger, seen: Observation, action: RecordAttempt) -> None:
        assert seen.tables is not None
        write, spec = self.observer.write, self.observer.write.spec
        launch = LaunchRecord(
            token=new_token(),
            attempt=action.attempt,
            run_nonce=spec.run_nonce,
            source=spec.source,
            steps=spec.steps,
            code_digest=write.code_digest,
            target=seen.tables.target,
            sink_format=spec.sink.format,
            target_file_size_bytes=spec.sink.target_file_size,
            interval_s=spec.checkpoint.interval,
            minimum_bytes=spec.checkpoint.minimum_bytes,
            maximum_rows=spec.checkpoint.maximum_rows,
            counted=action.counted,
            recorded_by=self.observer.recorder,
            code=write.code,
            on_replaced=spec.on_replaced,
            on_row_error=spec.on_row_error,
            quarantine=spec.quarantine,
            source_tables=seen.tables.source_tables,
            input_since=action.input_since,
            operation=operation_of(spec.sink),
        )
        if ledger.attempts.put_launch(launch).token == launch.token:
            self.observer.drivers.expect(ledger.key, action.attempt)

    def _make_table(self, ledger: Ledger, attempt: int) -> Stall | None:
        output = ledger.attempts.read_output(attempt)
        assert output is not None
        sink = self.observer.sink
        try:
            target = sink.create(output.arrow_schema)
            refuse_own_outputs(sink, self.observer.write.spec, target, ledger.store.uri)
        except NeedsChange as error:
            # Closed first: an attempt that is open would be started again, and end here again.
            self._close(ledger, attempt, Failure("NeedsChange", error.reason, error.message))
            self.observer.drivers.stop(ledger.key, attempt)
            return Stall(error.reason, error.message)
        ledger.attempts.put_target(attempt, TargetRecord(token=new_token(), target=target))
        return None

    def _commit(self, ledger: Ledger, attempt: int) -> Stall | None:
        sink = self.observer.sink
        results = gather(ledger, attempt, sink.pack)
        outcome: CommitOutcome | None = None if changes_nothing(results.change) else sink.commit(ledger, results)
        match outcome:
            case Committed(identity, commit_id, _, is_current):
                self._put_commit(ledger, results, identity, commit_id, was_rolled_back=not is_current)
            case None:
                self._put_commit(ledger, results, None, None)
            case Rejected(reason, message):
                return Stall(reason, message)
            case Unknown(message):
                return Stall(reasons.COMMIT_OUTCOME_UNKNOWN, message)
            case TryLater(reason, message):
                raise Retryable(reason, message)
            case _:
                assert_never(outcome)
        return None

    def _put_commit(
        self, ledger: Ledger, results: Results, identity: str | None, commit_id: int | None, was_rolled_back: bool = False
    ) -> None:
        ledger.commits.put_commit(
            CommitRecord(
                token=new_token(),
                key=str(ledger.key),
                target=self.observer.sink.title,
                table_identity=identity,
                commit_id=commit_id,
                rows_read=results.rows_read,
                rows_written=results.rows_written,
                files=len(results.change),
                attempts=results.attempts,
                code_digests=results.code_digests,
                rows_quarantined=results.rows_quarantined,
                was_rolled_back=was_rolled_back,
                read_digests=results.read_digests,
                input_since=results.input_since,
            )
        )
