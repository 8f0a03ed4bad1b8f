"""Arrow schemas in records: the IPC schema message in base64, without metadata."""

from __future__ import annotations

import base64

import pyarrow as pa


def encode_schema(schema: pa.Schema) -> str:
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def decode_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
