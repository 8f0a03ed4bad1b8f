"""What is wrong with a manifest, a settings file or a record, in words: none of a library's own text reaches a person.

No value is quoted, since it may be a secret of a settings file, except where a field allows only a few words.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

#: Parts of a place that are no field: which member of a union was tried.
UNION_MARK: Final = "("
#: An error of our own, whose text is ours.
NO_SECRET: Final = "no_secret"  # noqa: S105 a pattern or a word, no secret

#: A given value that is longer is not quoted.
_MOST_QUOTED: Final = 40

_KINDS: Final[Mapping[str, str]] = {
    "int": "a whole number is expected, without quotes",
    "float": "a number is expected, without quotes",
    "bool": "true or false is expected, without quotes",
    "string": "a text is expected (a number or a yes in quotes)",
    "list": "a list is expected (a line with - for each item)",
    "tuple": "a list is expected (a line with - for each item)",
    "dict": "a mapping is expected (name: value)",
    "model": "a mapping is expected (field: value)",
}
#: What the patterns of fields mean. The API server says the same (crd/schema.py).
_FORMS: Final[Mapping[str, str]] = {
    r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$": "module:function (or module:Class)",
    r"^([0-9]{3}|[A-Za-z_][\w.]*)$": "the name of an exception, or a status code of HTTP",
    r"^[^.]+(\.[^.]+)+$": "namespace.table",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": "lower case letters, digits and '-', with a letter or digit at both ends",
    r"^[A-Za-z_][\w.]*$": "the name of a module or package, e.g. docs.parsing,",
    r"^\S+$": "one word without spaces",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$": "the name of an object (lower case letters, digits, "
    "'-' and '.', with a letter or digit at both ends)",
    r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$": "host:port",
    r"^[A-Za-z0-9._-]+$": "the name of a topic: letters, digits, '.', '_' and '-'",
    r"^[A-Za-z][A-Za-z0-9_.-]*$": "the name of a format of Spark, e.g. orc or jdbc,",
    r"^([^:]+|(s3|s3a|gs|gcs|az|abfs|abfss)://[^/]+/.*)\.(py|zip|whl)$": "a path or a URI that ends in .py, .zip or .whl",
    r"^([^{}]|\{epoch\})+$": "a name, in which {epoch} stands for the number of the epoch,",
    r"^([0-9A-Za-z_-]|\{epoch\})+(\.([0-9A-Za-z_-]|\{epoch\})+)*$": "a name of letters, digits, '_', '-' and single dots, in "
    "which {epoch} stands for the number of the epoch,",
    r"^[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*$": "the name of a table, with those of its namespaces before it and dots between,",
    r"^2\.[012]$": "2.0, 2.1 or 2.2",
    r"^[0-9A-Za-z*?/,#-]+( [0-9A-Za-z*?/,#-]+){4}$": "a schedule of cron, of five fields, e.g. '0 3 * * *' (03:00 each day),",
    r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}$": "the name of a time zone, e.g. Europe/Berlin,",
    r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[a-z0-9]([a-z0-9-]*[a-z0-9])?$": "the name of a resource of nodes, e.g. nvidia.com/gpu,",
    r"^(identity|year|month|day|hour|bucket\[[1-9][0-9]{0,8}\]|truncate\[[1-9][0-9]{0,8}\])$": "identity, year, month, day, "
    "hour, bucket[16] or truncate[4], each with a number of its own,",
}


def place_of(problem: Mapping[str, Any]) -> str:
    """Return the path of the field, such as spec.steps.0.call."""
    parts = (str(part) for part in problem["loc"])
    return ".".join(part for part in parts if part and not part.startswith(UNION_MARK))


def at_fields(*problems: tuple[str, str]) -> ValidationError:
    """Return the error of a section that has found problems in fields further down, each with its path from there and a text."""
    said = ((at, PydanticCustomError(NO_SECRET, "{error}", {"error": text})) for at, text in problems)
    errors = [InitErrorDetails(type=kind, loc=(at,), input=None) for at, kind in said]
    return ValidationError.from_exception_data("a section", errors)


def text_of(problem: Mapping[str, Any]) -> str:
    """Say what is wrong with the field; `problem` is one of pydantic's `ValidationError.errors()`."""
    kind, context = problem["type"], problem.get("ctx") or {}
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", "it is wrong"))
    if kind == "missing":
        return "this field is required"
    if kind == "extra_forbidden":
        return "unknown field"
    if kind in ("literal_error", "enum", "union_tag_invalid"):
        return _word_text(str(context.get("expected", context.get("expected_tags"))), context.get("tag", problem.get("input")))
    if kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        return f"{form_of(pattern) or f'a text of the form {pattern}'} is expected"
    if (bound := _bound_text(kind, context)) is not None:
        return bound
    for suffix in ("_type", "_parsing", "_from_float", "_attributes_type"):
        if (expected := _KINDS.get(kind.removesuffix(suffix))) is not None:
            return expected
    return str(problem["msg"]) if kind == NO_SECRET else f"it is not what is expected here ({kind})"


