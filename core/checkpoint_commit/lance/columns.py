"""The columns of a Lance dataset: of one that is made, as the manifest wants them; and those that cannot be staged for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_commit.sinks.table_types import lance_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.records import LanceField
from checkpoint_protocol.tables.lance import LanceLayout, LanceSink

#: By these, in the metadata of a field, Lance stores its values apart from those of other columns. Spelled by Lance.
BLOB: Final = {b"lance-encoding:blob": b"true"}
#: In the name of the type of blobs that may lie in objects of their own.
_BLOB_BESIDE: Final = "lance.blob.v2"


def schema_of_new(given: pa.Schema, layout: LanceLayout | None) -> pa.Schema:
    """Return the schema of the dataset that is made for rows of an Arrow schema.

    NeedsChange names each column that a Lance dataset cannot have, or not as the manifest wants it.
    """
    schema = lance_schema(given)
    problems = [
        f"the column {name!r} has a dot in its name, which in Lance leads into a struct: rename it in a step, or leave it out"
        for name in schema.names
        if "." in name
    ]
    for name in layout.blob_columns if layout is not None else ():
        if (at := schema.get_field_index(name)) < 0:
            problems.append(f"sink.lance.layout.blobColumns names {name!r}, and the output has {', '.join(schema.names)}")
        elif not _is_binary(field := schema.field(at)):
            problems.append(f"sink.lance.layout.blobColumns names {name!r}, which has {field.type} and not bytes")
        else:
            schema = schema.set(at, pa.field(name, pa.large_binary(), field.nullable, {**(field.metadata or {}), **BLOB}))
    for name, vector in layout.vector_columns.items() if layout is not None else ():
        if (at := schema.get_field_index(name)) < 0:
            problems.append(f"sink.lance.layout.vectorColumns names {name!r}, and the output has {', '.join(schema.names)}")
        elif not _is_list_of_numbers(field := schema.field(at)):
            problems.append(f"sink.lance.layout.vectorColumns names {name!r}, which has {field.type} and not a list of numbers")
        elif pa.types.is_floating(field.type.value_type) and not vector.type.startswith("float"):
            problems.append(f"sink.lance.layout.vectorColumns says {vector.type} for {name!r}, which has {field.type}")
        elif pa.types.is_fixed_size_list(field.type) and field.type.list_size != vector.dimension:
            problems.append(
                f"sink.lance.layout.vectorColumns says {vector.dimension} for {name!r}, whose vectors have {field.type.list_size}"
            )
        else:
            numbers = getattr(pa, vector.type)()
            schema = schema.set(at, field.with_type(pa.list_(numbers, vector.dimension)))
    if problems:
        raise NeedsChange(reasons.OUTPUT_SCHEMA_WRONG, "; ".join(problems))
    return schema


def lists_that_may_be_vectors(schema: pa.Schema) -> list[str]:
    """Return the columns that have lists of fractional numbers, of any lengths."""
    lists = (field for field in schema if pa.types.is_list(field.type) or pa.types.is_large_list(field.type))
    return [field.name for field in lists if pa.types.is_floating(field.type.value_type)]


def note_on_vectors(name: str, dimension: int | str) -> str:
    """Return what a person should know of a column with lists of numbers. `dimension`: how many each has, or a word for it."""
    where = f"sink.lance.layout.vectorColumns: {{{name}: {{dimension: {dimension}}}}}"
    has = f"lists of {dimension} numbers each" if isinstance(dimension, int) else "lists of numbers"
    then = "" if isinstance(dimension, int) else ", where all have one length,"
    return f"the column {name!r} has {has}, which Lance does not search; {where} stores them{then} as vectors"


def notes_on_vectors(sink: LanceSink, rows: pa.Table) -> list[str]:
    """Return what a person should know of columns whose lists have one length in these rows, and that are no vectors yet."""
    named = sink.layout.vector_columns if sink.layout is not None else {}
    notes = []
    for name in lists_that_may_be_vectors(rows.schema):
        lengths = pc.unique(pc.list_value_length(rows.column(name))).drop_null().to_pylist()
        if name not in named and len(lengths) == 1 and lengths[0] > 1:
            notes.append(note_on_vectors(name, lengths[0]))
    return notes


def refuse_blobs_beside(title: str, fields: Iterable[LanceField]) -> None:
    """Refuse blobs of Lance's second kind: NeedsChange(TableUnsupported)."""
    if (found := next((field.path for field in fields if _BLOB_BESIDE in field.type), None)) is not None:
        raise NeedsChange(
            reasons.TABLE_UNSUPPORTED,
            f"{title} has blobs of version 2 in the column {found!r}: Lance puts large ones into objects of their own beside the "
            "data files, which seals do not name; write to a dataset with data_storage_version 2.0 or 2.1",
        )


def refuse_blobs_left_out(title: str, schema: pa.Schema) -> None:
    """Refuse blobs where staged rows may have to be written a second time: NeedsChange(TableUnsupported)."""
    if (found := next((field.name for field in schema if BLOB.items() <= (field.metadata or {}).items()), None)) is not None:
        raise NeedsChange(
            reasons.TABLE_UNSUPPORTED,
            f"{title} has blobs in the column {found!r}, and whenMatched: Ignore and onDuplicate: Last write staged rows "
            "a second time, which is not done with blobs; start a new write with Update or Delete, and leave rows of one key out "
            "in a step",
        )


def refuse_keys(title: str, schema: pa.Schema, keys: Sequence[str]) -> None:
    """NeedsChange(ManifestInvalid) if rows of a dataset cannot be matched by these columns."""
    for number, name in enumerate(keys):
        where = f"spec.sink.upsertKeys.{number}"
        if (at := schema.get_field_index(name)) < 0:
            known = ", ".join(schema.names)
            raise NeedsChange(reasons.MANIFEST_INVALID, f"{where}: {title} has no column {name!r} (it has {known})")
        kind = schema.field(at).type
        if BLOB.items() <= (schema.field(at).metadata or {}).items():
            raise NeedsChange(reasons.MANIFEST_INVALID, f"{where}: {name!r} has blobs, by which rows are not matched")
        if pa.types.is_floating(kind):
            raise NeedsChange(
                reasons.MANIFEST_INVALID, f"{where}: {name!r} is {kind}: two numbers that look the same need not be one key"
            )
        if pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_duration(kind) or pa.types.is_dictionary(kind):
            raise NeedsChange(reasons.MANIFEST_INVALID, f"{where}: {name!r} is {kind}, by which rows are not matched")


def _is_binary(field: pa.Field) -> bool:
    return bool(
        pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type) or pa.types.is_fixed_size_binary(field.type)
    )


def _is_list_of_numbers(field: pa.Field) -> bool:
    kind = pa.types
    if not (kind.is_list(field.type) or kind.is_large_list(field.type) or kind.is_fixed_size_list(field.type)):
        return False
    return bool(kind.is_integer(field.type.value_type) or kind.is_floating(field.type.value_type))
