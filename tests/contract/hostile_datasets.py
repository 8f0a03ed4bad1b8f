"""Lance datasets that somebody could put where a write names one, and who opens them: measured by test_memory_of_datasets.py."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import lance
import pyarrow as pa

from checkpoint_formats.lance import datasets
from checkpoint_protocol.places.patterns import Tenant
from checkpoint_protocol.places.storage import StorageSettings

_METADATA_BYTES: Final = 3 * datasets.MOST_MANIFEST_BYTES // 2


def _dataset(metadata_bytes: int) -> str:
    uri = tempfile.mkdtemp() + "/rows.lance"
    schema = pa.schema([("id", pa.int64())], metadata={"filler": "x" * metadata_bytes})
    lance.write_dataset(pa.table({"id": [1]}, schema=schema), uri)
    return uri


_LARGE: Final = _dataset(_METADATA_BYTES)
_ALLOWED: Final = _dataset(datasets.MOST_MANIFEST_BYTES * 9 // 10)


def _open(uri: str, version: int | None) -> str:
    dataset = datasets.open_dataset(uri, StorageSettings().used_by(Tenant("team", is_only=True)), version)
    return str(None if dataset is None else dataset.version)


CASES: Final[Mapping[str, Callable[[], str]]] = {
    "the newest": partial(_open, _LARGE, None),
    "a version": partial(_open, _LARGE, 1),
    "one within the bound": partial(_open, _ALLOWED, None),
}
