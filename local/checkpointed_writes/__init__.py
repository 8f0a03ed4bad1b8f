"""For the code of steps and programs, and for notebooks and tests that run writes.

    from checkpointed_writes import Retryable, RetryAfter, RowError    # what a step may raise
    from checkpointed_writes import row_key                            # and ask
    from checkpointed_writes import Job                                # what a program is given
    from checkpointed_writes import run, preview                       # a write on this machine

The rest of the project is not for import: its modules change from release to release.
"""

from __future__ import annotations

from checkpointed_writes.errors import Retryable, RetryAfter, RowError
from checkpointed_writes.job import Job
from checkpointed_writes.keys import row_key
from checkpointed_writes.running import Preview, PreviewFailure, Result, WriteFailed, preview, run

__all__ = [
    "Job",
    "Preview",
    "PreviewFailure",
    "Result",
    "RetryAfter",
    "Retryable",
    "RowError",
    "WriteFailed",
    "preview",
    "row_key",
    "run",
]
