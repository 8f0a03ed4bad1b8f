"""A source as the first releases have stored it, in the form of today.

It had `format`, and fields of all kinds of sources side by side. The records of attempts hold it for good, with names in
snake_case, and the identities of writes, with the names of YAML.
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue
from pydantic.alias_generators import to_camel

_FILES: Final = ("parquet", "csv", "json")
_COMPRESSIONS: Final = {"auto": "Auto", "none": "None", "gzip": "Gzip"}
_CSV_FIELDS: Final = ("header", "delimiter", "quote", "escape", "nullValues", "multiLine")


def is_former(plain: dict[str, JsonValue]) -> bool:
    """Whether a stored source, as plain data, is one of the first releases."""
    return "format" in plain


def in_form_of_today(plain: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a stored source as the manifest says it today; one of today stays as it is.

    What had no effect is left out: text options of Parquet files, key columns of files.
    """
    if not is_former(plain):
        return plain
    named = _as_in_yaml(plain)
    beside = {name: named[name] for name in ("columns", "where") if named.get(name) is not None}
    return {**_kind(named), **beside}


def _as_in_yaml(plain: dict[str, JsonValue]) -> dict[str, JsonValue]:
    named = {to_camel(name): value for name, value in plain.items()}
    for section in ("options", "iceberg", "lance"):
        if isinstance(fields := named.get(section), dict):
            named[section] = {to_camel(name): value for name, value in fields.items()}
    return named


def _kind(plain: dict[str, JsonValue]) -> dict[str, JsonValue]:
    name = plain["format"]
    keys: dict[str, JsonValue] = {"keyColumns": plain.get("keyColumns", [])}
    if name == "program":
        return {"program": {"call": plain.get("program"), **keys}}
    split: dict[str, JsonValue] = {"splitSize": plain["splitSize"]} if "splitSize" in plain else {}
    for table in ("iceberg", "lance"):
        if name == table and isinstance(section := plain.get(table), dict):
            return {table: {**section, **split}}
    is_spark = name not in _FILES or plain.get("way") == "DataFrame" or plain.get("sql") is not None or plain.get("readerOptions")
    if is_spark:
        what: dict[str, JsonValue] = (
            {"table": plain.get("table")} if name == "table" else {"format": name, "paths": _paths(plain)}
        )
        sql: dict[str, JsonValue] = {"sql": plain["sql"]} if plain.get("sql") is not None else {}
        return {"spark": {**what, "options": plain.get("readerOptions") or {}, **sql, **keys}}
    return {"files": {"format": name, "paths": _paths(plain), **_text(plain), **split}}


def _paths(plain: dict[str, JsonValue]) -> JsonValue:
    path = plain.get("path")
    return [path] if path is not None else plain.get("paths") or []


def _text(plain: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if plain["format"] == "parquet":
        return {}
    options = plain.get("options")
    given = options if isinstance(options, dict) else {}
    text: dict[str, JsonValue] = {}
    csv: dict[str, JsonValue] = {name: given[name] for name in _CSV_FIELDS if name in given}
    if csv and plain["format"] == "csv":
        text["csv"] = csv
    if isinstance(compression := given.get("compression"), str):
        text["compression"] = _COMPRESSIONS.get(compression, compression)
    if plain.get("types"):
        text["types"] = plain["types"]
    return text
