"""The invariants, read from the table and the store once everything has ended."""

from __future__ import annotations

from collections import Counter
from typing import Final

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.writes.deletion import Deleted, DeletionOutcome, Kept
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import CommitRecord
from checkpoint_protocol.rows.positions import overlap
from checkpoint_protocol.writes import list_stages
from checkpoint_work.tasks.rows_by_position import ranges_of
from tests.simulation.scheduler import Actor
from tests.simulation.tables import Row
from tests.simulation.world import Job, RunnerLog, World
from tests.support.records import position_of

#: A runner has seen the table move too often, or a merge could not read what a stranger has removed. Another one goes on.
_STALLS_OF_A_MERGE: Final = (reasons.COMMIT_CONTENDED, reasons.SOURCE_MISSING)


def violations(world: World) -> list[str]:
    """Return what is wrong, a line each; the last runner of each write is the one that had to finish it."""
    found = _of_actors(world)
    expected_stalls = set()
    deleted = [job for job in world.jobs if world.is_deleted(job)]
    for job in deleted:
        found += _of_deletion(world, job)
    if world.retains:
        found += _of_retention(world, world.jobs[0])
    for job in world.jobs:
        if job in deleted:
            continue
        last = [log for log in world.runners if log.job is job][-1]
        if _is_expected_stall(world, last):
            expected_stalls.add(job.uid)
        elif not isinstance(last.outcome, Finish):
            found.append(f"{job.uid}: the last runner did not finish: {last.outcome or last.actor.error or 'it goes on'}")
        found += _of_order(world, job)
        for epoch in range(1, last.epoch + 1):
            found += _of_epoch(world, world.plain_ledger(EpochKey(job.uid, epoch)), must_be_marked=job.uid not in expected_stalls)
    found += [
        f"{log.actor.name} stalled: {log.outcome.reason}: {log.outcome.message}"
        for log in world.runners
        if isinstance(log.outcome, Stall)
        and not _is_expected_stall(world, log)
        and not (world.upserts and log.outcome.reason in _STALLS_OF_A_MERGE)
        and log.job not in deleted
        and not (log.outcome.reason == reasons.WRITE_DELETED and _was_deleted_once(world, log.job))
    ]
    found += _of_rows(world, expected_stalls)
    found += [
        f"{landing.key} landed {landing.files} under a schema that they were not staged for"
        for landing in world.table.landings
        if landing.key is not None and any(world.files.layouts[path] != landing.layout for path in landing.files)
    ]
    found += [
        f"{path} of {landing.key} was removed, and the table names it"
        for landing in world.table.landings
        for path in landing.files
        if path in world.files.removed
    ]
    return found


def assert_all_is_well(world: World) -> None:
    found = violations(world)
    world.scheduler.close()
    assert not found, "\n".join([*found, "--- what happened", *world.scheduler.trace])


def _is_expected_stall(world: World, log: RunnerLog) -> bool:
    """Evidence was removed by a stranger: then asking a person is right."""
    outcome = log.outcome
    return world.table.evidence_was_removed and isinstance(outcome, Stall) and outcome.reason == reasons.COMMIT_OUTCOME_UNKNOWN


def _of_actors(world: World) -> list[str]:
    found = []
    for actor in world.scheduler.actors:
        if not actor.ended:
            found.append(f"{actor.name} has not ended")
        elif actor.error is not None and not _is_expected_error(world, actor, actor.error):
            found.append(f"{actor.name} ended with {type(actor.error).__name__}: {actor.error}")
    return found


def _is_expected_error(world: World, actor: Actor, error: BaseException) -> bool:
    """A task tries again where the store does not answer; records of a deleted write vanish under whoever reads them."""
    if any(actor.contest.split("/")[0] == job.uid and _was_deleted_once(world, job) for job in world.jobs):
        return actor.role != "deleter" and isinstance(error, Corrupt | Retryable)
    return actor.role == "task" and isinstance(error, Retryable)


def _was_deleted_once(world: World, job: Job) -> bool:
    """Whether records of it may vanish: it is deleted, or was, and applied again."""
    return world.is_deleted(job) or any(log.job is job for log in world.deletions)


def _of_retention(world: World, job: Job) -> list[str]:
    """The last deletion has ended, or found its object gone. What has ended without a commit, `_of_commit_record` sees."""
    last = [log for log in world.deletions if log.job is job][-1]
    if last.came_late or isinstance(last.outcome, Deleted):
        return []
    return [f"{job.uid}: the last deleter did not finish: {last.outcome or last.actor.error or 'it goes on'}"]


