"""What is committed: the sealed results of a complete attempt and of those it counts, checked before they are believed.

A seal comes from a driver, which may be hostile or broken; the rules here bound what it can do to its own write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.positions import Range, overlap, subtract
from checkpoint_protocol.records import IcebergFile, InputRecord, LanceFragment, Seal, StagedFile, Target


@dataclass(frozen=True, slots=True)
class Results:
    """All that one epoch commits. `targets` are the tables as each attempt saw them when it was launched."""

    files: tuple[StagedFile, ...]
    targets: tuple[Target, ...]
    rows_read: int
    rows_written: int
    attempts: int
    code_digests: tuple[str, ...]
    rows_quarantined: int = 0


def gather(ledger: Ledger, attempt: int) -> Results:
    """Return the results of a closed, complete attempt with those of the attempts that it counts.

    Corrupt if the seals do not cover the input exactly once, NeedsChange if they name one file twice or a file of another
    format: then a row would be lost or doubled.
    """
    launch = ledger.read_launch(attempt)
    closed = ledger.read_closed(attempt)
    input_record = ledger.read_input()
    if launch is None or closed is None or input_record is None:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: records of attempt {attempt} of {ledger.key} are gone")
    if not closed.complete:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: attempt {attempt} of {ledger.key} is not complete")
    attempts = (*launch.counted, attempt)
    seals = list(ledger.counted_seals(attempts))
    check_coverage(seals, input_record, f"{ledger.store.uri} {ledger.key}")
    lawful = {number for number in attempts if (of := ledger.read_launch(number)) and of.on_row_error == "Quarantine"}
    check_quarantined(seals, lawful, f"{ledger.store.uri} {ledger.key}")
    files = tuple(file for seal in seals for file in seal.files)
    check_formats(files, launch.sink_format)
    check_names(files)
    return Results(
        files=files,
        targets=tuple(target for number in attempts if (target := target_of(ledger, number)) is not None),
        rows_read=sum(seal.rows_read for seal in seals),
        rows_written=sum(seal.rows_written for seal in seals),
        attempts=attempt,
        code_digests=tuple(dict.fromkeys(seal.code_digest for seal in seals)),
        rows_quarantined=sum(seal.rows_quarantined for seal in seals),
    )


def target_of(ledger: Ledger, attempt: int) -> Target | None:
    """Return the table that an attempt staged for; None if it never got to know one (then it has staged nothing)."""
    launch = ledger.read_launch(attempt)
    if launch is not None and launch.target is not None:
        return launch.target
    record = ledger.read_target(attempt)
    return record.target if record else None


def check_coverage(seals: Iterable[Seal], input_record: InputRecord, where: str) -> None:
    """Refuse seals that do not cover every position of the input exactly once."""
    covered = [piece for seal in seals for piece in seal.covered.ranges]
    files = input_record.files
    if (twice := overlap(covered)) is not None:
        raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{where}: two seals cover {_named(twice[1], input_record)}")
    everything = [piece for index, file in enumerate(files) for piece in file.ranges(index)]
    if missing := subtract(everything, covered):
        raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{where}: no seal covers {_named(missing[0], input_record)}")
    if foreign := subtract(covered, everything):
        raise Corrupt(
            reasons.STAGED_RESULT_REFUSED, f"{where}: a seal covers {_named(foreign[0], input_record)}, which is not input"
        )


def check_quarantined(seals: Iterable[Seal], lawful: Collection[int], where: str) -> None:
    """Refuse a seal that quarantines rows that it does not cover, or of an attempt that may not: `lawful` are those that may.

    Taken again by a later epoch, rows of other seals would be there twice.
    """
    for seal in seals:
        if seal.quarantined is None:
            continue
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


def check_formats(files: Iterable[StagedFile], sink_format: str) -> None:
    """Refuse a file of another format than the sink's: its committer would pass it over, and its rows would be lost."""
    for file in files:
        if file.format != sink_format:
            raise NeedsChange(
                reasons.STAGED_RESULT_REFUSED,
                f"a seal names the {file.format} file {paths_of(file)}, and the sink is {sink_format}",
            )


def check_names(files: Iterable[StagedFile]) -> None:
    """Refuse a data file that is named twice: its rows would be there twice."""
    seen: set[str] = set()
    for file in files:
        for path in paths_of(file):
            if path in seen:
                raise NeedsChange(reasons.STAGED_RESULT_REFUSED, f"the staged file {path} is named by two seals")
            seen.add(path)


def paths_of(file: StagedFile) -> tuple[str, ...]:
    match file:
        case IcebergFile():
            return (file.path,)
        case LanceFragment():
            return tuple(data_file.path for data_file in file.files)
