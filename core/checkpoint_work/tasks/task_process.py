"""What a process of Spark does around the segments of a task, however its rows are known."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from checkpoint_formats.port import Stager
from checkpoint_formats.rows.batch_sizing import MOST_ROWS
from checkpoint_formats.stagers import stager_for
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LaunchRecord, Part, Target
from checkpoint_protocol.store.macs import WriteKeys
from checkpoint_protocol.store.object_store import open_store
from checkpoint_work.process.code import use_code
from checkpoint_work.process.last_call import open_note
from checkpoint_work.process.reporting import InHand, telling_of_task
from checkpoint_work.process.settings import authenticated
from checkpoint_work.step_process.process import Opening
from checkpoint_work.steps.calling.calls import Surroundings
from checkpoint_work.steps.calling.memo_values import Memory
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.flow import Flow, Steps
from checkpoint_work.steps.loading import closing_steps
from checkpoint_work.steps.row_numbers import asking_for_numbers
from checkpoint_work.tasks.ending import Ending
from checkpoint_work.tasks.memos import Memos, MemosOf
from checkpoint_work.tasks.steps_in_process import StepsInProcess


class Order(Part):
    """What the driver sends to every task of an attempt.

    `later`: columns that the table got after the write began. `at_once`: how many tasks run at once, at the most.
    `in_step_process`: the steps run in a child process, which finds rows that end it (`steps_in_process.py`). `memos`: of which
    earlier tasks results of calls may be taken.
    """

    uri: str
    uid: str
    epoch: int
    attempt: int
    target: Target
    stage: str = ""
    later: tuple[str, ...] = ()
    at_once: int = 1
    in_step_process: bool = False
    memos: tuple[MemosOf, ...] = ()

    @property
    def key(self) -> EpochKey:
        return EpochKey(self.uid, self.epoch, self.stage)

    def launch(self, ledger: Ledger) -> LaunchRecord:
        """Return what the attempt was told. Its driver has read it, so that it is there."""
        launch = ledger.attempts.read_launch(self.attempt)
        assert launch is not None
        return launch


def run_in_process(
    order: Order,
    number: int,
    tries_before: int,
    storage: StorageSettings,
    keys: WriteKeys | None,
    launch_of: Callable[[Ledger], LaunchRecord],
    run: Callable[[LaunchRecord, Steps, Stager, Ledger, InHand, Ending], None],
) -> None:
    """Make ready what a task needs, run it, and tell meanwhile what it has in hand. Raises CheckpointError.

    `tries_before`: how often Spark has begun the task in this attempt. The process of such a try may have ended on a row.
    """
    ending = Ending.of(os.environ, tries_before)
    with ending.heeded():
        _run(order, number, storage, keys, launch_of, run, ending)


def _run(
    order: Order,
    number: int,
    storage: StorageSettings,
    keys: WriteKeys | None,
    launch_of: Callable[[Ledger], LaunchRecord],
    run: Callable[[LaunchRecord, Steps, Stager, Ledger, InHand, Ending], None],
    ending: Ending,
) -> None:
    tries_before = ending.try_number
    key = order.key
    store, in_hand = open_store(order.uri, storage), InHand()
    ledger = Ledger(authenticated(store, keys), key)
    launch = launch_of(ledger)
    use_code(store, order.uid, launch.code)
    label = f"{order.attempt}-{number}"
    stager = stager_for(launch.operation, order.target, key, label, launch.target_file_size_bytes, storage)
    with (
        telling_of_task(store.overwrite, store.delete, ledger.at.work(order.attempt, number), number, in_hand),
        _memory(order, number, tries_before, launch, ledger, in_hand) as memory,
        closing_steps(),
    ):
        is_suspect = tries_before > 0 and not was_left(ledger, order.attempt, number, tries_before - 1)
        in_step_process = order.in_step_process or (is_suspect and not launch.keeps_groups)
        steps = (_steps_in_process if in_step_process else _steps_here)(order, launch, stager, memory)
        in_hand.count_calls = steps.count_calls
        run(launch, steps, stager, ledger, in_hand, ending)


def was_left(ledger: Ledger, attempt: int, number: int, try_number: int) -> bool:
    """Whether that try of a task ended with its executor, in good order, so that no row is suspected of it."""
    chain = ledger.chains.read_chain(attempt, number)
    return bool(chain) and chain[-1].left_by_try == try_number


@contextmanager
def _memory(
    order: Order, number: int, tries_before: int, launch: LaunchRecord, ledger: Ledger, in_hand: InHand
) -> Iterator[Memory | None]:
    """Give where results of calls are kept and found, if a step asks for it."""
    at_once = [step.concurrency or 1 for step in launch.steps if step.memo]
    if not at_once:
        yield None
        return
    memos = Memos(ledger, order.attempt, number, launch.code_digest, in_hand, max(at_once))
    # Of a try before nobody has said here how far it came.
    own = ((order.attempt, number, 0),) if tries_before else ()
    memos.load((*own, *order.memos))
    with memos.kept():
        yield memos


def _steps_here(order: Order, launch: LaunchRecord, stager: Stager, memory: Memory | None) -> Steps:
    sets_apart = launch.on_row_error == "Quarantine"
    around = Surroundings(order.at_once, sets_apart, launch.row_keys, memory)
    pipeline = Pipeline(launch.steps, order.later, open_note(os.environ), around)
    return Flow(pipeline, asking_for_numbers(stager.arrow_schema), sets_apart, launch.maximum_rows or MOST_ROWS)


def _steps_in_process(order: Order, launch: LaunchRecord, stager: Stager, memory: Memory | None) -> Steps:
    sets_apart = launch.on_row_error == "Quarantine"
    schema = asking_for_numbers(stager.arrow_schema)
    opening = Opening(launch.steps, schema, sets_apart, order.later, order.at_once, launch.row_keys, memory)
    return StepsInProcess(opening)
