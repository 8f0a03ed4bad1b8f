"""`checkpointed-write inspect`: what a checkpoint store holds, of one write or of all."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Final

from pydantic import JsonValue
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from checkpoint_control.views.inspected import ShownAttempt, ShownEpoch, ShownStore, ShownSums, ShownWrite
from checkpoint_control.views.inspection import inspect_store, open_existing
from checkpoint_local.cli import exits
from checkpoint_local.cli.exits import say_error
from checkpoint_local.cli.files import find_settings, load_settings
from checkpoint_local.cli.printing import answers, messages, of_what, plain_table, print_data, say_problem, size_text
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.layout import EpochLayout

_SHOWN: Final = 0
_UNREADABLE: Final = "?"
_ROWS_LISTED: Final = 20
_MOST_OF_A_MESSAGE: Final = 200
_ANY_WIDTH: Final = 100_000


def inspect_command(uri: str, settings_file: Path | None, output: str, write: str | None) -> int:
    """Show the store and return the exit code: 1 if a record could not be read, though everything else is shown."""
    console = messages()
    try:
        settings = load_settings(find_settings(settings_file, None))
    except CheckpointError as error:
        say_error(error, console)
        return exits.MANIFEST_WRONG
    try:
        store = open_existing(uri, settings)
        if store is None:
            say_problem(console, f"error: there is no folder {uri}")
            return exits.FAILED
        found = inspect_store(store, write)
    except CheckpointError as error:
        say_error(error, console)
        return exits.code_of(error)
    if output == "table":
        _print(answers(), found)
    else:
        print_data(found, output)
    for wrong in found.errors:
        say_problem(console, f"error: {wrong.object}: {wrong.message}")
    return exits.FAILED if found.errors else _SHOWN


def _print(out: Console, store: ShownStore) -> None:
    unreadable = {error.object for error in store.errors}
    if not store.writes:
        out.print(f"{store.uri} holds no writes", markup=False)
    for number, write in enumerate(store.writes):
        if number:
            out.print()
        _print_write(out, write, unreadable)
    if store.strays:
        out.print(f"\n{counted(len(store.strays), 'object')} of no known kind, such as {store.strays[0]}", markup=False)


def _print_write(out: Console, write: ShownWrite, unreadable: Set[str]) -> None:
    title = ", ".join(write.names) or (f"{write.namespace}/{write.name}" if write.name else "(no name)")
    out.print(f"[bold]{escape(title)}[/bold]  uid {write.uid}")
    if write.is_deleted is None:
        out.print(f"  {_UNREADABLE} whether it was deleted cannot be read")
    elif write.is_deleted:
        out.print("  deleted: nothing of it is committed any more")
    if layout.write_path(write.uid) in unreadable:
        out.print(f"  {_UNREADABLE} source and sink cannot be read")
    if write.source is not None:
        out.print(f"  source  {source_text(write.source)}", markup=False)
    if write.sink is not None:
        out.print(f"  sink    {sink_text(write.sink)}", markup=False)
    if not write.epochs:
        out.print("  nothing was begun")
    for epoch in write.epochs:
        _print_epoch(out, epoch, EpochLayout(EpochKey(write.uid, epoch.epoch)), unreadable)


def source_text(source: Mapping[str, JsonValue]) -> str:
    """Return the source that a write was begun with in one line."""
    where = f" where {source['where']}" if source.get("where") else ""
    return f"{_kind_text(dict(source))}{where}"


def _kind_text(place: JsonValue) -> str:
    match place:
        case {"files": {"paths": [*paths], "format": form}}:
            return f"{form} {', '.join(str(path) for path in paths)}"
        case {"iceberg": {"catalog": catalog, "table": table}}:
            return f"iceberg {catalog}.{table}"
        case {"lance": {"uri": uri}}:
            return f"lance {uri}"
        case {"kafka": {"topics": [*topics]}}:
            return f"kafka topics {', '.join(str(topic) for topic in topics)}"
        case {"kafka": {"pattern": pattern}}:
            return f"kafka topics {pattern}"
        case {"none": _}:
            return "none"
        case {"spark": {"keyColumns": [*keys], **section}}:
            return f"spark {section.get('table') or section.get('format')}, by {', '.join(str(key) for key in keys)}"
        case {"program": {"call": call, "keyColumns": [*keys]}}:
            return f"program {call}, by {', '.join(str(key) for key in keys)}"
        case {"program": {"call": call, "stream": _}}:
            return f"program {call}, a stream"
        case {"union": [*members]}:
            return "; ".join(_kind_text(member) for member in members)
        case _:
            return "of a kind that this release does not know"


def sink_text(sink: Mapping[str, JsonValue]) -> str:
    """Return the sink that a write was begun with in one line."""
    return _kind_text(dict(sink))


def _print_epoch(
    out: Console, epoch: ShownEpoch, at: EpochLayout, unreadable: Set[str], *, is_stage_of_cleaned: bool = False
) -> None:
    # Of a cleaned epoch, stages in which rows failed keep their records.
    is_cleaned = epoch.is_cleaned or (is_stage_of_cleaned and epoch.input_files is None)
    if at.input in unreadable:
        read = f"{_UNREADABLE} files"
    elif epoch.input_files is None:
        read = "its input is cleaned" if is_cleaned else "input not fixed yet"
    elif epoch.input_keys:
        read = f"rows by {', '.join(epoch.input_keys)}"
    else:
        of = of_what(epoch.input_table, epoch.input_stage)
        read = f"{counted(epoch.input_files, 'file')}{of}, {size_text(epoch.input_bytes or 0)}"
    if epoch.rows_retried:
        read += f", of them {counted(epoch.rows_retried, 'quarantined row')} tried again"
    nonce = f", runNonce {epoch.run_nonce!r}" if epoch.run_nonce else ""
    if epoch.began is not None and epoch.began.why == "Trigger":
        nonce += ", begun by the trigger"
        nonce += f" for {counted(epoch.began.files, 'new file')}" if epoch.began.files else ""
    cleaned = "; what it staged is cleaned" if epoch.is_cleaned else ""
    what = f"stage {epoch.stage}" if epoch.stage is not None else f"epoch {epoch.epoch}"
    out.print(f"  {what}{nonce}: {read}; {_commit_text(epoch)}{cleaned}", markup=False)
    if epoch.attempts and not is_cleaned:
        _print_attempts(out, epoch, at, unreadable)
    if epoch.attempts:
        _print_rows_that_failed(out, epoch)
    for stage in epoch.stages:
        stage_at = EpochLayout(at.key.of_stage(stage.stage or ""))
        _print_epoch(out, stage, stage_at, unreadable, is_stage_of_cleaned=epoch.is_cleaned)


def _print_attempts(out: Console, epoch: ShownEpoch, at: EpochLayout, unreadable: Set[str]) -> None:
    columns = (">attempt", "code", ">tasks", ">seals", ">rows read", ">rows written", ">files", ">size", "state")
    table = plain_table(*columns)
    for attempt in epoch.attempts:
        tasks = "no plan" if attempt.tasks is None else f"{attempt.tasks_done}/{attempt.tasks}"
        table.add_row(
            str(attempt.attempt),
            attempt.code_digest or _UNREADABLE,
            _UNREADABLE if at.plan(attempt.attempt) in unreadable else tasks,
            *_sum_cells(attempt.sealed),
            escape(_state_text(attempt, at, unreadable)),
        )
    if len(epoch.attempts) > 1:
        table.add_row("all", "", "", *_sum_cells(epoch.sealed), "what counts")
    padded = Padding(table, (0, 0, 0, 4), expand=False)
    if out.measure(padded, options=out.options.update(max_width=_ANY_WIDTH)).maximum <= out.width:
        out.print(padded)
    else:
        _print_attempts_in_lines(out, epoch, at, unreadable)


def _print_attempts_in_lines(out: Console, epoch: ShownEpoch, at: EpochLayout, unreadable: Set[str]) -> None:
    """Where a table would break words to fit: two lines for each attempt."""
    for attempt in epoch.attempts:
        code = attempt.code_digest or _UNREADABLE
        out.print(f"    attempt {attempt.attempt}, code {code}: {_state_text(attempt, at, unreadable)}", markup=False)
        tasks = "no plan" if attempt.tasks is None else f"{attempt.tasks_done} of {counted(attempt.tasks, 'task')}"
        tasks = _UNREADABLE if at.plan(attempt.attempt) in unreadable else tasks
        out.print(f"      {tasks}, {_sum_text(attempt.sealed)}", markup=False)
    if len(epoch.attempts) > 1:
        out.print(f"    all that counts: {_sum_text(epoch.sealed)}", markup=False)


def _sum_text(sums: ShownSums) -> str:
    parts = [counted(sums.seals, "seal"), f"{counted(sums.rows_read, 'row')} read", f"{sums.rows_written:,} written"]
    return ", ".join([*parts, counted(sums.staged_files, "file"), size_text(sums.staged_bytes)])


def _print_rows_that_failed(out: Console, epoch: ShownEpoch) -> None:
    counting = {epoch.attempts[-1].attempt, *epoch.attempts[-1].counted}
    rows = [row for attempt in epoch.attempts if attempt.attempt in counting for row in attempt.quarantined]
    if not rows:
        return
    out.print(f"    {counted(len(rows), 'row')} quarantined; -o json has all, with tracebacks:")
    for row in rows[:_ROWS_LISTED]:
        out.print(
            f"      {row.place}: {row.step}: {row.error}: {' '.join(row.message[:_MOST_OF_A_MESSAGE].split())}",
            markup=False,
            soft_wrap=True,
        )
    if len(rows) > _ROWS_LISTED:
        out.print(f"      and {len(rows) - _ROWS_LISTED:,} more")


def _sum_cells(sums: ShownSums) -> list[str]:
    cells = (sums.seals, sums.rows_read, sums.rows_written, sums.staged_files)
    return [*(f"{cell:,}" for cell in cells), size_text(sums.staged_bytes)]


def _state_text(attempt: ShownAttempt, at: EpochLayout, unreadable: Set[str]) -> str:
    words = ["open"]
    if attempt.closed is None:
        words = [f"{_UNREADABLE} whether it is closed cannot be read"]
    elif attempt.closed:
        words = ["closed, complete" if attempt.complete else "closed, incomplete"]
    if attempt.counted:
        words.append(f"takes over {', '.join(str(number) for number in attempt.counted)}")
    if attempt.input_files_done:
        words.append(f"{counted(attempt.input_files_done, 'file')} done before")
    if attempt.seals_not_counted:
        words.append(f"{counted(attempt.seals_not_counted, 'seal')} too late")
    if attempt.failure is not None:
        words.append(f"{attempt.failure.reason}: {attempt.failure.message}")
    elif at.failure(attempt.attempt) in unreadable:
        words.append(f"{_UNREADABLE} why its driver ended cannot be read")
    return "; ".join(words)


def _commit_text(epoch: ShownEpoch) -> str:
    if epoch.is_committed is None:
        return f"{_UNREADABLE} whether it is committed cannot be read"
    if epoch.was_deleted:
        return "ended by a deletion, not committed"
    if epoch.commit is None:
        claims = f" ({counted(len(epoch.claims), 'claim')})" if epoch.claims else ""
        return f"{epoch.phase}, not committed{claims}"
    commit = epoch.commit
    if epoch.stage is not None:
        return f"done: {counted(commit.rows_read, 'row')} read, {counted(commit.files, 'file')}"
    before = f", {commit.rows_quarantined_before:,} of them by stages before" if commit.rows_quarantined_before else ""
    failed = f", {counted(commit.rows_failed, 'row')} quarantined{before}" if commit.rows_failed else ""
    if commit.commit_id is None:
        return f"done: no rows for {commit.target}{failed}"
    rows, files = counted(commit.rows_written, "row"), counted(commit.files, "file")
    return f"committed to {commit.target} as {commit.commit_id}: {rows} in {files}{failed}"
