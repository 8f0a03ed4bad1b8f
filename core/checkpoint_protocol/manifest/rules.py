"""What goes together in a section of a manifest, said once, in CEL: the models evaluate these rules, and the CRD has them too.

Paths are relative to the section that has the rule. Both evaluators mean the same by all that is used: not lowerAscii(), which
one of them lacks, nor getMilliseconds(), which is the whole duration for one and a part of it for the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from checkpoint_protocol.manifest.quantities import parse_size_bytes

#: A field with the name of a reserved word of CEL, which the API server knows by an escaped one.
_RESERVED: Final = re.compile(r"\b((?:self|oldSelf|one|other|member)(?:\.\w+|\[i\])*)\.namespace\b")


@dataclass(frozen=True, slots=True)
class Rule:
    """One x-kubernetes-validations entry. `field` is the path that the message is shown with, from the rule's section.

    `names`: the message is an expression, which says what is wrong by its name (never by its value, which may be a secret).
    """

    rule: str
    message: str
    field: str | None = None
    names: bool = False

    def as_schema(self) -> dict[str, str]:
        """Return the entry of the CRD."""
        schema = {
            "rule": _RESERVED.sub(r"\1.__namespace__", self.rule),
            "messageExpression" if self.names else "message": self.message,
        }
        return schema | ({} if self.field is None else {"fieldPath": f".{self.field}"})


def broken(rules: Iterable[Rule], section_json: str) -> Iterator[tuple[str, str]]:
    """Give the field and the message of each rule that a section, as it is written, breaks."""
    # Numbers of CEL have 64 bits, and no rule is about one that has more: such are in arguments.
    section = json.loads(section_json, parse_int=lambda digits: min(max(int(digits), -(1 << 63)), (1 << 63) - 1))
    activation = _environment().Activation({"self": section})
    for rule in rules:
        if _compiled(rule.rule).eval(activation).value() is not True:
            yield rule.field or "", _compiled(rule.message).eval(activation).value() if rule.names else rule.message


@cache
def _environment() -> Any:
    from cel_expr_python import cel  # here, as what validates no manifest does not need it

    # Of Kubernetes' own functions this one, as sizes have several spellings.
    sizes = cel.Overload("quantity", cel.Type.INT, [cel.Type.STRING], impl=parse_size_bytes)
    return cel.NewEnv(variables={"self": cel.Type.DYN}, functions=[cel.FunctionDecl("quantity", [sizes])])


@cache
def _compiled(expression: str) -> Any:
    return _environment().compile(expression)


def text(expression: str) -> str:
    """Return an expression as a text of CEL."""
    escaped = expression.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def is_given(field: str, owner: str = "self") -> str:
    """Say in CEL that an optional field has a value: null means absent, and only dyn can be compared with it."""
    return f"(has({owner}.{field}) && dyn({owner}.{field}) != null)"


def count_of_given(*fields: str) -> str:
    """Return the CEL of how many of these fields have a value."""
    return f"[{', '.join(is_given(field) for field in fields)}].filter(given, given).size()"


def exactly_one_of(*fields: str) -> Rule:
    """Return the rule that one of these fields, and no other of them, has a value."""
    return Rule(f"{count_of_given(*fields)} == 1", f"exactly one of {', '.join(fields[:-1])} and {fields[-1]} is expected")


def none_is(condition: str, items: str, message: str, field: str, *, unless: str = "") -> Rule:
    """Return the rule that a condition holds for no item `one` of a list, or key of a mapping. {} in the message is that one.

    `unless`: where there is nothing to look at.
    """
    parts = [json.dumps(part, ensure_ascii=False) for part in message.split("{}")]
    rule = f"{unless}{' || ' if unless else ''}!{items}.exists(one, {condition})"
    return Rule(rule, f" + {items}.filter(one, {condition})[0] + ".join(parts), field, names=True)


def named_once(items: str, message: str, field: str, *, unless: str = "") -> Rule:
    """Return the rule that no name is twice in a list."""
    return none_is(f"{items}.filter(other, other == one).size() > 1", items, message, field, unless=unless)


def is_same_table(fmt: str, one: str, other: str, *fields: str) -> str:
    """Say in CEL that two owners of a section of this format name one table."""
    places = f"{one}.{fmt}", f"{other}.{fmt}"
    return " && ".join([is_given(fmt, one), is_given(fmt, other), *(_is_same(field, *places) for field in fields)])


def _is_same(field: str, one: str, other: str) -> str:
    """Say in CEL that an optional field has one value, or is absent, in both sections."""
    both = f"{is_given(field, one)} && {is_given(field, other)} && {one}.{field} == {other}.{field}"
    return f"({both} || (!{is_given(field, one)} && !{is_given(field, other)}))"
