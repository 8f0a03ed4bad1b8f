"""The table of a write that has none yet: the driver proposes the steps' output, the operator makes the table of it."""

from __future__ import annotations

import time
from typing import Final

import pyarrow as pa

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import OutputRecord, Target
from checkpoint_spark.arrow_schema import encode_schema

_TARGET_POLL_S: Final = 0.2
_TARGET_PATIENCE_S: Final = 600.0


def await_target(ledger: Ledger, attempt: int, schema: pa.Schema) -> Target:
    """Propose the schema of the steps' output and wait for the table that the operator makes of it."""
    for field in schema:
        if str(field.type) == "null":
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"the type of the column {field.name!r} is unknown: it is NULL in all of the first rows; "
                "give it a type in the step, or create the table yourself",
            )
    ledger.put_output(attempt, OutputRecord(token=new_token(), arrow_schema=encode_schema(schema)))
    waited_until = time.monotonic() + _TARGET_PATIENCE_S
    while time.monotonic() < waited_until:
        if (record := ledger.read_target(attempt)) is not None:
            return record.target
        time.sleep(_TARGET_POLL_S)
    raise Retryable(reasons.TABLE_MISSING, f"nobody made the table for attempt {attempt} within {_TARGET_PATIENCE_S:.0f} s")