def _of_deletion(world: World, job: Job) -> list[str]:
    """The last deleter of a write must have ended it; nothing has landed since any deleter said so, nor where it said not."""
    found = []
    last = [log for log in world.deletions if log.job is job][-1]
    if not isinstance(last.outcome, Deleted) and not _is_expected_keeping(world, last.outcome):
        found.append(f"{job.uid}: the last deleter did not finish: {last.outcome or last.actor.error or 'it goes on'}")
    keys = {str(EpochKey(job.uid, epoch)): epoch for epoch in range(1, world.last_epoch(job) + 1)}
    landed = {landing.key for landing in world.table.landings if landing.key in keys}
    for log in world.deletions:
        if log.job is not job or not isinstance(log.outcome, Deleted):
            continue
        found += [f"{key} landed after {log.actor.name} had ended" for key in sorted(landed - log.landed)]
        told = {key for key, epoch in keys.items() if epoch in log.outcome.committed_epochs}
        found += [f"{log.actor.name} says that {key} is not committed, and it is" for key in sorted(landed - told)]
        found += [
            f"{log.actor.name} says that {key} is committed, and it was never committed"
            for key in sorted(told - landed)
            if (commit_record := world.plain_ledger(EpochKey(job.uid, keys[key])).commits.read_commit()) is None
            or commit_record.commit_id is not None
        ]
    for key, epoch in keys.items():
        landings = world.table.landings_of(EpochKey(job.uid, epoch))
        if len(landings) > 1:
            found.append(f"{key} was committed {len(landings)} times")
        ledger = world.plain_ledger(EpochKey(job.uid, epoch))
        commit_record = ledger.commits.read_commit()
        found += [] if commit_record is None else _of_commit_record(world, ledger, commit_record)
    return found


def _is_expected_keeping(world: World, outcome: DeletionOutcome | None) -> bool:
    """Evidence was removed by a stranger: then asking a person is right."""
    return world.table.evidence_was_removed and isinstance(outcome, Kept) and outcome.reason == reasons.COMMIT_OUTCOME_UNKNOWN


def _rows_of_the_deleted(world: World, job: Job) -> Counter[Row]:
    """Return the rows that must be in the table all the same: of the epochs that had landed, each as a whole."""
    rows: Counter[Row] = Counter()
    for epoch in range(1, len(job.epoch_ends) + 2):
        if world.table.landings_of(EpochKey(job.uid, epoch)):
            rows += job.expected_of(epoch)
    return rows


def _of_rows(world: World, expected_stalls: set[str]) -> list[str]:
    rows = world.table.rows()
    found = _compared("a stranger", rows, world.table.strangers_rows)
    expected = Counter(world.table.strangers_rows)
    for job in world.jobs:
        ours = _rows_of_the_deleted(world, job) if world.is_deleted(job) else job.input.expected()
        if job.quarantines:
            failed, wrong = _rows_that_failed(world, job)
            found += wrong
            ours -= job.input.made_of(failed)
        if job.uid in expected_stalls and not any(rows[row] for row in ours):
            continue
        found += _compared(job.uid, rows, ours)
        expected += ours
    found += [f"a row of nobody is in the table: {row}" for row in rows if row not in expected]
    return found


def _rows_that_failed(world: World, job: Job) -> tuple[set[int], list[str]]:
    """Return the input rows that are quarantined in the end, and what is wrong with them. By no rule of the product."""
    failed: set[int] = set()
    wrong = []
    for epoch in range(1, world.last_epoch(job) + 1):
        # As the runners read it: a mutant may keep elsewhere what failed.
        ledger = world.open_ledger(world.raw_store, EpochKey(job.uid, epoch))
        commit_record, record = ledger.commits.read_commit(), ledger.inputs.read_input()
        if commit_record is None or record is None:
            continue
        indexes = [int(file.path.removeprefix("in/")) for file in record.files]
        taken = [(index, at) for index, file in zip(indexes, record.files, strict=True) for at, _ in file.only or ()]
        retried = {job.input.number(*place) for place in taken}
        wrong += [f"row {number} is taken again by epoch {epoch}, and had not failed" for number in sorted(retried - failed)]
        failed -= retried
        launch = ledger.attempts.read_launch(commit_record.attempts)
        assert launch is not None
        seals = list(ledger.chains.counted_seals((*launch.counted, commit_record.attempts)))
        rows = [position_of(row) for seal in seals for row in ledger.quarantine.quarantined_rows(seal)]
        numbers = [job.input.number(indexes[place.file], place.start) for place in rows]
        wrong += [f"row {number} is quarantined {count} times" for number, count in Counter(numbers).items() if count > 1]
        if commit_record.rows_quarantined != len(rows):
            wrong.append(
                f"epoch {epoch} has {len(rows)} quarantined rows, and its commit record says {commit_record.rows_quarantined}"
            )
        if commit_record.rows_read != sum(seal.rows_read for seal in seals):
            wrong.append(f"the commit record of epoch {epoch} is not about what was closed")
        failed.update(numbers)
    wrong += [f"row {number} never failed, and is quarantined" for number in sorted(failed - job.ever_failing)]
    wrong += [f"row {number} fails always, and is not quarantined" for number in sorted(job.input.poison - failed)]
    return failed, wrong