def form_of(pattern: str) -> str | None:
    """Say what a field with this pattern expects, if that is known in words."""
    return _FORMS.get(pattern)


def closest(name: str, known: Collection[str]) -> str | None:
    """Return the name that was probably meant; None if no known one is like it, or if several begin with it.

    Upper and lower case do not count.
    """
    by_folded = {one.casefold(): one for one in known}
    if sum(one.startswith(name.casefold()) for one in by_folded) > 1:
        return None
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[close[0]] if close else None


def _word_text(expected: str, given: object) -> str:
    """Say of a field that allows a few words which one was meant, or which there are. `expected`: 'A', 'B' or 'C'."""
    if not isinstance(given, str | int | float) or len(str(given)) > _MOST_QUOTED:
        return f"{expected} is expected"
    meant = closest(given, re.findall(r"'([^']*)'", expected)) if isinstance(given, str) else None
    said = repr(given) if isinstance(given, str) else json.dumps(given)
    return f"{said} is not allowed; did you mean {meant!r}?" if meant else f"{expected} is expected, not {said}"


def _bound_text(kind: str, context: Mapping[str, Any]) -> str | None:
    match kind:
        case "string_too_short":
            least = context["min_length"]
            return "it must not be empty" if least == 1 else f"at least {least} characters are expected"
        case "string_too_long":
            most = context["max_length"]
            return f"at most {most} {'character is' if most == 1 else 'characters are'} allowed"
        case "too_short":
            least = context["min_length"]
            return f"at least {least} {'item is' if least == 1 else 'items are'} expected"
        case "too_long":
            return f"at most {context['max_length']} items are allowed"
        case "greater_than":
            return f"it must be greater than {context['gt']}"
        case "greater_than_equal":
            return f"it must be {context['ge']} or more"
        case "less_than":
            return f"it must be less than {context['lt']}"
        case "less_than_equal":
            return f"it must be {context['le']} or less"
        case _:
            return None


def true_of(problems: Iterable[Any]) -> Iterator[Any]:
    """Leave out what follows from other problems: pydantic counts the items of a list that have none."""
    for problem in problems:
        wanted = (problem.get("ctx") or {}).get("min_length", 0)
        if problem["type"] != "too_short" or len(problem["input"]) < wanted:
            yield problem


def explain(model: type[BaseModel], problem: Any) -> str:
    """Return a problem with the path of its field, and the field of the model that was meant, where one is close."""
    location = problem["loc"]
    path = place_of(problem) or "(top level)"
    message = text_of(problem)
    if problem["type"] == "extra_forbidden":
        section, name = _section_at(model, location[:-1]), str(location[-1])
        if (why_not := getattr(section, "not_here", {}).get(name)) is not None:
            return f"{path}: {why_not}"
        known = _field_names(section)
        owners = [owner for owner, inner in _inner_sections(section) if name in _field_names(inner)]
        if (meant := closest(name, known)) is not None:
            message += f"; did you mean {meant!r}?"
        elif owners:
            message += f"; it is a field of {' and of '.join(owners)}"
        else:
            message += f"; known here: {', '.join(sorted(known))}"
    return f"{path}: {message}"


def _section_at(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Return the section at this place of the document."""
    current: Any = model
    for part in location:
        if not isinstance(part, int):
            current = _member(current, part) if part.startswith(UNION_MARK) else _inside(current, part)
    return _section_of(current)


def _member(annotation: Any, tag: str) -> Any:
    """Return the annotation of the member of a union that has this tag; or None."""
    if any(getattr(data, "tag", None) == tag for data in getattr(annotation, "__metadata__", ())):
        return annotation
    return next((found for one in getattr(annotation, "__args__", ()) if (found := _member(one, tag)) is not None), None)


def _inside(annotation: Any, part: str) -> Any:
    """Return the annotation of what has this name in a section or a mapping, or in one of the members of a union; or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields.items()
        return next((field.annotation for name, field in fields if part in (name, field.alias)), None)
    members: tuple[Any, ...] = getattr(annotation, "__args__", ())
    if get_origin(annotation) is dict:
        return members[1]
    return next((found for member in members if (found := _inside(member, part)) is not None), None)


def _field_names(section: type[BaseModel] | None) -> list[str]:
    """Return the names that are allowed in a section."""
    return [field.alias or name for name, field in section.model_fields.items()] if section is not None else []


def _inner_sections(section: type[BaseModel] | None) -> list[tuple[str, type[BaseModel]]]:
    fields = section.model_fields.items() if section is not None else ()
    found = ((field.alias or name, _section_of(field.annotation)) for name, field in fields)
    return [(name, inner) for name, inner in found if inner is not None]


def _section_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if (section := _section_of(inner)) is not None:
            return section
    return None
