"""Metadata files as pyiceberg's writers want to write them, put by one request each.

The library's own output opens a multipart upload for each file, however small, and asks for its length afterwards: five requests
where one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import obstore
import obstore.exceptions as obstore_errors
from pyiceberg.io import InputFile, OutputFile, OutputStream

from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.store.object_store import open_raw_store, translate_store_error
from checkpoint_protocol.store.parallel import in_threads


class MetadataFile(OutputFile):
    """A file that is whole when its stream was closed, and there when it was put after that. Its name must be fresh."""

    def __init__(self, location: str, storage: StorageSettings) -> None:
        super().__init__(location)
        self._storage = storage
        self._size_bytes = 0
        self._data: bytes | None = None

    def __len__(self) -> int:
        return self._size_bytes

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        raise NotImplementedError

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Stream(self)

    def keep(self, data: bytes) -> None:
        """Take what the file is to hold."""
        self._data, self._size_bytes = data, len(data)

    def put(self) -> None:
        """Store the file, unless that was seen to be done before. Raises Retryable where the store does not answer."""
        if self._data is None:
            return
        folder, _, name = self.location.rpartition("/")
        try:
            obstore.put(open_raw_store(folder, self._storage), name, self._data, use_multipart=False)
        except (obstore_errors.BaseError, OSError) as error:
            raise translate_store_error(error, self.location, self._storage.place) from error
        self._data = None


def put_all(files: Sequence[MetadataFile]) -> None:
    """Store the files side by side. When this returns they are all there; when it raises, it may be called again."""
    in_threads(MetadataFile.put, files, at_once=len(files))


class _Stream(BytesIO):
    def __init__(self, file: MetadataFile) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._file.keep(data)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:  # what is not whole is not put
            super().close()
