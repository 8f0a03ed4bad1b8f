"""What the records of a write tell, put together for a report. Puts nothing.

No record has a time of its own. When an object was put, the listing of the store says; where it does not, or where the object was
removed by a clean-up, the report has no time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import yaml

from checkpoint_control.decision.phases import MEANINGS, Phase
from checkpoint_control.pipelines.decisions import title_of
from checkpoint_control.views.inspected import LenientReader, ShownAttempt, ShownEpoch, ShownError, ShownRowError, ShownWrite
from checkpoint_control.views.inspection import Inspector
from checkpoint_control.views.stored_status import read_status
from checkpoint_local.cli.commands.inspect import sink_text, source_text
from checkpoint_local.cli.printing import of_what, size_text
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.secrets import MASK, says_secret
from checkpoint_protocol.progress_reports import DriverProgress, Entered, read_report
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.object_store import ObjectStore

#: A write with a trigger may have thousands of epochs; what is before these is told by number.
MOST_EPOCHS: Final = 20
_MOST_EXAMPLES: Final = 5
_MOST_GROUPS: Final = 50

State = Literal["complete", "failed", "cut off", "incomplete", "open", "unknown"]


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """One attempt. `seals`: when each one that counts was put, with its source rows, in the order of time.

    `last_sign`: when its driver put the last object before it was closed. `rows_lost`: rows that its driver had last reported as
    computed, and that were not sealed when the attempt ended; None where it has reported nothing. `counts`: its seals are among
    the results. `entered`: when its driver was first in each phase.
    """

    shown: ShownAttempt
    state: State
    counts: bool
    began: datetime | None
    last_sign: datetime | None
    closed: datetime | None
    seals: tuple[tuple[datetime, int], ...]
    rows_before: int
    rows_lost: int | None
    entered: tuple[Entered, ...] = ()

    @property
    def rows_per_second(self) -> float | None:
        """From the launch to the last seal; None where that took less than a second, as some stores tell no less."""
        if self.began is None or not self.seals:
            return None
        seconds = (self.seals[-1][0] - self.began).total_seconds()
        return sum(rows for _, rows in self.seals) / seconds if seconds >= 1 else None


@dataclass(frozen=True, slots=True)
class FailedRows:
    """Quarantined rows with the same step and error. `examples`: the first rows, each with its message."""

    step: str
    error: str
    count: int
    examples: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PartReport:
    """An epoch's own attempts, or those of a stage. `title` is empty for those of the epoch."""

    title: str
    shown: ShownEpoch
    key: str
    input: str
    attempts: tuple[AttemptReport, ...]
    committed: datetime | None
    failed_rows: tuple[FailedRows, ...]
    groups_left: int

    @property
    def times(self) -> list[datetime]:
        """Every time that is known of it, sorted."""
        ends = (time for one in self.attempts for time in (one.began, one.last_sign, one.closed))
        return sorted(time for time in (*ends, self.committed) if time is not None)


