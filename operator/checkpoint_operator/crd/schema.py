"""From a pydantic model to a structural schema of Kubernetes: everything in place, every field described, null only where meant.

A structural schema has no $ref, and `anyOf` may not carry types, so that pydantic's own JSON schema is of no use. Only what the
models use is understood; anything else is a TypeError, which a test would show.
"""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, JsonValue
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from checkpoint_operator.crd import status_model
from checkpoint_operator.crd.rules import LIST_KEYS, rules_of
from checkpoint_protocol.manifest import quantities, workloads
from checkpoint_protocol.manifest.problems import form_of
from checkpoint_protocol.manifest.rules import text
from checkpoint_protocol.places.uris import URI_PATTERN

Schema = dict[str, Any]

_SCALARS: Final[Mapping[Any, Schema]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
}
#: As the models have them: durations are Go's, sizes are Kubernetes' quantities or whole numbers.
_NUMBER_PATTERN: Final = r"([0-9]{1,19}(\.[0-9]{0,9})?|\.[0-9]{1,9})"
_DURATION_PATTERN: Final = f"^({_NUMBER_PATTERN}(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+$"
_SIZE_PATTERN: Final = rf"^{_NUMBER_PATTERN}([KMGTPE]i|[kMGTPE]|[eE][0-9]{{1,2}})?$"
_SHARE_PATTERN: Final = r"^(0{0,2}[0-9]|0?[0-9]{2})(\.[0-9]{1,4})?%$|^100(\.0{1,4})?%$"
_SHARE_MAX_LENGTH: Final = 9
_SHARE_TEXT: Final = "a share from 0% to 100% is expected, e.g. 10% or 0.5%"
_URI_FORM: Final = (
    "a path, or a URI without the names . and .., e.g. s3://bucket/folder, gs://bucket/folder or az://container/folder,"
)
_RULES: Final = "x-kubernetes-validations"
#: \w of pydantic's regular expressions knows letters of all scripts, \w of the API server's those of ASCII only.
_WORD: Final = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}"


def schema_of(model: type[BaseModel]) -> Schema:
    """Return the schema of a section, with the rules that belong to it."""
    properties = {field.alias or name: _field(model, name, field) for name, field in model.model_fields.items()}
    schema: Schema = {"type": "object", "description": _first_paragraph(model)}
    if required := [field.alias or name for name, field in model.model_fields.items() if field.is_required()]:
        schema["required"] = required
    if properties:
        schema["properties"] = properties
    if rules := rules_of(model):
        schema[_RULES] = [rule.as_schema() for rule in rules]
    return schema


def _field(model: type[BaseModel], name: str, field: FieldInfo) -> Schema:
    annotation, metadata = field.annotation, list(field.metadata)
    annotation, is_optional = _without_none(annotation)
    schema = _value(annotation, metadata)
    description = field.description or schema.get("description")
    if not description:
        raise TypeError(f"{model.__name__}.{name} has no description for kubectl explain")
    schema = {**schema, "description": description}
    if is_optional and not issubclass(model, status_model.StatusSection):
        schema["nullable"] = True
    default = _default(field)
    if default is not None:
        schema["default"] = default
        if default not in ({}, [], ""):
            # `kubectl explain` shows descriptions, and no defaults.
            schema["description"] = f"{description.rstrip('.')}. Default: {_in_yaml(default)}."
    return schema


def _in_yaml(value: Any) -> str:
    return value if isinstance(value, str) and re.fullmatch(r"[\w.%/-]+", value) else json.dumps(value)


def _default(field: FieldInfo) -> Any:
    """Return the default as a manifest would write it, or None where there is none."""
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined:
        return None
    if isinstance(value, BaseModel):
        return {}  # its fields have their own
    parser = _parser(field.metadata)
    if parser is quantities.parse_size_bytes:
        return quantities.format_size(value)
    if parser is quantities.parse_duration_s:
        return quantities.format_duration(value)
    if parser is quantities.parse_share_ppm:
        return quantities.format_share(value)
    return list(value) if isinstance(value, tuple) else value


def _value(annotation: Any, metadata: Iterable[Any]) -> Schema:
    """Return the schema of a value of this type under these constraints."""
    annotation, inner = _unwrapped(annotation)
    metadata = [*inner, *metadata]
    parser = _parser(metadata)
    if parser is quantities.parse_size_bytes:
        return _size(metadata)
    if parser is quantities.parse_duration_s:
        return _duration()
    if parser is quantities.parse_share_ppm:
        return {"type": "string", "maxLength": _SHARE_MAX_LENGTH} | _ruled(f"self.{_matches(_SHARE_PATTERN)}", _SHARE_TEXT)
    if any(getattr(item, "func", None) is workloads.check_pod_template for item in metadata):
        free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        parts = {key: {**free, "description": f"The pod's {key}, as in Kubernetes."} for key in workloads.POD_TEMPLATE_KEYS}
        return {"type": "object", "properties": parts}
    return {**_plain(annotation), **_constraints(annotation, metadata)}


