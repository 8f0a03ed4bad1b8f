"""Which rows of a Lance dataset have other input than when values were made for them, where rows have stable ids.

Values are made of the rows of one version, `since`, and are given to the rows that are still in their places at another one,
`given_at`. So a row needs new ones where its columns are not what they were at the first, and where an update has moved it in
between, since it has missed what was made for it. What Lance says of when a row was changed does not tell either: another column
that all rows got counts for it, and one whose values were replaced in place may not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkpoint_formats.failures import moved
from checkpoint_formats.lance.datasets import files_of_columns, open_dataset
from checkpoint_formats.lance.made_since import CHANGED_AT, fragments_at
from checkpoint_formats.rows.nested import no_rows
from checkpoint_formats.rows.plain_types import as_plain, plain_schema
from checkpoint_formats.rows.same import Mask, same_rows
from checkpoint_formats.rows.selecting import ROW_ADDRESS, places_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records.formats.lance import ChangedRows, PinnedLance

ROW_ID: Final = "_rowid"
_BATCH_ROWS: Final = 8_192


def with_changed(
    table: PinnedLance, columns: Sequence[str], before: PinnedLance | None, committed_at: int | None, asked_by: str
) -> PinnedLance:
    """Return a version of whose old rows those are input that have changed since one that was taken before.

    NeedsChange(TableUnsupported) where rows have no stable ids. `asked_by`: the field of the manifest, for that.
    """
    if table.transaction is None:
        raise NeedsChange(
            reasons.TABLE_UNSUPPORTED,
            f"{asked_by} finds rows again by their stable ids, which the Lance dataset {table.uri} does not have: write it anew "
            "with enable_stable_row_ids=True, or start a write under another name without it",
        )
    if before is None or before.transaction is None:
        return table
    given_at = committed_at - 1 if committed_at is not None and committed_at > before.at_version else None
    return table.model_copy(update={"changed": changed_since(before, columns, given_at)})


def changed_since(before: PinnedLance, columns: Sequence[str], given_at: int | None) -> ChangedRows:
    assert before.transaction is not None
    return ChangedRows(since=before.at_version, transaction=before.transaction, given_at=given_at, columns=tuple(columns))


@dataclass(slots=True)
class Changes:
    """The changed rows of a version of a dataset."""

    dataset: Any
    rows: ChangedRows
    storage: StorageSettings
    _then: dict[int, Any] | None = None
    _versions: dict[int, Any] = field(default_factory=dict)

    def may_have(self, number: int) -> bool:
        """Whether a fragment may have changed rows. It has none if its columns are in the files in which they were."""
        if self._then is None:
            taken = PinnedLance(uri=self.dataset.uri, at_version=self.rows.since, transaction=self.rows.transaction)
            self._then = fragments_at(taken, self.dataset, self.storage)
            if self._then is None:
                raise self._cleaned_up(self.rows.since)
        fragment, before = self.dataset.get_fragment(number), self._then.get(number)
        if before is None or fragment is None:
            return True
        then = self._version(self.rows.since)
        return files_of_columns(self.dataset, fragment, self.rows.columns) != files_of_columns(then, before, self.rows.columns)

    def find(self, rows: pa.RecordBatch) -> tuple[Mask, Mask]:
        """Return which of some rows were there before, and which of those have changed. They have ids, and the columns."""
        if rows.num_rows == 0:
            return np.zeros(0, np.bool_), np.zeros(0, np.bool_)
        rows = as_plain(rows, plain_schema(rows.schema))
        ids = _column(rows, ROW_ID).to_numpy()
        names = [name for name in self.rows.columns if name in rows.schema.names]
        where, before = self._look_up(self.rows.since, ids, names)
        known: Mask = where >= 0
        at = np.flatnonzero(known)
        now, then = rows.take(pa.array(at)), before.take(pa.array(where[at]))
        is_same = np.ones(len(at), np.bool_)
        for name in names:
            is_same &= same_rows(_column(now, name), _column(then, name))
        changed: Mask = np.zeros(len(ids), np.bool_)
        changed[at] = ~is_same
        if self.rows.given_at is not None and is_same.any():
            left = at[is_same]
            changed[left] = self._has_missed(ids[left], then.filter(pa.array(is_same)))
        return known, changed

    def places(self, number: int) -> np.ndarray[Any, Any]:
        """Return the numbers of the changed rows of a fragment, rising."""
        if not self.may_have(number):
            return np.empty(0, np.int64)
        fragment, found = self.dataset.get_fragment(number), []
        columns = [name for name in self.rows.columns if name in self.dataset.schema.names]
        for batch in _scan(fragment, columns):
            addresses = _column(batch, ROW_ADDRESS).to_numpy()
            found.append(places_of(addresses[self.find(batch)[1]]))
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _has_missed(self, ids: np.ndarray[Any, Any], before: pa.RecordBatch) -> Mask:
        """Return which rows were not in their places any more when what was made for them was given; a compaction keeps it."""
        assert self.rows.given_at is not None
        where, given = self._look_up(self.rows.given_at, ids, [CHANGED_AT])
        missed: Mask = where < 0
        at = np.flatnonzero(~missed)
        then = _column(before, ROW_ADDRESS).to_numpy()[at]
        here = _column(given, ROW_ADDRESS).to_numpy()[where[at]]
        changed_at = _column(given, CHANGED_AT).to_numpy()[where[at]]
        missed[at] = (then != here) & (changed_at > self.rows.since)
        return missed

    def _look_up(self, version: int, ids: np.ndarray[Any, Any], columns: Sequence[str]) -> tuple[np.ndarray[Any, Any], Any]:
        """Return rows of a version, and where each id is among them, -1 where it is not."""
        dataset = self._version(version)
        columns = [name for name in columns if name in dataset.schema.names or name == CHANGED_AT]
        numbers = ",".join(str(one) for one in ids.tolist())
        batches = list(_scan(dataset, columns, filter=f"{ROW_ID} in ({numbers})"))
        if not batches:
            return np.full(len(ids), -1), no_rows(pa.schema([pa.field(ROW_ADDRESS, pa.uint64())]))
        found = pa.concat_batches(batches)
        there = _column(found, ROW_ID).to_numpy()
        order = np.argsort(there)
        where = order[np.minimum(np.searchsorted(there, ids, sorter=order), len(there) - 1)]
        return np.where(there[where] == ids, where, -1), found

    def _version(self, version: int) -> Any:
        if version not in self._versions:
            opened = open_dataset(self.dataset.uri, self.storage, version)
            if opened is None:
                raise self._cleaned_up(version)
            self._versions[version] = opened
        return self._versions[version]

    def _cleaned_up(self, version: int) -> NeedsChange:
        return moved(
            f"version {version} of the Lance dataset {self.dataset.uri}, which an earlier epoch has read, was cleaned up, so "
            "that rows which have changed since cannot be told",
            "start a new write under another name, which takes all rows (with sink.only: All, if it adds columns); and keep each "
            "version until the next epoch has begun",
        )


def changes_of(table: PinnedLance, storage: StorageSettings) -> Changes | None:
    """Return the changed rows of a version that is read; None if it was not asked for them."""
    if table.changed is None:
        return None
    dataset = open_dataset(table.uri, storage, table.at_version)
    if dataset is None:
        raise moved(
            f"version {table.at_version} of the Lance dataset {table.uri} was cleaned up", "keep versions while a write runs"
        )
    return Changes(dataset, table.changed, storage)


def _column(rows: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column; NULL in each row if there is none of that name."""
    number = rows.schema.get_field_index(name)
    return rows.column(number) if number >= 0 else pa.nulls(rows.num_rows)


def _scan(of: Any, columns: Sequence[str], **how: Any) -> Iterator[pa.RecordBatch]:
    scanner = of.scanner(
        columns=list(columns), with_row_id=True, with_row_address=True, batch_size=_BATCH_ROWS, blob_handling="all_binary", **how
    )
    for batch in scanner.to_batches():
        yield as_plain(batch, plain_schema(batch.schema))
