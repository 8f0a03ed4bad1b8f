"""What is committed: the sealed results of a complete attempt and of those it counts, checked before they are believed.

A seal comes from a driver, which may be hostile or broken; the rules here bound what it can do to its own write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

from checkpoint_commit.changes import Change, Pack, as_staged
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import (
    MOST_COUNTED,
    KeysCovered,
    KeySet,
    LaunchRecord,
    NoTarget,
    PlanRecord,
    PositionsCovered,
    RowPosition,
    Seal,
    StagedFile,
    Target,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.keys import add_key_sets
from checkpoint_protocol.rows.positions import Cover, Pieces, Range, overlap, subtract
from checkpoint_protocol.store.layout import EpochLayout, is_keys_object
from checkpoint_protocol.store.parts import Input


@dataclass(frozen=True, slots=True)
class Results:
    """All that one epoch commits. `targets` are the tables as each attempt saw them when it was launched.

    `rows_quarantined_before`: in the stages of a pipeline whose results were read.
    """

    change: Change
    targets: tuple[Target, ...]
    rows_read: int
    rows_written: int
    attempts: int
    code_digests: tuple[str, ...]
    rows_quarantined: int = 0
    rows_quarantined_before: int = 0
    read_digests: tuple[str, ...] = ()
    input_since: int = 1
    offsets: str | None = None


def gather(ledger: Ledger, attempt: int, pack: Pack = as_staged) -> Results:
    """Return the results of a closed, complete attempt with those of the attempts that it counts.

    Each seal is read once and let go: what is kept of its files is what `pack` makes of them. Corrupt if the seals do not cover
    the input exactly once (where rows are known by keys: if an attempt has not skipped exactly what those before it had sealed),
    NeedsChange if they name one file twice or (from `pack`) one that is not for the sink: then a row would be lost or doubled.
    """
    launch, closed = ledger.read_both(lambda: ledger.attempts.read_launch(attempt), lambda: ledger.attempts.read_closed(attempt))
    if launch is None or closed is None:
        raise _gone(ledger, attempt)
    if not closed.complete:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: attempt {attempt} of {ledger.key} is not complete")
    attempts = (*launch.counted, attempt)
    _check_one_input(ledger, launch)
    targets = tuple(target for number in attempts if (target := target_of(ledger, number)) is not None)
    quarantine_allowed = {
        number for number in attempts if (of := ledger.attempts.read_launch(number)) and of.on_row_error == "Quarantine"
    }
    has_table = not any(isinstance(target, NoTarget) for target in targets)
    where = f"{ledger.store.uri} {ledger.key}"
    is_by_keys = launch.reads_by_key
    plan = ledger.plans.read_plan(attempt) if is_by_keys or launch.source.stream is not None else None
    coverage: Coverage | KeyCoverage
    # Of a stream there are no positions: that every task of the plan has sealed what it had is what `complete` says.
    coverage = KeyCoverage(plan, ledger.at, where) if is_by_keys else Coverage(where)
    rows_read = rows_written = rows_quarantined = 0
    code_digests: dict[str, None] = {}
    read_digests: dict[str, None] = {}

    def files() -> Iterator[StagedFile]:
        nonlocal rows_read, rows_written, rows_quarantined
        for seal in ledger.chains.counted_seals(attempts):
            coverage.add(seal)
            check_quarantined(ledger, seal, quarantine_allowed, where)
            rows_read += seal.rows_read
            rows_written += seal.rows_written
            rows_quarantined += seal.rows_quarantined
            if has_table:
                _check_rows(seal, where)
            code_digests[seal.code_digest] = None
            if seal.read_digest is not None:
                read_digests[seal.read_digest] = None
            yield from seal.files

    # Packing waits for the table, and needs no input.
    change, input_record = ledger.read_both(
        lambda: pack(launch.operation, ledger.key, targets, check_names(files())),
        lambda: ledger.inputs.read_input(launch.input_since),
    )
    if input_record is None:
        raise _gone(ledger, attempt)
    coverage.check(input_record)
    before = count_quarantined_before(ledger, launch)
    _check_sums(where, rows_read, rows_written, rows_quarantined, before)
    return Results(
        change=change,
        targets=targets,
        rows_read=rows_read,
        rows_written=rows_written,
        attempts=attempt,
        code_digests=tuple(code_digests),
        rows_quarantined=rows_quarantined,
        rows_quarantined_before=before,
        read_digests=tuple(read_digests),
        input_since=launch.input_since,
        offsets=plan.offsets if plan is not None else None,
    )


def _gone(ledger: Ledger, attempt: int) -> Corrupt:
    return Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: records of attempt {attempt} of {ledger.key} are gone")


def _check_rows(seal: Seal, where: str) -> None:
    """Refuse a seal whose files have not the rows that it says it wrote."""
    rows = sum(file.rows for file in seal.files)
    if rows != seal.rows_written:
        raise Corrupt(
            reasons.STAGED_RESULT_REFUSED,
            f"{where}: {_title(seal)} says that it wrote {seal.rows_written} rows, and its files have {rows}",
        )


def _check_sums(where: str, *rows: int) -> None:
    """Refuse what the record of the commit could not say: it would be found when the rows are in the table."""
    if max(rows) > MOST_COUNTED:
        raise Corrupt(
            reasons.STAGED_RESULT_REFUSED,
            f"{where}: the seals say that they have read or written {max(rows):,} rows, which is more than can be",
        )


def _check_one_input(ledger: Ledger, launch: LaunchRecord) -> None:
    """Refuse attempts of another input than that of the last one: their positions mean other rows."""
    for number in launch.counted:
        counted = ledger.attempts.read_launch(number)
        if counted is not None and counted.input_since != launch.input_since:
            raise Corrupt(
                reasons.STAGED_RESULT_REFUSED,
                f"{ledger.store.uri} {ledger.key}: attempt {launch.attempt} counts the seals of attempt {number}, which read "
                "another source",
            )


def target_of(ledger: Ledger, attempt: int) -> Target | None:
    """Return the table that an attempt staged for; None if it never got to know one (then it has staged nothing)."""
    launch = ledger.attempts.read_launch(attempt)
    if launch is not None and launch.target is not None:
        return launch.target
    record = ledger.attempts.read_target(attempt)
    return record.target if record else None


class Coverage:
    """The positions that seals cover, in a few bytes each."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._pieces = Pieces()

    def add(self, seal: Seal) -> None:
        if not isinstance(seal.covered, PositionsCovered):
            raise Corrupt(
                reasons.STAGED_RESULT_REFUSED, f"{self._where}: {_title(seal)} covers keys, and rows are known by position"
            )
        self._pieces.add(seal.covered.ranges)

    def check(self, input_record: Input) -> None:
        """Refuse seals that do not cover every position of the input exactly once. Goes through its files once, in order."""
        covered = self._pieces.by_file()
        here = next(covered, None)
        for index, file in enumerate(input_record.files):
            pieces: tuple[Range, ...] = ()
            if here is not None and here[0] == index:
                pieces, here = here[1], next(covered, None)
            self._check_file(file, file.ranges(index), pieces)
        if here is not None:
            raise self._foreign(f"file number {here[0]}")

    def _check_file(self, file: SourceFile, ranges: tuple[Range, ...], covered: tuple[Range, ...]) -> None:
        if covered == ranges and len(ranges) == 1:
            return
        if (twice := overlap(covered)) is not None:
            raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{self._where}: two seals cover {_named(twice[1], file)}")
        if missing := subtract(ranges, covered):
            raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{self._where}: no seal covers {_named(missing[0], file)}")
        if foreign := subtract(covered, ranges):
            raise self._foreign(_named(foreign[0], file))

    def _foreign(self, what: str) -> Corrupt:
        return Corrupt(reasons.STAGED_RESULT_REFUSED, f"{self._where}: a seal covers {what}, which is not input")


