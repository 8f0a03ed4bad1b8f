"""Writes that are run, or previewed, from a notebook, a script or a test, on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow as pa

    from checkpoint_local.cli.commands.run import Ran
    from checkpoint_protocol.manifest.spec import CheckpointedWrite
    from checkpoint_protocol.places.settings import Settings

#: A manifest's file, or the manifest itself as a dict. In a dict, relative paths are relative to the working directory, and a
#: function, or a class, at the top of a module stands for its name: {"call": steps.embed}.
Manifest = str | os.PathLike[str] | Mapping[str, Any]


class WriteFailed(Exception):
    """The write did not come to its commit. What is sealed stays, and the next run resumes it.

    `reason` is one word, as in the reference of reasons; `message` says what to do.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message

    def __reduce__(self) -> tuple[type[WriteFailed], tuple[str, str]]:
        return type(self), (self.reason, self.message)


@dataclass(frozen=True, slots=True)
class Result:
    """What was committed, of the write's last epoch.

    `table`: where to. `version`: Iceberg's snapshot, or the version of the Lance dataset; None where there was nothing to commit.
    `was_committed`: all of it was there already, and this run did nothing. `rows_quarantined` failed, and are not in the table.
    """

    table: str
    version: int | None
    rows_read: int
    rows_written: int
    rows_quarantined: int
    files: int
    attempts: int
    key: str
    seconds: float
    was_committed: bool


@dataclass(frozen=True, slots=True)
class PreviewFailure:
    """A row on which a step failed: where it lies, the step, and the type and the words of what that raised."""

    row: str
    step: str
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What the steps made of the first rows of the source, or of those that a stage has sealed: `rows` are those that they gave.

    `notice`: that a stage whose rows are read was of other code or arguments; mostly empty.
    """

    rows: pa.Table
    rows_read: int
    failed: tuple[PreviewFailure, ...]
    notice: str = ""


def run(
    manifest: Manifest,
    *,
    settings: str | os.PathLike[str] | None = None,
    cores: int | None = None,
    approve: Literal["Continue", "Restart"] | None = None,
    again: bool = False,
) -> Result:
    """Run a write to its commit, or resume it, as `checkpointed-write run` does; how far it is goes to stderr.

    `settings`: the settings file; by default it is found as the command finds it. `cores`: how many tasks run at once, by default
    all. `approve`: with onCodeChange: Ask, what becomes of results of other code than that of now.
    `again`: if the write is committed, begin its next epoch, with what is new in the source, as a new runNonce does.
    WriteFailed if it fails. Interrupt it at any moment, and run it again: what was sealed is not computed again.
    """
    from checkpoint_protocol.errors import CheckpointError

    try:
        loaded, found = _load(manifest, settings)
        ran = _run(loaded, found, cores, approve, again)
    except CheckpointError as error:
        raise WriteFailed(error.reason, error.message) from error
    return _result(ran, "FILE" if isinstance(manifest, Mapping) else str(manifest))


def preview(
    manifest: Manifest, rows: int = 20, *, settings: str | os.PathLike[str] | None = None, stage: str | None = None
) -> Preview:
    """Run the steps on the first rows of the source, and write nothing. WriteFailed if that cannot be done.

    With a `stage` it is the steps of that one, on rows that the stage before has sealed in the checkpoint store.
    Rows on which a step fails are in the answer, whatever onRowError says. What the steps print goes to stderr.
    """
    from checkpoint_protocol.errors import CheckpointError

    try:
        loaded, found = _load(manifest, settings)
        _need_local()
        from checkpoint_local.preview import preview as run_steps

        previewed = run_steps(loaded, found, rows, stage)
    except CheckpointError as error:
        raise WriteFailed(error.reason, error.message) from error
    failed = tuple(PreviewFailure(one.row, one.step, one.error, one.message) for one in previewed.failed)
    return Preview(previewed.rows, previewed.rows_read, failed, previewed.notice)


def _need_local() -> None:
    from checkpoint_local.cli.entry import why_not_local

    if (why := why_not_local()) is not None:
        raise ImportError(why)


def _load(manifest: Manifest, settings: str | os.PathLike[str] | None) -> tuple[CheckpointedWrite, Settings]:
    _need_local()
    from checkpoint_local.cli.files import find_settings, load_manifest, load_settings, manifest_of
    from checkpointed_writes.documents import plain_manifest

    if isinstance(manifest, Mapping):
        path, loaded = None, manifest_of(plain_manifest(manifest), Path.cwd())
    else:
        path = Path(manifest)
        loaded = load_manifest(path)
    return loaded, load_settings(find_settings(Path(settings) if settings is not None else None, path))


def _run(
    manifest: CheckpointedWrite,
    settings: Settings,
    cores: int | None,
    approve: Literal["Continue", "Restart"] | None,
    again: bool,
) -> Ran:
    from checkpoint_local.cli.commands.run import run_write
    from checkpoint_local.cli.printing import messages

    return run_write(manifest, settings, cores, messages(), approve=approve, again=again)


def _result(ran: Ran, file: str) -> Result:
    from checkpoint_control.decision.actions import Stall
    from checkpoint_local.cli import committed
    from checkpoint_local.cli.printing import messages
    from checkpoint_protocol import reasons

    if isinstance(ran.ended.outcome, Stall):
        raise WriteFailed(ran.ended.outcome.reason, ran.ended.outcome.message)
    found = ran.ended.last_commit
    if found is None:
        raise WriteFailed(reasons.STREAM_ENDED, "the stream has had no rows by now: there is nothing in the table")
    commit, recorded, console = found[1], committed.recorded(*found), messages()
    presence = committed.find_presence(recorded, ran.runner.manifest.spec.sink, ran.runner.settings, console)
    if (lost := committed.loss(presence, recorded, file)) is not None:
        raise WriteFailed(lost.reason, lost.message)
    committed.say(presence, recorded, file, console)
    return Result(
        table=commit.target,
        version=commit.commit_id,
        rows_read=commit.rows_read,
        rows_written=commit.rows_written,
        rows_quarantined=commit.rows_failed,
        files=commit.files,
        attempts=commit.attempts,
        key=commit.key,
        seconds=ran.elapsed_s,
        was_committed=not ran.display.did_work,
    )
