"""Where the files of a Lance dataset may lie: its manifest may name other places than the dataset's own (base paths)."""

from __future__ import annotations

from typing import Any

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.storage import StorageSettings, entry_of


def refuse_bases_elsewhere(dataset: Any, uri: str, storage: StorageSettings) -> None:
    """Refuse a dataset (an open LanceDataset) that leads where nothing is to be opened: NeedsChange(TableUnsupported).

    Lance opens a base when it reads or writes a file there, with the dataset's own options; not when it opens the dataset.
    """
    beside = storage.beside(uri)
    own = entry_of(uri, storage)
    for base in dataset.base_paths().values():
        try:
            entry = entry_of(base.path, beside)
        except NeedsChange as error:
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"the Lance dataset {uri} has files elsewhere: {error.message}; copy it to one place",
            ) from error
        if entry is not None and entry != own:
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"the Lance dataset {uri} has files in {base.path}, which another storage entry ({entry.prefix}) covers, and "
                "Lance reaches all by one; copy it to one place",
            )
