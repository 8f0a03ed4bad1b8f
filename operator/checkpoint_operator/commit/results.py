"""What is committed: the sealed results of a complete attempt and of those it counts, checked before they are believed.

A seal comes from a driver, which may be hostile or broken; the rules here bound what it can do to its own write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.positions import Pieces, Range, subtract
from checkpoint_protocol.records import IcebergFile, InputRecord, LanceFragment, Seal, StagedFile, Target


class Files(Protocol):
    """The staged files of an epoch in the form that their sink has given them. All that others know is how many they are."""

    def __len__(self) -> int: ...


#: Takes all the files of an epoch in, one at a time. `targets` are the tables that they were staged for.
Pack = Callable[[EpochKey, Sequence[Target], Iterable[StagedFile]], Files]


def as_they_are(_key: EpochKey, _targets: Sequence[Target], files: Iterable[StagedFile]) -> tuple[StagedFile, ...]:
    """Keep the files themselves."""
    return tuple(files)


@dataclass(frozen=True, slots=True)
class Results:
    """All that one epoch commits. `targets` are the tables as each attempt saw them when it was launched."""

    files: Files
    targets: tuple[Target, ...]
    rows_read: int
    rows_written: int
    attempts: int
    code_digests: tuple[str, ...]
    rows_quarantined: int = 0


def gather(ledger: Ledger, attempt: int, pack: Pack = as_they_are) -> Results:
    """Return the results of a closed, complete attempt with those of the attempts that it counts.

    Each seal is read once and let go: what is kept of its files is what `pack` makes of them. Corrupt if the seals do not cover
    the input exactly once, NeedsChange if they name one file twice or a file of another format: then a row would be lost or
    doubled.
    """
    launch = ledger.read_launch(attempt)
    closed = ledger.read_closed(attempt)
    input_record = ledger.read_input()
    if launch is None or closed is None or input_record is None:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: records of attempt {attempt} of {ledger.key} are gone")
    if not closed.complete:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: attempt {attempt} of {ledger.key} is not complete")
    attempts = (*launch.counted, attempt)
    targets = tuple(target for number in attempts if (target := target_of(ledger, number)) is not None)
    lawful = {number for number in attempts if (of := ledger.read_launch(number)) and of.on_row_error == "Quarantine"}
    where = f"{ledger.store.uri} {ledger.key}"
    coverage = Coverage()
    rows_read = rows_written = rows_quarantined = 0
    code_digests: dict[str, None] = {}

    def files() -> Iterator[StagedFile]:
        nonlocal rows_read, rows_written, rows_quarantined
        for seal in ledger.counted_seals(attempts):
            check_quarantined(seal, lawful, where)
            coverage.add(seal)
            rows_read += seal.rows_read
            rows_written += seal.rows_written
            rows_quarantined += seal.rows_quarantined
            code_digests[seal.code_digest] = None
            yield from seal.files

    packed = pack(ledger.key, targets, check_names(check_formats(files(), launch.sink_format)))
    coverage.check(input_record, where)
    return Results(
        files=packed,
        targets=targets,
        rows_read=rows_read,
        rows_written=rows_written,
        attempts=attempt,
        code_digests=tuple(code_digests),
        rows_quarantined=rows_quarantined,
    )


def target_of(ledger: Ledger, attempt: int) -> Target | None:
    """Return the table that an attempt staged for; None if it never got to know one (then it has staged nothing)."""
    launch = ledger.read_launch(attempt)
    if launch is not None and launch.target is not None:
        return launch.target
    record = ledger.read_target(attempt)
    return record.target if record else None


class Coverage:
    """The positions that seals cover, in a few bytes each."""

    def __init__(self) -> None:
        self._pieces = Pieces()

    def add(self, seal: Seal) -> None:
        self._pieces.add(seal.covered.ranges)

    def check(self, input_record: InputRecord, where: str) -> None:
        """Refuse seals that do not cover every position of the input exactly once."""
        if (twice := self._pieces.first_overlap()) is not None:
            raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{where}: two seals cover {_named(twice, input_record)}")
        covered = self._pieces.merged()
        everything = [piece for index, file in enumerate(input_record.files) for piece in file.ranges(index)]
        if missing := subtract(everything, covered):
            raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{where}: no seal covers {_named(missing[0], input_record)}")
        if foreign := subtract(covered, everything):
            raise Corrupt(
                reasons.STAGED_RESULT_REFUSED, f"{where}: a seal covers {_named(foreign[0], input_record)}, which is not input"
            )


def check_coverage(seals: Iterable[Seal], input_record: InputRecord, where: str) -> None:
    """Refuse seals that do not cover every position of the input exactly once."""
    coverage = Coverage()
    for seal in seals:
        coverage.add(seal)
    coverage.check(input_record, where)


def check_quarantined(seal: Seal, lawful: Collection[int], where: str) -> None:
    """Refuse a seal that quarantines rows that it does not cover, or of an attempt that may not: `lawful` are those that may.

    Taken again by a later epoch, rows of other seals would be there twice.
    """
    if seal.quarantined is None:
        return
    if seal.attempt not in lawful or seal.rows_quarantined > seal.rows_read:
        raise Corrupt(
            reasons.STAGED_RESULT_REFUSED,
            f"{where}: seal {seal.link} of task {seal.task}, attempt {seal.attempt}, quarantines {seal.rows_quarantined} of "
            f"{seal.rows_read} rows, which it was not told to",
        )
    if subtract([row.row.range for row in seal.quarantined.rows], seal.covered.ranges):
        raise Corrupt(
            reasons.STAGED_RESULT_REFUSED,
            f"{where}: seal {seal.link} of task {seal.task}, attempt {seal.attempt}, quarantines a row that is not its own",
        )


def _named(piece: Range, input_record: InputRecord) -> str:
    if piece.file >= len(input_record.files):
        return f"file number {piece.file}"
    file = input_record.files[piece.file]
    return f"{file.unit} {piece.start} to {'the end' if piece.end is None else piece.end} of {file.path}"


def check_formats(files: Iterable[StagedFile], sink_format: str) -> Iterator[StagedFile]:
    """Pass the files on; refuse one of another format than the sink's: it would be passed over, and its rows would be lost."""
    for file in files:
        if file.format != sink_format:
            raise NeedsChange(
                reasons.STAGED_RESULT_REFUSED,
                f"a seal names the {file.format} file {paths_of(file)}, and the sink is {sink_format}",
            )
        yield file


def check_names(files: Iterable[StagedFile]) -> Iterator[StagedFile]:
    """Pass the files on; refuse a data file that is named twice: its rows would be there twice."""
    seen: set[bytes] = set()
    for file in files:
        for path in paths_of(file):
            # 128 bits of a hash for each, and not the path: there may be a million.
            name = blake2b(path.encode(), digest_size=16).digest()
            if name in seen:
                raise NeedsChange(reasons.STAGED_RESULT_REFUSED, f"the staged file {path} is named by two seals")
            seen.add(name)
        yield file


def paths_of(file: StagedFile) -> tuple[str, ...]:
    match file:
        case IcebergFile():
            return (file.path,)
        case LanceFragment():
            return tuple(data_file.path for data_file in file.files)
