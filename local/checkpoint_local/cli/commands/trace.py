"""`checkpointed-write trace`: of which rows a data file was made, or what a file of the source has become. Puts nothing."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Final

from rich.console import Console

from checkpoint_control.views.inspection import open_existing
from checkpoint_control.views.tracing import ShownRows, ShownSegment, ShownTrace, trace_back, trace_forward
from checkpoint_local.cli import exits
from checkpoint_local.cli.exits import read_files, say_error
from checkpoint_local.cli.printing import answers, messages, print_data, say_problem
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.quantities import counted

_MOST_LISTED: Final = 20


def trace_command(
    file: Path, settings_file: Path | None, output: str, data_file: str | None, source_file: str | None, position: int | None
) -> int:
    """Show what was found and return the exit code."""
    console = messages()
    if (data_file is None) == (source_file is None):
        say_problem(console, "error: exactly one of --data-file and --source-file is expected")
        return exits.MANIFEST_WRONG
    if (files := read_files(file, settings_file, console)) is None:
        return exits.MANIFEST_WRONG
    manifest, settings = files
    try:
        store = open_existing(manifest.spec.checkpoint.uri, settings)
        if store is None:
            say_problem(console, f"error: there is no folder {manifest.spec.checkpoint.uri}")
            return exits.FAILED
        if data_file is not None:
            found = trace_back(manifest, store, data_file, position)
        else:
            assert source_file is not None
            found = trace_forward(manifest, store, source_file, position)
    except CheckpointError as error:
        say_error(error, console)
        return exits.MANIFEST_WRONG if error.reason == reasons.SOURCE_MISSING else exits.code_of(error)
    if output == "table":
        _print(answers(), found)
    else:
        print_data(found, output)
    return exits.DONE


def _print(out: Console, found: ShownTrace) -> None:
    out.print(f"{found.namespace}/{found.name}, epoch {found.epoch}", style="bold", markup=False)
    for stage, segments in groupby(found.segments, key=lambda segment: segment.stage):
        if stage is not None:
            out.print(f"  {stage}", markup=False)
        for segment in segments:
            _print_segment(out, segment)


def _print_segment(out: Console, segment: ShownSegment) -> None:
    made = f"{counted(segment.rows_read, 'row')} read, {segment.rows_written:,} written"
    out.print(
        f"    attempt {segment.attempt}, task {segment.task}, seal {segment.link}, code {segment.code_digest}: {made}",
        markup=False,
    )
    among = "" if segment.exact else "some of "
    for rows in segment.reads[:_MOST_LISTED]:
        out.print(f"      of {among}{_text_of(rows)}", markup=False, soft_wrap=True)
    for rows in segment.quarantined[:_MOST_LISTED]:
        out.print(f"      quarantined: {_text_of(rows)}", markup=False, soft_wrap=True)
    for path in segment.keys_in[:_MOST_LISTED]:
        out.print(f"      of the rows with the keys in {path}", markup=False, soft_wrap=True)
    for rows in segment.made[:_MOST_LISTED]:
        out.print(f"      in {among}{_text_of(rows)}", markup=False, soft_wrap=True)
    if not segment.made:
        out.print("      nothing was made of it", markup=False)
    listed = (segment.reads, segment.quarantined, segment.keys_in, segment.made)
    left = sum(max(0, len(rows) - _MOST_LISTED) for rows in listed)
    if left:
        out.print(f"      and {left:,} more; -o json has all", markup=False)


def _text_of(rows: ShownRows) -> str:
    if rows.unit != "bytes" and rows.end == rows.start + 1:
        return f"{rows.file}, {rows.unit.removesuffix('s')} {rows.start:,}"
    end = "the end" if rows.end is None else f"{rows.end:,}"
    return f"{rows.file}, {rows.unit} {rows.start:,} to before {end}"
