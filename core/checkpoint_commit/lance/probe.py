"""Whether the installed Lance keeps the rules that its commit protocols rest on."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa

from checkpoint_commit.lance.table import NO_RETRIES, RETRIES, fence_operation
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange


@functools.cache
def refuse_lance_without_fences(fence: Callable[[Any], Any] = fence_operation, retries: int = NO_RETRIES) -> None:
    """Try fences and an overwrite on a small dataset in a temporary folder, once per process.

    NeedsChange(StoreUnsafe) if an append or an update that is older than the fence lands, or an overwrite that is older than any
    version: conflict rules are Lance's own affair, documented nowhere, and may change with its version.
    """
    with tempfile.TemporaryDirectory(prefix="checkpointed-write-probe-") as folder:
        table = pa.table({"a": pa.array([1], pa.int64())})
        dataset = lance.write_dataset(table, folder)
        staged = lance.fragment.write_fragments(table, folder)
        lance.LanceDataset.commit(folder, lance.Transaction(dataset.version, fence(dataset)))
        operations = lance.LanceOperation
        for what, operation, most_retries in (
            ("an append", operations.Append(staged), RETRIES),
            ("an update", operations.Update(new_fragments=staged), RETRIES),
            ("an overwrite without retries", operations.Overwrite(dataset.lance_schema, staged), retries),
        ):
            try:
                lance.LanceDataset.commit(folder, lance.Transaction(dataset.version, operation), max_retries=most_retries)
            except lance.commit.CommitConflictError:
                continue
            raise NeedsChange(
                reasons.STORE_UNSAFE,
                f"the installed Lance ({lance.__version__}) lets {what} land that is older than a no-op projection; exactly "
                "once cannot be kept with it; install the version of pylance that constraints.txt names",
            )


@functools.cache
def refuse_lance_that_replaces_twice(fence: Callable[[Any], Any] = fence_operation) -> None:
    """Try replacements of a column's data on small datasets in a temporary folder, once per process.

    NeedsChange(StoreUnsafe) if one lands that is older than the same one, than a fence, or than a compaction of its fragment; or
    does not after an append and a delete, which keep rows in their places.
    """
    for other, lands in (("itself", False), ("a fence", False), ("a compaction", False), ("an append", True), ("a delete", True)):
        with tempfile.TemporaryDirectory(prefix="checkpointed-write-probe-") as folder:
            table = pa.table({"a": pa.array([1, 2, 3, 4], pa.int64())})
            dataset = lance.write_dataset(table, folder, max_rows_per_file=2)
            column = lance.fragment.write_fragments(table.slice(0, 2), dataset, mode="append")[0].files[0]
            operations = lance.LanceOperation
            replacement = operations.DataReplacement([operations.DataReplacementGroup(0, column)])
            match other:
                case "itself":
                    lance.LanceDataset.commit(folder, lance.Transaction(dataset.version, replacement))
                case "a fence":
                    lance.LanceDataset.commit(folder, lance.Transaction(dataset.version, fence(dataset)))
                case "a compaction":
                    lance.dataset(folder).optimize.compact_files()
                case "an append":
                    lance.write_dataset(table, folder, mode="append")
                case "a delete":
                    lance.dataset(folder).delete("a = 2")
            try:
                lance.LanceDataset.commit(folder, lance.Transaction(dataset.version, replacement))
                has_landed = True
            except lance.commit.CommitConflictError:
                has_landed = False
            if has_landed is not lands:
                raise NeedsChange(
                    reasons.STORE_UNSAFE,
                    f"the installed Lance ({lance.__version__}) {'lets a' if has_landed else 'refuses a'} replacement of data "
                    f"that is older than {other}; columns cannot be added to rows exactly once with it; install the version of "
                    "pylance that constraints.txt names",
                )