class KeyCoverage:
    """The keys that seals cover, as counts and fingerprints: the values stay in their objects.

    The last attempt's tasks divide among them the rows that it did not skip. So it is in what was skipped that a row could be
    lost (its key counts as sealed, and no result of it is taken) or doubled (it was not skipped, and an older result is taken
    too). The plan says how many rows of the source the driver found to have sealed keys, and their fingerprint; the seals that
    are taken must add up to the same.
    """

    def __init__(self, plan: PlanRecord | None, at: EpochLayout, where: str) -> None:
        self._plan, self._at, self._where = plan, at, where
        self._named: set[str] = set()
        self._taken_over: list[KeySet] = []

    def add(self, seal: Seal) -> None:
        if not isinstance(seal.covered, KeysCovered):
            raise Corrupt(
                reasons.STAGED_RESULT_REFUSED, f"{self._where}: {_title(seal)} covers positions, and rows are known by keys"
            )
        if sum(item.rows for item in seal.covered.objects) != seal.covered.keys.rows:
            raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{self._where}: {_title(seal)} does not have as many keys as it says")
        for item in seal.covered.objects:
            if item.path in self._named or not is_keys_object(item.path, self._at.keys(seal.attempt)):
                raise Corrupt(
                    reasons.STAGED_RESULT_REFUSED,
                    f"{self._where}: the keys {item.path} are not those of {_title(seal)} alone",
                )
            self._named.add(item.path)
        # A later epoch takes the rows of these objects again: one with a result would be there twice.
        failed = sum(item.rows for item in seal.covered.objects if item.quarantined)
        if failed != seal.rows_quarantined or failed != (seal.covered.quarantined.rows if seal.covered.quarantined else 0):
            raise Corrupt(
                reasons.STAGED_RESULT_REFUSED,
                f"{self._where}: {_title(seal)} quarantines {seal.rows_quarantined} rows, and names the keys of {failed}",
            )
        if self._plan is None or seal.attempt != self._plan.attempt:
            self._taken_over.append(seal.covered.keys)

    def check(self, _: Input) -> None:
        """Refuse seals unless the last attempt has skipped exactly the rows that those which it counts had sealed."""
        expected = add_key_sets(self._taken_over)
        skipped = (self._plan.skipped if self._plan else None) or add_key_sets(())
        if skipped != expected:
            raise Corrupt(
                reasons.STAGED_RESULT_REFUSED,
                f"{self._where}: the last attempt skipped {skipped.rows} rows (fingerprint {skipped.fingerprint}), and what it "
                f"takes over has {expected.rows} sealed keys (fingerprint {expected.fingerprint}): rows would be lost or doubled",
            )


