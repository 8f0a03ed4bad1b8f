"""Which namespaces may use a catalog, a table or a storage prefix. Pure.

Whoever installs the operator grants, in its settings; a manifest cannot. On one machine there is one user, and nothing to grant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator

from checkpoint_protocol.places.patterns import wildcards

_NAMESPACE_PATTERN: Final = re.compile(r"[a-z0-9*]([a-z0-9*-]*[a-z0-9*])?")


def _check_namespace_pattern(pattern: str) -> str:
    if not _NAMESPACE_PATTERN.fullmatch(pattern):
        raise ValueError(
            f"{pattern!r} names no namespace; a name is expected, in which * stands for any characters: team-a, etl-*"
        )
    return pattern


#: A namespace, or several by *.
NamespacePattern = Annotated[str, AfterValidator(_check_namespace_pattern)]


@dataclass(frozen=True, slots=True)
class Tenant:
    """The namespace that something is done for. `is_only`: no other is served, so that what names nobody is for it."""

    namespace: str
    is_only: bool = False

    def is_granted(self, namespaces: Iterable[str]) -> bool:
        """Whether a grant that names these namespaces is one for this tenant. One that names none is for the only tenant."""
        patterns = tuple(namespaces)
        return is_named(self.namespace, patterns) if patterns else self.is_only


def is_named(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns means this name. A * stands for any characters, points among them."""
    return any(wildcards(pattern, one_by_question_mark=False).fullmatch(name) for pattern in patterns)
