"""What is committed: the sealed results of a complete attempt and of those it counts, checked before they are believed.

A seal comes from a driver, which may be hostile or broken; the rules here bound what it can do to its own write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.keys import add_key_sets
from checkpoint_protocol.layout import EpochLayout, is_keys_object
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.positions import Range, overlap, subtract
from checkpoint_protocol.records import (
    IcebergFile,
    InputRecord,
    KeysCovered,
    KeySet,
    LanceFragment,
    PlanRecord,
    PositionsCovered,
    Seal,
    StagedFile,
    Target,
)


@dataclass(frozen=True, slots=True)
class Results:
    """All that one epoch commits. `targets` are the tables as each attempt saw them when it was launched."""

    files: tuple[StagedFile, ...]
    targets: tuple[Target, ...]
    rows_read: int
    rows_written: int
    attempts: int
    code_digests: tuple[str, ...]


def gather(ledger: Ledger, attempt: int) -> Results:
    """Return the results of a closed, complete attempt with those of the attempts that it counts.

    Corrupt if the seals do not cover the input exactly once (where rows are known by keys: if an attempt has not skipped exactly
    what those before it had sealed), NeedsChange if they name one file twice or a file of another format: then a row would be
    lost or doubled.
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
    where = f"{ledger.store.uri} {ledger.key}"
    if launch.source.is_dataframe:
        check_keys(ledger.read_plan(attempt), seals, ledger.at, where)
    else:
        check_coverage(seals, input_record, where)
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
    covered: list[Range] = []
    for seal in seals:
        if not isinstance(seal.covered, PositionsCovered):
            raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{where}: {_title(seal)} covers keys, and rows are known by position")
        covered.extend(seal.covered.ranges)
    files = input_record.files
    if (twice := overlap(covered)) is not None:
        raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{where}: two seals cover {_named(twice[1], input_record)}")
    everything = [Range(file=index, start=file.start, end=file.end) for index, file in enumerate(files)]
    if missing := subtract(everything, covered):
        raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{where}: no seal covers {_named(missing[0], input_record)}")
    if foreign := subtract(covered, everything):
        raise Corrupt(
            reasons.STAGED_RESULT_REFUSED, f"{where}: a seal covers {_named(foreign[0], input_record)}, which is not input"
        )


def check_keys(plan: PlanRecord | None, seals: Sequence[Seal], at: EpochLayout, where: str) -> None:
    """Refuse seals of keys unless the last attempt has skipped exactly the rows that those which it counts had sealed.

    Its tasks divide among them the rows that it did not skip. So it is in what was skipped that a row could be lost (its key
    counts as sealed, and no result of it is taken) or doubled (it was not skipped, and an older result is taken too). The plan
    says how many rows of the source the driver found to have sealed keys, and their fingerprint; the seals that are taken must
    add up to the same.
    """
    named: set[str] = set()
    taken_over: list[KeySet] = []
    for seal in seals:
        if not isinstance(seal.covered, KeysCovered):
            raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{where}: {_title(seal)} covers positions, and rows are known by keys")
        if sum(item.rows for item in seal.covered.objects) != seal.covered.keys.rows:
            raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{where}: {_title(seal)} has not as many keys as it says")
        for item in seal.covered.objects:
            if item.path in named or not is_keys_object(item.path, at.keys(seal.attempt)):
                raise Corrupt(
                    reasons.STAGED_RESULT_REFUSED, f"{where}: the keys {item.path} are not those of {_title(seal)} alone"
                )
            named.add(item.path)
        if plan is None or seal.attempt != plan.attempt:
            taken_over.append(seal.covered.keys)
    expected = add_key_sets(taken_over)
    skipped = (plan.skipped if plan else None) or add_key_sets(())
    if skipped != expected:
        raise Corrupt(
            reasons.STAGED_RESULT_REFUSED,
            f"{where}: the last attempt skipped {skipped.rows} rows (fingerprint {skipped.fingerprint}), and what it takes over "
            f"has {expected.rows} sealed keys (fingerprint {expected.fingerprint}): rows would be lost or doubled",
        )


def _title(seal: Seal) -> str:
    return f"the seal {seal.link} of task {seal.task} of attempt {seal.attempt}"


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
