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
    help="The file with catalogs and storage. Default: the first of $CHECKPOINTED_WRITE_SETTINGS, "
    "checkpointed-write.settings.yaml beside the manifest, and ~/.config/checkpointed-write/settings.yaml "
    "(below $XDG_CONFIG_HOME, if that is set).",
)
_output = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="The format of the output.",
)


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; Ctrl-C ends every one with the same code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            from checkpoint_local.cli import exits

            ctx.exit(exits.INTERRUPTED)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="checkpointed-writes")
def main() -> None:
    """Run Spark jobs that cannot be lost: their rows are staged, sealed, and committed exactly once."""


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@click.option("--cores", type=click.IntRange(1, 1024), help="How many tasks run at the same time. Default: the number of cores.")
@click.option(
    "--watch", is_flag=True, help="With spec.trigger: keep taking new input on its schedule until you interrupt the command."
)
@click.option(
    "--approve",
    type=click.Choice(["Continue", "Restart"], case_sensitive=False),
    help="With onCodeChange: Ask: approve the code as it is now. Continue keeps the results of other code. Restart drops those "
    "of the current stage.",
)
@click.option(
    "--again",
    is_flag=True,
    help="If the write is committed: begin its next epoch, with what is new in the source, as a new runNonce does.",
)
def run(
    file: Path,
    settings: Path | None,
    cores: int | None,
    watch: bool,
    approve: Literal["Continue", "Restart"] | None,
    again: bool,
) -> None:
    """Run the CheckpointedWrite in FILE on this machine, or resume it. With spec.trigger, take all new input and then end.

    You can interrupt the command at any moment and run it again: sealed rows are not computed again. Exit codes: 0 committed,
    1 failed, 2 manifest or settings wrong (even if only a driver notices), 4 changed code must be approved first,
    130 interrupted.
    """
    from checkpoint_local.cli.commands.run import run_command

    sys.exit(run_command(file, settings, cores, watch=watch, approve=approve, again=again))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@_output
def validate(file: Path, settings: Path | None, output: str) -> None:
    """Check the CheckpointedWrite in FILE without running it, and show what a run would do.

    The command lists all problems, each with its field. It parses the code of the steps, and never imports it. It writes only a
    small test object to the checkpoint store, and removes it again. Exit codes: 0 no problems found, 2 problems found.
    """
    from checkpoint_local.cli.commands.validate import validate_command

    sys.exit(validate_command(file, settings, output))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@_output
