"""Fields of the manifest that are checked one by one: how text is read, and what one machine cannot run."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from checkpoint_control.validation.report import Findings
from checkpoint_formats.rows.type_names import parse_type
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.manifest.sources.source import CsvOptions
from checkpoint_protocol.manifest.spec import Spec


def check_type_names(types: Mapping[str, str], where: str, findings: Findings, *, nested: bool = False) -> None:
    for name, text in types.items():
        try:
            parse_type(name, text, where, nested=nested)
        except CheckpointError as error:
            findings.problem(f"{where}.{name}", error.message.removeprefix(f"{where}.{name}: "))


def parsed_types(types: Mapping[str, str], where: str) -> pa.Schema | None:
    """Return the columns that a step declares; None where a type is not known, which `check_type_names` says."""
    try:
        return pa.schema([(name, parse_type(name, text, where, nested=True)) for name, text in types.items()])
    except CheckpointError:
        return None


def check_options(options: CsvOptions, at: str, findings: Findings) -> bool:
    """Whether the characters of a CSV dialect can be those."""
    problems = options.problems()
    for name, problem in problems.items():
        findings.problem(f"{at}.{name}", problem)
    return not problems


def refusals(spec: Spec) -> dict[str, NeedsChange]:
    """Return what in a manifest for a cluster keeps it from being run on one machine, by field."""
    found = {}
    if spec.suspend:
        found["spec.suspend"] = NeedsChange(
            reasons.WRITE_SUSPENDED, "spec.suspend: it is set, so nothing is run; take it out, or say false"
        )
    if spec.code.config_map is not None:
        found["spec.code.configMap"] = NeedsChange(
            reasons.MANIFEST_INVALID,
            "spec.code.configMap: one machine has no ConfigMaps; say code.path (a folder) or code.uri (a .py, .zip or .whl file)",
        )
    if spec.checkpoint_volume is not None:
        field = "spec.source.program.stream.checkpointVolume"
        found[field] = NeedsChange(
            reasons.MANIFEST_INVALID,
            f"{field}: one machine has no PersistentVolumeClaims; leave it out, and say a folder on a disk in checkpoint.uri, "
            "below which Spark's own checkpoint is then",
        )
    return found
