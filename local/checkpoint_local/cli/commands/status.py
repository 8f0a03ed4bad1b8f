"""`checkpointed-write status`: how far the write of a manifest is. Puts nothing and makes no folder."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from checkpoint_control.pipelines.shown import ShownStage, plan_from_here
from checkpoint_control.views.inspection import open_existing
from checkpoint_control.views.reason_texts import with_command
from checkpoint_control.views.stored_status import StoredStatus, read_status
from checkpoint_local.cli import committed, exits
from checkpoint_local.cli.commands.plan import table_of
from checkpoint_local.cli.exits import read_files, say_error
from checkpoint_local.cli.printing import answers, messages, of_what, print_data, say_problem, size_text
from checkpoint_local.code import code_archive, digests_with
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store.object_store import ObjectStore


def status_command(file: Path, settings_file: Path | None, output: str) -> int:
    """Show where the write stands and return the exit code."""
    console = messages()
    if (files := read_files(file, settings_file, console)) is None:
        return exits.MANIFEST_WRONG
    manifest, settings = files
    try:
        status = status_of(manifest, settings)
    except CheckpointError as error:
        say_error(error, console)
        return exits.code_of(error)
    if output == "table":
        _print(answers(), status, file)
    else:
        print_data(status, output)
    for wrong in status.errors:
        say_problem(console, f"error: {wrong.object}: {wrong.message}")
    if status.identity_changed:
        changed = " and ".join(f"spec.{part}" for part in status.identity_changed)
        say_problem(console, f"error: IdentityChanged: {changed}: not what the write {status.name!r} began with")
    commit = committed.commit_of(status) if status.phase == "Committed" else None
    is_lost = commit is not None and committed.say(status.table, commit, file, console)
    if status.identity_changed:
        return exits.MANIFEST_WRONG
    if status.errors or is_lost:
        return exits.FAILED
    return exits.COMMITTED if status.phase == "Committed" else exits.NOT_COMMITTED


def status_of(manifest: CheckpointedWrite, settings: Settings) -> StoredStatus:
    """Return where the write stands, with what its table shows and what a run would do. Says on stderr what cannot be read."""
    store = open_existing(manifest.spec.checkpoint.uri, settings)
    status = read_status(manifest, store)
    commit = committed.commit_of(status) if status.phase == "Committed" else None
    presence = None if commit is None else committed.find_presence(commit, manifest.spec.sink, settings, messages())
    return status.model_copy(update={"table": presence, "stages": _stages(manifest, settings, store, status)})


def _stages(
    manifest: CheckpointedWrite, settings: Settings, store: ObjectStore | None, status: StoredStatus
) -> tuple[ShownStage, ...]:
    """Return what a run would do with the stages. Code that cannot be had here is for `plan` to tell."""
    if not manifest.spec.stages or status.phase in ("Committed", "Deleting", "Unknown") or status.identity_changed:
        return ()
    try:
        digest_of = digests_with(code_archive(manifest.spec, settings))
    except CheckpointError:
        return ()
    return plan_from_here(manifest, store, digest_of)


def _print(out: Console, status: StoredStatus, file: Path) -> None:
    out.print(f"{status.namespace}/{status.name}: {status.phase}", style="bold", markup=False)
    rows = [("", status.meaning)]
    if status.phase == "Stalled" and status.failure is not None:
        rows.append(("reason", with_command(status.failure.reason, status.failure.reason)))
    rows.append(("epoch", status.place.removeprefix("epoch ")))
    if status.new_epoch_wanted:
        what = "this one" if status.is_new else "once this one is committed"
        rows.append(("", f"runNonce has changed, so a new epoch is wanted: {what}"))
    rows.append(("rows by", status.row_identity))
    if status.input_files:
        of = of_what(status.input_table, status.input_stage)
        rows.append(("input", f"{counted(status.input_files, 'file')}{of}, {size_text(status.input_bytes or 0)}"))
    if status.input_files_done:
        rows.append(("", f"{counted(status.input_files_done, 'file')} of them were done before and are not opened again"))
    if status.attempt is not None:
        if status.tasks is not None:
            rows.append(("tasks", f"{status.tasks_done} of {status.tasks} done"))
        elif status.phase not in ("Unknown", "Committed"):  # the plan of a committed epoch may be cleaned
            rows.append(("tasks", "not planned yet"))
        if status.activity is not None:
            rows.append(("driver", f"{status.activity}, as far as it has told"))
        sums = status.sealed
        seals = f", in {counted(sums.seals, 'seal')}" if sums.seals or status.phase != "Committed" else ""
        rows.append(("sealed", f"{counted(sums.rows_read, 'row')} read, {sums.rows_written:,} written{seals}"))
        if failed := sums.rows_quarantined + status.rows_quarantined_before:
            before = f", {status.rows_quarantined_before:,} of them by stages before" if status.rows_quarantined_before else ""
            how = f"checkpointed-write failed {file} lists them"
            rows.append(("failed", f"{counted(failed, 'row')} quarantined{before}: {how}"))
    if status.claims and status.phase == "Sealed":
        rows.append(("claims", f"{status.claims}: a commit was tried and is not recorded"))
    if status.failure is not None:
        rows.append(("failure", f"attempt {status.failure.attempt}: {status.failure.reason}: {status.failure.message}"))
    if status.commit is not None:
        commit = status.commit
        where = "no rows" if commit.commit_id is None else f"{commit.target} as {commit.commit_id}"
        epoch = "" if status.committed_epoch == status.epoch else f" (epoch {status.committed_epoch})"
        rows.append(("committed", f"{where}: {counted(commit.rows_written, 'row')} in {counted(commit.files, 'file')}{epoch}"))
    for name, value in rows:
        out.print(f"  {name:<9}  {value}", markup=False)
    if status.stages:
        out.print("a run would do this:", markup=False)
        out.print(table_of(status.stages))
