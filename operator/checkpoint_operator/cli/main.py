"""The commands, each in a module of its own that is imported when it is called: `--help` must not wait for pyarrow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

_EXISTING = click.Path(path_type=Path, dir_okay=False)
_settings = click.option(
    "--settings",
    type=_EXISTING,
    help="Catalogs and storage. By default $CHECKPOINTED_WRITE_SETTINGS, checkpointed-write.settings.yaml beside the manifest, "
    "or ~/.config/checkpointed-write/settings.yaml.",
)
_output = click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True, help="How to print."
)


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; Ctrl-C ends every one with the same code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            from checkpoint_operator.cli import exits

            ctx.exit(exits.INTERRUPTED)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="checkpointed-writes")
def main() -> None:
    """Spark jobs that cannot be lost: staged, sealed and committed exactly once."""


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@click.option("--cores", type=click.IntRange(1, 1024), help="How many tasks run at once. By default all cores.")
def run(file: Path, settings: Path | None, cores: int | None) -> None:
    """Run the CheckpointedWrite in FILE on this machine, or resume it.

    Interrupt it at any moment and run it again: what was sealed is not computed again. Exit codes: 0 committed, 1 failed,
    2 manifest or settings wrong (also where a driver finds it), 130 interrupted.
    """
    from checkpoint_operator.cli.run import run_command

    sys.exit(run_command(file, settings, cores))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@_output
def validate(file: Path, settings: Path | None, output: str) -> None:
    """Check the CheckpointedWrite in FILE without running it, and say what a run would do.

    All problems are listed, each with its field. The steps' code is looked at, never imported. The only thing that is written
    is a probe of the checkpoint store, which is removed again. Exit codes: 0 nothing found, 2 problems.
    """
    from checkpoint_operator.cli.validate import validate_command

    sys.exit(validate_command(file, settings, output))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@_output
@click.option("--rows", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Of so many rows of the source.")
def preview(file: Path, settings: Path | None, output: str, rows: int) -> None:
    """Run the steps of the CheckpointedWrite in FILE on the first rows of its source, and show what they give.

    Nothing is written: no data file, no record, no table. Rows on which a step fails are listed, whatever onRowError says. Steps
    do what they do, and call what they call. Exit codes: 0 shown, 1 steps or rows failed, 2 manifest or settings wrong.
    """
    from checkpoint_operator.cli.preview import preview_command

    sys.exit(preview_command(file, settings, output, rows))


@main.command()
@click.argument("uri")
@_settings
@_output
@click.option("--write", metavar="UID_OR_NAME", help="Show this write only: its uid, its name, or namespace/name.")
def inspect(uri: str, settings: Path | None, output: str, write: str | None) -> None:
    """Show the writes in the checkpoint store at URI, with their epochs, attempts, seals and commits.

    Changes nothing. Exit codes: 0 shown, 1 something could not be read (the rest is shown), 2 settings or URI wrong.
    """
    from checkpoint_operator.cli.inspect import inspect_command

    sys.exit(inspect_command(uri, settings, output, write))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@_output
def status(file: Path, settings: Path | None, output: str) -> None:
    """Show how far the CheckpointedWrite in FILE is, from its checkpoint store alone.

    Changes nothing. Exit codes: 0 committed, 1 something could not be read, 2 manifest or settings wrong (also where the
    write began with another source, sink or checkpoint), 3 not committed yet.
    """
    from checkpoint_operator.cli.status import status_command

    sys.exit(status_command(file, settings, output))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also where another machine has begun an attempt that is not closed.")
def forget(file: Path, settings: Path | None, yes: bool, force: bool) -> None:
    """Forget the CheckpointedWrite in FILE: remove what its checkpoint store holds of it, so that the next run begins anew.

    What is committed stays in its table, and is appended once more by the next run, unless you drop the table before. Nothing of
    the forgotten write can be committed afterwards, whoever is still at work. A run that is at work on this machine is not
    forgotten. Interrupted, the same command goes on. Exit codes: 0 forgotten, 1 not forgotten, 2 manifest or settings wrong.
    """
    from checkpoint_operator.cli.forget import forget_command

    sys.exit(forget_command(file, settings, yes, force))


@main.command()
@click.argument("file", type=_EXISTING, required=False)
def allow(file: Path | None) -> None:
    """Allow the settings file FILE (by default checkpointed-write.settings.yaml here) to use what is yours.

    A settings file beside a manifest may name variables and files of this machine, or its identity, and where to send them: it
    counts once you have allowed it as it is. Changed, it has to be allowed again. Exit codes: 0 allowed, 1 not kept, 2 wrong.
    """
    from checkpoint_operator.cli.allow import allow_command

    sys.exit(allow_command(file))


if __name__ == "__main__":
    main()
