"""pyiceberg's files over obstore, where pyiceberg's own clients take no key file, no anonymous access and no bound on retries,
or ask more often than they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, cast

import obstore
import obstore.exceptions as obstore_errors
import pyarrow as pa
from obstore.store import from_url
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from checkpoint_formats.files.buckets import open_for_arrow
from checkpoint_protocol.places.source_paths import locate
from checkpoint_protocol.places.storage import StorageSettings, obstore_options
from checkpoint_protocol.store.object_store import head_object, translate_store_error


class ObjectFileIO(FileIO):
    """Opens objects. What is not there is a FileNotFoundError; other failures are the family's own.

    `is_whole`: each is read in its order, and written, by one request, and the name of one that is written is fresh.
    """

    def __init__(self, storage: StorageSettings, *, is_whole: bool = False) -> None:
        super().__init__({})
        self._storage = storage
        self._kind = _WholeFile if is_whole else _ObjectFile
        #: By their buckets. All are reached by one storage entry.
        self._stores: dict[str, Any] = {}

    def new_input(self, location: str) -> InputFile:
        return self._file(location)

    def new_output(self, location: str) -> OutputFile:
        return self._file(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._file(location if isinstance(location, str) else location.location).delete()

    def _file(self, location: str) -> _ObjectFile:
        at = locate(location)
        with _translating(location, self._storage):
            if at.root not in self._stores:
                self._stores[at.root] = from_url(at.root, **obstore_options(location, self._storage))
        return self._kind(location, self._stores[at.root], self._storage)


class _ObjectFile(InputFile, OutputFile):
    def __init__(self, location: str, store: Any, storage: StorageSettings) -> None:
        super().__init__(location)
        self._at = locate(location)
        self._store = store
        self._storage = storage

    def __len__(self) -> int:
        with _translating(self.location, self._storage):
            return head_object(self._store, self._at.key)["size"]

    def exists(self) -> bool:
        try:
            return len(self) >= 0
        except FileNotFoundError:
            return False

    def open(self, seekable: bool = True) -> InputStream:
        with _translating(self.location, self._storage):
            return cast(InputStream, open_for_arrow(self._store, self._at, self._storage.place))

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(f"{self.location} exists already")
        with _translating(self.location, self._storage):
            writer = obstore.open_writer(self._store, self._at.key)
        return cast(OutputStream, pa.PythonFile(_Writer(writer, self), mode="w"))

    def to_input_file(self) -> InputFile:
        return self

    def delete(self) -> None:
        with _translating(self.location, self._storage):
            obstore.delete(self._store, self._at.key)


class _WholeFile(_ObjectFile):
    def open(self, seekable: bool = True) -> InputStream:
        with _translating(self.location, self._storage):
            return cast(InputStream, _Chunks(self, iter(obstore.get(self._store, self._at.key).stream())))

    def create(self, overwrite: bool = False) -> OutputStream:
        return WholeStream(self._put)

    def _put(self, data: bytes) -> None:
        with _translating(self.location, self._storage):
            obstore.put(self._store, self._at.key, data, use_multipart=False)


class _Chunks:
    """What comes of an object, as it comes: `read` gives the next bytes, as many as there are."""

    def __init__(self, file: _WholeFile, chunks: Iterator[Any]) -> None:
        self._file, self._chunks = file, chunks

    def __enter__(self) -> _Chunks:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, size: int = -1) -> bytes:
        with _translating(self._file.location, self._file._storage):
            return bytes(next(self._chunks, b""))


class WholeStream(BytesIO):
    """Gives all that was written to whoever keeps it, once it is closed; nothing after an error, when it is not whole."""

    def __init__(self, keep: Callable[[bytes], None]) -> None:
        super().__init__()
        self._keep = keep

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._keep(data)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            super().close()


@contextmanager
def _translating(location: str, storage: StorageSettings) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (obstore_errors.BaseError, OSError) as error:
        raise translate_store_error(error, location, storage.place) from error


class _Writer:
    """An obstore writer as pyarrow wants a file: the object is there, as a whole, once it is closed."""

    closed = False

    def __init__(self, writer: obstore.WritableFile, file: _ObjectFile) -> None:
        self._writer = writer
        self._file = file
        self._size_bytes = 0

    def write(self, data: Any) -> int:
        with _translating(self._file.location, self._file._storage):
            written = self._writer.write(memoryview(data).cast("B"))
        self._size_bytes += written
        return written

    def tell(self) -> int:
        return self._size_bytes

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
        with _translating(self._file.location, self._file._storage):
            self._writer.close()
