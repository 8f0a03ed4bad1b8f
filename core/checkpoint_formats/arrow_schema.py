"""Arrow schemas in records: the IPC schema message in base64, without metadata."""

from __future__ import annotations

import base64

import pyarrow as pa

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange


def encode_schema(schema: pa.Schema) -> str:
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def decode_schema(text: str) -> pa.Schema:
    """Return the schema of a record. NeedsChange(OutputSchemaWrong) if it is none: drivers put them."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise NeedsChange(reasons.OUTPUT_SCHEMA_WRONG, f"what the driver gave is no Arrow schema: {error}") from error
