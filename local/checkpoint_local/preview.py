"""The steps of a write on the first rows of its source, on this machine. Nothing is staged, recorded or committed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from checkpoint_commit.catalogs.source_tables import open_source
from checkpoint_commit.lance.namespaces import located
from checkpoint_commit.ports import PinSource
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.code.archive import CodeArchive, put_archive
from checkpoint_control.code.digest import code_digest
from checkpoint_control.decision.actions import Stall
from checkpoint_control.decision.observation import DriverObservation, DriverState
from checkpoint_control.loop.observing import Observer
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_control.pipelines.decisions import IN_WORDS
from checkpoint_control.pipelines.results import Sealed, find_sealed
from checkpoint_control.ports import Write
from checkpoint_control.validation.fields import refusals
from checkpoint_control.views.inspection import open_existing
from checkpoint_local.code import code_archive, code_tree, digests_with
from checkpoint_local.java import check_java
from checkpoint_local.other_processes import MARK_VARIABLE, end_leftovers
from checkpoint_local.processes import KeysOfProcesses, conf_arguments, environment_of
from checkpoint_local.runner import LocalHost, identify
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.pipelines import StagePart, parts_of, steps_up_to
from checkpoint_protocol.manifest.spec import CheckpointedWrite, Spec
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.progress_reports import (
    PREVIEW_NAME,
    ROWS_NAME,
    SEALED_NAME,
    FailedRow,
    PreviewError,
    PreviewOutcome,
    SealedRows,
)
from checkpoint_protocol.records import LaunchRecord
from checkpoint_protocol.store.object_store import open_store


@dataclass(frozen=True, slots=True)
class StageToPreview:
    """`reads`: what the steps get; None: the source. `notice`: what is to be said of that; may be empty."""

    steps: tuple[Step, ...]
    reads: SealedRows | None = None
    notice: str = ""


def stage_to_preview(manifest: CheckpointedWrite, settings: Settings, name: str, archive: CodeArchive | None) -> StageToPreview:
    """Return what a preview of this stage is to do. NeedsChange if there is no such stage, or nothing for it to read yet."""
    stages = manifest.spec.stages
    if not stages:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"--stage {name}: spec.stages: there are none; preview without --stage")
    stage = next((stage for stage in stages if stage.name == name), None)
    if stage is None:
        names = ", ".join(stage.name for stage in stages)
        raise NeedsChange(
            reasons.MANIFEST_INVALID, f"--stage {name}: spec.stages has no stage of that name; name one of these: {names}"
        )
    number, steps = steps_up_to(stages, name)
    if not number:
        return StageToPreview(steps)
    before = parts_of(stages)[number - 1]
    store = open_existing(manifest.spec.checkpoint.uri, settings)
    found = find_sealed(manifest, store, number - 1, digests_with(archive)) if store is not None else None
    if store is None or found is None:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"--stage {name}: {_nothing_sealed(before)}")
    if stage.grouping is not None and not found.is_done:
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"--stage {name}: it is an Aggregate, whose steps get all rows of a key, and {before.name!r}, which puts them "
            "together, is not done yet; run the write until it is",
        )
    reads = SealedRows(uri=store.uri, uid=found.key.uid, epoch=found.key.epoch, stage=found.key.stage, groups=stage.grouping)
    return StageToPreview(steps, reads, _notice(before, found))


def _nothing_sealed(before: StagePart) -> str:
    said = f"the stage before, {before.name!r}, has sealed nothing yet; run the write until it has"
    return said if before.shuffles is not None else f"{said}, or preview without --stage"


def _notice(before: StagePart, found: Sealed) -> str:
    if found.is_as_now:
        return ""
    causes = f": {'; '.join(IN_WORDS[cause] for cause in found.because)}" if found.because else ""
    return f"the rows of the stage {before.name!r} were made by other code or arguments than those of now{causes}"


_FAMILIES: Final = {"Retryable": Retryable, "NeedsChange": NeedsChange, "Corrupt": Corrupt}
_PATIENCE_S: Final = 10.0
#: The answer alone goes to stdout.
_STDERR: Final = 2


@dataclass(frozen=True, slots=True)
class Previewed:
    """What the steps made of the first rows: the rows that they gave, how many they were given, and which of these failed.

    `notice`: what a person should know of the rows that they were given; mostly empty.
    """

    rows: pa.Table
    rows_read: int
    failed: tuple[FailedRow, ...]
    notice: str = ""


def preview(manifest: CheckpointedWrite, settings: Settings, rows: int, stage: str | None = None) -> Previewed:
    """Run the steps on so many rows of the source, in a process of their own. What they print goes to this process's stderr.

    With a `stage` it is the steps of that one, on rows that the stage before has sealed in the checkpoint store.

    Rows on which a step fails are named, whatever onRowError says. Raises CheckpointError where a run would end.
    """
    for error in refusals(manifest.spec).values():
        raise error
    archive = code_archive(manifest.spec, settings)
    asked = stage_to_preview(manifest, settings, stage, archive) if stage is not None else _all_stages(manifest.spec)
    if manifest.spec.source.stream is not None:
        raise NeedsChange(
            reasons.STREAM_REFUSED, "the first rows of a stream are not previewed; preview the steps on a file of such rows"
        )
    if manifest.spec.source.keyed is not None and asked.reads is None:
        check_java()
    with tempfile.TemporaryDirectory(prefix="checkpointed-write-preview-") as name:
        folder = Path(name)
        spec = located(_of_nothing(manifest.spec, asked.steps, folder / "store"), settings, begins=asked.reads is None)
        pin_source = open_source(spec.source, settings) if asked.reads is None else tuple
        uid = _record_launch(manifest.model_copy(update={"spec": spec}), manifest.row_keys, settings, archive, pin_source)
        if asked.reads is not None:
            (folder / SEALED_NAME).write_text(asked.reads.model_dump_json(), encoding="utf-8")
        _run(spec, uid, rows, folder, settings)
        outcome = PreviewOutcome.model_validate_json((folder / PREVIEW_NAME).read_bytes())
        if outcome.error is not None:
            raise _error_of(outcome.error)
        with pa.OSFile(str(folder / ROWS_NAME)) as file, pa.ipc.open_stream(file) as stream:
            table = stream.read_all()
    return Previewed(table, outcome.rows_read, outcome.failed, asked.notice)


def _all_stages(spec: Spec) -> StageToPreview:
    """Return all steps, those of all stages too, as for rows that go through them in one go."""
    if aggregate := next((stage for stage in spec.stages if stage.kind == "Aggregate"), None):
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"spec.stages: {aggregate.name!r} is an Aggregate, whose steps get all rows of a key, and not some first ones; "
            "preview one stage (--stage NAME), or a manifest with the stages before it",
        )
    return StageToPreview(tuple(step for _, step in spec.placed_steps()))


def _of_nothing(spec: Spec, steps: tuple[Step, ...], store: Path) -> Spec:
    """Return the same write with these steps and another store, into no table."""
    sink = spec.sink.model_validate({"none": {}})
    checkpoint = spec.checkpoint.model_copy(update={"uri": str(store)})
    return spec.model_copy(update={"sink": sink, "checkpoint": checkpoint, "steps": steps, "stages": (), "reset": None})


def _record_launch(
    manifest: CheckpointedWrite, row_keys: str, settings: Settings, archive: CodeArchive | None, pin_source: PinSource
) -> str:
    """Have the store know of a first attempt, as a run does before it starts a driver; return the uid that it is under."""
    spec = manifest.spec
    store = open_store(spec.checkpoint.uri, settings)
    uid = identify(store, manifest)
    if archive is not None:
        put_archive(store, uid, archive)
    code = archive.digest if archive else None
    write = Write(uid=uid, spec=spec, code_digest=code_digest(spec, code_tree(spec, archive)), code=code, row_keys=row_keys)
    observer = Observer(write, store, _NoDrivers(), open_sink(spec.sink, settings), LocalHost(), pin_source=pin_source)
    outcome = Reconciler(observer).step().outcome
    if isinstance(outcome, Stall):
        raise NeedsChange(outcome.reason, outcome.message)
    return uid


class _NoDrivers:
    """A driver port that starts nothing."""

    def expect(self, key: EpochKey, attempt: int) -> None:
        pass

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        return DriverObservation(DriverState.NOT_STARTED)

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        pass

    def stop(self, key: EpochKey, attempt: int) -> None:
        pass


def _run(spec: Spec, uid: str, rows: int, folder: Path, settings: Settings) -> None:
    command = [sys.executable, "-m", "checkpoint_spark.preview", "--uri", spec.checkpoint.uri, "--uid", uid]
    command += ["--rows", str(rows), "--folder", str(folder), "--master", "local[1]", *conf_arguments(spec)]
    mark = f"{os.getpid()} preview of {uid} in {folder}"
    keys = KeysOfProcesses(settings.handed, folder)
    keys.renew()
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=_STDERR,
        env={**environment_of(spec, settings), **keys.environment(), MARK_VARIABLE: mark},
        start_new_session=True,  # Ctrl-C is for us, who end it
    )
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
        process.kill()
        raise
    finally:
        if process.stdin is not None:
            process.stdin.close()
        end_leftovers(process.pid, mark)
    if not (folder / PREVIEW_NAME).exists():
        how = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
        raise NeedsChange(
            reasons.CODE_FAILED, f"the process that ran the steps ended {how}, and said nothing: what a step calls ends it"
        )


def _error_of(error: PreviewError) -> Exception:
    return _FAMILIES[error.family](error.reason, error.message)
