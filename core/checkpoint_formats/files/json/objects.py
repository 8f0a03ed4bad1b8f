"""One JSON object a line, parsed by pyarrow."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Container, Iterator, Mapping
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from checkpoint_formats.files.json.written_values import exact_type, has_large_doubles, refuse_rounded, with_texts, written_rows
from checkpoint_formats.files.lines import Lines
from checkpoint_formats.files.parsing import NotOneRowALine

_EXPECTED: Final = "one JSON object a line is expected, with the fields that the first rows have"
#: What helps while rows are read. The file itself is fixed then: rows of it may be sealed.
WAY_OUT: Final = (
    f"{_EXPECTED}; set onRowError: Quarantine to set such lines apart and go on, or name the field, or a type that holds all its "
    "values (string holds any, as its JSON text), by source.files.types (steps and table have to take it); what is sealed stays"
)
#: What helps while the columns are inferred, before the input is fixed.
FIRST_WAY_OUT: Final = (
    f"{_EXPECTED}; mend the file, name the field's type by source.files.types (string holds any value, as its JSON text), or set "
    "onRowError: Quarantine to set apart lines that are no object, and those that do not fit source.files.types"
)


_SPACE: Final = re.compile(rb"\s*")
#: Where a line may hold a second object, which pyarrow would read as one more row: after an object, or after a null, which is one
#: too. Inside of a string it says nothing. Two patterns, each with a literal beginning, are far faster than one of both.
_AFTER_OBJECT: Final = re.compile(rb"\}[ \t]*[^\s,}\]]")
_AFTER_NULL: Final = re.compile(rb"null[ \t]*[^\s,}\]]")
_NOT_IN_SCHEMA: Final = "unexpected field"  # so pyarrow says it of an object, and not which field it is
#: A byte order mark may come before the first line.
_MARK_BYTES: Final = 3


def parse_objects(
    lines: Lines, schema: pa.Schema, others: Literal["error", "ignore"], given: Container[str] = ()
) -> pa.RecordBatch:
    """Return a row for each line that is not blank. Missing fields are NULL; `others` are fields that the schema lacks.

    The types of some columns are given, so that doubles there may round, and a string is the JSON text of any other value too;
    elsewhere a whole number beyond 2^53, or a value of another type, is an error.

    ArrowInvalid or NotOneRowALine if the lines are not that. To ignore others is to ignore whole columns: a field that comes up
    inside of a column of the schema is an error in any case.
    """
    texts = [field.name for field in schema if field.name in given and pa.types.is_string(field.type)]
    table = _read(lines, pa.json.ParseOptions(explicit_schema=_as_read(schema), unexpected_field_behavior=others), texts)
    if table is None:
        return pa.RecordBatch.from_pylist([], schema=schema)
    if others == "ignore" and (lost := _field_inside(lines, schema)) is not None:
        raise pa.ArrowInvalid(f"the field {lost} is not known")
    for field in schema:
        if field.name not in given and has_large_doubles(table.column(field.name)):
            refuse_rounded(lines, field)
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
        table = _read_given(lines, given)
    if table is None:
        return pa.schema([])
    try:
        rows = None
        fields = []
        for field in table.schema:
            kind = _settled(field.type)
            if field.name not in given and has_large_doubles(table.column(field.name)):
                rows = list(written_rows(lines)) if rows is None else rows
                kind = exact_type(kind, [row.get(field.name) for row in rows], field.name)
            fields.append((field.name, kind))
        return pa.schema(fields)
    except RecursionError:
        raise pa.ArrowInvalid("its objects lie too deep in one another") from None


def check_objects(lines: Lines, given: Mapping[str, pa.DataType]) -> None:
    """Raise what `infer_schema` does of lines that are no objects, or do not fit the types that are given."""
    _read_given(lines, given)


def _read_given(lines: Lines, given: Mapping[str, pa.DataType]) -> pa.Table | None:
    """Return the rows, as `_read` does: some columns of the types that are given, the others of those that are inferred."""
    options = pa.json.ParseOptions(explicit_schema=_as_read(pa.schema(list(given.items()))), unexpected_field_behavior="infer")
    return _read(lines, options, [name for name, kind in given.items() if pa.types.is_string(kind)])


def _read(lines: Lines, options: Any, texts: Collection[str] = ()) -> pa.Table | None:
    """Return the rows, or None if there is nothing but space. Any value is read as text in the fields `texts`."""
    try:
        return _read_as_written(lines, options)
    except pa.ArrowInvalid:
        # Only here: most fields of text have nothing but strings, of which pyarrow reads a hundred times as many a second.
        if not texts or (rewritten := with_texts(lines, texts)) is lines:
            raise
    return _read_as_written(rewritten, options)


def _read_as_written(lines: Lines, options: Any) -> pa.Table | None:
    space = _SPACE.match(lines.data, lines.begin, lines.end)
    if space is None or space.end() == lines.end:
        return None
    if lines.position <= _MARK_BYTES and lines.data.startswith(b"[", space.end()):
        raise NotOneRowALine(
            "the file is a JSON array",
            "one object a line is expected: make lines of it, e.g. with jq -c '.[]' FILE > NEW_FILE (the new files in "
            "a folder of their own), and read those",
        )
    data, added = lines.buffer, 0
    if not lines.data.startswith(b"{", space.end()):
        # A null in the first place makes pyarrow (26) end the whole process. After an object, it is a row of NULLs.
        data, added = pa.py_buffer(b"{}\n" + data.to_pybytes()), 1
    in_one_block = pa.json.ReadOptions(use_threads=False, block_size=data.size + 1)
    try:
        table = pa.json.read_json(pa.BufferReader(data), in_one_block, options)
    except pa.ArrowInvalid as error:
        if (late := _late_field(lines, options.explicit_schema, error)) is None:
            raise
        raise pa.ArrowInvalid(f"unexpected field {late!r}, which the first rows of the source do not have") from error
    rows = table.num_rows - added
    # In this order: with at most one object a line, as many objects as lines are one in each.
    if _has_several_in_a_line(lines) or not lines.are_as_many_as(rows, spaces_are_blank=True):
        raise NotOneRowALine(
            "a line does not hold exactly one object", "write each object on a line of its own", ends_with_its_line=True
        )
    return table.slice(added)


def _has_several_in_a_line(lines: Lines) -> bool:
    """Whether some line is more than one object: a blank line, or an object over two lines, would make up for it in number."""
    return any(_is_no_json(line) for pattern in (_AFTER_OBJECT, _AFTER_NULL) for line in _lines_with(lines, pattern))


def _lines_with(lines: Lines, pattern: re.Pattern[bytes]) -> Iterator[Lines]:
    at = lines.begin
    while (found := pattern.search(lines.data, at, lines.end)) is not None:
        line = lines.line_at(found.start())
        at = line.end
        if pattern is _AFTER_OBJECT or not lines.data[line.begin : found.start()].strip():
            yield line


def _is_no_json(line: Lines) -> bool:
    try:
        json.loads(line.buffer.to_pybytes().decode(errors="replace"))
    except ValueError:
        return True
    except RecursionError:
        raise pa.ArrowInvalid("its objects lie too deep in one another") from None
    return False


def _late_field(lines: Lines, schema: pa.Schema | None, error: pa.ArrowInvalid) -> str | None:
    """Return the field that pyarrow did not expect and does not name; None of several lines, which are halved to find the one."""
    if schema is None or _NOT_IN_SCHEMA not in str(error) or lines.line_end_near_the_middle() is not None:
        return None
    try:
        values = json.loads(lines.data[lines.begin : lines.end])
    except (ValueError, RecursionError):
        return None
    fields = pa.struct(list(schema))
    return next((path.removeprefix(".") for path in _unknown(values, fields, "")), None)


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
