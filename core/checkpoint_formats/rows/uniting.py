"""Columns of several files or tables as those of one source: united by name, where no value is changed by it.

What unites: another order; a column that one does not have, which is NULL there; a column of type null, which has NULLs only;
whole numbers and floating-point numbers of several widths, which become the widest, and whole numbers of up to 32 bits beside
doubles; decimals, as long as 38 digits hold both; timestamps of s, ms and us. Whole numbers of 64 bits beside doubles do not:
above 2^53 they would be others. Strings beside numbers do not either: that is more often a mistake than intended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.port import Described
from checkpoint_formats.rows.plain_types import unknown_extension
from checkpoint_formats.rows.selecting import Selection
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

_UNITS: Final = ("s", "ms", "us")
_MOST_DIGITS: Final = 38
_ONE_WRITE_EACH: Final = "or use one write for each kind"


class UnitedColumns:
    """The columns of what was added so far, in the order of their first appearance. Pure.

    `is_same`: nothing is united, and what is different is refused.
    """

    def __init__(self, *, is_same: bool = False, cast_hint: str = "") -> None:
        self._is_same = is_same
        self._cast_hint = cast_hint
        self._first: str | None = None
        self._types: dict[str, tuple[pa.DataType, str]] = {}
        #: What all that have a column say of it beside its type.
        self._metadata: dict[str, Mapping[bytes, bytes] | None] = {}
        #: The first spelling of each name.
        self._spelled: dict[str, str] = {}

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, kind, metadata=self._metadata[name]) for name, (kind, _) in self._types.items()])

    def add(self, place: str, schema: pa.Schema) -> None:
        """Add the columns of a file or table. NeedsChange(SourceUnreadable) names it, and the one that it does not go with."""
        if not self._is_same:
            self._check_spelling(place, schema.names)
        if self._first is None:
            self._first = place
        elif self._is_same:
            self._check_same(place, schema)
        elif not any(name in self._types for name in schema.names) and (self._types or len(schema)):
            raise _different(
                place,
                f"has {_some(schema.names)}, and {self._first} has {_some(list(self._types))}: they have no column in common",
                f"take one of them out of the source, rewrite it, {_ONE_WRITE_EACH}",
            )
        for field in schema:
            known = self._types.get(field.name)
            if known is None:
                self._types[field.name] = (field.type, place)
                self._metadata[field.name] = field.metadata
                continue
            if self._metadata[field.name] != field.metadata:
                self._metadata[field.name] = None
            kind = united_type(known[0], field.type)
            if kind is None:
                raise _different(
                    place,
                    f"{_has(field.name, field.type)}, and {known[1]} {_has(field.name, known[0])}, which cannot be united "
                    "without changing values",
                    "rewrite one of them, leave the column out by source.columns (as long as nothing is sealed), "
                    f"{self._cast_hint}{_ONE_WRITE_EACH}",
                )
            if kind != known[0]:
                self._types[field.name] = (kind, place)

    def _check_spelling(self, place: str, names: Sequence[str]) -> None:
        here = set(names)
        for name in names:
            other = self._spelled.setdefault(name.lower(), name)
            # Where one has both, somebody wanted that.
            if other != name and other in self._types and other not in here and name not in self._types:
                raise _different(
                    place,
                    f"has a column {name!r}, and {self._types[other][1]} has {other!r}: Spark takes names that differ by "
                    "case only for one, and reads no table that has both",
                    "rewrite one of them, leave one of the columns out by source.columns (as long as nothing is sealed), "
                    f"{_ONE_WRITE_EACH}",
                )

    def _check_same(self, place: str, schema: pa.Schema) -> None:
        for name in (*self._types, *schema.names):
            here = schema.field(name).type if name in schema.names else None
            there = self._types[name][0] if name in self._types else None
            if here != there:
                raise _different(
                    place,
                    f"{_has(name, here)}, and {self._first} {_has(name, there)}; the source says schema: Same",
                    "rewrite one of them, leave the column out by source.columns (as long as nothing is sealed), "
                    f"say schema: Unite, {_ONE_WRITE_EACH}",
                )


def else_hint_of(sources: Sequence[Described]) -> str:
    """Return what one can do, beside correcting the name, about a column that no source has."""
    return next((source.else_hint for source in sources if source.else_hint), "")


def unite(sources: Sequence[Described], selection: Selection) -> pa.Schema:
    """Return the columns of a source, or of the members of a union, in the order in which they are asked for.

    NeedsChange(SourceUnreadable) if one that is asked for is in none of them, or two cannot be united.
    """
    for source in sources:
        refuse_extensions(source.place, source.schema, selection.columns_to_read)
    columns = UnitedColumns(cast_hint="give the column a type by source.files.types (of CSV and JSON), ")
    for source in sources:
        columns.add(source.place, source.schema)
    schema = columns.schema
    asked = selection.columns_to_read
    if asked is None:
        return schema
    more = else_hint_of(sources)
    known = list(dict.fromkeys(name for source in sources for name in source.known))
    for name in selection.columns or ():  # a column that only `where` names is missed by the condition, in its own words
        if name not in schema.names:
            which = sources[0].place if len(sources) == 1 else "source.union: none of the sources"
            has, they = ("has no column", "it has") if len(sources) == 1 else ("has a column", "they have")
            raise NeedsChange(
                reasons.MANIFEST_INVALID,
                f"{which} {has} {name!r} ({they} {', '.join(known)}); correct source.columns{more}",
            )
    return pa.schema([schema.field(name) for name in asked if name in schema.names])


def refuse_shared_files(there: Sequence[Sequence[FoundFile]]) -> None:
    """NeedsChange(ManifestInvalid) if two members of a union have one file, under whatever name: its rows would come twice."""
    taken: dict[tuple[str, str], tuple[int, str]] = {}
    for number, files in enumerate(there):
        for file in files:
            before, path = taken.setdefault((file.identity, file.etag), (number, file.path))
            if before != number:
                same = "" if path == file.path else f" (the file {path})"
                raise NeedsChange(
                    reasons.MANIFEST_INVALID,
                    f"spec.source.union: the sources {before} and {number} both have the file {file.path}{same}, so that its "
                    "rows would come twice; name it in one of them",
                )


def refuse_extensions(place: str, schema: pa.Schema, asked: Sequence[str] | None) -> None:
    """Refuse columns, of those that are asked for, of an extension type that nobody here knows: NeedsChange(SourceUnreadable)."""
    for field in schema:
        if (asked is None or field.name in asked) and (name := unknown_extension(field.type)) is not None:
            raise NeedsChange(
                reasons.SOURCE_UNREADABLE,
                f"{place} has the extension type {name!r} in the column {field.name!r}, whose values would lose their meaning "
                "here; leave the column out by source.columns (as long as nothing is sealed), or store it as a plain type",
            )


def united_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds all values of both, each as it is; None if there is none."""
    if one.equals(other):
        return one
    for unite in (_with_null, _whole_numbers, _floating, _decimals, _timestamps):
        if (kind := unite(one, other) or unite(other, one)) is not None:
            return kind
    return None


