"""What others have put into a Lance dataset since an epoch began: rows that an overwrite is not to throw away unasked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import lance

from checkpoint_operator.commit.outcomes import Rejected
from checkpoint_operator.lance.history import LanceHistory, VersionGone, files_of
from checkpoint_protocol import reasons
from checkpoint_protocol.records import LanceBase, Overwrite

_Operations: Final = lance.LanceOperation
#: Transactions that bring no values which the dataset had not before.
_BRING_NOTHING: Final = (
    _Operations.Delete,
    _Operations.Rewrite,
    _Operations.CreateIndex,
    _Operations.UpdateConfig,
    _Operations.Project,
)
_WAYS_OUT: Final = (
    "check whether they are to stay; then either take them out of the way, or set sink.onConcurrent: Replace to have them "
    "replaced, too"
)


def find_rows_of_others(
    history: LanceHistory, dataset: Any, operation: Overwrite, is_replaced: Callable[[Any, frozenset[str]], bool]
) -> Rejected | None:
    """Say which version after the operation's base, up to this one of the dataset, has put rows where the operation puts its own.

    `is_replaced`: whether rows of these data files are, in the version that brought them.
    """
    base = operation.base
    assert base is None or isinstance(base, LanceBase)
    since = base.at_version if base is not None else 0
    for version in range(since + 1, dataset.version + 1):
        try:
            if history.summary_of(dataset, version).operation in _BRING_NOTHING:
                continue
            then = history.open_version(version)
            brought = files_of(then) - (files_of(history.open_version(version - 1)) if version > 1 else frozenset())
        except VersionGone:
            return Rejected(
                reasons.TABLE_WRITTEN_MEANWHILE,
                f"the Lance dataset {history.uri} was at version {since} when the epoch began, and of what came since a version "
                f"was cleaned up ({version}, or the one before it), so that rows of others cannot be told: {_WAYS_OUT}",
            )
        if brought and is_replaced(then, brought):
            return Rejected(
                reasons.TABLE_WRITTEN_MEANWHILE,
                f"since the epoch began, version {version} of the Lance dataset {history.uri} has put rows where sink.mode: "
                f"{operation.kind} is to put its own ({min(brought)}): {_WAYS_OUT}",
            )
    return None
