"""Where the rows of some fragments are in a later version of their dataset.

A fragment keeps its number and the places of its rows for as long as it lives: deletes only mark rows, and columns come in files
of their own. A compaction puts new fragments in the place of old ones. Its transaction says which, and Lance writes the rows
that are not deleted in their order, one old fragment after the other; so their new places follow from the deletes of the version
before. Nothing else moves rows: an update deletes them, and adds what it makes of them as new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final

import lance
import numpy as np

from checkpoint_formats.lance.datasets import open_dataset, read_transaction
from checkpoint_formats.rows.selecting import Addresses, addresses_of, places_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LanceOrigin

#: The address of a row that is no input: there is no such fragment.
NO_INPUT: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_REPLACING: Final = (lance.LanceOperation.Overwrite, lance.LanceOperation.Restore)


def follow(dataset: Any, fragments: Mapping[int, tuple[int, frozenset[str]]], since: int) -> dict[int, LanceOrigin]:
    """Return the fragments of a version that have rows of these, as they were at version `since`, and what they are made of.

    `fragments`: of each, how many rows it had, and the names of its data files. Rows that are gone are in none.
    NeedsChange(SourceChanged) names the operation where their places cannot be told any more.
    """
    now = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    if all(number in now and is_same(now[number], *known) for number, known in fragments.items()):
        return {number: LanceOrigin(fragment=number, rows=rows, is_input=True) for number, (rows, _) in fragments.items()}
    known = {number: LanceOrigin(fragment=number, rows=rows, is_input=True) for number, (rows, _) in fragments.items()}
    for version in range(since + 1, dataset.version + 1):
        operation = _operation(dataset, version, since)
        if isinstance(operation, _REPLACING):
            raise _lost(dataset, since, f"version {version} is an {type(operation).__name__}, after which it has other rows")
        if isinstance(operation, lance.LanceOperation.Rewrite):
            for group in operation.groups:
                _rewrite(dataset, known, group, version, since)
    found = {number: origin for number, origin in known.items() if number in now}
    for number, origin in found.items():
        if now[number].physical_rows != origin.rows:
            raise _lost(
                dataset, since, f"fragment {number} has {now[number].physical_rows} rows, and {origin.rows} were expected"
            )
    return found


def is_same(fragment: Any, rows: int, files: frozenset[str]) -> bool:
    """Whether a fragment is still the one of that number, with its rows in their places: names of data files are random."""
    return fragment.physical_rows == rows and not files.isdisjoint(file.path for file in fragment.data_files())


def _rewrite(dataset: Any, known: dict[int, LanceOrigin], group: Any, version: int, since: int) -> None:
    old = list(group.old_fragments)
    if all(fragment.id not in known for fragment in old):
        return
    parts = []
    left = 0
    for fragment in old:
        origin = known.pop(fragment.id, None) or LanceOrigin(fragment=fragment.id, rows=fragment.physical_rows)
        parts.append(origin.model_copy(update={"live_at": version - 1}))
        left += fragment.physical_rows - (fragment.num_deletions or 0)
    made = [(fragment.id, fragment.physical_rows) for fragment in group.new_fragments]
    if sum(rows for _, rows in made) != left:
        raise _lost(dataset, since, f"the Rewrite of version {version} made {sum(rows for _, rows in made)} rows of {left}")
    for (number, rows), skip in zip(made, accumulate((rows for _, rows in made), initial=0), strict=False):
        known[number] = LanceOrigin(fragment=number, rows=rows, skip=skip, made_of=tuple(parts))


def _operation(dataset: Any, version: int, since: int) -> Any:
    transaction = read_transaction(dataset, version)
    if transaction is None:
        raise _lost(dataset, since, f"version {version} was cleaned up, so that its changes are unknown")
    return transaction.operation


def _lost(dataset: Any, since: int, why: str) -> NeedsChange:
    return NeedsChange(
        reasons.SOURCE_CHANGED,
        f"fragments of the Lance dataset {dataset.uri} were replaced since version {since}, of which the columns are computed, "
        f"and where their rows are now cannot be told: {why}; keep the dataset's versions while a write runs, and start a new "
        "write under another name: with sink.only: Null it computes what is missing",
    )


class Origins:
    """The addresses that rows of fragments had at first. Versions in between are opened for their deletes, once each."""

    def __init__(self, uri: str, storage: StorageSettings) -> None:
        self._uri, self._storage = uri, storage
        self._versions: dict[int, Any] = {}

    def addresses(self, origin: LanceOrigin) -> Addresses:
        """Return the former address of each row of a fragment, NO_INPUT where it had none."""
        if not origin.made_of:
            if not origin.is_input:
                return np.full(origin.rows, NO_INPUT, np.uint64)
            return addresses_of(origin.fragment, np.arange(origin.rows))
        parts = [self.addresses(part)[self._live(part)] for part in origin.made_of]
        made: Addresses = np.concatenate(parts)[origin.skip : origin.skip + origin.rows]
        if len(made) != origin.rows:
            raise NeedsChange(
                reasons.SOURCE_CHANGED,
                f"fragment {origin.fragment} of {self._uri} has {origin.rows} rows, and what it was made of has {len(made)}",
            )
        return made

    def _live(self, part: LanceOrigin) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the places of the rows that went into the next fragment."""
        assert part.live_at is not None
        if part.live_at not in self._versions:
            self._versions[part.live_at] = open_dataset(self._uri, self._storage, part.live_at)
        dataset = self._versions[part.live_at]
        fragment = dataset.get_fragment(part.fragment) if dataset is not None else None
        if fragment is None:
            raise NeedsChange(
                reasons.SOURCE_CHANGED,
                f"version {part.live_at} of the Lance dataset {self._uri} was cleaned up, so that it cannot be told any more "
                f"where the rows of its fragment {part.fragment} are; keep versions while a write runs, and start a new write "
                "under another name",
            )
        if fragment.metadata.deletion_file is None:
            return np.arange(part.rows)
        found = [batch.column(0).to_numpy() for batch in fragment.scanner(columns=[], with_row_address=True).to_batches()]
        return places_of(np.concatenate(found)) if found else np.empty(0, np.int64)