def _with_null(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    return other if pa.types.is_null(one) else None


def _whole_numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_integer(one) and pa.types.is_integer(other)) or one.bit_width > other.bit_width:
        return None
    if pa.types.is_signed_integer(one) == pa.types.is_signed_integer(other):
        return other
    is_held = pa.types.is_unsigned_integer(one) and one.bit_width < other.bit_width
    return other if is_held else None


def _floating(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if not pa.types.is_floating(other):
        return None
    if pa.types.is_floating(one):
        return other if one.bit_width <= other.bit_width else None
    if pa.types.is_integer(one) and one.bit_width <= 32:
        return pa.float64()
    return None


def _decimals(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_decimal128(one) and pa.types.is_decimal128(other)):
        return None
    scale = max(one.scale, other.scale)
    digits = scale + max(one.precision - one.scale, other.precision - other.scale)
    return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else None


def _timestamps(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_timestamp(one) and pa.types.is_timestamp(other)) or one.tz != other.tz:
        return None
    if one.unit not in _UNITS or other.unit not in _UNITS:
        return None
    return max(one, other, key=_rank)


_rank: Final[Callable[[pa.TimestampType], int]] = lambda kind: _UNITS.index(kind.unit)  # noqa: E731


def _different(place: str, difference: str, remedy: str) -> NeedsChange:
    return NeedsChange(reasons.SOURCE_UNREADABLE, f"{place} {difference}: {remedy}")


def _has(name: str, kind: pa.DataType | None) -> str:
    if kind is not None and pa.types.is_null(kind):
        return f"has a column {name!r}"
    return f"has no column {name!r}" if kind is None else f"has {kind} in the column {name!r}"


def _some(names: list[str]) -> str:
    if not names:
        return "none of the columns of source.columns"
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
