"""Schemas of Iceberg that change at every depth, and rows of them that know their values by the ids of fields.

Nothing of the product and nothing of pyiceberg's own schema changes is in it: what a table shows after a change is told here.
"""

from __future__ import annotations

import itertools
import math
import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.judge.arrow_types import NAMES, OF_ICEBERG, Value, decimals

#: A value of a struct has its parts by their ids; one of a map is pairs.
Row = dict[int, Any]
Nest = Literal["struct", "list", "map"]
DEPTH: Final = 4

_LEAVES: Final[dict[PrimitiveType, pa.DataType]] = {
    BooleanType(): pa.bool_(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    FloatType(): pa.float32(),
    DoubleType(): pa.float64(),
    DecimalType(9, 2): pa.decimal128(9, 2),
    DecimalType(18, 2): pa.decimal128(18, 2),
    DecimalType(38, 2): pa.decimal128(38, 2),
    DecimalType(38, 38): pa.decimal128(38, 38),
    DateType(): pa.date32(),
    TimeType(): pa.time64("us"),
    TimestampType(): pa.timestamp("us"),
    TimestamptzType(): pa.timestamp("us", "UTC"),
    StringType(): pa.string(),
    BinaryType(): pa.binary(),
    FixedType(3): pa.binary(3),
    UUIDType(): pa.uuid(),
}
_VALUES: Final[dict[pa.DataType, Value]] = OF_ICEBERG | {
    pa.decimal128(18, 2): decimals(18, 2),
    pa.decimal128(38, 2): decimals(38, 2),
}
_KEYS: Final = (IntegerType(), LongType(), StringType(), DateType(), BooleanType(), DecimalType(9, 2), BinaryType())
_WIDER: Final[dict[PrimitiveType, tuple[PrimitiveType, ...]]] = {
    IntegerType(): (LongType(),),
    FloatType(): (DoubleType(),),
    DecimalType(9, 2): (DecimalType(18, 2), DecimalType(38, 2)),
    DecimalType(18, 2): (DecimalType(38, 2),),
}
_CHANGES: Final = (
    *("add", "drop", "rename", "optional", "move"),
    *("exchange", "exchange columns", "add again", "promote"),
    *("exchange", "exchange columns", "add again", "promote"),
)
#: Of types that other ones look like, there are more.
_LIKELY: Final = (IntegerType(), LongType(), StringType(), FloatType(), DecimalType(9, 2))


@dataclass(slots=True)
class Field:
    """A field as it is now. `parts`: of a struct its fields, of a list its element, of a map its key and its value.

    `default`: what it is in rows that were written before it came.
    """

    number: int
    name: str
    is_required: bool
    kind: PrimitiveType | Nest
    parts: list[Field] = field(default_factory=list)
    default: Any = None

    def walk(self) -> Iterator[Field]:
        """Give the field and all below it, but no keys of maps: these may not change."""
        yield self
        for part in self.parts[self.kind == "map" :]:
            yield from part.walk()


@dataclass(slots=True)
class Fields:
    """The columns of a table, which change by chance. `may_default`: tables of format 3 have defaults."""

    of: random.Random
    may_default: bool
    numbers: itertools.count[int]
    root: Field

    @staticmethod
    def by(of: random.Random, *, may_default: bool) -> Fields:
        made = Fields(of, may_default, itertools.count(2), Field(0, "", True, "struct", [Field(1, "id", True, LongType())]))
        plain = of.choice([IntegerType(), StringType()])
        for _ in range(2):  # alike, so that they can be taken for each other
            made.root.parts.append(Field(next(made.numbers), made.free_name(made.root), False, plain))
        for _ in range(of.randint(1, 2)):
            made.root.parts.append(made.new(made.free_name(made.root), of.randint(1, DEPTH)))
        return made if is_schema(made.root) else Fields.by(of, may_default=may_default)

    def new(self, name: str, depth: int) -> Field:
        kind: Any = self.of.choice(["struct", "struct", "list", "map", "plain"]) if depth else "plain"
        if kind == "plain":
            kind = self.of.choice([*_LEAVES, *_LIKELY, *_LIKELY])
        made = Field(next(self.numbers), name, self.of.random() < 0.25, kind)
        match kind:
            case "struct":
                for _ in range(self.of.randint(1, 4)):
                    made.parts.append(self.new(self.free_name(made), depth - 1))
            case "list":
                made.parts = [self.new("element", depth - 1)]
            case "map":
                made.parts = [Field(next(self.numbers), "key", True, self.of.choice(_KEYS)), self.new("value", depth - 1)]
        return made

    def free_name(self, struct: Field) -> str:
        """Return a name that no field of the struct has: DuckDB takes those that differ in case for one."""
        taken = {part.name.lower() for part in struct.parts}
        return self.of.choice([name for name in NAMES if name.lower() not in taken])

    def change(self) -> str:
        """Change something, and say what. "" if it cannot be changed, or pyiceberg would not have such a schema."""
        before = self.root
        self.root = _copy(before)
        said = self._changed()
        if not is_schema(self.root):
            said = ""
        if not said:
            self.root = before
        return said

    def _changed(self) -> str:
        of = self.of
        below = [one for one in self.root.walk() if one is not self.root]
        structs = [one for one in self.root.walk() if one.kind == "struct"]
        struct = structs[0] if of.random() < 0.3 else of.choice(structs)
        mine = [part for part in struct.parts if part.number != 1]
        match of.choice(_CHANGES):
            case "exchange columns" if len(pair := [part for part in self.root.parts if part.number in (2, 3)]) == 2:
                pair[0].name, pair[1].name = pair[1].name, pair[0].name
                return "exchange 2 and 3"
            case "add" if len(struct.parts) < 8:
                return f"add {self._added(struct, self.free_name(struct)).number}"
            case "drop" if len(mine) > 1:
                gone = of.choice(mine)
                struct.parts.remove(gone)
                return f"drop {gone.number}"
            case "rename" if mine:
                one = of.choice(mine)
                one.name = self.free_name(struct)
                return f"rename {one.number}"
            case "exchange" if len(mine) > 1:
                pairs = list(itertools.combinations(mine, 2))
                alike = [pair for pair in pairs if pair[0].kind == pair[1].kind]
                one, other = of.choice(alike or pairs)
                one.name, other.name = other.name, one.name
                return f"exchange {one.number} and {other.number}"
            case "add again" if mine:
                gone = of.choice(mine)
                struct.parts.remove(gone)
                new = self._added(struct, gone.name)
                if new.default is None and isinstance(gone.kind, PrimitiveType) and of.random() < 0.9:
                    new.kind, new.parts = gone.kind, []
                return f"add {new.number} for {gone.number}"
            case "optional" if required := [one for one in below if one.is_required and one.number != 1]:
                one = of.choice(required)
                one.is_required = False
                return f"optional {one.number}"
            case "move" if len(struct.parts) > 1:
                of.shuffle(struct.parts)
                return f"move in {struct.number}"
            case "promote" if narrow := [one for one in below if one.kind in _WIDER]:
                one = of.choice(narrow)
                one.kind = of.choice(_WIDER[one.kind])  # type: ignore[index]
                return f"promote {one.number}"
        return ""

    def _added(self, struct: Field, name: str) -> Field:
        made = self.new(name, self.of.randint(0, 2))
        if self.may_default and isinstance(made.kind, PrimitiveType) and self.of.random() < 0.6:
            value = _leaf(self.of, made.kind)
            made.default = None if isinstance(value, float) and not math.isfinite(value) else value
        made.is_required = made.is_required and made.default is not None
        struct.parts.insert(self.of.randint(0, len(struct.parts)), made)
        return made


def _copy(one: Field) -> Field:
    return Field(one.number, one.name, one.is_required, one.kind, [_copy(part) for part in one.parts], one.default)


# --- as libraries have them -------------------------------------------------------------------------------------------------


def schema_of(root: Field, schema_id: int = 0) -> Schema:
    return Schema(*map(_nested, root.parts), schema_id=schema_id)


def is_schema(root: Field) -> bool:
    """Whether pyiceberg takes it: not where a column `a.b` is beside a field b of a."""
    try:
        return schema_of(root).column_names != []
    except ValueError:
        return False


def _nested(one: Field) -> NestedField:
    default = uuid.UUID(bytes=one.default) if isinstance(one.kind, UUIDType) and one.default is not None else one.default
    return NestedField(one.number, one.name, _kind(one), required=one.is_required, initial_default=default, write_default=default)


def _kind(one: Field) -> IcebergType:
    match one.kind, one.parts:
        case "struct", parts:
            return StructType(*map(_nested, parts))
        case "list", [item]:
            return ListType(item.number, _kind(item), element_required=item.is_required)
        case "map", [key, item]:
            return MapType(key.number, _kind(key), item.number, _kind(item), value_required=item.is_required)
    assert isinstance(one.kind, PrimitiveType)
    return one.kind


def arrow_of(one: Field, *, is_large: bool = False, plain: bool = False) -> pa.Field:
    """Return the field as a file has it, with its id. `plain`: a UUID as its bytes; `is_large`: with offsets of 64 bits."""
    parts = [arrow_of(part, is_large=is_large, plain=plain) for part in one.parts]
    match one.kind:
        case "struct":
            kind = pa.struct(parts)
        case "list":
            kind = (pa.large_list if is_large else pa.list_)(parts[0])
        case "map":
            kind = pa.map_(*parts)
        case leaf:
            kind = _LEAVES[leaf]
            kind = kind.storage_type if plain and isinstance(kind, pa.UuidType) else kind
            kind = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind, kind) if is_large else kind
    return pa.field(one.name, kind, not one.is_required, metadata={"PARQUET:field_id": str(one.number)})


