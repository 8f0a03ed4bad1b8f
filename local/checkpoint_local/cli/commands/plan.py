"""`checkpointed-write plan`: what a run would do with a write, or each of its stages, and what its code is. Puts nothing."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from checkpoint_control.code.archive import CodeArchive
from checkpoint_control.code.digest import code_files
from checkpoint_control.loop.looks import listing_of
from checkpoint_control.pipelines.decisions import IN_WORDS
from checkpoint_control.pipelines.inherited import parent_of
from checkpoint_control.pipelines.results import spec_up_to
from checkpoint_control.pipelines.shown import ShownCode, ShownPlan, ShownStage, is_of_a_cluster, plan_stages
from checkpoint_control.views.inspection import open_existing
from checkpoint_local.cli import exits
from checkpoint_local.cli.exits import read_files, say_error
from checkpoint_local.cli.printing import answers, messages, plain_table, print_data
from checkpoint_local.code import code_archive, code_tree, digests_with
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.manifest.pipelines import parts_of
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.spec import CheckpointedWrite, Spec
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store.object_store import ObjectStore


def plan_command(file: Path, settings_file: Path | None, output: str) -> int:
    """Show the plan and return the exit code."""
    console = messages()
    if (files := read_files(file, settings_file, console)) is None:
        return exits.MANIFEST_WRONG
    manifest, settings = files
    try:
        plan = plan_of(manifest, settings)
    except CheckpointError as error:
        say_error(error, console)
        return exits.code_of(error)
    if output == "table":
        _print(answers(), plan, manifest.spec)
    else:
        print_data(plan, output)
    return exits.DONE


def plan_of(manifest: CheckpointedWrite, settings: Settings) -> ShownPlan:
    """Return what a run would do, and the files of the code."""
    spec, store = manifest.spec, open_existing(manifest.spec.checkpoint.uri, settings)
    if not is_of_a_cluster(manifest, store):
        return _with_code(manifest, store, code_archive(spec, settings), None, settings)
    if spec.image is None or spec.code.config_map is not None:
        name, namespace = manifest.metadata.name, manifest.metadata.namespace
        unknown = "the image of its drivers" if spec.image is None else "the ConfigMap of its code"
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"{namespace}/{name} is at work in a cluster, and {unknown} is known there only; its plan is in the object's status: "
            f"kubectl get checkpointedwrite {name} -n {namespace} -o jsonpath='{{.status.stages}}'",
        )
    return _with_code(manifest, store, code_archive(spec, settings), spec.image, settings)


def _with_code(
    manifest: CheckpointedWrite, store: ObjectStore | None, archive: CodeArchive | None, image: str | None, settings: Settings
) -> ShownPlan:
    listing, scope = listing_of(manifest.spec, settings), manifest.metadata.namespace
    parent = parent_of(manifest.spec, store, scope, settings, listing) if store is not None else None
    plan = plan_stages(manifest, store, digests_with(archive, image), parent)
    spec, code = manifest.spec, []
    for part in parts_of(spec.stages) or (spec.last_part,):
        own = spec_up_to(spec, part) if spec.stages else spec
        if part.steps or spec.source.program is not None:
            found = code_files(own, code_tree(own, archive), image)
            not_followed = tuple(map(str, found.not_followed))
            code.append(ShownCode(stage=part.name, files=found.files, by_size=found.by_size, not_followed=not_followed))
    return plan.model_copy(update={"code": tuple(code)})


def _print(out: Console, plan: ShownPlan, spec: Spec) -> None:
    if plan.is_committed:
        then = "run --again begins the next one" if spec.trigger is None else "a run takes what is new since"
        out.print(f"{plan.namespace}/{plan.name}: epoch {plan.epoch} is committed: {then}", markup=False)
    else:
        out.print(f"{plan.namespace}/{plan.name}: a run of epoch {plan.epoch} would do this", style="bold", markup=False)
        out.print(table_of(plan.stages))
        if spec.on_code_change == "Ask" and any("code" in stage.because for stage in plan.stages):
            out.print("a run waits for an approval first (onCodeChange: Ask)")
    for code in plan.code:
        of = f" of {code.stage}" if code.stage else ""
        out.print(f"code{of}: {', '.join(code.files) or 'in the image, or in installed packages'}", markup=False, soft_wrap=True)
        for path in code.by_size:
            out.print(f"  {path}: too large to be read; its name and size count", markup=False, soft_wrap=True)
        for place in code.not_followed:
            out.print(f"  {place}: which modules it loads is not known before it runs", markup=False, soft_wrap=True)


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
