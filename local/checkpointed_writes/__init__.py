"""Writes from Python, on this machine; and what the code of steps and programs may use.

    import checkpointed_writes as cw

    write = cw.read_parquet("photos/*.parquet").step(embed).write_lance("vectors.lance", vectors={"vector": 512})
    write.preview(10)    # what the step makes of the first rows
    write.run()          # run it again: it goes on, or says that all is committed

A step may raise `Retryable`, `RetryAfter` and `RowError`, and ask for its `row_key`; a program is given a `Job`. The rest of the
project is not for import: its modules change from release to release.
"""

from __future__ import annotations

from checkpointed_writes.answers import Preview, PreviewFailure, Result, WriteFailed
from checkpointed_writes.errors import Retryable, RetryAfter, RowError
from checkpointed_writes.job import Job
from checkpointed_writes.keys import row_key
from checkpointed_writes.rows import Rows
from checkpointed_writes.running import preview, run
from checkpointed_writes.sources import (
    read_csv,
    read_files,
    read_iceberg,
    read_json,
    read_kafka,
    read_lance,
    read_parquet,
    read_program,
    read_spark,
    union,
)
from checkpointed_writes.write import Write

__all__ = [
    "Job",
    "Preview",
    "PreviewFailure",
    "Result",
    "RetryAfter",
    "Retryable",
    "RowError",
    "Rows",
    "Write",
    "WriteFailed",
    "preview",
    "read_csv",
    "read_files",
    "read_iceberg",
    "read_json",
    "read_kafka",
    "read_lance",
    "read_parquet",
    "read_program",
    "read_spark",
    "row_key",
    "run",
    "union",
]