# --- rows -------------------------------------------------------------------------------------------------------------------


def value_of(of: random.Random, one: Field) -> Any:
    if not one.is_required and of.random() < 0.2:
        return None
    match one.kind, one.parts:
        case "struct", parts:
            return {part.number: value_of(of, part) for part in parts}
        case "list", [item]:
            return [value_of(of, item) for _ in range(of.randint(0, 3))]
        case "map", [key, item]:
            keys = {repr(made): made for made in (value_of(of, key) for _ in range(of.randint(0, 3)))}
            return [(made, value_of(of, item)) for made in keys.values()]
    assert isinstance(one.kind, PrimitiveType)
    return _leaf(of, one.kind)


def _leaf(of: random.Random, kind: PrimitiveType) -> Any:
    value = _VALUES[_LEAVES[kind]](of)
    return float(np.float32(value)) if isinstance(kind, FloatType) else value


def shown(value: Any, now: Field) -> Any:
    """Return a value as the table shows it now: under the names of now, what came later by its default, without what is gone."""
    match value, now.kind, now.parts:
        case None, _, _:
            return None
        case _, "struct", parts:
            return {part.name: shown(value.get(part.number, part.default), part) for part in parts}
        case _, "list", [item]:
            return [shown(one, item) for one in value]
        case _, "map", [_, item]:
            return [(key, shown(one, item)) for key, one in value]
    return value


def arrow_table(root: Field, rows: Sequence[Row], *, is_large: bool) -> pa.Table:
    """Return rows as a file of them has them."""
    columns = []
    for column in root.parts:
        bare, full = (arrow_of(column, is_large=is_large, plain=plain) for plain in (True, False))
        columns.append(pa.array([shown(row[column.number], column) for row in rows], bare.type).cast(full.type))
    return pa.table(columns, schema=pa.schema([arrow_of(column, is_large=is_large) for column in root.parts]))
