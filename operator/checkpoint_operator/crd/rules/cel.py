"""Rules of the CRD in CEL, and the expressions that several of them are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """One x-kubernetes-validations entry. `field` is the path that the message is shown with, from the rule's section."""

    rule: str
    message: str
    field: str | None = None

    def as_schema(self) -> dict[str, str]:
        schema = {"rule": self.rule, "message": self.message}
        if self.field is not None:
            schema["fieldPath"] = f".{self.field}"
        return schema


def text(expression: str) -> str:
    """Return an expression as a text of CEL."""
    escaped = expression.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def is_given(field: str, owner: str = "self") -> str:
    # A manifest may say null where a field is optional; that means absent. dyn, as only objects can be compared with null.
    return f"(has({owner}.{field}) && dyn({owner}.{field}) != null)"


def count_of_given(*fields: str) -> str:
    return f"[{', '.join(is_given(field) for field in fields)}].filter(given, given).size()"


def exactly_one_of(*fields: str) -> Rule:
    return Rule(f"{count_of_given(*fields)} == 1", f"exactly one of {', '.join(fields[:-1])} and {fields[-1]} is expected")


def never_changes(field: str, what: str, *, optional: bool = False) -> Rule:
    """Return the rule that a field of a write is not changed, added or removed.

    On the parent, as a rule on the field itself is passed over where the field is added or removed.
    """
    message = f"{what} cannot be changed, because it identifies the write; create a new write under a new name"
    if not optional:  # required, or with a default: always there
        return Rule(f"self.{field} == oldSelf.{field}", message, field)
    before, now = is_given(field, "oldSelf"), is_given(field)
    return Rule(f"{now} == {before} && (!{now} || self.{field} == oldSelf.{field})", message, field)


def has_same(now: str, before: str, required: tuple[str, ...], optional: tuple[str, ...]) -> str:
    parts = [f"{now}.{field} == {before}.{field}" for field in required]
    for field in optional:
        is_now, was_before = is_given(field, now), is_given(field, before)
        parts.append(f"{is_now} == {was_before} && (!{is_now} || {now}.{field} == {before}.{field})")
    return " && ".join(parts)


def is_same_table(fmt: str, one: str, other: str, *fields: str) -> str:
    same = (f"{one}.{fmt}.{field} == {other}.{fmt}.{field}" for field in fields)
    return " && ".join([is_given(fmt, one), is_given(fmt, other), *same])


NO_ESCAPES: Final = Rule(
    "!self.uri.contains('://') || !self.uri.contains('%')",
    "Lance takes %20 and the like in a URI for other characters; use a name without %",
    "uri",
)
