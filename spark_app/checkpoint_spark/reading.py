"""How an attempt reads text that others have read otherwise: types and options may be edited, positions may not move."""

from __future__ import annotations

import pyarrow as pa

from checkpoint_formats.arrow_schema import decode_schema
from checkpoint_formats.selecting import as_read
from checkpoint_formats.type_names import parse_type
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import TEXT_FORMATS, Source
from checkpoint_protocol.parts import Input
from checkpoint_protocol.records import LaunchRecord


def schema_to_read(source: Source, record: Input) -> pa.Schema:
    """Return the schema of an input as this source reads it: as it was fixed, with the types that the source names by now.

    A field of JSON that only the types name is one more column: rows that were read before had none, or they would have failed.
    """
    schema = decode_schema(record.arrow_schema)
    if source.format not in TEXT_FORMATS:
        return schema
    chosen = as_read(source).columns
    for name, text in source.types.items():
        field = pa.field(name, parse_type(name, text))
        index = schema.get_field_index(name)
        if index >= 0:
            schema = schema.set(index, field)
        elif source.format == "json" and (chosen is None or name in chosen):
            schema = schema.append(field)
    return schema


def refuse_moved_rows(ledger: Ledger, launch: LaunchRecord, record: Input) -> None:
    """Raise NeedsChange where a row's position would be another than that under which rows are sealed.

    Positions that count bytes stay whatever the delimiter or quote is. In text that is read from its start they count rows, and
    these characters say where a row begins. Everything else that does is part of the write's identity.
    """
    if all(file.unit != "records" for file in record.files):
        return
    for number in launch.counted:
        before, closed = ledger.read_launch(number), ledger.read_closed(number)
        if before is None or closed is None or not any(closed.chain_lengths):
            continue
        _refuse_other_characters(launch, before, record)


def refuse_moved_rows_of_earlier_epochs(earlier: list[Ledger], launch: LaunchRecord, record: Input) -> None:
    """The same for rows that are taken again, by the positions that they had in earlier epochs."""
    if all(file.unit != "records" or file.only is None for file in record.files):
        return
    for ledger in earlier:
        mark = ledger.read_mark()
        before = ledger.read_launch(mark.attempts) if mark is not None else None
        if before is not None:
            _refuse_other_characters(launch, before, record)


def _refuse_other_characters(launch: LaunchRecord, before: LaunchRecord, record: Input) -> None:
    path = next(file.path for file in record.files if file.unit == "records")
    for option in ("delimiter", "quote"):
        now, then = getattr(launch.source.options, option), getattr(before.source.options, option)
        if now != then:
            raise NeedsChange(
                reasons.MANIFEST_INVALID,
                f"source.options.{option} is {now!r}, and was {then!r} when rows of {path} were sealed: rows of such a file are "
                f"known by their number, which depends on it; set it back to {then!r}, or start a new write under another name",
            )
