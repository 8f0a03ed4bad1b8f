"""What annotations of a row step declare: the columns that it returns, and the class of the rows that it receives. Pure.

A type counts only where its values have exactly one type in a table. Where one field has another type, the annotation declares
nothing, as a table with some of the columns would refuse the others. What cannot be resolved declares nothing either.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import typing
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NewType, NotRequired, Required, Union

from pydantic import AwareDatetime, BaseModel, NaiveDatetime, RootModel

#: Types of values, as the `output` of a step names them.
_PLAIN: Final[dict[Any, str]] = {
    bool: "bool",
    int: "int64",
    float: "double",
    str: "string",
    bytes: "binary",
    date: "date",
    time: "time",
    datetime: "timestamp[us]",
    NaiveDatetime: "timestamp[us]",
    AwareDatetime: "timestamp[us, UTC]",
}
#: What a row step may return its rows in.
_OF_ROWS: Final = (list, Iterable, Iterator, Generator, AsyncIterable, AsyncIterator, AsyncGenerator)
_MOST_DIGITS: Final = 38
#: Also ends classes that have themselves as fields.
_DEEPEST: Final = 16


class _Inexact(Exception):
    """A type that has no exact counterpart."""


def output_of(called: Any) -> dict[str, str] | None:
    """Return the columns that the return annotation of a callable declares, with their types; None where it declares none."""
    try:
        kind, _ = _bare(_hints(called)["return"])
        if typing.get_origin(kind) in _OF_ROWS:
            kind, _ = _bare(typing.get_args(kind)[0])
        return _columns(kind, 0)
    except Exception:  # annotations are user code: names that only a type checker knows, and classes of any kind
        return None


def receiver_of(called: Any) -> Callable[[dict[str, Any]], Any] | None:
    """Return what makes of a row that which the first parameter of a callable is annotated with; None where that is a dict."""
    try:
        first = next(iter(inspect.signature(called).parameters.values()))
        kind, _ = _bare(_hints(called)[first.name])
        if not isinstance(kind, type):
            return None
        if issubclass(kind, BaseModel):
            return partial(kind.model_validate, by_alias=False, by_name=True)
        is_named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
        if not dataclasses.is_dataclass(kind) and not is_named_tuple:
            return None
        return partial(_instance, kind, {name: each.default for name, each in inspect.signature(kind).parameters.items()})
    except Exception:  # as above
        return None


def _instance(kind: Callable[..., Any], defaults: dict[str, Any], row: dict[str, Any]) -> Any:
    missing = [name for name, default in defaults.items() if name not in row and default is inspect.Parameter.empty]
    if missing:
        raise ValueError(f"a {kind.__name__} needs the columns {', '.join(missing)}, which the row does not have")
    return kind(**{name: row[name] for name in defaults if name in row})


def _hints(called: Any) -> dict[str, Any]:
    while isinstance(called, partial):
        called = called.func
    return typing.get_type_hints(called if inspect.isroutine(called) else type(called).__call__)


def _bare(hint: Any, metadata: tuple[Any, ...] = ()) -> tuple[Any, tuple[Any, ...]]:
    """Return a type without None and all that tells nothing of its values, and its metadata (Annotated)."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _bare(arguments[0], (*metadata, *hint.__metadata__))
    if origin in (Required, NotRequired):
        return _bare(arguments[0], metadata)
    if isinstance(hint, NewType):
        return _bare(hint.__supertype__, metadata)
    others = [argument for argument in arguments if argument is not NoneType]
    if origin in (Union, UnionType) and len(others) == 1:
        return _bare(others[0], metadata)
    return hint, metadata


def _columns(kind: Any, depth: int) -> dict[str, str]:
    """Return the fields of a class with their types. _Inexact where it has none, or may have more, or one is of another type."""
    found = {name: _type(hint, metadata, depth) for name, hint, metadata in _fields(kind)}
    if not found:
        raise _Inexact
    return found


def _fields(kind: Any) -> list[tuple[str, Any, tuple[Any, ...]]]:
    """Return the name, the type and the metadata of each field of which values are kept."""
    if not isinstance(kind, type):
        raise _Inexact
    if issubclass(kind, BaseModel):
        if issubclass(kind, RootModel) or kind.model_config.get("extra") == "allow":
            raise _Inexact
        fields = [
            (name, field.annotation, tuple(field.metadata)) for name, field in kind.model_fields.items() if not field.exclude
        ]
        return [*fields, *((name, field.return_type, ()) for name, field in kind.model_computed_fields.items())]
    hints = typing.get_type_hints(kind, include_extras=True)
    if dataclasses.is_dataclass(kind):
        names: Iterable[str] = [field.name for field in dataclasses.fields(kind)]
    elif issubclass(kind, dict) and hasattr(kind, "__total__"):  # a TypedDict, also of typing_extensions
        names = hints
    else:
        names = kind._fields  # type: ignore[attr-defined]  # a named tuple; other classes have none
    return [(name, hints[name], ()) for name in names]


def _type(hint: Any, metadata: tuple[Any, ...], depth: int) -> str:
    """Return a type as the `output` of a step names it. _Inexact where there is no exact one."""
    if depth > _DEEPEST:
        raise _Inexact
    kind, metadata = _bare(hint, metadata)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return f"list<{_type(arguments[0], (), depth + 1)}>"
    if origin is dict and _type(arguments[0], (), depth) == "string":
        return f"map<string, {_type(arguments[1], (), depth + 1)}>"
    if origin is Literal:
        return _type_of_values(arguments)
    if not isinstance(kind, type):
        raise _Inexact
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind is Decimal:
        return _decimal(metadata)
    if issubclass(kind, Enum):
        return _type_of_values(list(kind))
    if issubclass(kind, os.PathLike):
        return "string"
    if issubclass(kind, RootModel):
        return _type(kind.model_fields["root"].annotation, tuple(kind.model_fields["root"].metadata), depth + 1)
    fields = _columns(kind, depth + 1)
    if not all(name.isidentifier() for name in fields):  # which the text of a type does not have
        raise _Inexact
    return f"struct<{', '.join(f'{name}: {of_field}' for name, of_field in fields.items())}>"


def _type_of_values(values: Iterable[Any]) -> str:
    plain = [value.value if isinstance(value, Enum) else value for value in values]
    kinds = {_PLAIN.get(type(value)) for value in plain if value is not None}
    if len(kinds) != 1 or (kind := kinds.pop()) is None:
        raise _Inexact
    return kind


def _decimal(metadata: tuple[Any, ...]) -> str:
    """Return the decimal type with the digits that pydantic's Field gives: max_digits and decimal_places."""
    said = [each for one in metadata for each in getattr(one, "metadata", (one,))]
    digits, scale = (
        next((getattr(each, name) for each in said if getattr(each, name, None) is not None), None)
        for name in ("max_digits", "decimal_places")
    )
    if digits is None or scale is None or not scale <= digits <= _MOST_DIGITS:
        raise _Inexact
    return f"decimal({digits}, {scale})"
