"""Names of types that a manifest declares: which of them are known, the API server cannot tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from checkpoint_formats.rows.type_names import parse_type
from checkpoint_protocol.manifest.sources.source import Text
from checkpoint_protocol.manifest.spec import Spec


def refuse_unknown_types(spec: Spec) -> None:
    """NeedsChange(ManifestInvalid) with the field of the first type that is not known."""
    for place, step in spec.placed_steps():
        for name, text in (step.output or {}).items():
            parse_type(name, text, f"spec.{place}.output", nested=True)
    for place, types in _of_sources(spec):
        for name, text in types.items():
            parse_type(name, text, f"spec.source.{place}.types")


def _of_sources(spec: Spec) -> Iterator[tuple[str, Mapping[str, str]]]:
    for number, member in enumerate(spec.source.members):
        if isinstance(member, Text):
            yield member.kind if spec.source.union is None else f"union.{number}.{member.kind}", member.types
