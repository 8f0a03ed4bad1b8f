"""Whether the installed Lance keeps the rule that its commit protocol rests on: a fence stops older appends."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa

from checkpoint_operator.commit.lance_table import fence_operation
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange


@functools.cache
def refuse_lance_without_fences(fence: Callable[[Any], Any] = fence_operation) -> None:
    """Try a fence on a small dataset in a temporary folder, once per process.

    NeedsChange(StoreUnsafe) if an append that is older than the fence lands: conflict rules are Lance's own affair, documented
    nowhere, and may change with its version.
    """
    with tempfile.TemporaryDirectory(prefix="checkpointed-write-probe-") as folder:
        table = pa.table({"a": pa.array([1], pa.int64())})
        dataset = lance.write_dataset(table, folder)
        staged = lance.fragment.write_fragments(table, folder)
        _commit(folder, dataset.version, fence(dataset))
        try:
            _commit(folder, dataset.version, lance.LanceOperation.Append(staged))
        except lance.commit.CommitConflictError:
            return
    raise NeedsChange(
        reasons.STORE_UNSAFE,
        f"the installed Lance ({lance.__version__}) lets an append land that is older than a no-op projection; exactly once "
        "cannot be kept with it; install the version of pylance that constraints.txt names",
    )


def _commit(folder: str, read_version: int, operation: Any) -> None:
    lance.LanceDataset.commit(folder, lance.Transaction(read_version, operation))
