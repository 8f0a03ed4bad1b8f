"""Reads one epoch for people: its attempts, what counts of them, its claims and its commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from checkpoint_control.loop.drivers import failure_of
from checkpoint_control.pipelines.decisions import title_of
from checkpoint_control.views.inspected import (
    LenientReader,
    ShownAttempt,
    ShownCommit,
    ShownEpoch,
    ShownFailure,
    ShownRowError,
    ShownSums,
)
from checkpoint_control.views.shown_records import (
    DIGEST_DIGITS,
    phase_in_store,
    show_began,
    show_claim,
    show_commit,
    sum_of,
    sums_of_commit,
    tables_of,
)
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import EpochKey, is_stage
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import (
    ClaimRecord,
    CommitRecord,
    LaunchRecord,
    QuarantinedRow,
    RowKey,
    RowPosition,
    Seal,
    StoredPart,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.quarantine import key_of, rows_retried
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.parts import Input, InputInParts

#: A task and the number of its seal.
Link = tuple[int, int]


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and text == str(int(text)) and text != "0"


def divided(at: EpochLayout, paths: Iterable[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Divide the objects of an epoch into its own, and those of each of its stages by name."""
    own: list[str] = []
    of_stages: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        name = layout.stage_of(path, at.stages) or layout.stage_of(path, f"{at.staged}/stages/")
        if name is not None and is_stage(name):
            of_stages[name].append(path)
        else:
            own.append(path)
    return own, of_stages


def attempts_in(at: EpochLayout, paths: Iterable[str]) -> tuple[list[int], set[int]]:
    """Return the attempts that have any record, and those that have a launch record."""
    launched, others = set(), set()
    for path in paths:
        if number := layout.number_of(path, at.launches):
            launched.add(number)
        elif number := layout.number_of(path, at.closings):
            others.add(number)
        elif path.startswith(f"{at.staged}/"):
            head, separator, _ = path.removeprefix(f"{at.staged}/").partition("/")
            if separator and is_number(head):
                others.add(int(head))
    return sorted(launched | others), launched


def seals_in(at: EpochLayout, numbers: Iterable[int], paths: Iterable[str]) -> dict[int, set[Link]]:
    seals: dict[int, set[Link]] = {number: set() for number in numbers}
    for path in paths:
        head = path.removeprefix(f"{at.staged}/").partition("/")[0]
        if is_number(head) and (place := layout.seal_of(path, at.seals(int(head)))) is not None:
            seals[int(head)].add(place)
    return seals


def records_of(
    at: EpochLayout, numbers: Collection[int], claims: Iterable[int], seals: dict[int, set[Link]], listed: Sequence[str]
) -> set[str]:
    """Return every path of the epoch that is a record's, or that holds what records name."""
    kinds = (at.launch, at.target, at.closed, at.plan, at.output, at.failure, at.input_since, at.progress)
    paths = {at.input, at.deleted, at.cleaned, at.inherited, at.commit_record, *(at.claim(index) for index in claims)}
    paths |= {path_of(number) for number in numbers for path_of in kinds}
    paths |= {path for path in listed for number in numbers if layout.number_of(path, at.works(number)) is not None}
    paths |= {path for path in listed for number in numbers if layout.memo_of(path, at.memos(number)) is not None}
    paths |= {path for path in listed for number in numbers if layout.is_quarantine(path, at.quarantines(number))}
    paths |= {path for path in listed if layout.is_rows_object(path, at.rows) or layout.is_merge_keys(path, at)}
    # Named or not: a driver that died, or whose record did not win, leaves parts that nobody reads.
    folders = (at.input_parts, *(at.plan_parts(number) for number in numbers))
    paths |= {path for path in listed if any(layout.is_part(path, folder) for folder in folders)}
    paths |= {path for path in listed if any(layout.bundle_of(path, at.seals(number)) is not None for number in numbers)}
    return paths | {at.seal(number, *place) for number, places in seals.items() for place in places}


def gap_free_lengths(found: Iterable[Link]) -> dict[int, int]:
    links: dict[int, set[int]] = defaultdict(set)
    for task, link in found:
        links[task].add(link)
    return {task: next(n for n in range(len(seen) + 1) if n not in seen) for task, seen in links.items()}


def shown_row(row: QuarantinedRow, record: Input | None, file: SourceFile | None) -> ShownRowError:
    """Return a row that failed as it is shown. `record`: of the input, and `file` of it, where they can be read."""
    shown = ShownRowError(step=row.step, error=row.error, message=row.message, traceback=row.traceback)
    if isinstance(row.row, RowKey):
        return shown.model_copy(update={"key": key_of(row.row, record), "source": row.row.source})
    where = row.row.range
    found: dict[str, Any] = {"start": where.start, "end": where.end}
    if file is not None:
        found |= {"file": file.path, "etag": file.etag, "unit": file.unit}
    return shown.model_copy(update=found)


