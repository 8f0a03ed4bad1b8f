"""How an attempt reads text that others have read otherwise: types and options may be edited, positions may not move."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from checkpoint_formats.readers import reader_for, reader_of_stage
from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_formats.rows.selecting import SelectingReader, selection_of
from checkpoint_formats.rows.type_names import parse_type
from checkpoint_formats.rows.uniting import united_type
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import dialect_of
from checkpoint_protocol.manifest.sources.source import Source, Text
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import CsvDialect, LaunchRecord
from checkpoint_protocol.store.parts import Input


def schema_of_input(launch: LaunchRecord, record: Input) -> pa.Schema:
    """Return the schema of an input as an attempt reads it: the result of a stage as it is."""
    return decode_schema(record.arrow_schema) if launch.reads_stage else schema_to_read(launch.source, record)


def schema_to_read(source: Source, record: Input) -> pa.Schema:
    """Return the schema of an input as this source reads it: as it was fixed, with the types that the source names by now.

    A field of JSON that only the types name is one more column: rows that were read before had none, or they would have failed.
    """
    schema = decode_schema(record.arrow_schema)
    chosen = selection_of(source).columns_to_read
    texts = [member for member in source.members if isinstance(member, Text) and member.is_text]
    for member in texts:
        for name, text in member.types.items():
            kind, index = parse_type(name, text), schema.get_field_index(name)
            if index >= 0:
                # Of a union, the column is another source's too, and was united with it.
                united = united_type(schema.field(index).type, kind) if len(source.members) > 1 else None
                schema = schema.set(index, pa.field(name, united or kind))
            elif member.format in ("json", "jsonSchema") and (chosen is None or name in chosen):
                schema = schema.append(pa.field(name, kind))
    return schema


def reader_of_input(launch: LaunchRecord, storage: StorageSettings, record: Input) -> SelectingReader:
    """Return the reader of an attempt's input: of its source, or of the result of a stage."""
    if launch.reads_stage:
        return reader_of_stage(storage)
    return reader_for(launch.source, storage, record.tables, sets_apart=launch.on_row_error == "Quarantine")


def refuse_moved_rows(ledger: Ledger, launch: LaunchRecord, record: Input) -> None:
    """Raise NeedsChange where a row's position would be another than that under which rows are sealed.

    Positions that count bytes stay whatever the delimiter or quote is. In text that is read from its start they count rows, and
    these characters say where a row begins. Everything else that does is part of the write's identity.
    """
    if all(file.unit != "records" for file in record.files):
        return
    for number in launch.counted:
        before, closed = ledger.attempts.read_launch(number), ledger.attempts.read_closed(number)
        if before is None or closed is None or not any(closed.chain_lengths):
            continue
        for member in {file.source for file in record.files}:
            _refuse_other_characters(launch, dialect_of(before.source, member), record)


def refuse_moved_rows_of_earlier_epochs(dialects: Sequence[CsvDialect], launch: LaunchRecord, record: Input) -> None:
    """The same for rows that are taken again, by the positions that they had in earlier epochs."""
    if all(file.unit != "records" or file.only is None for file in record.files):
        return
    for then in dialects:
        _refuse_other_characters(launch, then, record)


def _refuse_other_characters(launch: LaunchRecord, then: CsvDialect, record: Input) -> None:
    for file in record.files:
        if file.unit != "records" or file.source != then.source:
            continue
        now = dialect_of(launch.source, file.source)
        for option in ("delimiter", "quote"):
            if getattr(now, option) != getattr(then, option):
                raise NeedsChange(
                    reasons.MANIFEST_INVALID,
                    f"source.files.csv.{option} is {getattr(now, option)!r}, and was {getattr(then, option)!r} when rows of "
                    f"{file.path} were sealed: rows of such a file are known by their number, which depends on it; set it "
                    f"back to {getattr(then, option)!r}, or start a new write under another name",
                )
