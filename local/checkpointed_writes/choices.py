"""Sections of a manifest as Python has them: names in snake_case, choices in any case, durations as timedeltas.

What is no field stays as it is, and what is wrong stays wrong: the manifest's models say so, with the place and the way out.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel

_MOST_OF_A_NAME: Final = 32


def plain_section(model: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section under the names of the manifest, without what is None."""
    fields = {name: (field.alias or name, field.annotation) for name, field in model.model_fields.items()}
    plain = {}
    for name, value in given.items():
        alias, annotation = fields.get(name, (name, None))
        if value is not None:
            plain[alias] = _plain(annotation, value)
    return plain


def _plain(annotation: Any, value: Any) -> Any:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    kinds = list(_kinds(annotation))
    if isinstance(value, Mapping):
        sections = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if sections:
            return plain_section(sections[0], value)
        items = [get_args(kind)[1] for kind in kinds if get_origin(kind) is dict]
        return {name: _plain(items[0], one) for name, one in value.items()} if items else value
    if isinstance(value, list | tuple):
        items = [get_args(kind)[0] for kind in kinds if get_origin(kind) is tuple]
        return [_plain(items[0] if items else None, one) for one in value]
    if isinstance(value, str):
        choices = [one for kind in kinds if get_origin(kind) is Literal for one in get_args(kind)]
        return next((one for one in choices if one.lower() == value.replace("_", "").lower()), value)
    return value


def _kinds(annotation: Any) -> list[Any]:
    """Return what a value may be: the members of unions, without what annotations say beside the type."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [kind for one in get_args(annotation) for kind in _kinds(one)]
    return [annotation]


def label_of(text: str) -> str:
    """Return a text as the name of a write or a stage can be: lower case letters, digits and '-'."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_MOST_OF_A_NAME].strip("-") or "rows"