@click.option("--rows", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many rows the steps receive.")
@click.option("--stage", metavar="NAME", help="Run only this stage of spec.stages, on rows that the stage before it has sealed.")
def preview(file: Path, settings: Path | None, output: str, rows: int, stage: str | None) -> None:
    """Run the steps of the CheckpointedWrite in FILE on the first rows of its source, and show what they return.

    If the write has stages, the steps of all stages run one after another, on rows of the source. With --stage, only the steps of
    that stage run, on rows that the stage before it has sealed in the checkpoint store; the first stage receives rows of the
    source. An Aggregate receives whole groups until they have --rows rows.

    The command writes nothing: no data file, no record, no table. It lists the rows on which a step fails, even if onRowError is
    Fail. Side effects of the steps do happen, such as calls of a service. Exit codes: 0 shown, 1 steps or rows failed, 2 manifest
    or settings wrong, unknown stage, or no rows for the stage yet.
    """
    from checkpoint_local.cli.commands.preview import preview_command

    sys.exit(preview_command(file, settings, output, rows, stage))


@main.command()
@click.argument("uri")
@_settings
@_output
@click.option("--write", metavar="UID_OR_NAME", help="Show only this write, given by its uid, its name, or namespace/name.")
def inspect(uri: str, settings: Path | None, output: str, write: str | None) -> None:
    """Show the writes in the checkpoint store at URI, with their epochs, attempts, seals and commits.

    The command changes nothing. Exit codes: 0 shown, 1 a record could not be read (the rest is shown), 2 settings or URI wrong.
    """
    from checkpoint_local.cli.commands.inspect import inspect_command

    sys.exit(inspect_command(uri, settings, output, write))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@_output
def status(file: Path, settings: Path | None, output: str) -> None:
    """Show the progress of the CheckpointedWrite in FILE, as its checkpoint store has it.

    The command changes nothing. Exit codes: 0 committed, 1 something could not be read, 2 manifest or settings wrong (this
    includes a write that began with another source, sink or checkpoint), 3 not committed yet.
    """
    from checkpoint_local.cli.commands.status import status_command

    sys.exit(status_command(file, settings, output))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@_output
@click.option("--epoch", type=click.IntRange(1), help="Of this epoch. Default: the last one in which rows failed.")
@click.option(
    "--columns",
    metavar="NAME,...",
    default="",
    help="Also show these columns of the rows, read from the source, where that is as it was. NULL where it is not.",
)
@click.option("--parquet", type=click.Path(path_type=Path, dir_okay=False), help="Write the rows to this Parquet file instead.")
def failed(file: Path, settings: Path | None, output: str, epoch: int | None, columns: str, parquet: Path | None) -> None:
    """List the rows of the CheckpointedWrite in FILE that failed and are quarantined, with place, step and error.

    With -o json, -o yaml and --parquet, each row also has its traceback. The command changes nothing. Exit codes: 0 shown (also
    if no row has failed), 1 something could not be read, 2 manifest or settings wrong, or unknown epoch or column.
    """
    from checkpoint_local.cli.commands.failed import failed_command

    sys.exit(failed_command(file, settings, output, epoch, [name for name in columns.split(",") if name], parquet))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@_output
def plan(file: Path, settings: Path | None, output: str) -> None:
    """Show what a run would do with each stage of the CheckpointedWrite in FILE, and why: keep it, continue it, or redo it.

    The command changes nothing. Exit codes: 0 shown, 1 something could not be read, 2 manifest or settings wrong, or no stages.
    """
    from checkpoint_local.cli.commands.plan import plan_command

    sys.exit(plan_command(file, settings, output))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@_output
@click.option(
    "--data-file",
    metavar="PATH",
    help="Show from which rows this data file of the table, or of a stage's result, was made. The end of its path is enough.",
)
@click.option(
    "--source-file", metavar="PATH", help="Show what this file of the source has become. The end of its path is enough."
)
@click.option(
    "--position", type=click.IntRange(0), help="Show only the row at this position: its number in the file, from 0, or its byte."
)
def trace(
    file: Path, settings: Path | None, output: str, data_file: str | None, source_file: str | None, position: int | None
) -> None:
    """Trace rows of the CheckpointedWrite in FILE, through all stages, between the files of its source and of its table.

    With --data-file, show the rows of the source from which a data file of the table was made. With --source-file, show what a
    file of the source has become. With --position, show this for one row only; if the records do not identify that row exactly,
    show the rows that contain it ("some of"). The command changes nothing. Exit codes: 0 shown, 1 something could not be read,
    2 unknown file or row, or settings wrong.
    """
    from checkpoint_local.cli.commands.trace import trace_command

    sys.exit(trace_command(file, settings, output, data_file, source_file, position))


@main.command()
@click.argument("file")
@_settings
@click.option(
    "-o", "--output", metavar="PATH", help="Where the page is written; - for stdout. Default: NAME-report.html in this folder."
)
@click.option(
    "--write",
    metavar="UID_OR_NAME",
    help="Report this write, given by its uid, its name, or namespace/name; FILE is then the URI of its checkpoint store.",
)
def report(file: str, settings: Path | None, output: str | None, write: str | None) -> None:
    """Write an HTML page about the CheckpointedWrite in FILE: its commits, attempts, seals, and the rows that failed.

    The page is one file, made from the records in the checkpoint store alone, and needs no network. The command changes nothing
    in the store. Exit codes: 0 written, 1 a record could not be read (the page has the rest), 2 manifest, settings or URI wrong.
    """
    from checkpoint_local.cli.commands.report import report_command

    sys.exit(report_command(file, settings, output, write))


@main.command()
@click.argument("file", type=_EXISTING)
@_settings
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--force", is_flag=True, help="Forget the write even if another machine has begun an attempt that is not closed.")
def forget(file: Path, settings: Path | None, yes: bool, force: bool) -> None:
    """Forget the CheckpointedWrite in FILE: remove its records from the checkpoint store, so that the next run starts over.

    Committed rows stay in the table, and with sink.mode Append the next run appends them once more unless you drop the table
    first. Nothing of the forgotten write can be committed afterwards, even if a driver of it is still running. A write that is
    running on this machine is not forgotten. If the command is interrupted, run it again to finish. Exit codes: 0 forgotten, 1
    not forgotten, 2 manifest or settings wrong.
    """
    from checkpoint_local.cli.commands.forget import forget_command

    sys.exit(forget_command(file, settings, yes, force))


@main.command()
@click.argument("reason", required=False)
@_output
def explain(reason: str | None, output: str) -> None:
    """Explain REASON, the word in a message or a status such as TableMissing: how it shows, why it comes up, and what to do.

    Without REASON, list all reasons. Exit codes: 0 shown, 2 unknown reason.
    """
    from checkpoint_local.cli.commands.explain import explain_command

    sys.exit(explain_command(reason, output))


@main.command()
@click.argument("path", required=False, type=click.Path())
@click.option("--iceberg", metavar="CATALOG.NAMESPACE.TABLE", help="Write to this Iceberg table, and not to a Lance dataset.")
@click.option("--schema", is_flag=True, help="Also write write.schema.json, by which editors complete and check write.yaml.")
def init(path: str | None, iceberg: str | None, schema: bool) -> None:
    """Write write.yaml and steps.py for the files at PATH: a folder, a file, or a pattern of Parquet, CSV, JSON lines or images.

    Both are written into the working directory, and run as they are: each row goes into the table as it is, until you put your
    function into steps.py. Nothing is overwritten. Without PATH, the files below the working directory are taken, if they are of
    one kind and in one folder. Exit codes: 0 written, 1 not written, 2 no such files, several kinds of them, or already there.
    """
    from checkpoint_local.cli.commands.init import init_command

    sys.exit(init_command(path, iceberg, schema))


@main.command()
@click.argument("what", type=click.Choice(["manifest", "settings"]), default="manifest")
def schema(what: str) -> None:
    """Print the JSON Schema of a manifest, or of a settings file, for editors to complete and check them.

    A YAML file names its schema in its first line: # yaml-language-server: $schema=write.schema.json. The command `validate`
    finds more than a schema can. Exit code: 0 printed.
    """
    from checkpoint_local.cli.commands.schema import schema_command

    sys.exit(schema_command(what))


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
@click.option("--write", metavar="UID_OR_NAME", help="Clean only this write, given by its uid, its name, or namespace/name.")
@click.option(
    "--older-than",
    type=_Duration(),
    default="7d",
    show_default=True,
    help="Clean only epochs that ended this long ago, e.g. 12h.",
)
@click.option("--dry-run", is_flag=True, help="Remove nothing; show what would be removed.")
def clean(uri: str, settings: Path | None, output: str, write: str | None, older_than: float, dry_run: bool) -> None:
    """Remove staged data that is no longer needed from the checkpoint store at URI.

    For epochs that are committed, or that ended when their write was deleted, the command removes seals, plans and similar
    records, and also the data files that failed tries have left in the write's folder of the table. It keeps what later epochs
    need (inputs, keys, quarantined rows), and everything that is not committed. It is safe to use during runs and other
    clean-ups. Exit codes: 0 cleaned, 1 something could not be judged or removed (the rest is cleaned), 2 settings or URI wrong.
    """
    from checkpoint_local.cli.commands.clean import clean_command

    sys.exit(clean_command(uri, settings, output, write, older_than, dry_run))


@main.command()
@click.argument("file", type=_EXISTING, required=False)
def allow(file: Path | None) -> None:
    """Allow the settings file FILE to use your environment variables, files and identity.

    FILE is by default checkpointed-write.settings.yaml in this folder. A settings file beside a manifest can name variables,
    files and the identity of this machine, and servers to send them to. It is used only after you have allowed it, and must be
    allowed again after each change. Exit codes: 0 allowed, 1 the permission could not be stored, 2 settings wrong.
    """
    from checkpoint_local.cli.commands.allow import allow_command

    sys.exit(allow_command(file))


if __name__ == "__main__":
    main()
