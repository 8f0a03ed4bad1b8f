"""`checkpointed-write validate`: all that is wrong with a write, and what a run would do, without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import yaml
from rich.console import Console

from checkpoint_commit.lance.namespaces import located
from checkpoint_commit.sinks.registry import find_committed, format_of
from checkpoint_control.validation.checks import check_all
from checkpoint_control.validation.report import Bounds, ColumnType, Findings, Prediction, Problem, Report
from checkpoint_control.views.inspection import open_existing
from checkpoint_control.views.stored_status import read_status
from checkpoint_local.cli import committed, exits
from checkpoint_local.cli.files import find_settings, load_manifest, load_settings, places_in, read_file
from checkpoint_local.cli.printing import answers, messages, print_data, say_problem, size_text
from checkpoint_local.java import check_java
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.settings import Settings

_MOST_COLUMNS: Final = 50
_T = TypeVar("_T")


def validate_command(file: Path, settings_file: Path | None, output: str) -> int:
    """Check everything, show it, and return the exit code."""
    found = report_of(lambda: load_manifest(file), lambda: load_settings(find_settings(settings_file, file)), file)
    report = _with_places(found, file, settings_file)
    if output == "table":
        _print(report)
    else:
        print_data(report, output)
    return exits.DONE if report.valid else exits.MANIFEST_WRONG


def report_of(manifest_of: Callable[[], CheckpointedWrite], settings_of: Callable[[], Settings], file: Path) -> Report:
    """Check everything, whatever the checks before have found. `file`: what the manifest is called in messages."""
    findings = Findings()
    manifest = _try(manifest_of, "", findings)
    settings = _try(settings_of, "settings", findings)
    if manifest is not None and settings is not None:
        named, known = manifest, settings
        manifest = _try(lambda: named.model_copy(update={"spec": located(named.spec, known)}), "spec", findings) or named
        _check_committed(manifest, settings, file, findings)
    _try(check_java, "java", findings)
    return check_all(manifest, settings, findings)


def _try(give: Callable[[], _T], field: str, findings: Findings) -> _T | None:
    try:
        return give()
    except CheckpointError as error:
        findings.error(field, error)
        return None


def _with_places(report: Report, file: Path, settings_file: Path | None) -> Report:
    """Add to each problem of a field where that field stands. A file that cannot be parsed says its place itself."""
    found = find_settings(settings_file, file) if report.problems else None
    in_manifest = _places_in(file)
    in_settings = _places_in(found.path) if found is not None else in_manifest

    def placed(problem: Problem) -> Problem:
        of_settings = problem.path.startswith("settings.")
        said = f"{problem.path}: {problem.message}"
        place = in_settings(said.removeprefix("settings.")) if of_settings else in_manifest(said)
        return problem.model_copy(update={"place": place})

    return report.model_copy(update={"problems": tuple(map(placed, report.problems))})


def _places_in(file: Path) -> Callable[[str], str | None]:
    try:
        return places_in(file, read_file(file))
    except (CheckpointError, ValueError, yaml.YAMLError):
        return lambda _: None


def _check_committed(manifest: CheckpointedWrite, settings: Settings, file: Path, findings: Findings) -> None:
    """Say, as `run` and `status` do, where what is committed is not in the table any more. `check_all` says the rest."""
    sink = manifest.spec.sink
    try:
        status = read_status(manifest, open_existing(manifest.spec.checkpoint.uri, settings))
        commit = committed.commit_of(status) if status.phase == "Committed" else None
        if commit is None:
            return
        presence = find_committed(sink, settings, commit.key, commit.table_identity, commit.commit_id)
    except CheckpointError:
        return
    if (lost := committed.loss(presence, commit, file)) is not None:
        findings.error(format_of(sink).field, lost)
    elif (warning := committed.warn(presence, commit, file)) is not None:
        findings.note(warning)


def _print(report: Report) -> None:
    console = messages()
    for problem in report.problems:
        say_problem(console, ": ".join(part for part in (problem.place, problem.path, problem.message) if part))
    for note in report.notes:
        console.print(f"note: {note}", style="yellow", markup=False)
    if report.problems:
        say_problem(console, f"{counted(len(report.problems), 'problem')} found; nothing was run")
    elif report.prediction is not None:
        _print_prediction(answers(), report.name, report.prediction)


def _print_prediction(out: Console, name: str | None, would: Prediction) -> None:
    out.print(f"nothing wrong was found; a run of {name} would be like this", markup=False)
    read = "read by Spark"
    if would.source_files is not None:
        read = f"{counted(would.source_files, 'file')}, {size_text(would.source_bytes or 0)}"
    if would.source_rows is not None:
        read += f", {counted(would.source_rows, 'row')}"
    target = {True: "exists", False: "does not exist", None: "could not be read"}[would.target_exists]
    store = {True: "exists and honours put-if-absent", False: "would be made", None: "not known"}[would.checkpoint_exists]
    rows = [
        ("source", read),
        *_column_rows(would.columns),
        ("rows by", would.row_identity),
        ("tasks", f"{_bounds_text(would.tasks)}, with {counted(would.cores, 'core')}: {would.tasks.why}"),
        ("data files", f"{_bounds_text(would.data_files)}: {would.data_files.why}"),
        ("target", f"{would.target}: {target}{', and would be created' if would.target_would_be_created else ''}"),
        ("mode", would.what_a_commit_does),
        ("checkpoint", f"{would.checkpoint_uri}: {store}"),
        ("a crash", f"costs {would.a_crash_costs}"),
        ("write", would.write),
        ("not tried", would.not_tried),
    ]
    for name, value in rows:
        out.print(f"  {name:<10}  {value}", markup=False)


def _column_rows(columns: Sequence[ColumnType]) -> Iterator[tuple[str, str]]:
    """Give a line for each of the first columns, and how many more there are."""
    for number, column in enumerate(columns[:_MOST_COLUMNS]):
        yield "columns" if number == 0 else "", f"{column.column}: {column.type} ({column.why})"
    if len(columns) > _MOST_COLUMNS:
        yield "", f"and {len(columns) - _MOST_COLUMNS:,} more, which -o json shows"


def _bounds_text(bounds: Bounds) -> str:
    if bounds.at_most is None:
        return f"at least {bounds.at_least:,}"
    if bounds.at_least == bounds.at_most:
        return f"{bounds.at_least:,}"
    return f"at least {bounds.at_least:,}, at most {bounds.at_most:,}"
