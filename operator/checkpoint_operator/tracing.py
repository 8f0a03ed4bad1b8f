"""Of which rows a data file of the table was made, through all stages, and back: what a file of the source has become.

Read from the records of committed epochs, and goes by seals: each says which rows a segment of a task has read, and in which
files lies what was made of them. So what is found are whole segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from pydantic import Field

from checkpoint_formats.stage_results.reader import bucket_path
from checkpoint_operator.commit.results import target_of
from checkpoint_operator.inspected import Shown
from checkpoint_operator.shown_records import DIGEST_DIGITS
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import CheckpointedWrite
from checkpoint_protocol.parts import Input
from checkpoint_protocol.positions import Range
from checkpoint_protocol.records import KeysCovered, LaunchRecord, Seal, SourceFile, StageFile, StageTarget
from checkpoint_protocol.store import ObjectStore


class ShownRows(Shown):
    """Rows of one file that a segment has read."""

    file: str = Field(description="Of the source, of the result of the stage before, or one of its buckets.")
    unit: str = Field(description="What start and end count: rows, bytes or records.")
    start: int
    end: int | None = Field(description="Null: to the end of the file.")


class ShownSegment(Shown):
    """What one seal says."""

    stage: str | None = Field(description="Null where the write has no stages.")
    attempt: int
    task: int
    link: int = Field(description="Of the task's seals, from 0 on.")
    code_digest: str
    rows_read: int
    reads: tuple[ShownRows, ...]
    keys_in: tuple[str, ...] = Field(description="Objects of the store with the keys of the rows, where rows are known by keys.")
    rows_written: int
    files: tuple[str, ...]


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

    @property
    def seals(self) -> Iterator[Seal]:
        return self.ledger.chains.counted_seals((*self.launch.counted, self.launch.attempt))

    def reads(self, seal: Seal) -> Iterator[tuple[SourceFile, Range]]:
        if not isinstance(seal.covered, KeysCovered):
            yield from ((self.record.files[piece.file], piece) for piece in seal.covered.ranges)

    def writes(self, seal: Seal) -> Iterator[str]:
        """Give what the rows are called that a seal has made, as the next stage reads them: files, or buckets."""
        target = target_of(self.ledger, seal.attempt)
        for file in seal.files:
            if not isinstance(target, StageTarget) or not isinstance(file, StageFile):
                yield from file.paths
            elif file.buckets:
                yield from (bucket_path(target, bucket) for bucket in sorted(set(file.buckets)))
            else:
                yield f"{target.folder}/{file.name}"

    def shown(self, seal: Seal) -> ShownSegment:
        covered = seal.covered
        return ShownSegment(
            stage=self.launch.stage.name if self.launch.stage is not None else None,
            attempt=seal.attempt,
            task=seal.task,
            link=seal.link,
            code_digest=seal.code_digest[:DIGEST_DIGITS],
            rows_read=seal.rows_read,
            reads=tuple(
                ShownRows(file=file.path, unit=file.unit, start=piece.start, end=piece.end) for file, piece in self.reads(seal)
            ),
            keys_in=tuple(one.path for one in covered.objects) if isinstance(covered, KeysCovered) else (),
            rows_written=seal.rows_written,
            files=tuple(path for file in seal.files for path in file.paths),
        )


def trace_back(manifest: CheckpointedWrite, store: ObjectStore, data_file: str) -> ShownTrace:
    """Return of what a data file was made. NeedsChange if no committed epoch has it, as far as seals are there."""
    for epoch, chain in _committed(manifest, store, newest_first=True):
        found = [(chain[-1], seal) for seal in chain[-1].seals if any(_is_same(path, data_file) for path in _paths(seal))]
        if not found:
            continue
        segments = found
        for link in reversed(chain[:-1]):
            wanted = {file.path for after, seal in found for file, _ in after.reads(seal)}
            found = [(link, seal) for seal in link.seals if wanted.intersection(link.writes(seal))]
            segments = [*found, *segments]
        return _trace(manifest, epoch, segments)
    raise _not_found(f"no committed epoch has put a data file {data_file} into the table")


def trace_forward(manifest: CheckpointedWrite, store: ObjectStore, source_file: str, position: int | None) -> ShownTrace:
    """Return what a file of the source has become, or its row at a position. NeedsChange if no epoch has read it."""
    for epoch, chain in _committed(manifest, store, newest_first=False):
        found = [
            (chain[0], seal)
            for seal in chain[0].seals
            if any(_is_same(file.path, source_file) and _has(piece, position) for file, piece in chain[0].reads(seal))
        ]
        if not found:
            continue
        segments = found
        for before, link in pairwise(chain):
            made = {path for _, seal in found for path in before.writes(seal)}
            found = [(link, seal) for seal in link.seals if any(file.path in made for file, _ in link.reads(seal))]
            segments = [*segments, *found]
        return _trace(manifest, epoch, segments)
    where = f"position {position} of {source_file}" if position is not None else source_file
    raise _not_found(f"no committed epoch has read {where}")


def _has(piece: Range, position: int | None) -> bool:
    return position is None or (piece.start <= position and (piece.end is None or position < piece.end))


def _trace(manifest: CheckpointedWrite, epoch: int, segments: list[tuple[_Link, Seal]]) -> ShownTrace:
    metadata = manifest.metadata
    shown = tuple(link.shown(seal) for link, seal in segments)
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


def _paths(seal: Seal) -> Iterator[str]:
    return (path for file in seal.files for path in file.paths)


def _is_same(path: str, asked: str) -> bool:
    """Whether a file is the one that is asked for: by its path, or by the end of it."""
    return path == asked or path.endswith(f"/{asked}") or asked.endswith(f"/{path}")


def _not_found(what: str) -> NeedsChange:
    return NeedsChange(
        reasons.SOURCE_MISSING,
        f"{what}, as far as seals are there: `checkpointed-write clean` removes those of earlier epochs; correct the path",
    )
