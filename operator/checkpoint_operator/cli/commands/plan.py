"""`checkpointed-write plan`: what a run would do with each stage of a write. Puts nothing and makes no folder."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from checkpoint_operator.cli import exits
from checkpoint_operator.cli.printing import answers, messages, plain_table, print_data, say_problem
from checkpoint_operator.cli.reading import read_files, say_error
from checkpoint_operator.local.runner import code_archive, digests_with
from checkpoint_operator.pipelines.decisions import IN_WORDS
from checkpoint_operator.pipelines.shown import ShownPlan, ShownStage, is_of_a_cluster, plan_stages
from checkpoint_operator.views.inspection import open_existing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.settings import Settings


def plan_command(file: Path, settings_file: Path | None, output: str) -> int:
    """Show the plan and return the exit code."""
    console = messages()
    if (files := read_files(file, settings_file, console)) is None:
        return exits.MANIFEST_WRONG
    manifest, settings = files
    if not manifest.spec.stages:
        say_problem(console, "error: spec.stages: there are none; `checkpointed-write status` shows how far the write is")
        return exits.MANIFEST_WRONG
    try:
        plan = _plan(manifest, settings)
    except CheckpointError as error:
        say_error(error, console)
        return exits.code_of(error)
    if output == "table":
        _print(answers(), plan, has_trigger=manifest.spec.trigger is not None)
    else:
        print_data(plan, output)
    return exits.DONE


def _plan(manifest: CheckpointedWrite, settings: Settings) -> ShownPlan:
    spec, store = manifest.spec, open_existing(manifest.spec.checkpoint.uri, settings)
    if not is_of_a_cluster(manifest, store):
        return plan_stages(manifest, store, digests_with(code_archive(spec, settings)))
    if spec.image is None or spec.code.config_map is not None:
        name, namespace = manifest.metadata.name, manifest.metadata.namespace
        unknown = "the image of its drivers" if spec.image is None else "the ConfigMap of its code"
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"{namespace}/{name} is at work in a cluster, and {unknown} is known there only; its plan is in the object's status: "
            f"kubectl get checkpointedwrite {name} -n {namespace} -o jsonpath='{{.status.stages}}'",
        )
    return plan_stages(manifest, store, digests_with(code_archive(spec, settings), spec.image))


def _print(out: Console, plan: ShownPlan, *, has_trigger: bool) -> None:
    if plan.is_committed:
        then = "a run takes what is new since" if has_trigger else "a run does nothing; runNonce begins the next one"
        out.print(f"{plan.namespace}/{plan.name}: epoch {plan.epoch} is committed: {then}", markup=False)
        return
    out.print(f"{plan.namespace}/{plan.name}: a run of epoch {plan.epoch} would do this", style="bold", markup=False)
    out.print(table_of(plan.stages))


def table_of(stages: Iterable[ShownStage]) -> Table:
    """Return a plan as people read it."""
    table = plain_table("stage", "what", ">rows done", ">rows left", ">about", "because")
    for stage in stages:
        counts = (_number(stage.rows_done), _number(stage.rows_left), _time(stage.seconds_left))
        table.add_row(stage.name, stage.what, *counts, _because(stage))
    return table


def _number(rows: int | None) -> str:
    return "" if rows is None else f"{rows:,}"


def _time(seconds: int | None) -> str:
    return "" if seconds is None else str(datetime.timedelta(seconds=seconds))


def _because(stage: ShownStage) -> str:
    said = [IN_WORDS[cause] for cause in stage.because]
    if stage.code_versions is not None and stage.code_versions > 1:
        said.append(f"made with {counted(stage.code_versions, 'version')} of its code (onCodeChange: Continue)")
    return "; ".join(said)
