"""Where the rows of a write come from. Each call returns the rows as they are read, and reads nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from checkpointed_writes.rows import Call, Columns, Rows, Size, listed

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def read_parquet(
    paths: Paths,
    *,
    schema: Literal["unite", "same"] | None = None,
    partitions: Literal["auto", "ignore"] | None = None,
    split_size: Size | None = None,
) -> Rows:
    """Read Parquet files: paths, folders or patterns, on this machine or in an object store."""
    return _files("parquet", paths, schema_rule=schema, partitions=partitions, split_size=split_size)


def read_csv(
    paths: Paths,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    null_values: Sequence[str] | None = None,
    multi_line: bool | None = None,
    types: Mapping[str, str] | None = None,
    compression: Literal["auto", "none", "gzip"] | None = None,
    schema: Literal["unite", "same"] | None = None,
    partitions: Literal["auto", "ignore"] | None = None,
    split_size: Size | None = None,
) -> Rows:
    """Read CSV files. `types`: those of columns whose inferred type is not right. Only the empty field is NULL by default."""
    csv = {
        "header": header,
        "delimiter": delimiter,
        "quote": quote,
        "escape": escape,
        "null_values": null_values,
        "multi_line": multi_line,
    }
    is_given = any(value is not None for value in csv.values())
    return _files(
        "csv",
        paths,
        csv=csv if is_given else None,
        types=types,
        compression=compression,
        schema_rule=schema,
        partitions=partitions,
        split_size=split_size,
    )


def read_json(
    paths: Paths,
    *,
    types: Mapping[str, str] | None = None,
    compression: Literal["auto", "none", "gzip"] | None = None,
    schema: Literal["unite", "same"] | None = None,
    partitions: Literal["auto", "ignore"] | None = None,
    split_size: Size | None = None,
) -> Rows:
    """Read files with one JSON object in each line."""
    return _files(
        "json",
        paths,
        types=types,
        compression=compression,
        schema_rule=schema,
        partitions=partitions,
        split_size=split_size,
    )


def read_files(paths: Paths, *, partitions: Literal["auto", "ignore"] | None = None, split_size: Size | None = None) -> Rows:
    """Read whole files, such as images: one row each, with the columns path, size, etag, modified and content."""
    return _files("binary", paths, partitions=partitions, split_size=split_size)


def read_iceberg(
    table: str,
    *,
    catalog: str | None = None,
    snapshot_id: int | None = None,
    branch: str | None = None,
    split_size: Size | None = None,
    changes: Literal["fail", "upserts"] | None = None,
) -> Rows:
    """Read an Iceberg table, as it is when the first attempt begins. Without `catalog`, the name's first part is the catalog.

    `changes="upserts"`: later epochs take rows that have changed once more, into an upsert.
    """
    if catalog is None:
        catalog, _, table = table.partition(".")
    named = {"catalog": catalog, "table": table, "snapshot_id": snapshot_id, "branch": branch, "split_size": split_size}
    return Rows({"iceberg": named, **_given(changes)})


def read_lance(
    uri: str | os.PathLike[str] | None = None,
    *,
    namespace: str | None = None,
    table: str | None = None,
    version: int | None = None,
    split_size: Size | None = None,
    changes: Literal["fail", "upserts"] | None = None,
) -> Rows:
    """Read a Lance dataset, as it is when the first attempt begins. Instead of a URI, a table of a namespace of the settings.

    `changes="upserts"`: later epochs take rows that have changed once more, into an upsert.
    """
    lance = {"uri": uri, "namespace": namespace, "table": table, "version": version, "split_size": split_size}
    return Rows({"lance": lance, **_given(changes)})


def read_kafka(
    bootstrap_servers: Columns,
    topics: Columns | None = None,
    *,
    pattern: str | None = None,
    format: Literal["raw", "json", "avro", "jsonSchema", "protobuf"] = "raw",
    starting_offsets: Literal["earliest", "latest"] | None = None,
    types: Mapping[str, str] | None = None,
    metadata: Sequence[str] | None = None,
    max_offsets: int | None = None,
    on_lost: Literal["stall", "skip"] | None = None,
    split_size: Size | None = None,
) -> Rows:
    """Read topics of Kafka. Each epoch takes the records that came since the last one. Credentials belong in the settings."""
    return Rows(
        {
            "kafka": {
                "bootstrap_servers": listed(bootstrap_servers),
                "topics": listed(topics),
                "pattern": pattern,
                "format": format,
                "starting_offsets": starting_offsets,
                "types": types,
                "metadata": metadata,
                "max_offsets": max_offsets,
                "on_lost": on_lost,
                "split_size": split_size,
            }
        }
    )


def read_spark(
    format: str | None = None,
    paths: Paths = (),
    *,
    keys: Columns,
    table: str | None = None,
    options: Mapping[str, str] | None = None,
    sql: str | None = None,
) -> Rows:
    """Read what Spark can read: a format with its options, or a table of one of its catalogs.

    `keys`: the columns that identify a row. `sql`: a query on the rows, which it calls `input`.
    """
    named = {"format": format, "paths": _paths(paths) or None, "table": table, "options": options, "sql": sql}
    return Rows({"spark": {**named, "key_columns": listed(keys)}})


def read_program(call: Call, *, keys: Columns | None = None, stream: Mapping[str, Any] | bool | None = None) -> Rows:
    """Let a function read with Spark: it is given a `Job`. Either `keys`, the columns that identify a row, or `stream`.

    `stream`: True, or a mapping with output_mode, update_as and checkpoint_volume.
    """
    return Rows({"program": {"call": call, "key_columns": listed(keys), "stream": {} if stream is True else stream or None}})


def union(*rows: Rows) -> Rows:
    """Read several sources one after another: files, Iceberg tables and Lance datasets. Columns are merged by name."""
    for one in rows:
        if one.steps or one.stages or set(one.source) - {"files", "iceberg", "lance"}:
            raise ValueError(
                "union takes files, Iceberg tables and Lance datasets as they are read; select and step come after it"
            )
    return Rows({"union": tuple(one.source for one in rows)})


def _files(kind: str, paths: Paths, **fields: Any) -> Rows:
    return Rows({"files": {"format": kind, "paths": _paths(paths), **fields}})


def _given(changes: str | None) -> dict[str, str]:
    return {} if changes is None else {"changes": changes}


def _paths(paths: Paths) -> tuple[str | os.PathLike[str], ...]:
    return (paths,) if isinstance(paths, str | os.PathLike) else tuple(paths)
