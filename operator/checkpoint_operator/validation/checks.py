"""Every check, in order. Each finds what it can, whatever the others found."""

from __future__ import annotations

import os

from checkpoint_operator.former import warn_of_former
from checkpoint_operator.inspection import open_existing
from checkpoint_operator.local.java import check_java
from checkpoint_operator.local.runner import refusals
from checkpoint_operator.validation.checkpoint import CheckpointSeen, check_checkpoint
from checkpoint_operator.validation.code import check_code
from checkpoint_operator.validation.forecast import predict, predict_dataframe
from checkpoint_operator.validation.report import Findings, Prediction, Report
from checkpoint_operator.validation.source import SourceSeen, check_dataframe_source, check_source
from checkpoint_operator.validation.target import TargetSeen, check_target, check_types, compare_columns
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest import CheckpointedWrite, Spec
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.store import local_path


def check_all(manifest: CheckpointedWrite | None, settings: Settings | None, findings: Findings) -> Report:
    """Check what could be read: None stands for a manifest or settings that could not, which the findings say already."""
    try:
        check_java()
    except CheckpointError as error:
        findings.error("java", error)
    prediction = _check_spec(manifest, settings, findings) if manifest is not None else None
    return Report(
        valid=not findings.problems,
        problems=tuple(findings.problems),
        notes=tuple(findings.notes),
        prediction=prediction,
    )


def _check_spec(manifest: CheckpointedWrite, settings: Settings | None, findings: Findings) -> Prediction | None:
    spec = manifest.spec
    for field, error in refusals(spec).items():
        findings.error(field, error)
    check_code(spec, settings, findings)
    source = None if spec.source.is_dataframe else _source(spec, settings, findings)
    if spec.source.is_dataframe:
        check_dataframe_source(spec.source, findings)
    target = _target(spec, settings, findings)
    checkpoint = _checkpoint(manifest, settings, findings)
    if settings is not None and target.exists and checkpoint.status is not None and checkpoint.status.phase == "NotStarted":
        _warn_of_former(manifest, settings, findings)
    _check_apart(spec, findings)
    if source is not None and source.columns is not None and not spec.steps:
        compare_columns(spec.sink, target, source.columns, findings)
        if source.schema is not None:
            check_types(spec.sink, target, source.schema, findings)
    cores = os.cpu_count() or 1
    if spec.source.is_dataframe:
        return predict_dataframe(spec, target, checkpoint, cores)
    return None if source is None else predict(spec, source, target, checkpoint, cores)


# --- without settings, what lies on this machine can still be looked at ---------------------------------------------------


def _source(spec: Spec, settings: Settings | None, findings: Findings) -> SourceSeen | None:
    source = spec.source
    places = [source.lance.uri] if source.lance is not None else source.all_paths
    if settings is None and (source.iceberg is not None or any(local_path(place) is None for place in places)):
        return None
    return check_source(source, settings or Settings(), findings)


def _target(spec: Spec, settings: Settings | None, findings: Findings) -> TargetSeen:
    sink = spec.sink
    if settings is None and sink.iceberg is not None:
        return TargetSeen(f"{sink.iceberg.catalog}.{sink.iceberg.table}", exists=None)
    if settings is None and sink.lance is not None and local_path(sink.lance.uri) is None:
        return TargetSeen(sink.lance.uri, exists=None)
    return check_target(spec, settings or Settings(), findings)


def _checkpoint(manifest: CheckpointedWrite, settings: Settings | None, findings: Findings) -> CheckpointSeen:
    if settings is None and local_path(manifest.spec.checkpoint.uri) is None:
        return CheckpointSeen(exists=None, status=None)
    return check_checkpoint(manifest, settings or Settings(), findings)


def _warn_of_former(manifest: CheckpointedWrite, settings: Settings, findings: Findings) -> None:
    store = open_existing(manifest.spec.checkpoint.uri, settings)
    if (warning := warn_of_former(manifest, store, settings)) is not None:
        findings.note(warning)


def _check_apart(spec: Spec, findings: Findings) -> None:
    """The store and the dataset must not lie in a folder that is read."""
    outputs = [("spec.checkpoint.uri", spec.checkpoint.uri)]
    outputs += [("spec.sink.lance.uri", spec.sink.lance.uri)] if spec.sink.lance else []
    for where, uri in outputs:
        for path in spec.source.all_paths:
            if f"{uri.rstrip('/')}/".startswith(f"{path.rstrip('/')}/"):
                findings.problem(where, f"{uri} lies in the source folder {path}, so that it would be read as input; move it")
