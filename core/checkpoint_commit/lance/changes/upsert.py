"""Upsert into a Lance dataset: one version without the rows that merges have found, and with the staged fragments.

A merge is a stage of the epoch: it reads the key columns of the fragments of one version, and says which of their rows have the
key of a staged row. What it says of a fragment holds for as long as the fragment is as it was. So a version can be committed to
if each of its fragments was merged; if others have added or changed some since, these are merged first (`MergeMissing`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import lance
import numpy as np
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata

from checkpoint_commit.lance.changes.append import DATA_FILE_NAME, LanceAppend
from checkpoint_commit.lance.changes.where import Remainder
from checkpoint_commit.lance.files.footers import LanceFooters
from checkpoint_commit.lance.history import LanceHistory
from checkpoint_commit.outcomes import Rejected
from checkpoint_commit.staged_files import Tails
from checkpoint_formats.lance.access import access
from checkpoint_formats.lance.datasets import DELETED_ROW, identity_of, is_not_found
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LanceDeletes, Upsert
from checkpoint_protocol.records.inputs import SourceFile

#: By which Lance makes rows of the old fragments and of the new ones out of an Update, and not columns.
_UPDATE_MODE: Final = "rewrite_rows"

_Rows = np.ndarray[Any, np.dtype[np.uint64]]


class MergeMissing(Exception):
    """A version of the dataset has fragments that were not merged. Nothing was sent for it."""

    def __init__(self, at_version: int) -> None:
        super().__init__(f"version {at_version} is not merged")
        self.at_version = at_version


class RestMissing(Exception):
    """Rows of staged fragments are to be left out, and these are not written anew yet. Nothing was sent for this version."""

    def __init__(self, at_version: int) -> None:
        super().__init__(f"version {at_version} is merged, and staged fragments are to be written anew")
        self.at_version = at_version


@dataclass(slots=True)
class Merged:
    """What the merges of an epoch have found: for each fragment that was read, by what it is, the files that name rows of it.

    `left_out`: by data files of staged fragments, the files that name rows of these; `rest`: what takes their place, without
    these rows; None: it is not written yet.
    """

    fragments: dict[str, list[LanceDeletes]] = field(default_factory=dict)
    left_out: dict[str, list[LanceDeletes]] = field(default_factory=dict)
    rest: LanceAppend | None = None

    def add(self, read: Iterable[SourceFile], found: Iterable[LanceDeletes], staged: Container[str] = ()) -> None:
        """Take in what one merge has found. `staged`: the data files of staged fragments."""
        """Add one merge. NeedsChange(StagedResultRefused) if it names rows of what it has not read."""
        by_name: dict[str, list[LanceDeletes]] = {}
        for file in read:
            if file.path in staged:
                continue
            by_name[file.path] = self.fragments[file.etag] = []
        for deletes in found:
            is_named_right = DATA_FILE_NAME.fullmatch(deletes.path) is not None
            if is_named_right and deletes.source in staged:
                self.left_out.setdefault(deletes.source, []).append(deletes)
                continue
            if deletes.source not in by_name or not is_named_right:
                raise NeedsChange(
                    reasons.STAGED_RESULT_REFUSED,
                    f"a seal of a merge names {deletes.path!r} with rows of {deletes.source!r}, which the merge had not to read",
                )
            by_name[deletes.source].append(deletes)


@dataclass(slots=True)
class LanceUpsert:
    """The staged fragments of an epoch, in the place of the rows that merges have found. A LanceChange.

    `merged`: None where no merge was done yet; one is needed in any case, as it looks for keys that several staged rows have.
    """

    operation: Upsert
    staged: LanceAppend
    storage: StorageSettings
    merged: Merged | None = None
    #: What is left of each fragment, by what it was: most are the same in the version after this one.
    _left: dict[str, Remainder | None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.staged)

    @property
    def sizes(self) -> Mapping[str, int]:
        if self._rest is None:
            return self.staged.sizes
        kept = {path: size_bytes for path, size_bytes in self.staged.sizes.items() if not self._is_replaced(path)}
        return {**kept, **self._rest.sizes}

    @property
    def incompatibility(self) -> Rejected | None:
        if self.staged.incompatibility is not None or self._rest is None:
            return self.staged.incompatibility
        if twice := sorted(self.staged.sizes.keys() & self._rest.sizes.keys()):
            return Rejected(
                reasons.STAGED_RESULT_REFUSED,
                f"seals name the data file {twice[0]} twice, so that its rows would be there twice",
            )
        return self._rest.incompatibility

    @property
    def _rest(self) -> LanceAppend | None:
        return self.merged.rest if self.merged is not None else None

    def _is_replaced(self, path: str) -> bool:
        return self.merged is not None and path in self.merged.left_out

    def _new(self) -> list[FragmentMetadata]:
        """Return the fragments that are added: of the staged ones those that were not written anew, and what was."""
        if self.operation.when_matched == "Delete":
            return []
        kept = [each for each in self.staged.fragments if not any(self._is_replaced(file.path) for file in each.files)]
        return [*kept, *(self._rest.fragments if self._rest is not None else ())]

    def find_conflict(self, dataset: Any, history: LanceHistory) -> Rejected | None:
        """Raises MergeMissing: what others have done since the last merge has to be merged, too, and is in nobody's way.

        And RestMissing, where merges have found rows of staged fragments that are to be left out.
        """
        self._merged_of(dataset)
        return None

    def lance_operation(self, open_version: Callable[[], Any]) -> Any:
        dataset = open_version()
        removed: list[int] = []
        updated: list[FragmentMetadata] = []
        left: dict[str, Remainder | None] = {}
        for fragment, deletes in self._merged_of(dataset):
            what_it_is = identity_of(fragment)
            known = what_it_is in self._left
            left[what_it_is] = remainder = self._left[what_it_is] if known else self._without(dataset.uri, fragment, deletes)
            if remainder is not None and remainder.fragment is not None:
                updated.append(remainder.fragment)
            elif remainder is not None:
                removed.append(fragment.fragment_id)
        self._left = left
        return lance.LanceOperation.Update(
            removed_fragment_ids=removed, updated_fragments=updated, new_fragments=self._new(), update_mode=_UPDATE_MODE
        )

    def _merged_of(self, dataset: Any) -> list[tuple[Any, Sequence[LanceDeletes]]]:
        fragments = [(fragment, identity_of(fragment)) for fragment in dataset.get_fragments()]
        merged = self.merged
        if merged is None or any(what_it_is not in merged.fragments for _, what_it_is in fragments):
            raise MergeMissing(dataset.version)
        if merged.left_out and merged.rest is None:
            raise RestMissing(dataset.version)
        return [(fragment, merged.fragments[what_it_is]) for fragment, what_it_is in fragments]

    def _without(self, uri: str, fragment: Any, deletes: Sequence[LanceDeletes]) -> Remainder | None:
        """Return what is left of a fragment; None if all is. Puts an object with the rows: nothing names it until the commit."""
        if not deletes:
            return None
        rows: _Rows = np.unique(np.concatenate([self._rows_of(uri, one, fragment.physical_rows) for one in deletes]))
        if len(rows) and rows[-1] >= fragment.physical_rows:
            raise NeedsChange(
                reasons.STAGED_RESULT_REFUSED,
                f"{deletes[0].path} names the row {rows[-1]} of {deletes[0].source}, which has {fragment.physical_rows}",
            )
        try:
            return Remainder(fragment.delete_rows(rows.tolist()))
        except (ValueError, OSError) as error:
            raise Retryable(
                reasons.STORE_UNAVAILABLE, f"rows of {deletes[0].source} cannot be taken out: {one_line(error)}"
            ) from error

    def _rows_of(self, uri: str, deletes: LanceDeletes, most: int) -> _Rows:
        """Return the rows that a file names, of a fragment that has so many. What is read is bounded by that, not by the file."""
        whole = f"{uri.rstrip('/')}/data/{deletes.path}"
        try:
            # Before Lance opens it: it has as many metadata, and as large values, as who made it has liked.
            footers = LanceFooters(uri.rstrip("/"), self.storage, Tails(self.storage))
            footers.expect_schema(DELETED_ROW)
            rows_there = footers.count_rows(deletes.path, range(len(DELETED_ROW)))
            if rows_there != deletes.rows or deletes.rows > most:
                raise NeedsChange(
                    reasons.STAGED_RESULT_REFUSED,
                    f"the staged file {whole} is not one that names {deletes.rows} of {most} rows of a fragment",
                )
            table = LanceFileReader(whole, **access(uri, self.storage)).read_all().to_table()
        except (ValueError, OSError) as error:
            if is_not_found(error):
                raise NeedsChange(reasons.STAGED_FILE_MISSING, f"the staged file {whole} is gone") from error
            raise Retryable(reasons.STORE_UNAVAILABLE, f"{whole} cannot be read: {one_line(error)}") from error
        rows: _Rows = table.column(0).to_numpy()
        return rows
