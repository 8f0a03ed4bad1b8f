"""One JSON object a line, parsed by pyarrow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from checkpoint_spark.sources.lines import Lines
from checkpoint_spark.sources.parsing import LARGE_INTEGERS, NotOneRowALine

_EXPECTED: Final = "one JSON object a line is expected, with the fields that the first rows have"
#: What helps while rows are read. The file itself is fixed then: rows of it may be sealed.
WAY_OUT: Final = (
    f"{_EXPECTED}; set onRowError: Quarantine to set such lines apart and go on, or name the field, or a type that holds all its "
    "values, by source.types (steps and table have to take it); what is sealed stays"
)
#: What helps while the columns are looked at, before the input is fixed.
FIRST_WAY_OUT: Final = (
    f"{_EXPECTED}; mend the file, name the field's type by source.types, choose fields by source.columns, or set onRowError: "
    "Quarantine to set apart lines that are no object, and those that do not fit source.types"
)


_SPACE: Final = re.compile(rb"\s*")
_NO_INT64: Final = float(1 << 63)


def parse_objects(lines: Lines, schema: pa.Schema, others: Literal["error", "ignore"]) -> pa.RecordBatch:
    """Return a row for each line that is not blank. Missing fields are NULL; `others` are fields that the schema lacks.

    ArrowInvalid or NotOneRowALine if the lines are not that. To ignore others is to ignore whole columns: a field that comes up
    inside of a column of the schema is an error in any case.
    """
    table = _read(lines, pa.json.ParseOptions(explicit_schema=_as_read(schema), unexpected_field_behavior=others))
    if table is None:
        return pa.RecordBatch.from_pylist([], schema=schema)
    if others == "ignore" and (lost := _field_inside(lines, schema)) is not None:
        raise pa.ArrowInvalid(f"the field {lost} is not known")
    arrays = [_converted(field, table.column(field.name).combine_chunks()) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    batch.validate(full=True)  # pyarrow does not look whether the text is UTF-8
    return batch


def infer_schema(lines: Lines, given: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the schema of the objects. What looks like a time is text: JSON has no times, and later values may not be one.

    The types of some columns may be given, so that their values need no common type.
    """
    try:
        table = _read(lines, pa.json.ParseOptions(unexpected_field_behavior="infer"))
    except pa.ArrowInvalid:
        if not given:
            raise
        explicit = _as_read(pa.schema(list(given.items())))
        table = _read(lines, pa.json.ParseOptions(explicit_schema=explicit, unexpected_field_behavior="infer"))
    if table is None:
        return pa.schema([])
    try:
        return pa.schema([(field.name, _settled(_as_written(lines, table, field, given))) for field in table.schema])
    except RecursionError:
        raise pa.ArrowInvalid("its objects lie too deep in one another") from None


def check_objects(lines: Lines, given: Mapping[str, pa.DataType]) -> None:
    """Raise what `infer_schema` does of lines that are no objects, or do not fit the types that are given."""
    explicit = _as_read(pa.schema(list(given.items())))
    _read(lines, pa.json.ParseOptions(explicit_schema=explicit, unexpected_field_behavior="infer"))


def _as_written(lines: Lines, table: pa.Table, field: pa.Field, given: Mapping[str, pa.DataType]) -> pa.DataType:
    """Return the type of a field; where integers are too large for 64 bits and none has a point, one that holds them."""
    if field.name in given or not pa.types.is_floating(field.type):
        return field.type
    most = pc.min_max(pc.abs(table.column(field.name)))["max"].as_py()
    key = re.escape(json.dumps(field.name, ensure_ascii=False).encode()) + rb"\s*:\s*-?\d+"
    data = lines.data[lines.begin : lines.end]
    if most is None or most < _NO_INT64 or re.search(key + rb"[.eE]", data) or not re.search(key + rb"\s*[,}]", data):
        return field.type
    large = pa.schema([(field.name, LARGE_INTEGERS)])
    try:
        _read(lines, pa.json.ParseOptions(explicit_schema=large, unexpected_field_behavior="ignore"))
    except pa.ArrowInvalid:
        return field.type
    return LARGE_INTEGERS


