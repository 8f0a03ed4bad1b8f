"""What the manifest says of how text is read, field by field."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from checkpoint_control.validation.report import Findings
from checkpoint_formats.rows.type_names import parse_type
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.sources.source import CsvOptions


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