@dataclass(frozen=True, slots=True)
class EpochReport:
    """One epoch: its stages in the order in which they began, and its own attempts last."""

    shown: ShownEpoch
    parts: tuple[PartReport, ...]

    @property
    def of_table(self) -> PartReport:
        return self.parts[-1]


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report. `epochs`: the newest first."""

    name: str
    namespace: str
    uid: str
    phase: Phase
    meaning: str
    asked: tuple[tuple[str, str], ...]
    manifest: str | None
    epochs: tuple[EpochReport, ...]
    epochs_left: int
    errors: tuple[ShownError, ...]


def collect(store: ObjectStore, wanted: str, manifest: CheckpointedWrite | None = None) -> Report:
    """Return the report of the write that `wanted` names (uid, name or namespace/name), with what its manifest asks, if given.

    Raises NeedsChange if there is no such write, Retryable if the store does not answer.
    """
    inspector = Inspector(store, shows_rows=True)
    (write,) = inspector.read_writes(wanted)
    times = _Times(inspector.reader)
    shown = write.epochs[-MOST_EPOCHS:]
    epochs = tuple(_epoch(write.uid, epoch, times) for epoch in reversed(shown))
    phase = _phase(epochs[0]) if epochs else "Pending"
    if manifest is not None:
        phase = read_status(manifest, store, write.uid).phase
    return Report(
        name=write.name or write.uid,
        namespace=write.namespace or "",
        uid=write.uid,
        phase=phase,
        meaning=MEANINGS[phase],
        asked=tuple(_asked(write, store.uri, manifest)),
        manifest=_manifest_text(manifest) if manifest is not None else None,
        epochs=epochs,
        epochs_left=len(write.epochs) - len(shown),
        errors=inspector.errors,
    )


class _Times:
    """When objects were put. By the folder of an attempt: `signs` has the last one of its driver, `seals` has each seal."""

    def __init__(self, reader: LenientReader) -> None:
        self.store = reader.store
        self.put_at = reader.put_at
        self.rows_sealed = reader.rows_sealed
        self.signs: dict[str, datetime] = {}
        self.seals: dict[str, list[tuple[datetime, int]]] = defaultdict(list)
        for path, time in reader.put_at.items():
            names = path.split("/")
            # staged/<uid>/<epoch>/<attempt>, and staged/<uid>/<epoch>/stages/<stage>/<attempt>
            for folder in ("/".join(names[:depth]) for depth in (4, 6)):
                self.signs[folder] = max(time, self.signs.get(folder, time))
            if (rows := reader.rows_sealed.get(path)) is not None:
                self.seals[path.partition("/seals/")[0]].append((time, rows))


def _epoch(uid: str, epoch: ShownEpoch, times: _Times) -> EpochReport:
    key = EpochKey(uid, epoch.epoch)
    stages = [_part(key.of_stage(stage.stage or ""), stage, times) for stage in epoch.stages]
    stages.sort(key=lambda part: (not part.times, part.times[:1], part.title))
    return EpochReport(epoch, (*stages, _part(key, epoch, times)))


def _phase(epoch: EpochReport) -> Phase:
    """Return the phase of an epoch, or of the stage that is at work before it."""
    begun = [part for part in epoch.parts if part.attempts]
    if epoch.shown.is_committed or not begun or not begun[-1].title:
        return epoch.shown.phase
    return "Pending" if begun[-1].shown.phase == "Committed" else begun[-1].shown.phase


def _part(key: EpochKey, epoch: ShownEpoch, times: _Times) -> PartReport:
    at = EpochLayout(key)
    last = epoch.attempts[-1] if epoch.attempts else None
    counting = {last.attempt, *last.counted} if last is not None else set()
    rows = {one.attempt: one.sealed.rows_read for one in epoch.attempts}
    attempts = []
    for one in epoch.attempts:
        folder = f"{at.staged}/{one.attempt}"
        state = _state(one, epoch.is_cleaned)
        closed, last_sign = times.put_at.get(at.closed(one.attempt)), times.signs.get(folder)
        told = read_report(times.store, at.progress(one.attempt), DriverProgress)
        attempts.append(
            AttemptReport(
                shown=one,
                state=state,
                counts=one.attempt in counting,
                began=times.put_at.get(at.launch(one.attempt)),
                last_sign=min(last_sign, closed) if last_sign and closed else last_sign,
                closed=closed,
                seals=tuple(sorted(times.seals.get(folder, ()))),
                rows_before=sum(rows.get(number, 0) for number in one.counted),
                rows_lost=_rows_lost(told, times, at, one.attempt) if state in ("failed", "cut off") else None,
                entered=told.entered if told is not None else (),
            )
        )
    failed_rows = _grouped(row for one in epoch.attempts if one.attempt in counting for row in one.quarantined)
    return PartReport(
        title=title_of(epoch.stage) if epoch.stage is not None else "",
        shown=epoch,
        key=str(key),
        input=_input_text(epoch),
        attempts=tuple(attempts),
        committed=times.put_at.get(at.commit_record),
        failed_rows=failed_rows[:_MOST_GROUPS],
        groups_left=max(0, len(failed_rows) - _MOST_GROUPS),
    )


def _state(attempt: ShownAttempt, is_cleaned: bool) -> State:
    if attempt.complete:
        return "complete"
    if attempt.failure is not None:
        return "failed"
    if attempt.closed is None:
        return "unknown"
    if not attempt.closed:
        return "open"
    # What its driver may have said is gone with the seals.
    return "incomplete" if is_cleaned else "cut off"


def _rows_lost(told: DriverProgress | None, times: _Times, at: EpochLayout, attempt: int) -> int | None:
    if told is None or not told.work:
        return None
    return sum(work.rows for work in told.work if at.seal(attempt, work.task, work.link) not in times.rows_sealed)


def _grouped(rows: Iterable[ShownRowError]) -> tuple[FailedRows, ...]:
    """Return the groups of rows that failed, the largest first."""
    groups: dict[tuple[str, str], list[ShownRowError]] = defaultdict(list)
    for row in rows:
        groups[row.step, row.error].append(row)
    found = [
        FailedRows(step, error, len(group), tuple((row.place, row.message) for row in group[:_MOST_EXAMPLES]))
        for (step, error), group in groups.items()
    ]
    return tuple(sorted(found, key=lambda group: (-group.count, group.step, group.error)))


def _input_text(epoch: ShownEpoch) -> str:
    if epoch.input_files is None:
        return "cleaned" if epoch.is_cleaned else "not fixed yet"
    if epoch.input_keys:
        return f"rows by {', '.join(epoch.input_keys)}"
    of = of_what(epoch.input_table, epoch.input_stage)
    retried = f", {counted(epoch.rows_retried, 'quarantined row')} of it tried again" if epoch.rows_retried else ""
    return f"{counted(epoch.input_files, 'file')}{of}, {size_text(epoch.input_bytes or 0)}{retried}"


def _asked(write: ShownWrite, uri: str, manifest: CheckpointedWrite | None) -> Iterable[tuple[str, str]]:
    """Give what the write was begun with, by its record, and its steps, by its manifest."""
    if write.source is not None:
        yield "source", source_text(write.source)
    if write.sink is not None:
        yield "sink", f"{sink_text(write.sink)}, mode {write.sink.get('mode', 'Append')}"
    yield "checkpoint", uri
    if manifest is None:
        return
    spec = manifest.spec
    for stage in spec.stages:
        yield f"stage {stage.name}", ", ".join(step.call for step in stage.steps) or "none"
    if not spec.stages:
        yield "steps", ", ".join(step.call for step in spec.steps) or "none"
    yield "row that fails", spec.on_row_error


def _manifest_text(manifest: CheckpointedWrite) -> str:
    plain = manifest.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.safe_dump(_without_secrets(plain), sort_keys=False, allow_unicode=True)


def _without_secrets(value: Any) -> Any:
    """Return plain data with *** for each text whose name says that it is secret, as a field or as a variable of a pod."""
    match value:
        case {"name": str(name), "value": str()} if says_secret(name.lower()):
            return {**value, "value": MASK}
        case Mapping():
            return {
                name: MASK if isinstance(inner, str) and says_secret(str(name).lower()) else _without_secrets(inner)
                for name, inner in value.items()
            }
        case Sequence() if not isinstance(value, str):
            return [_without_secrets(inner) for inner in value]
        case _:
            return value