def _read(lines: Lines, options: Any) -> pa.Table | None:
    """Return the rows, or None if there is nothing but space."""
    space = _SPACE.match(lines.data, lines.begin, lines.end)
    if space is None or space.end() == lines.end:
        return None
    data, added = lines.buffer, 0
    if not lines.data.startswith(b"{", space.end()):
        # A null in the first place makes pyarrow (26) end the whole process. After an object, it is a row of NULLs.
        data, added = pa.py_buffer(b"{}\n" + data.to_pybytes()), 1
    in_one_block = pa.json.ReadOptions(use_threads=False, block_size=data.size + 1)
    table = pa.json.read_json(pa.BufferReader(data), in_one_block, options)
    rows = table.num_rows - added
    if not lines.are_as_many_as(rows, spaces_are_blank=True):
        raise NotOneRowALine(
            "a line does not hold exactly one object", "write each object on a line of its own", ends_with_its_line=True
        )
    return table.slice(added)


def _field_inside(lines: Lines, schema: pa.Schema) -> str | None:
    """Return a field that lies inside of a column of the schema, and that the column's type lacks."""
    nested = [field for field in _as_read(schema) if _has_fields(field.type)]
    if not nested:
        return None
    try:
        options = pa.json.ParseOptions(explicit_schema=_as_read(schema), unexpected_field_behavior="infer")
        table = _read(lines, options)
        if table is None or all(table.schema.field(field.name).type == field.type for field in nested):
            return None
    except pa.ArrowInvalid:
        pass  # a column that was not chosen has values of no common type
    for line in lines.data[lines.begin : lines.end].split(b"\n"):
        try:
            values = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError) as error:
            raise pa.ArrowInvalid(str(error)) from error
        if not isinstance(values, dict):
            continue
        for field in nested:
            if (found := next(_unknown(values.get(field.name), field.type, field.name), None)) is not None:
                return found
    return None


def _unknown(value: object, kind: pa.DataType, path: str) -> Iterator[str]:
    """Give the fields of a value that its type lacks."""
    if isinstance(value, dict) and pa.types.is_struct(kind):
        for name, inner in value.items():
            index = kind.get_field_index(name)
            yield from [f"{path}.{name}"] if index < 0 else _unknown(inner, kind.field(index).type, f"{path}.{name}")
    elif isinstance(value, list) and pa.types.is_list(kind):
        for inner in value:
            yield from _unknown(inner, kind.value_type, path)


def _has_fields(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) or (pa.types.is_list(kind) and _has_fields(kind.value_type)))


def _as_read(schema: pa.Schema) -> pa.Schema:
    """Return the schema for pyarrow's parser: times as text, which it cannot convert or converts without heed of zones."""
    return pa.schema([field.with_type(pa.string()) if _is_temporal(field.type) else field for field in schema])


def _is_temporal(kind: pa.DataType) -> bool:
    return any((pa.types.is_date(kind), pa.types.is_time(kind), pa.types.is_timestamp(kind)))


def _converted(field: pa.Field, array: pa.Array) -> pa.Array:
    if array.type == field.type:
        return array
    try:
        if pa.types.is_time(field.type):
            # Text cannot be cast to a time, but to a timestamp, and that to a time.
            array = pc.cast(pc.binary_join_element_wise("1970-01-01T", array, ""), pa.timestamp(field.type.unit))
        return pc.cast(array, field.type)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {field.name!r}: {error}") from error


def _settled(kind: pa.DataType) -> pa.DataType:
    """Return the type to read later values by: text for what was always null, and for times."""
    if pa.types.is_null(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _settled(field.type)) for field in kind])
    return kind
