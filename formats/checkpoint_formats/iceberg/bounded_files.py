"""Metadata of a table, which are read as a whole: of no more bytes than are allowed, also after they were unpacked.

pyiceberg reads such a file at once, and unpacks it, or each block of a manifest, at once. Who may write where the table lies can
put there what stands for gigabytes.
"""

from __future__ import annotations

import gzip
import zlib
from collections import deque
from collections.abc import Iterator
from io import BytesIO
from typing import Final, Protocol

from pyiceberg.io import InputFile, InputStream

from checkpoint_formats.iceberg.bounded_avro import MAGIC, TooLarge, measure
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

#: As pyiceberg names, and knows, what is packed.
_PACKED: Final = ".gz.metadata.json"
#: Of a manifest, or a list of manifests. Each is some hundred bytes in memory at the least.
_MOST_RECORDS: Final = 250_000
_CHUNK_BYTES: Final = 1 << 20


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class BoundedFile(InputFile):
    """Another file, which is refused where it has more bytes: NeedsChange(TableUnsupported), and little more is read."""

    def __init__(self, inner: InputFile, most_bytes: int) -> None:
        super().__init__(inner.location)
        self._inner = inner
        self._most_bytes = most_bytes

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        return self._inner.exists()

    def open(self, seekable: bool = True) -> InputStream:
        with self._inner.open(seekable) as stream:
            data = b"".join(self._chunks_of(stream))
        if self.location.endswith(_PACKED):
            try:
                deque(self._chunks_of(gzip.GzipFile(fileobj=BytesIO(data))), maxlen=0)
            except (OSError, EOFError, zlib.error) as error:
                raise NeedsChange(reasons.TABLE_UNSUPPORTED, f"{self.location} cannot be unpacked: {error}") from error
        elif data.startswith(MAGIC):
            self._refuse_larger_avro(data)
        return BytesIO(data)

    def _refuse_larger_avro(self, data: bytes) -> None:
        try:
            measure(data, 2 * self._most_bytes, _MOST_RECORDS)
        except TooLarge as error:
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"{self.location} stands for more than the {error} that are read of a manifest or a list of manifests; rewrite "
                "the manifests of the table",
            ) from error
        except (ValueError, OSError, zlib.error) as error:
            raise NeedsChange(reasons.TABLE_UNSUPPORTED, f"{self.location} cannot be unpacked: {error}") from error

    def _chunks_of(self, stream: _Readable) -> Iterator[bytes]:
        length = 0
        while chunk := stream.read(_CHUNK_BYTES):
            length += len(chunk)
            if length > self._most_bytes:
                raise NeedsChange(
                    reasons.TABLE_UNSUPPORTED,
                    f"{self.location} has more than the {self._most_bytes:,} bytes that are read of a table's metadata; expire "
                    "snapshots",
                )
            yield chunk
