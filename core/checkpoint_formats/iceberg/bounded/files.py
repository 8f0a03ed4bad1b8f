"""Metadata of a table, which are read as a whole: of no more bytes than are allowed, also after they were unpacked.

pyiceberg reads such a file at once, and unpacks it, or each block of a manifest, at once. Who may write where the table lies can
put there what stands for gigabytes.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Final, Protocol

from pyiceberg.io import InputFile, InputStream

from checkpoint_formats.iceberg.bounded.avro import MAGIC, TooLarge, measure
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.store.memory import hold_table, memory_to_decode, most_table_bytes

#: As pyiceberg names, and knows, what is packed.
_PACKED: Final = ".gz.metadata.json"
#: Of a manifest, or a list of manifests. Each is some hundred bytes in memory at the least.
_MOST_RECORDS: Final = 250_000
_CHUNK_BYTES: Final = 1 << 20
#: Memory for a byte that may be read, where nothing else says how much there is.
_MEMORY: Final = 16


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
        if data.startswith(MAGIC):
            self._hold_avro(data)
        else:
            hold_json(self._unpacked(data), self.location, self._most_bytes)
        return BytesIO(data)

    def _unpacked(self, data: bytes) -> bytes:
        if not self.location.endswith(_PACKED):
            return data
        try:
            return b"".join(self._chunks_of(gzip.GzipFile(fileobj=BytesIO(data))))
        except (OSError, EOFError, zlib.error) as error:
            raise NeedsChange(reasons.TABLE_UNSUPPORTED, f"{self.location} cannot be unpacked: {error}") from error

    def _hold_avro(self, data: bytes) -> None:
        try:
            memory = measure(data, 2 * self._most_bytes, _MOST_RECORDS, _most_memory(self._most_bytes))
        except TooLarge as error:
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"{self.location} stands for more than the {error} that are read of a manifest or a list of manifests; rewrite "
                "the manifests of the table",
            ) from error
        except (ValueError, OSError, zlib.error, KeyError, TypeError, RecursionError) as error:
            raise NeedsChange(reasons.TABLE_UNSUPPORTED, f"{self.location} cannot be unpacked: {error}") from error
        hold_table(memory)

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


def hold_json(text: bytes, where: str, most_bytes: int) -> None:
    """Wait for room for what a table's metadata are decoded to. NeedsChange(TableUnsupported) if they take more than there is.

    `most_bytes`: of the text, which has no more.
    """
    memory, most_memory = memory_to_decode(text), _most_memory(most_bytes)
    if memory > most_memory:
        raise NeedsChange(
            reasons.TABLE_UNSUPPORTED,
            f"reading {where} would take about {memory:,} bytes of memory, and the operator has {most_memory:,} for the metadata "
            "of tables; expire snapshots, or raise recordMemory and resources.limits.memory in the chart's values",
        )
    hold_table(memory)


def _most_memory(most_bytes: int) -> int:
    return most_table_bytes() or _MEMORY * most_bytes
