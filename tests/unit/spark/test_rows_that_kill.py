"""Rows that end their process: which are found, what is done again for those beside them, and when tries are careful."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pyarrow as pa
import pytest

from checkpoint_formats.rows.selecting import ADDRESS_FIELD
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.records import ClosedRecord, FailureRecord
from checkpoint_work.step_process.process import Opening, StepProcessEnded
from checkpoint_work.steps.batches import Failed
from checkpoint_work.steps.failing.failures import text_of
from checkpoint_work.steps.row_numbers import asking_for_numbers
from checkpoint_work.tasks.steps_in_process import StepsInProcess, needs_step_process
from tests.support.batches import Rows, batches
from tests.support.records import launch, ledger_over
from tests.support.step_processes import KILLED, Behaviour
from tests.support.stores import MemoryStore

STEP = Step(call="code:work", input="row", name="predict")
SCHEMA = pa.schema([("id", pa.int64())])
#: With what says of which row of its batch each result was made: for seals, and for rows that a table has already.
NUMBERED = [asking_for_numbers(SCHEMA), SCHEMA.append(ADDRESS_FIELD)]


def opening(sets_apart: bool = True) -> Opening:
    return Opening((STEP,), SCHEMA, sets_apart)


def killed_by(*ids: int) -> Behaviour:
    return Behaviour(lambda row, _ends: row in ids)


def run(behaviour: Behaviour, rows: int, size: int, sets_apart: bool = True) -> tuple[list[int], list[Failed[Rows]]]:
    """Return the ids that came out, and the rows that failed."""
    failed: list[Failed[Rows]] = []
    steps = StepsInProcess(opening(sets_apart), behaviour.start)
    ids = [
        one
        for finished in steps.finished(batches(rows, size))
        for made in finished.results(failed.append)
        for one in made.column("id").to_pylist()
    ]
    return ids, failed


def ids_of(failed: Collection[Failed[Rows]]) -> list[int]:
    return [one.batch.start + one.number for one in failed]


@pytest.mark.parametrize("killers", [(0,), (37,), (99,), (41, 42), (3, 50, 51, 98)])
@pytest.mark.parametrize("size", [1, 7, 100])
def test_only_rows_that_end_their_process_fail_and_the_others_keep_their_order(killers: tuple[int, ...], size: int) -> None:
    ids, failed = run(killed_by(*killers), 100, size)

    assert ids == [one for one in range(100) if one not in killers]
    assert ids_of(failed) == list(killers)
    assert {(one.step, text_of(one.error)) for one in failed} == {("predict", KILLED)}


def test_rows_on_which_a_step_raises_beside_such_rows_fail_with_their_own_numbers() -> None:
    behaviour = Behaviour(lambda row, _ends: row == 20, raises=frozenset({3, 19, 21, 39}))

    ids, failed = run(behaviour, 40, 40)

    assert ids == [one for one in range(40) if one not in {3, 19, 20, 21, 39}]
    assert sorted(ids_of(failed)) == [3, 19, 20, 21, 39]


@pytest.mark.parametrize("schema", NUMBERED, ids=lambda schema: schema.names[-1])
def test_results_beside_such_rows_have_the_numbers_of_their_own_rows(schema: pa.Schema) -> None:
    behaviour = Behaviour(lambda row, _ends: row in (20, 63), raises=frozenset({3, 21}))
    steps = StepsInProcess(Opening((STEP,), schema, sets_apart=True), behaviour.start)

    made = [one for finished in steps.finished(batches(80, 40)) for one in finished.results(lambda _: None)]

    assert [one.schema for one in made] == [schema] * len(made)
    rows = [(row["id"], row[schema.names[-1]]) for one in made for row in one.to_pylist()]
    assert rows == [(one, one % 40) for one in range(80) if one not in {3, 20, 21, 63}]


def test_a_row_that_ends_its_process_once_when_it_is_alone_has_not_failed() -> None:
    # The whole batch, its part, and then the row alone: three ends, of which one is the row's own.
    behaviour = Behaviour(lambda row, ends: row == 37 and ends < 3)

    ids, failed = run(behaviour, 100, 100)

    assert ids == list(range(100))
    assert not failed


def test_few_rows_are_done_again_for_one_that_ends_its_process() -> None:
    behaviour = killed_by(3_000)

    ids, _ = run(behaviour, 4_096, 4_096)

    calls = Counter(one for given in behaviour.given[1:] for one in given)
    assert len(ids) == 4_095
    assert behaviour.started <= 6
    # Those beside it in the part that ended the process, and in the part of that.
    assert sum(calls.values()) - len(calls) <= 4_096 // 16 + 16 + 1


def test_where_no_row_ends_the_process_there_is_one_and_it_ends_with_the_last_row() -> None:
    behaviour = Behaviour()

    ids, _ = run(behaviour, 1_000, 10)

    assert ids == list(range(1_000))
    assert (behaviour.started, behaviour.closed) == (1, 1)
    assert len(behaviour.given) == 100


def test_the_process_ends_with_a_task_that_is_given_up() -> None:
    behaviour = Behaviour()
    steps = StepsInProcess(opening(), behaviour.start)
    stream = steps.finished(batches(100))
    list(next(stream).results(lambda _: None))

    stream.close()

    assert behaviour.closed == behaviour.started == 1


def test_without_quarantine_the_row_is_named_and_ends_the_attempt() -> None:
    with pytest.raises(NeedsChange) as refused:
        run(killed_by(37), 100, 20, sets_apart=False)

    assert refused.value.reason == reasons.CODE_FAILED
    assert refused.value.message.startswith("step 'predict' ends its process on row 37 of in, each time")
    assert KILLED.message in refused.value.message
    assert "onRowError: Quarantine" in refused.value.message


def test_a_process_that_finds_at_the_end_that_a_service_has_answered_nobody_ends_the_task() -> None:
    behaviour = Behaviour(at_end=Retryable(reasons.SERVICE_UNAVAILABLE, "all calls failed"))

    with pytest.raises(Retryable, match="all calls failed"):
        run(behaviour, 10, 10)

    assert behaviour.closed == 1


def test_a_process_that_ends_after_the_last_row_is_no_rows_fault() -> None:
    with pytest.raises(Retryable, match="ended after the last row"):
        run(Behaviour(at_end=StepProcessEnded(None, KILLED)), 10, 10)


def test_parts_are_named_by_their_rows() -> None:
    behaviour = killed_by(37)

    run(behaviour, 100, 100)

    assert behaviour.places[0] == "rows 0 to 99 of in"
    assert "7 rows from row 35 of in on" in behaviour.places
    assert "1 rows from row 37 of in on" in behaviour.places


def test_a_process_that_ends_before_it_has_rows_is_no_rows_fault() -> None:
    behaviour = Behaviour(kills_at_start=True)

    with pytest.raises(Retryable) as failed:
        run(behaviour, 100, 100)

    assert failed.value.reason == reasons.DRIVER_FAILED
    assert "before it had rows" in failed.value.message
    assert behaviour.closed == behaviour.started == 1


def test_rows_that_cannot_be_read_are_set_apart_or_end_the_attempt() -> None:
    unreadable = Rows(5, 5)
    unreadable.unreadable = NeedsChange(reasons.SOURCE_UNREADABLE, "a line with too many fields")
    failed: list[Failed[Rows]] = []
    for finished in StepsInProcess(opening(), Behaviour().start).finished(iter([unreadable])):
        assert not list(finished.results(failed.append))
    assert [one.error for one in failed] == [unreadable.unreadable]

    (finished,) = StepsInProcess(opening(sets_apart=False), Behaviour().start).finished(iter([unreadable]))
    with pytest.raises(NeedsChange, match="too many fields"):
        list(finished.results(failed.append))


def test_the_columns_of_a_new_table_come_of_rows_that_do_not_end_the_process() -> None:
    steps = StepsInProcess(opening(), killed_by(0, 1, 2).start)

    assert steps.schema_of(Rows(0, 64).rows, Rows(0, 64).place) == SCHEMA


def test_the_columns_of_a_new_table_are_asked_for_without_rows_where_each_ends_the_process() -> None:
    behaviour = Behaviour(lambda _row, _ends: True)

    assert StepsInProcess(opening(), behaviour.start).schema_of(Rows(0, 4).rows, Rows(0, 4).place) == SCHEMA
    assert behaviour.given[-1] == []


# --- when tries are careful ---------------------------------------------------------------------------------------------------


def careful(attempt: int, sealed: tuple[int, ...] | None, said: str | None) -> bool:
    """Return whether an attempt is careful whose predecessor has sealed so many links a task, and said why it ended."""
    ledger = ledger_over(MemoryStore())
    token = new_token()
    if sealed is not None:
        plan_token = token if sealed else None
        closed = ClosedRecord(token=token, attempt=1, plan_token=plan_token, chain_lengths=sealed, complete=False)
        ledger.attempts.put_closed(closed)
    if said is not None:
        ledger.attempts.put_failure(FailureRecord(token=token, attempt=1, family="Retryable", reason=said, message="why"))
    return needs_step_process(ledger, launch(attempt))


@pytest.mark.parametrize("said", [None, reasons.DRIVER_FAILED, reasons.DRIVER_OUT_OF_MEMORY, reasons.NO_PROGRESS])
@pytest.mark.parametrize("sealed", [(), (0, 0)])
def test_an_attempt_is_careful_after_one_whose_process_ended_without_a_seal(sealed: tuple[int, ...], said: str | None) -> None:
    assert careful(2, sealed, said)


def test_the_first_attempt_is_not_careful() -> None:
    assert not careful(1, None, None)


def test_an_attempt_is_not_careful_after_one_that_has_sealed() -> None:
    assert not careful(2, (0, 1), reasons.DRIVER_FAILED)


@pytest.mark.parametrize("said", [reasons.SERVICE_UNAVAILABLE, reasons.CODE_FAILED, reasons.STORE_UNAVAILABLE])
def test_an_attempt_is_not_careful_after_one_that_said_another_reason(said: str) -> None:
    assert not careful(2, (), said)


def test_an_attempt_is_not_careful_where_it_is_not_known_what_the_one_before_has_sealed() -> None:
    assert not careful(2, None, reasons.DRIVER_FAILED)
