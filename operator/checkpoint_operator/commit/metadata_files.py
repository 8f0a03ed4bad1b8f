"""Metadata files as pyiceberg's writers want to write them, put by one request each.

The library's own output opens a multipart upload for each file, however small, and asks for its length afterwards: five requests
where one does.
"""

from __future__ import annotations

from io import BytesIO

import obstore
import obstore.exceptions as obstore_errors
from pyiceberg.io import InputFile, OutputFile, OutputStream

from checkpoint_protocol.storage import StorageSettings
from checkpoint_protocol.store import open_raw_store, translate_store_error


class MetadataFile(OutputFile):
    """A file that is there, whole, when its stream was closed. Its name must be fresh."""

    def __init__(self, location: str, storage: StorageSettings) -> None:
        super().__init__(location)
        self._storage = storage
        self._size_bytes = 0

    def __len__(self) -> int:
        return self._size_bytes

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        raise NotImplementedError

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Stream(self)

    def put(self, data: bytes) -> None:
        """Store the bytes. Raises Retryable where the store does not answer."""
        folder, _, name = self.location.rpartition("/")
        try:
            obstore.put(open_raw_store(folder, self._storage), name, data, use_multipart=False)
        except (obstore_errors.BaseError, OSError) as error:
            raise translate_store_error(error, self.location) from error
        self._size_bytes = len(data)


class _Stream(BytesIO):
    def __init__(self, file: MetadataFile) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._file.put(data)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:  # what is not whole is not put
            super().close()
