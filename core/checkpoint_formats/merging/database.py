"""DuckDB as it is used here: in this process, with bounded memory, and what does not fit in a temporary folder.

It opens no file of anybody's and loads no extension: it is given Arrow batches, and gives some.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import duckdb
import pyarrow as pa

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable, one_line
from checkpoint_protocol.store.object_store import disk_full

#: Rows that are taken over at once.
_MOST_ROWS: Final = 1 << 17


@contextmanager
def open_database(memory_bytes: int, threads: int = 1) -> Iterator[Any]:
    """Give an empty database, which is gone afterwards. Retryable where its folder, or the memory, is full."""
    with tempfile.TemporaryDirectory(prefix="checkpointed-merge-") as folder:
        config = {
            "memory_limit": f"{memory_bytes >> 20}MiB",
            "temp_directory": folder,
            "threads": str(threads),
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
        connection = duckdb.connect(":memory:", config=config)
        try:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET python_enable_replacements = false")
            yield connection
        except duckdb.Error as error:
            if (full := disk_full(error, f"what a merge holds in {folder}")) is not None:
                raise full from error
            raise Retryable(
                reasons.DISK_FULL, f"the merge does not have the disk space that it needs: {one_line(error)}"
            ) from error
        finally:
            connection.close()


def fill(connection: Any, table: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    """Make a table of these rows, in the place of one of that name; return how many they are.

    What the batches raise is raised as it is: DuckDB does not ask for them by itself.
    """
    count = 0
    _take(connection, f"CREATE OR REPLACE TABLE {table} AS", pa.Table.from_batches([], schema))
    held: list[pa.RecordBatch] = []
    held_rows = 0
    for batch in batches:
        held.append(batch)
        held_rows += batch.num_rows
        if held_rows >= _MOST_ROWS:
            _take(connection, f"INSERT INTO {table}", pa.Table.from_batches(held, schema))
            count, held, held_rows = count + held_rows, [], 0
    if held_rows:
        _take(connection, f"INSERT INTO {table}", pa.Table.from_batches(held, schema))
    return count + held_rows


def _take(connection: Any, into: str, rows: pa.Table) -> None:
    connection.register("given", rows)
    try:
        connection.execute(f"{into} SELECT * FROM given")
    finally:
        connection.unregister("given")