@dataclass(slots=True)
class EpochInspector:
    """`shows_rows`: each row that failed is shown, and not only their number."""

    reader: LenientReader
    shows_rows: bool = False
    _without_files: set[EpochKey] = field(default_factory=set)

    def read(self, key: EpochKey) -> ShownEpoch:
        at = EpochLayout(key)
        return self.read_listed(key, [*self.reader.list(f"{at.control}/"), *self.reader.list(f"{at.staged}/")])

    def read_commit(self, key: EpochKey) -> ShownCommit | None:
        """Return the commit of an epoch that was seen in the table."""
        commit_record = self.reader.read(EpochLayout(key).commit_record, CommitRecord)
        return show_commit(commit_record) if commit_record and not commit_record.was_deleted else None

    def read_listed(self, key: EpochKey, listed: list[str]) -> ShownEpoch:
        """Return an epoch whose objects were listed, with its stages."""
        paths, of_stages = divided(EpochLayout(key), listed)
        stages = tuple(self._read_listed(key.of_stage(stage), of_stages[stage]) for stage in sorted(of_stages))
        return self._read_listed(key, paths).model_copy(update={"stages": stages})

    def _read_listed(self, key: EpochKey, paths: list[str]) -> ShownEpoch:
        ledger, at = Ledger(self.reader.store, key), EpochLayout(key)
        numbers, known = attempts_in(at, paths)
        launches = {number: self._launch(ledger, number, number in known) for number in numbers}
        seals = seals_in(at, numbers, paths)
        is_cleaned = at.cleaned in paths
        attempts = tuple(self._attempt(ledger, number, launches[number], seals[number], is_cleaned) for number in numbers)
        for number in numbers:
            if (plan := self.reader.try_to_read(at.plan(number), partial(ledger.plans.read_plan, number))) is not None:
                self._expect(plan.parts, partial(at.plan_part, number), paths, at.plan(number))
        claims = sorted(index for path in paths if (index := layout.claim_index_of(path, at.commit)) is not None)
        known_keys = {path for path in paths for number in numbers if layout.is_keys_object(path, at.keys(number))}
        self.reader.strays += sorted(set(paths) - records_of(at, numbers, claims, seals, paths) - known_keys)
        since = next((launch.input_since for number in reversed(numbers) if (launch := launches[number])), 1)
        source = self._input(ledger, since)
        if isinstance(source, InputInParts):
            self._expect(source.index.parts, at.input_part, paths, at.input_since(since))
        commit_record = self.reader.try_to_read(at.commit_record, ledger.commits.read_commit)
        was_deleted = commit_record is not None and commit_record.was_deleted
        first, last = launches.get(1), launches[numbers[-1]] if numbers else None
        shown = ShownEpoch(
            epoch=key.epoch,
            stage=key.stage or None,
            audit=last.audit if last else None,
            phase="Unknown",
            run_nonce=first.run_nonce if first else None,
            began=show_began(first.began) if first and first.began else None,
            input_files=source.totals.files if source else None,
            input_bytes=source.totals.size_bytes if source else None,
            input_table=tables_of(source.tables) if source else None,
            input_stage=title_of(last.reads_stage) if last and last.reads_stage else None,
            input_keys=tuple(column.name for column in source.keys) if source else (),
            rows_retried=rows_retried(source),
            attempts=attempts,
            sealed=sums_of_commit(commit_record) if commit_record and is_cleaned else self._sum(at, attempts),
            rows_quarantined_before=self._quarantined_before(ledger, last),
            claims=tuple(show_claim(index, self.reader.read(at.claim(index), ClaimRecord)) for index in claims),
            is_committed=None if at.commit_record in self.reader.wrong else commit_record is not None and not was_deleted,
            was_deleted=was_deleted,
            is_cleaned=is_cleaned,
            commit=show_commit(commit_record) if commit_record and not was_deleted else None,
        )
        is_unreadable = any(path.startswith((f"{at.control}/", f"{at.staged}/")) for path in self.reader.wrong)
        is_deleted = was_deleted or (commit_record is None and self.reader.is_deleted(key.uid) is True)
        phase = phase_in_store(shown, is_deleted=is_deleted, is_unreadable=is_unreadable)
        return shown.model_copy(update={"phase": phase})

    def _quarantined_before(self, ledger: Ledger, last: LaunchRecord | None) -> int:
        """Return how many rows failed in the stages before: those whose results the last attempt reads."""
        if last is None or not last.reads_stage:
            return 0
        path = EpochLayout(ledger.key.of_stage(last.reads_stage)).commit_record
        done = self.reader.read(path, CommitRecord)
        if done is None and path not in self.reader.wrong:
            self.reader.note_missing(path, f"attempt {last.attempt} of {ledger.key} reads that stage")
        return done.rows_failed if done is not None else 0

    def _expect(self, parts: Iterable[StoredPart], path_of: Callable[[str], str], listed: Collection[str], named_by: str) -> None:
        """Note the parts of a record that are not there. A listing is no snapshot, but they are put before what names them."""
        there = set(listed) if parts else set()
        for part in parts:
            if path_of(part.token) not in there:
                self.reader.note_missing(path_of(part.token), f"{named_by} names it")

    def _launch(self, ledger: Ledger, number: int, is_listed: bool) -> LaunchRecord | None:
        launch = self.reader.try_to_read(ledger.at.launch(number), lambda: ledger.attempts.read_launch(number))
        if launch is None and not is_listed:
            self.reader.note_missing(ledger.at.launch(number), f"attempt {number} has left records")
        return launch

    def _attempt(
        self, ledger: Ledger, number: int, launch: LaunchRecord | None, found: set[Link], is_cleaned: bool
    ) -> ShownAttempt:
        at = ledger.at
        closed = self.reader.try_to_read(at.closed(number), lambda: ledger.attempts.read_closed(number))
        plan = self.reader.try_to_read(at.plan(number), lambda: ledger.plans.read_plan(number))
        record = self.reader.try_to_read(at.failure(number), lambda: ledger.attempts.read_failure(number))
        failure = failure_of(closed, record, of_stream=launch is not None and launch.source.stream is not None)
        target = launch.target if launch else None
        if (
            target is None
            and (made := self.reader.try_to_read(at.target(number), lambda: ledger.attempts.read_target(number))) is not None
        ):
            target = made.target
        if closed is not None:
            lengths = dict(enumerate(closed.chain_lengths))
        else:
            lengths = {task: n for task, n in gap_free_lengths(found).items() if plan is None or task < plan.task_count}
        counting = [(task, link) for task, length in lengths.items() for link in range(length)]
        # Of a cleaned epoch most are gone, and each would be asked for.
        seals = self._read_seals(ledger, number, counting if not is_cleaned else sorted(found & set(counting)), found)
        if found and plan is None:
            self.reader.note_missing(at.plan(number), "there are seals of it")
        is_closed = None if at.closed(number) in self.reader.wrong else closed is not None
        return ShownAttempt(
            attempt=number,
            code_digest=launch.code_digest[:DIGEST_DIGITS] if launch else None,
            target=target.title if target else None,
            counted=launch.counted if launch else (),
            tasks=plan.task_count if plan else None,
            tasks_done=sum(seal.last for seal in seals),
            input_files_done=plan.done_files if plan else None,
            sealed=sum_of(seals),
            seals_not_counted=len(found - set(counting)),
            closed=is_closed,
            complete=closed.complete if closed else None,
            failure=ShownFailure(attempt=number, family=failure.family, reason=failure.reason, message=failure.message)
            if failure
            else None,
            quarantined=tuple(self._rows_that_failed(ledger, seals, launch.input_since if launch else 1))
            if self.shows_rows
            else (),
        )

    def _input(self, ledger: Ledger, since: int) -> Input | None:
        found = self.reader.try_to_read(ledger.at.input_since(since), lambda: [ledger.inputs.read_input(since)])
        return found[0] if found else None

    def _file(self, ledger: Ledger, record: Input, number: int) -> SourceFile | None:
        """Return a file of the input; None, with an error noted once, if its part cannot be read."""
        if ledger.key in self._without_files:
            return None
        file = self.reader.try_to_read(f"{ledger.at.input_parts}", lambda: record.files[number])
        if file is None:
            self._without_files.add(ledger.key)
        return file

    def _rows_that_failed(self, ledger: Ledger, seals: Iterable[Seal], input_since: int) -> Iterator[ShownRowError]:
        """Give what can be read of them: a seal's object that is gone is named once, and what came before it is shown."""
        for seal in seals:
            try:
                for row in ledger.quarantine.quarantined_rows(seal):
                    yield self._row_error(ledger, row, input_since)
            except CheckpointError as error:
                self.reader.wrong[ledger.at.seal(seal.attempt, seal.task, seal.link)] = error.message

    def _row_error(self, ledger: Ledger, row: QuarantinedRow, input_since: int) -> ShownRowError:
        record = self._input(ledger, input_since)
        file = None
        if isinstance(row.row, RowPosition) and record is not None and row.row.range.file < record.totals.files:
            file = self._file(ledger, record, row.row.range.file)
        return shown_row(row, record, file)

    def _read_seals(self, ledger: Ledger, attempt: int, places: list[Link], found: set[Link]) -> list[Seal]:
        def read_seal(place: Link) -> Seal | None:
            path = ledger.at.seal(attempt, *place)
            seal = self.reader.try_to_read(path, lambda: ledger.seals.read_seal(attempt, *place))
            if seal is None and place not in found:
                self.reader.note_missing(path, "it counts")
            if seal is not None:
                self.reader.rows_sealed[path] = seal.rows_read
            return seal

        return [seal for seal in ledger.map_all(read_seal, places) if seal is not None]

    def _sum(self, at: EpochLayout, attempts: tuple[ShownAttempt, ...]) -> ShownSums:
        if not attempts:
            return ShownSums()
        last = attempts[-1]
        by_number = {attempt.attempt: attempt for attempt in attempts}
        total = last.sealed
        for number in last.counted:
            if number in by_number and by_number[number].closed is not False:
                total += by_number[number].sealed
            else:
                self.reader.note_missing(at.closed(number), "a later attempt builds on it")
        return total
