"""What a look at the first files of a source tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from checkpoint_operator.validation.report import Findings

#: Of a source with more files than this, only so many are opened.
MOST_FILES: Final = 200
_MOST_SAID: Final = 10


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen in the files that were opened.

    `columns` are all that they have, None if that was not to be seen; `types` their Arrow types, where the files tell. `empty`
    are files without anything to read. `rows` is None where they are not known without reading, or not of every file.
    """

    columns: tuple[str, ...] | None
    empty: frozenset[str] = frozenset()
    rows: int | None = None
    types: Mapping[str, str] | None = None
    #: The Arrow schema, where the files tell it.
    schema: Any | None = None


def types_of(schema: Any) -> dict[str, str]:
    """Name the types of an Arrow schema as columns are read: a dictionary is an encoding."""
    return {field.name: str(field.type.value_type if pa.types.is_dictionary(field.type) else field.type) for field in schema}


def say_of_files(messages: Sequence[str], findings: Findings) -> None:
    """Say what is wrong with files: each of the first ones, and how many more there are."""
    for message in messages[:_MOST_SAID]:
        findings.problem("spec.source", message)
    if len(messages) > _MOST_SAID:
        findings.problem("spec.source", f"{len(messages) - _MOST_SAID} more files are wrong in such a way")
