"""How Lance is told to reach a place: keyword arguments for whatever of pylance opens something there."""

from __future__ import annotations

from typing import Any

from lance.namespace import DescribeTableRequest, DescribeTableResponse, LanceNamespace

from checkpoint_protocol.places.storage import StorageSettings, lance_options


def access(uri: str, storage: StorageSettings) -> dict[str, Any]:
    """Return `storage_options` and, where a catalog hands out the keys, what Lance asks for others before they expire.

    For one use, soon: the keys are those of now. Errors as `lance_options`.
    """
    options = lance_options(uri, storage)
    entry = storage.entry_for(uri)
    if entry is None or not entry.is_vended:
        return {"storage_options": options or None}
    return {"storage_options": options, "namespace_client": _Renewing(uri, storage), "table_id": [uri]}


class _Renewing(LanceNamespace):  # type: ignore[misc]
    """A namespace of one table, which leads to its URI, with the keys of now."""

    def __init__(self, uri: str, storage: StorageSettings) -> None:
        self._uri = uri
        self._storage = storage

    def namespace_id(self) -> str:
        return self._uri

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:
        return DescribeTableResponse(location=self._uri, storage_options=lance_options(self._uri, self._storage))
