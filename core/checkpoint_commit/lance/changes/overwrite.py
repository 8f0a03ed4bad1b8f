"""Overwrite of a Lance dataset, or of a part of it: one version without that part, and with the staged fragments.

What is replaced is known from when the epoch began. Rows that others have put since are nobody's to throw away unasked: the
commit is refused then, unless the manifest says otherwise (`sink.onConcurrent`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import lance
from lance.fragment import FragmentMetadata

from checkpoint_commit.lance.changes.append import LanceAppend
from checkpoint_commit.lance.changes.where import Remainder, WhereRows
from checkpoint_commit.lance.history import LanceHistory, VersionGone, files_of
from checkpoint_commit.outcomes import Rejected
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.records import LanceBase, Overwrite, OverwriteAll, OverwriteWhere

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


@dataclass(slots=True)
class LanceOverwriteAll:
    """The staged fragments of an epoch, in the place of all that the dataset has. A LanceChange.

    `replaces_others`: what others have put since the epoch began is replaced, too.
    """

    operation: OverwriteAll
    staged: LanceAppend
    replaces_others: bool

    def __len__(self) -> int:
        return len(self.staged)

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.staged.sizes

    @property
    def incompatibility(self) -> Rejected | None:
        return self.staged.incompatibility

    def find_conflict(self, dataset: Any, history: LanceHistory) -> Rejected | None:
        if self.replaces_others:
            return None
        return find_rows_of_others(history, dataset, self.operation, lambda then, files: True)

    def lance_operation(self, open_version: Callable[[], Any]) -> Any:
        """With the fields of that version by their ids: what others have staged for them goes on to fit."""
        return lance.LanceOperation.Overwrite(open_version().lance_schema, self.staged.fragments)


@dataclass(slots=True)
class LanceOverwriteWhere:
    """The staged fragments of an epoch, in the place of the rows of a condition. A LanceChange.

    Lance refuses it after a fence, and after whatever else was done to a fragment of which it takes rows out. It lands after an
    append that came since the version it is based on, whose rows stay: as if they had been appended after it.
    """

    operation: OverwriteWhere
    staged: LanceAppend
    replaces_others: bool
    #: What is left of each fragment, by what it was: most are the same in the version after this one.
    _left: dict[str, Remainder | None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.staged)

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.staged.sizes

    @property
    def incompatibility(self) -> Rejected | None:
        return self.staged.incompatibility

    def find_conflict(self, dataset: Any, history: LanceHistory) -> Rejected | None:
        WhereRows.of(history.uri, self.operation.where, dataset.schema)
        if self.replaces_others:
            return None

        def is_replaced(then: Any, brought: frozenset[str]) -> bool:
            try:
                rows = WhereRows.of(history.uri, self.operation.where, then.schema)
            except NeedsChange:  # the version has not the columns that there are now
                return True
            with_them = (part for part in then.get_fragments() if any(file.path in brought for file in part.data_files()))
            return any(rows.has_any(fragment) for fragment in with_them)

        return find_rows_of_others(history, dataset, self.operation, is_replaced)

    def lance_operation(self, open_version: Callable[[], Any]) -> Any:
        dataset = open_version()
        rows = WhereRows.of(dataset.uri, self.operation.where, dataset.schema)
        removed: list[int] = []
        updated: list[FragmentMetadata] = []
        left: dict[str, Remainder | None] = {}
        for fragment in dataset.get_fragments():
            what_it_is = str(fragment.metadata.to_json())
            left[what_it_is] = remainder = self._left[what_it_is] if what_it_is in self._left else rows.without(fragment)
            if remainder is not None and remainder.fragment is not None:
                updated.append(remainder.fragment)
            elif remainder is not None:
                removed.append(fragment.fragment_id)
        self._left = left
        return lance.LanceOperation.Update(
            removed_fragment_ids=removed, updated_fragments=updated, new_fragments=self.staged.fragments
        )
