"""`checkpointed-write report`: what the records of a write tell, as one HTML page. Puts nothing into the store."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from checkpoint_control.views.inspection import open_existing
from checkpoint_local.cli import exits
from checkpoint_local.cli.exits import read_files, say_error
from checkpoint_local.cli.files import find_settings, load_settings
from checkpoint_local.cli.printing import messages, say_problem
from checkpoint_local.report.collecting import Report, collect
from checkpoint_local.report.rendering import render
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.secrets import secrets_of
from checkpoint_protocol.places.settings import Settings


def report_command(place: str, settings_file: Path | None, output: str | None, write: str | None) -> int:
    """Write the page and return the exit code. `place` is a manifest or, if `write` names one of its writes, a store's URI."""
    console = messages()
    manifest = None
    try:
        if write is None:
            if (files := read_files(Path(place), settings_file, console)) is None:
                return exits.MANIFEST_WRONG
            manifest, settings = files
            place, write = manifest.spec.checkpoint.uri, f"{manifest.metadata.namespace}/{manifest.metadata.name}"
        else:
            settings = load_settings(find_settings(settings_file, None))
    except CheckpointError as error:
        say_error(error, console)
        return exits.MANIFEST_WRONG
    try:
        report, page = page_of_store(place, write, settings, manifest)
    except CheckpointError as error:
        say_error(error, console)
        return exits.code_of(error)
    for wrong in report.errors:
        say_problem(console, f"error: {wrong.object}: {wrong.message}")
    if output == "-":
        click.echo(page, nl=False)
    else:
        path = Path(output) if output else path_of(report)
        try:
            path.write_text(page, encoding="utf-8")
        except OSError as error:
            say_problem(console, f"error: {path} cannot be written: {error.strerror}")
            return exits.FAILED
        console.print(f"report written to {path}", markup=False)
    return exits.FAILED if report.errors else exits.DONE


def page_of(manifest: CheckpointedWrite, settings: Settings) -> tuple[Report, str]:
    """Return the report of a manifest's write, and its page. NeedsChange where the store knows nothing of it."""
    name = f"{manifest.metadata.namespace}/{manifest.metadata.name}"
    return page_of_store(manifest.spec.checkpoint.uri, name, settings, manifest)


def page_of_store(uri: str, write: str, settings: Settings, manifest: CheckpointedWrite | None) -> tuple[Report, str]:
    """Return the report of one of a store's writes, and its page. NeedsChange if there is no such store or write."""
    store = open_existing(uri, settings)
    if store is None:
        raise NeedsChange(reasons.WRITE_UNKNOWN, f"there is no folder {uri}")
    report = collect(store, write, manifest)
    return report, render(report, secrets_of(settings, os.environ).mask)


def path_of(report: Report) -> Path:
    """Return where the page is put that is given no place. A record may have any name."""
    return Path(f"{re.sub(r'[^A-Za-z0-9.-]', '_', report.name)}-report.html")
