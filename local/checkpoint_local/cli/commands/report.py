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
from checkpoint_local.report.collecting import collect
from checkpoint_local.report.rendering import render
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.places.secrets import secrets_of


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
        store = open_existing(place, settings)
        if store is None:
            say_problem(console, f"error: there is no folder {place}")
            return exits.FAILED
        report = collect(store, write, manifest)
    except CheckpointError as error:
        say_error(error, console)
        return exits.code_of(error)
    page = render(report, secrets_of(settings, os.environ).mask)
    for wrong in report.errors:
        say_problem(console, f"error: {wrong.object}: {wrong.message}")
    if output == "-":
        click.echo(page, nl=False)
    else:
        # A record may have any name.
        path = Path(output or f"{re.sub(r'[^A-Za-z0-9.-]', '_', report.name)}-report.html")
        try:
            path.write_text(page, encoding="utf-8")
        except OSError as error:
            say_problem(console, f"error: {path} cannot be written: {error.strerror}")
            return exits.FAILED
        console.print(f"report written to {path}", markup=False)
    return exits.FAILED if report.errors else exits.DONE
