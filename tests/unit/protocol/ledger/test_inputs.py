"""The input of an epoch: the first one stays, and a finished epoch's is the one that was committed."""

from __future__ import annotations

from checkpoint_protocol.identity import new_token
from checkpoint_protocol.records import CommitRecord
from tests.support.records import KEY, input_of, ledger_over, rows_file
from tests.support.stores import MemoryStore


def committed_since(attempt: int) -> CommitRecord:
    return CommitRecord(
        token=new_token(),
        key=str(KEY),
        target="t",
        table_identity=None,
        commit_id=None,
        rows_read=0,
        rows_written=0,
        files=0,
        attempts=attempt,
        code_digests=(),
        input_since=attempt,
    )


def test_the_first_input_stays_and_is_returned_to_every_other_driver() -> None:
    store = MemoryStore()
    first = input_of(rows_file(1))
    assert ledger_over(store).inputs.put_input(first) == first

    assert ledger_over(store).inputs.put_input(input_of(rows_file(2))) == first
    assert ledger_over(store).inputs.read_input() == first


def test_inputs_of_several_sources_of_one_epoch_are_known_by_the_attempt_from_which_on_they_are_read() -> None:
    ledger = ledger_over(MemoryStore())
    first, third = input_of(rows_file(1)), input_of(rows_file(3))
    ledger.inputs.put_input(first)
    ledger.inputs.put_input(third, since=3)

    assert (ledger.inputs.read_input(1), ledger.inputs.read_input(2), ledger.inputs.read_input(3)) == (first, None, third)


def test_the_input_of_a_finished_epoch_is_the_one_that_was_committed() -> None:
    ledger = ledger_over(MemoryStore())
    first, third = input_of(rows_file(1)), input_of(rows_file(3))
    ledger.inputs.put_input(first)
    ledger.inputs.put_input(third, since=3)
    assert ledger.inputs.read_committed_input() == first

    ledger.commits.put_commit(committed_since(3))
    assert ledger.inputs.read_committed_input() == third
