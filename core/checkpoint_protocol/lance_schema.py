"""When fields of a Lance dataset are still those that fragments were staged for. Pure.

Lance checks neither ids nor types at commit: a fragment staged under a column that was dropped or retyped lands and reads NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from checkpoint_protocol.records import LanceField

#: Key in the dataset's config that holds the identity which we gave it: Lance has no table uuid of its own.
IDENTITY_CONFIG: Final = "checkpointed-write.identity"


def fields_of(dataset: Any) -> tuple[LanceField, ...]:
    """Return the fields of an open `lance.LanceDataset` at every depth, with their ids (Lance itself is not imported here)."""
    fields: list[LanceField] = []

    def visit(field: Any, prefix: str) -> None:
        path = f"{prefix}{field.name()}"
        arrow = field.to_arrow()
        fields.append(LanceField(id=field.id(), path=path, type=str(arrow.type), nullable=arrow.nullable))
        for child in field.children():
            visit(child, f"{path}.")

    for top in dataset.lance_schema.fields():
        visit(top, "")
    return tuple(fields)


def differences(staged: Sequence[LanceField], current: Sequence[LanceField]) -> list[str]:
    """Return what has changed so that staged fragments no longer fit, one sentence each. A new nullable field is fine."""
    found: list[str] = []
    by_id = {field.id: field for field in current}
    for field in staged:
        now = by_id.get(field.id)
        if now is None:
            again = any(other.path == field.path for other in current)
            found.append(f"the column {field.path!r} was dropped{' and made again' if again else ''}")
        elif now.type != field.type and not _is_nested(now.type):
            found.append(f"the column {field.path!r} was {field.type} and is {now.type}")
        elif field.nullable and not now.nullable:
            found.append(f"the column {field.path!r} is now required")
    known = {field.id for field in staged}
    found += [f"the required column {field.path!r} is new" for field in current if field.id not in known and not field.nullable]
    return found


def _is_nested(arrow_type: str) -> bool:
    # A parent's type spells out its children, which are compared one by one under their own ids.
    return arrow_type.startswith(("struct<", "list<", "large_list<", "map<", "fixed_size_list<"))
