"""Which fragments of a dataset have rows that were made after a version of it, where rows have stable ids.

Of such a dataset each row says at which version it was made and changed last, wherever a compaction has put it; an append that is
staged at one version and lands at another counts by the latter. Whether all rows of the former version are still there is told by
their number: later versions only lose rows of it, and a restore that brings others back makes them more.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from checkpoint_formats.failures import moved
from checkpoint_formats.lance.datasets import identity_of, is_as_it_was, open_dataset, read_transaction
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records.formats.lance import PinnedLance

#: Columns that Lance makes: the versions at which a row was made, and changed last.
MADE_AT: Final = "_row_created_at_version"
CHANGED_AT: Final = "_row_last_updated_at_version"

_REMEDY: Final = "set onReplaced: Process to take all new fragments as new rows, or start a new write"


def transaction_of(dataset: Any) -> str | None:
    """Return what tells the version of a dataset from that of another; None where rows have no stable ids."""
    transaction = read_transaction(dataset, dataset.version) if dataset.has_stable_row_ids else None
    return str(transaction.uuid) if transaction is not None else None


def fragments_at(taken: PinnedLance, dataset: Any, storage: StorageSettings) -> dict[int, Any] | None:
    """Return the fragments of a version that was taken, by their numbers; None if the dataset does not have it any more.

    NeedsChange(SourceChanged) if the version of this number is another than the one that was taken.
    """
    then = open_dataset(dataset.uri, storage, taken.at_version)
    if then is None:
        return None
    if transaction_of(then) != taken.transaction:
        raise moved(
            f"version {taken.at_version} of the Lance dataset {taken.uri}, which an earlier epoch has taken, is another one now: "
            "the dataset was made again",
            "start a new write for it",
        )
    return {fragment.fragment_id: fragment for fragment in then.get_fragments()}


def find_made_since(taken: PinnedLance, dataset: Any, storage: StorageSettings) -> frozenset[int]:
    """Return the numbers of the fragments that have rows which were made after a version that was taken.

    NeedsChange(SourceChanged) unless all rows of that version are still there as they were, and if it is gone.
    """
    then = fragments_at(taken, dataset, storage)
    if then is None:
        raise moved(
            f"fragments of the Lance dataset {taken.uri} that an earlier epoch has taken were rewritten, and version "
            f"{taken.at_version}, which tells what was taken, was cleaned up",
            f"{_REMEDY}, and keep versions until the next epoch has begun",
        )
    found = set()
    left = updated = 0
    for fragment in dataset.get_fragments():
        before = then.get(fragment.fragment_id)
        if before is not None and is_as_it_was(identity_of(before), fragment):
            del then[fragment.fragment_id]
            continue
        for batch in fragment.scanner(columns=[MADE_AT, CHANGED_AT]).to_batches():
            made_at, changed_at = (column.to_numpy() for column in batch.columns)
            is_old = made_at <= taken.at_version
            left += int(np.count_nonzero(is_old))
            updated += int(np.count_nonzero(changed_at[is_old] > taken.at_version))
            if not is_old.all():
                found.add(fragment.fragment_id)
    deleted = sum(fragment.count_rows() for fragment in then.values()) - left
    if deleted > 0:
        what = f"{deleted:,} rows that an earlier epoch has taken were deleted"
    elif deleted < 0:
        what = f"{-deleted:,} rows that had been deleted before an earlier epoch came back"
    elif updated:
        what = f"{updated:,} rows that an earlier epoch has taken were updated, or got a column,"
    else:
        return frozenset(found)
    raise moved(
        f"{what} between versions {taken.at_version} and {dataset.version} of the Lance dataset {taken.uri}",
        f"set source.changes: Upserts if rows are upserted (it takes changed rows, and passes over deleted ones), or {_REMEDY}",
    )


def has_made_since(taken: PinnedLance, fragment: Any) -> bool:
    """Whether a fragment has rows that were made after a version that was taken."""
    return bool(fragment.count_rows(f"{MADE_AT} > {taken.at_version}"))
