"""Overwrite of a Lance dataset, or of a part of it: one version without that part, and with the staged fragments.

What is replaced is known from when the epoch began. Rows that others have put since are nobody's to throw away unasked: the
commit is refused then, unless the manifest says otherwise (`sink.onConcurrent`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import lance
from lance.fragment import FragmentMetadata

from checkpoint_operator.commit.outcomes import Rejected
from checkpoint_operator.lance.changes.append import LanceAppend
from checkpoint_operator.lance.changes.others import find_rows_of_others
from checkpoint_operator.lance.changes.where import Remainder, WhereRows
from checkpoint_operator.lance.history import LanceHistory
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.records import OverwriteAll, OverwriteWhere


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