def check_quarantined(ledger: Ledger, seal: Seal, quarantine_allowed: Collection[int], where: str) -> None:
    """Refuse a seal that quarantines rows that it does not cover, or of an attempt that may not.

    `quarantine_allowed` are the attempts that may.

    Taken again by a later epoch, rows of other seals would be there twice. Objects with rows beside the seal are read for that.
    """
    if seal.quarantined is None:
        return
    if seal.attempt not in quarantine_allowed or seal.rows_quarantined > seal.rows_read:
        raise Corrupt(
            reasons.STAGED_RESULT_REFUSED,
            f"{where}: seal {seal.link} of task {seal.task}, attempt {seal.attempt}, quarantines {seal.rows_quarantined} of "
            f"{seal.rows_read} rows, which it was not told to",
        )
    if not isinstance(seal.covered, PositionsCovered):
        return  # of keys it is the keys objects that tell which rows are taken again: see KeyCoverage
    covered = Cover(seal.covered.ranges)
    for row in ledger.quarantine.quarantined_rows(seal):
        if not isinstance(row.row, RowPosition) or not covered.holds(row.row.range):
            raise Corrupt(
                reasons.STAGED_RESULT_REFUSED,
                f"{where}: seal {seal.link} of task {seal.task}, attempt {seal.attempt}, quarantines a row that is not its own",
            )


def _title(seal: Seal) -> str:
    return f"the seal {seal.link} of task {seal.task} of attempt {seal.attempt}"


def _named(piece: Range, file: SourceFile) -> str:
    return f"{file.unit} {piece.start} to {'the end' if piece.end is None else piece.end} of {file.path}"


def check_names(files: Iterable[StagedFile]) -> Iterator[StagedFile]:
    """Pass the files on; refuse a data file that is named twice: its rows would be there twice."""
    seen: set[bytes] = set()
    for file in files:
        for path in file.paths:
            # 128 bits of a hash for each, and not the path: there may be a million.
            name = blake2b(path.encode(), digest_size=16).digest()
            if name in seen:
                raise NeedsChange(reasons.STAGED_RESULT_REFUSED, f"the staged file {path} is named by two seals")
            seen.add(name)
        yield file


def count_quarantined_before(ledger: Ledger, launch: LaunchRecord) -> int:
    """Return how many rows failed in the stages of a pipeline before: an attempt reads what these have made of the others.

    Costs no request where no stage is read. Raises Corrupt where the record of that stage is gone.
    """
    if not launch.reads_stage:
        return 0
    stage = replace(ledger, key=ledger.key.of_stage(launch.reads_stage))
    done = stage.commits.read_commit()
    if done is None:
        raise Corrupt(
            reasons.RECORD_UNREADABLE,
            f"{ledger.store.uri}: {stage.at.commit_record} is gone, and attempt {launch.attempt} of {ledger.key} reads its stage",
        )
    return done.rows_failed
