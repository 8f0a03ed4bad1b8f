"""Strict models that take what JSON is parsed to, too: lists for tuples, and dictionaries for parts of them.

Validated while it is parsed, each problem of a record holds a copy of what it is about: sixteen megabytes of something else take
seven gigabytes, and a minute. Of plain values nothing is copied. A list ends at its first item that is wrong.
"""

from __future__ import annotations

from typing import Any


def of_plain_values(schema: Any) -> Any:
    """Return a schema of pydantic's that does so."""
    if isinstance(schema, list | tuple):
        return type(schema)(of_plain_values(item) for item in schema)
    if not isinstance(schema, dict):
        return schema
    copied = {name: of_plain_values(item) for name, item in schema.items()}
    match schema.get("type"):
        case "tuple":
            return {**copied, "strict": False, "fail_fast": True}
        case "model" | "dataclass":
            return {**copied, "strict": False}
        case _:
            return copied