def _plain(annotation: Any) -> Schema:
    if annotation in _SCALARS:
        return dict(_SCALARS[annotation])
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return schema_of(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        schema: Schema = {"type": "array", "items": _cheap(_value(arguments[0], ()))}
        if key := LIST_KEYS.get(arguments[0]):
            schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
        return schema
    if origin is dict and arguments[0] is str:
        if arguments[1] is JsonValue:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return {"type": "object", "additionalProperties": _value(arguments[1], ())}
    raise TypeError(f"no schema is known for {annotation!r}")


def _cheap(item: Schema) -> Schema:
    """Return the schema of an item, without a rule that the API server holds for too costly: for a thousand URIs."""
    is_uri = item.get(_RULES) == _form(URI_PATTERN)[_RULES]
    return {**{name: value for name, value in item.items() if name != _RULES}, "pattern": URI_PATTERN} if is_uri else item


def _constraints(annotation: Any, metadata: Iterable[Any]) -> Schema:
    """Return lengths, bounds and pattern. Of two of a kind the stricter stands, as for the models both count."""
    origin = typing.get_origin(annotation)
    suffix = "Items" if origin is tuple else "Properties" if origin is dict else "Length"
    schema: Schema = {}
    for item in metadata:
        if (least := getattr(item, "min_length", None)) is not None:
            schema[f"min{suffix}"] = max(least, schema.get(f"min{suffix}", 0))
        if (most := getattr(item, "max_length", None)) is not None:
            schema[f"max{suffix}"] = min(most, schema.get(f"max{suffix}", most))
        if (least := getattr(item, "ge", None)) is not None:
            schema["minimum"] = max(least, schema.get("minimum", least))
        if (most := getattr(item, "le", None)) is not None:
            schema["maximum"] = min(most, schema.get("maximum", most))
        if (pattern := getattr(item, "pattern", None)) is not None:
            form = _form(pattern)
            if any(name in schema and schema[name] != form.get(name) for name in ("pattern", _RULES)):
                raise TypeError("two patterns for one field")
            schema |= form
    return schema


def _form(pattern: str) -> Schema:
    """Return how a text has to match a pattern: by a rule that says so in words, as the API server would show the pattern.

    What only the operator writes needs no words.
    """
    if pattern == _TIME_PATTERN:
        return {"format": "date-time"}
    form = _URI_FORM if pattern == URI_PATTERN else form_of(pattern)
    return {"pattern": _for_go(pattern)} if form is None else _ruled(f"self.{_matches(pattern)}", f"{form} is expected")


def _matches(pattern: str) -> str:
    return f"matches({text(_for_go(pattern))})"


def _ruled(rule: str, message: str) -> Schema:
    return {_RULES: [{"rule": rule, "message": message}]}


_TIME_PATTERN: Final = next(
    item.pattern for item in typing.get_args(status_model.Time)[1].metadata if getattr(item, "pattern", None) is not None
)


def _size(metadata: Iterable[Any]) -> Schema:
    is_positive = any(getattr(item, "gt", None) == 0 for item in metadata)
    size = "quantity(string(self))"
    least = f"{size}.isGreaterThan(quantity('0'))" if is_positive else f"!{size}.isLessThan(quantity('0'))"
    most = f"{size}.isLessThan(quantity('9223372036854775807'))"
    message = f"a size {'of more than 0' if is_positive else 'of 0 or more'} and less than 8Ei is expected, e.g. 512Mi or 10Gi"
    return {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": quantities.MAX_SIZE_LENGTH,
        **_ruled(f"string(self).{_matches(_SIZE_PATTERN)} && {least} && {most}", message),
    }


def _duration() -> Schema:
    rule = f"self.{_matches(_DURATION_PATTERN)} && duration(self) > duration('0s')"
    message = "a duration of more than 0s is expected, e.g. 90s, 500ms or 5m"
    return {"type": "string", "maxLength": quantities.MAX_DURATION_LENGTH, **_ruled(rule, message)}


def _parser(metadata: Iterable[Any]) -> Any:
    return next((item.func for item in metadata if isinstance(item, BeforeValidator)), None)


def _unwrapped(annotation: Any) -> tuple[Any, list[Any]]:
    """Return the type inside Annotated, and all that was annotated."""
    metadata: list[Any] = []
    while hasattr(annotation, "__metadata__"):
        for item in annotation.__metadata__:
            metadata += item.metadata if isinstance(item, FieldInfo) else [item]
        annotation = annotation.__origin__
    return annotation, metadata


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """Return the type without its `| None`, and whether there was one."""
    if typing.get_origin(annotation) not in (types.UnionType, typing.Union):
        return annotation, False
    members = [member for member in typing.get_args(annotation) if member is not type(None)]
    if len(members) != 1:
        raise TypeError(f"no schema is known for {annotation!r}")
    return members[0], True


def _for_go(pattern: str) -> str:
    r"""Return the pattern with \w spelled out: inside a class as its members, outside as a class."""
    parts = re.split(r"(\[[^\]]*\])", pattern)
    return "".join(part.replace(r"\w", _WORD) if part.startswith("[") else part.replace(r"\w", f"[{_WORD}]") for part in parts)


def _first_paragraph(model: type[BaseModel]) -> str:
    text = inspect.cleandoc(model.__doc__ or "")
    if not text or "__doc__" not in vars(model):
        raise TypeError(f"{model.__name__} has no docstring for kubectl explain")
    return " ".join(text.split("\n\n")[0].split())
