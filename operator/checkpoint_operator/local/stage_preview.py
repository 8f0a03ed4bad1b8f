"""The preview of one stage: which steps it runs, and on which rows, of those that the stage before has sealed."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_operator.code.archive import CodeArchive
from checkpoint_operator.local.code import digests_with
from checkpoint_operator.pipelines.decisions import IN_WORDS
from checkpoint_operator.pipelines.sealed import Sealed, find_sealed
from checkpoint_operator.views.inspection import open_existing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.pipelines import StagePart, parts_of, steps_up_to
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.previews import SealedRows


@dataclass(frozen=True, slots=True)
class StageToPreview:
    """`reads`: what the steps get; None: the source. `notice`: what is to be said of that; may be empty."""

    steps: tuple[Step, ...]
    reads: SealedRows | None = None
    notice: str = ""


def stage_to_preview(manifest: CheckpointedWrite, settings: Settings, name: str, archive: CodeArchive | None) -> StageToPreview:
    """Return what a preview of this stage is to do. NeedsChange if there is no such stage, or nothing for it to read yet."""
    stages = manifest.spec.stages
    if not stages:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"--stage {name}: spec.stages: there are none; preview without --stage")
    stage = next((stage for stage in stages if stage.name == name), None)
    if stage is None:
        names = ", ".join(stage.name for stage in stages)
        raise NeedsChange(
            reasons.MANIFEST_INVALID, f"--stage {name}: spec.stages has no stage of that name; name one of these: {names}"
        )
    number, steps = steps_up_to(stages, name)
    if not number:
        return StageToPreview(steps)
    before = parts_of(stages)[number - 1]
    store = open_existing(manifest.spec.checkpoint.uri, settings)
    found = find_sealed(manifest, store, number - 1, digests_with(archive)) if store is not None else None
    if store is None or found is None:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"--stage {name}: {_nothing_sealed(before)}")
    if stage.grouping is not None and not found.is_done:
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"--stage {name}: it is an Aggregate, whose steps get all rows of a key, and {before.name!r}, which puts them "
            "together, is not done yet; run the write until it is",
        )
    reads = SealedRows(uri=store.uri, uid=found.key.uid, epoch=found.key.epoch, stage=found.key.stage, groups=stage.grouping)
    return StageToPreview(steps, reads, _notice(before, found))


def _nothing_sealed(before: StagePart) -> str:
    said = f"the stage before, {before.name!r}, has sealed nothing yet; run the write until it has"
    return said if before.shuffles is not None else f"{said}, or preview without --stage"


def _notice(before: StagePart, found: Sealed) -> str:
    if found.is_as_now:
        return ""
    causes = f": {'; '.join(IN_WORDS[cause] for cause in found.because)}" if found.because else ""
    return f"the rows of the stage {before.name!r} were made by other code or arguments than those of now{causes}"
