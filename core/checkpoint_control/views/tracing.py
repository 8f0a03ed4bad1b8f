"""Of which rows a data file of the table was made, through all stages, and back: what a file of the source has become.

Read from the records of committed epochs, and goes by seals: each says which rows a segment of a task has read, in which files
lies what was made of them, and what of what, as far as that was known (traced_seals.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import Field

from checkpoint_commit.results import target_of
from checkpoint_control.views.inspected import Shown
from checkpoint_control.views.shown_records import DIGEST_DIGITS
from checkpoint_control.views.traced_seals import UNENDING, Traced, TracedSeal, traced
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.records import KeysCovered, LaunchRecord, RowPosition, Seal, Target
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.lineage import Span, merged
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.layout import is_rows_name
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_protocol.store.parts import Input


class ShownRows(Shown):
    """Rows of one file that a segment has read."""

    file: str = Field(description="Of the source, of the result of the stage before, or one of its buckets.")
    unit: str = Field(description="What start and end count: rows, bytes or records.")
    start: int
    end: int | None = Field(description="Null: to the end of the file.")


class ShownSegment(Shown):
    """What one seal says: in numbers all that it has, and which of that is asked for."""

    stage: str | None = Field(description="Null where the write has no stages.")
    attempt: int
    task: int
    link: int = Field(description="Of the task's seals, from 0 on.")
    code_digest: str
    rows_read: int
    reads: tuple[ShownRows, ...] = Field(description="Which of the rows that it has read this is about.")
    keys_in: tuple[str, ...] = Field(description="Objects of the store with the keys of the rows, where rows are known by keys.")
    rows_written: int
    files: tuple[str, ...]
    made: tuple[ShownRows, ...] = Field(description="The rows of its files that this is about.")
    exact: bool = Field(
        description="Whether each row of reads and made is meant; false: some of them are, and records do not say which."
    )
    quarantined: tuple[ShownRows, ...] = Field(description="Those of reads of which nothing was made, since they failed.")


class ShownTrace(Shown):
    """Segments from the source to the table, each stage after the one before."""

    namespace: str
    name: str
    epoch: int
    segments: tuple[ShownSegment, ...]


@dataclass(frozen=True, slots=True)
class _Link:
    """A stage in the chain of a committed epoch, or the epoch itself, which is the last."""

    ledger: Ledger
    launch: LaunchRecord
    record: Input
    _targets: dict[int, Target | None] = field(default_factory=dict)

    @property
    def seals(self) -> Iterator[Seal]:
        return self.ledger.chains.counted_seals((*self.launch.counted, self.launch.attempt))

    def traced(self, seal: Seal) -> TracedSeal:
        if seal.attempt not in self._targets:
            self._targets[seal.attempt] = target_of(self.ledger, seal.attempt)
        return traced(seal, self._targets[seal.attempt])

    def file(self, piece: Range) -> SourceFile:
        return self.record.files[piece.file]

    def made_of(self, wanted: Mapping[str, Sequence[Span]]) -> list[_Found]:
        """Return what the seals have made of rows of the stage before, by the names of the files."""
        return self._found(lambda seal: self.traced(seal).of_positions(lambda piece: wanted.get(self.file(piece).path, ())))

    def makers_of(self, wanted: Mapping[str, Sequence[Span]]) -> list[_Found]:
        """Return of what the seals have made these rows, by the names of the files."""
        return self._found(lambda seal: self.traced(seal).of_rows(wanted), of_rows=True)

    def makers_of_file(self, data_file: str, position: int | None) -> list[_Found]:
        """Return of what the seals have made a file, or its row at a position; nothing if the file is none of theirs.

        Raises NeedsChange where the file has no such row.
        """
        span = (0, UNENDING) if position is None else (position, position + 1)
        named: dict[str, int] = {}
        found: list[_Found] = []
        for seal in self.seals:
            of_seal = self.traced(seal)
            asked = {name: file.rows for file in of_seal.files for name in file.names if _is_same(name, data_file)}
            if asked:
                named.update(asked)
                rows = of_seal.of_rows(dict.fromkeys(asked, (span,)))
                found += [_Found(self, seal, rows)] if rows.rows else []
        if named and not found:
            name, count = next(iter(named.items()))
            raise NeedsChange(
                reasons.SOURCE_MISSING,
                f"{name} has {counted(count, 'row')}, counted from 0, and none at {position}; correct --position",
            )
        return found

    def _found(self, trace: Callable[[Seal], Traced], *, of_rows: bool = False) -> list[_Found]:
        all_of_them = ((seal, trace(seal)) for seal in self.seals)
        return [_Found(self, seal, rows) for seal, rows in all_of_them if (rows.rows if of_rows else rows.positions)]


@dataclass(frozen=True, slots=True)
class _Found:
    """What is asked for of a seal. `after_exact`: the stage that it was traced from has told exactly which rows it is."""

    link: _Link
    seal: Seal
    rows: Traced
    after_exact: bool = True

    def read(self) -> Iterator[tuple[str, Span]]:
        for piece in self.rows.positions:
            yield self.link.file(piece).path, (piece.start, UNENDING if piece.end is None else piece.end)

    def shown(self) -> ShownSegment:
        seal, link, covered = self.seal, self.link, self.seal.covered
        return ShownSegment(
            stage=link.launch.stage.name if link.launch.stage is not None else None,
            attempt=seal.attempt,
            task=seal.task,
            link=seal.link,
            code_digest=seal.code_digest[:DIGEST_DIGITS],
            rows_read=seal.rows_read,
            reads=tuple(_shown(link.file(piece), piece.start, piece.end) for piece in self.rows.positions),
            keys_in=tuple(one.path for one in covered.objects) if isinstance(covered, KeysCovered) else (),
            rows_written=seal.rows_written,
            files=tuple(path for file in seal.files for path in file.paths),
            made=tuple(ShownRows(file=file.path, unit="rows", start=start, end=end) for file, (start, end) in self.rows.rows),
            exact=self.after_exact and self.rows.is_exact,
            quarantined=tuple(self._quarantined()),
        )

    def _quarantined(self) -> Iterator[ShownRows]:
        for failed in self.link.ledger.quarantine.quarantined_rows(self.seal):
            if isinstance(failed.row, RowPosition) and any(_share(failed.row.range, piece) for piece in self.rows.positions):
                at = failed.row.range
                yield _shown(self.link.file(at), at.start, at.end)


def trace_back(manifest: CheckpointedWrite, store: ObjectStore, data_file: str, position: int | None = None) -> ShownTrace:
    """Return of what a data file was made, or its row at a position. NeedsChange if no committed epoch has it.

    Also of a file with the result of a stage: where a row fails in the next stage, its error names such a file.
    """
    for epoch, chain in _committed(manifest, store, newest_first=True):
        makers = chain[:-1] if is_rows_name(data_file.rpartition("/")[2]) else chain[-1:]
        by_maker = ((link, link.makers_of_file(data_file, position)) for link in makers)
        maker, found = next(((link, found) for link, found in by_maker if found), (None, []))
        if maker is None:
            continue
        segments = found
        for link in reversed(chain[: chain.index(maker)]):
            found = _after(found, link.makers_of(_by_file(row for one in found for row in one.read())))
            segments = [*found, *segments]
        return _trace(manifest, epoch, segments)
    raise _not_found(f"no committed epoch has put a data file {data_file} into the table")


def trace_forward(manifest: CheckpointedWrite, store: ObjectStore, source_file: str, position: int | None) -> ShownTrace:
    """Return what a file of the source has become, or its row at a position. NeedsChange if no epoch has read it."""
    span = (0, UNENDING) if position is None else (position, position + 1)
    for epoch, chain in _committed(manifest, store, newest_first=False):
        wanted = {file.path: [span] for file in chain[0].record.files if _is_same(file.path, source_file)}
        found = chain[0].made_of(wanted) if wanted else []
        if not found:
            continue
        segments = found
        for link in chain[1:]:
            found = _after(found, link.made_of(_by_file(row for one in found for row in one.rows.rows_by_name())))
            segments = [*segments, *found]
        return _trace(manifest, epoch, segments)
    where = f"position {position} of {source_file}" if position is not None else source_file
    raise _not_found(f"no committed epoch has read {where}")


def _after(before: Sequence[_Found], found: Sequence[_Found]) -> list[_Found]:
    is_exact = all(one.after_exact and one.rows.is_exact for one in before)
    return [replace(one, after_exact=is_exact) for one in found]


def _by_file(rows: Iterable[tuple[str, Span]]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for name, span in rows:
        found.setdefault(name, []).append(span)
    return {name: merged(spans) for name, spans in found.items()}


def _shown(file: SourceFile, start: int, end: int | None) -> ShownRows:
    return ShownRows(file=file.path, unit=file.unit, start=start, end=None if end == UNENDING else end)


def _share(one: Range, other: Range) -> bool:
    """Whether two ranges have a position in common."""
    end, other_end = one.end or UNENDING, other.end or UNENDING
    return one.file == other.file and max(one.start, other.start) < min(end, other_end)


def _trace(manifest: CheckpointedWrite, epoch: int, segments: list[_Found]) -> ShownTrace:
    metadata = manifest.metadata
    shown = tuple(one.shown() for one in segments)
    return ShownTrace(namespace=metadata.namespace, name=metadata.name, epoch=epoch, segments=shown)


def _committed(manifest: CheckpointedWrite, store: ObjectStore, *, newest_first: bool) -> Iterator[tuple[int, list[_Link]]]:
    """Give the committed epochs whose seals are there, each with its chain from the source to the table."""
    uid = writes.look_up_name(store, manifest.metadata.namespace, manifest.metadata.name)
    epochs = range(1, writes.last_epoch(store, uid) + 1) if uid is not None else range(0)
    for number in reversed(epochs) if newest_first else epochs:
        assert uid is not None
        chain = _chain(Ledger(store, EpochKey(uid, number)))
        if chain is not None:
            yield number, chain


def _chain(ledger: Ledger) -> list[_Link] | None:
    links: list[_Link] = []
    if ledger.commits.read_cleaned() is not None:
        return None
    while True:
        commit = ledger.commits.read_commit()
        if commit is None or commit.was_deleted:
            return None
        launch = ledger.attempts.read_launch(commit.attempts)
        record = ledger.inputs.read_input(launch.input_since) if launch is not None else None
        if launch is None or record is None:
            raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: records of {ledger.key} are gone")
        links.append(_Link(ledger, launch, record))
        if not launch.reads_stage:
            return links[::-1]
        ledger = replace(ledger, key=ledger.key.of_stage(launch.reads_stage))


def _is_same(path: str, asked: str) -> bool:
    """Whether a file is the one that is asked for: by its path, or by the end of it."""
    return path == asked or path.endswith(f"/{asked}") or asked.endswith(f"/{path}")


def _not_found(what: str) -> NeedsChange:
    return NeedsChange(
        reasons.SOURCE_MISSING,
        f"{what}, as far as seals are there: `checkpointed-write clean` removes those of earlier epochs; correct the path",
    )