def _compared(whose: str, rows: Counter[Row], expected: Counter[Row]) -> list[str]:
    return [f"row {row} of {whose} is in the table {rows[row]} times" for row, count in expected.items() if rows[row] != count]


def _of_order(world: World, job: Job) -> list[str]:
    """Epochs land in their order, and none has begun before the one before was recorded as committed. None takes too much."""
    keys = {str(EpochKey(job.uid, epoch)): epoch for epoch in range(1, world.last_epoch(job) + 1)}
    landed = [keys[landing.key] for landing in world.table.landings if landing.key in keys]
    found = [] if landed == sorted(landed) else [f"{job.uid}: epochs are out of order: {landed}"]
    # Objects are in the order in which they were put first.
    places = {path: place for place, path in enumerate(world.raw_store.objects)}
    marked: int | None = -1
    for key, epoch in keys.items():
        ledger = world.plain_ledger(EpochKey(job.uid, epoch))
        begun = places.get(ledger.at.launch(1))
        if begun is not None and (marked is None or marked > begun):
            found.append(f"{key} is out of order: it began before the one before it was recorded as committed")
        marked = places.get(ledger.at.commit_record)
        record = ledger.inputs.read_input()
        if (
            job.most_files is not None
            and record is not None
            and sum(file.size_bytes > 0 for file in record.files) > job.most_files
        ):
            found.append(f"{key} takes {len(record.files)} files, and may take {job.most_files}")
    return found


def _of_epoch(world: World, ledger: Ledger, must_be_marked: bool) -> list[str]:
    landings = world.table.landings_of(ledger.key)
    found = []
    if len(landings) > 1:
        found.append(f"{ledger.key} was committed {len(landings)} times")
    commit_record = ledger.commits.read_commit()
    if commit_record is not None:
        found += _of_commit_record(world, ledger, commit_record)
    elif must_be_marked:
        found.append(f"{ledger.key} has no commit record")
    stages = [world.plain_ledger(key) for key in list_stages(ledger.store, ledger.key)]
    return [*found, *_of_attempts(ledger), *(wrong for stage in stages for wrong in _of_attempts(stage))]


def _of_commit_record(world: World, ledger: Ledger, commit_record: CommitRecord) -> list[str]:
    landings = world.table.landings_of(ledger.key)
    if commit_record.commit_id is None:
        return [f"{ledger.key} is recorded as empty, and was committed"] if landings else []
    if not landings:
        return [f"{ledger.key} is recorded as {commit_record.commit_id}, and was never committed"]
    if commit_record.commit_id == landings[0].commit_id:
        return []
    # Evidence was removed and the commit was known by its files: any later version that holds them is a true answer.
    held = set(world.table.files_at(commit_record.commit_id) or ())
    if world.table.evidence_was_removed and held.intersection(landings[0].files):
        return []
    return [f"{ledger.key} is recorded as {commit_record.commit_id}, and is {landings[0].commit_id}"]


def _of_attempts(ledger: Ledger) -> list[str]:
    """At most one attempt is complete, and what an earlier one has sealed for it is not planned again."""
    found = []
    complete = []
    for attempt in ledger.attempts.list_attempts():
        launch, plan, closed = (
            ledger.attempts.read_launch(attempt),
            ledger.plans.read_plan(attempt),
            ledger.attempts.read_closed(attempt),
        )
        assert launch is not None
        if closed is not None and closed.complete:
            complete.append(attempt)
        if plan is None:
            continue
        covered = [piece for seal in ledger.chains.counted_seals(launch.counted) for piece in ranges_of(seal)]
        if twice := overlap([*covered, *(piece for task in ledger.plans.read_tasks(plan) for piece in task)]):
            found.append(f"{ledger.key}: attempt {attempt} computes {twice[1]} again")
    if len(complete) > 1:
        found.append(f"{ledger.key}: attempts {complete} are all complete")
    return found


def unfinished_epochs(world: World, job: Job) -> list[int]:
    """Return the epochs of a write that have begun and have no commit record."""
    last = world.last_epoch(job)
    return [epoch for epoch in range(1, last + 1) if world.plain_ledger(EpochKey(job.uid, epoch)).commits.read_commit() is None]
