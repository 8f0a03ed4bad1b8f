"""The commands, each in a module of its own that is imported when it is called: `--help` must not wait for pyarrow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

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
@click.option("--watch", is_flag=True, help="With spec.trigger: go on with new input as that says, until interrupted.")
@click.option(
    "--approve",
    type=click.Choice(["Continue", "Restart"], case_sensitive=False),
    help="With onCodeChange: Ask: approve the code as it is now. Results of other code stay, or those of the stage at work are "
    "dropped.",
)
def run(
    file: Path, settings: Path | None, cores: int | None, watch: bool, approve: Literal["Continue", "Restart"] | None
) -> None:
    """Run the CheckpointedWrite in FILE on this machine, or resume it. With spec.trigger it takes what is new, and ends.

    Interrupt it at any moment and run it again: what was sealed is not computed again. Exit codes: 0 committed, 1 failed,
    2 manifest or settings wrong (also where a driver finds it), 4 a person is to approve changed code first, 130 interrupted.
    """
    from checkpoint_operator.cli.commands.run import run_command

    sys.exit(run_command(file, settings, cores, watch=watch, approve=approve))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@_output
def validate(file: Path, settings: Path | None, output: str) -> None:
    """Check the CheckpointedWrite in FILE without running it, and say what a run would do.

    All problems are listed, each with its field. The steps' code is parsed, never imported. The only thing that is written
    is a probe of the checkpoint store, which is removed again. Exit codes: 0 nothing found, 2 problems.
    """
    from checkpoint_operator.cli.commands.validate import validate_command

    sys.exit(validate_command(file, settings, output))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@_output
@click.option("--rows", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many rows the steps get.")
@click.option("--stage", metavar="NAME", help="Run this stage of spec.stages alone, on what the stage before has sealed.")
def preview(file: Path, settings: Path | None, output: str, rows: int, stage: str | None) -> None:
    """Run the steps of the CheckpointedWrite in FILE on the first rows of its source, and show what they give.

    Of a write with stages, the steps of all of them are run one after the other, on rows of the source. With --stage it is those
    of one stage, on rows that the stage before has sealed in the checkpoint store; the first stage gets rows of the source. An
    Aggregate gets whole groups, until there are so many rows.

    Nothing is written: no data file, no record, no table. Rows on which a step fails are listed, whatever onRowError says. Steps
    do what they do, and call what they call. Exit codes: 0 shown, 1 steps or rows failed, 2 manifest or settings wrong, no such
    stage, or nothing for it to read yet.
    """
    from checkpoint_operator.cli.commands.preview import preview_command

    sys.exit(preview_command(file, settings, output, rows, stage))


@main.command()
@click.argument("uri")
@_settings
@_output
@click.option("--write", metavar="UID_OR_NAME", help="Show this write only: its uid, its name, or namespace/name.")
def inspect(uri: str, settings: Path | None, output: str, write: str | None) -> None:
    """Show the writes in the checkpoint store at URI, with their epochs, attempts, seals and commits.

    Changes nothing. Exit codes: 0 shown, 1 something could not be read (the rest is shown), 2 settings or URI wrong.
    """
    from checkpoint_operator.cli.commands.inspect import inspect_command

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
    from checkpoint_operator.cli.commands.status import status_command

    sys.exit(status_command(file, settings, output))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@_output
def plan(file: Path, settings: Path | None, output: str) -> None:
    """Show what a run would do with each stage of the CheckpointedWrite in FILE: keep it, go on with it, or do it anew, and why.

    Changes nothing. Exit codes: 0 shown, 1 something could not be read, 2 manifest or settings wrong, or no stages.
    """
    from checkpoint_operator.cli.commands.plan import plan_command

    sys.exit(plan_command(file, settings, output))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@_output
@click.option("--data-file", metavar="PATH", help="Of which rows this data file of the table was made. The end of its path does.")
@click.option("--source-file", metavar="PATH", help="What this file of the source has become. The end of its path does.")
@click.option(
    "--position", type=click.IntRange(0), help="Only the row at this position: its number in the file, from 0 on, or its byte."
)
def trace(
    file: Path, settings: Path | None, output: str, data_file: str | None, source_file: str | None, position: int | None
) -> None:
    """Show of which rows of the source a data file of the table of the CheckpointedWrite in FILE was made, through its stages.

    Or, with --source-file, what has become of a file of the source. With --position it is of one row; where the records tell no
    more, of rows of which it is one ("some of"). Changes nothing. Exit codes: 0 shown, 1 something could not be read, 2 no such
    file or row, or settings wrong.
    """
    from checkpoint_operator.cli.commands.trace import trace_command

    sys.exit(trace_command(file, settings, output, data_file, source_file, position))


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
    from checkpoint_operator.cli.commands.forget import forget_command

    sys.exit(forget_command(file, settings, yes, force))


class _Duration(click.ParamType):  # type: ignore[type-arg]
    """A duration as in manifests, and with days, which those do not have: 7d, 1d12h, 90s."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from checkpoint_protocol.manifest.quantities import parse_duration_s

        days, is_days, rest = value.partition("d")
        try:
            if is_days and days.isascii() and days.isdigit() and len(days) < 6:
                return int(days) * 86_400 + (parse_duration_s(rest) if rest else 0.0)
            return parse_duration_s(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@main.command()
@click.argument("uri")
@_settings
@_output
@click.option("--write", metavar="UID_OR_NAME", help="Clean this write only: its uid, its name, or namespace/name.")
@click.option(
    "--older-than", type=_Duration(), default="7d", show_default=True, help="Only epochs that have ended so long ago, e.g. 12h."
)
@click.option("--dry-run", is_flag=True, help="Remove nothing, and say what would be removed.")
def clean(uri: str, settings: Path | None, output: str, write: str | None, older_than: float, dry_run: bool) -> None:
    """Remove from the checkpoint store at URI what its writes have staged and nobody needs any more.

    Of epochs that are committed, or that a deletion has ended: seals, plans and the like, and data files of tries that died below
    the folder that a table has for the write. What later epochs need stays (inputs, keys, rows that are quarantined), and all of
    what is not committed. Harmless beside runs and other cleaners. Exit codes: 0 cleaned, 1 something could not be judged or
    removed (the rest is cleaned), 2 settings or URI wrong.
    """
    from checkpoint_operator.cli.commands.clean import clean_command

    sys.exit(clean_command(uri, settings, output, write, older_than, dry_run))


@main.command()
@click.argument("file", type=_EXISTING, required=False)
def allow(file: Path | None) -> None:
    """Allow the settings file FILE (by default checkpointed-write.settings.yaml here) to use what is yours.

    A settings file beside a manifest may name variables and files of this machine, or its identity, and where to send them: it
    counts once you have allowed it as it is. Changed, it has to be allowed again. Exit codes: 0 allowed, 1 not kept, 2 wrong.
    """
    from checkpoint_operator.cli.commands.allow import allow_command

    sys.exit(allow_command(file))


if __name__ == "__main__":
    main()
