"""The columns of files, kept so that a later epoch need not open these files again."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from checkpoint_formats.port import TakenColumns
from checkpoint_formats.rows.plain_types import decode_schema, encode_schema
from checkpoint_protocol.records.inputs import MOST_COLUMNS_BYTES, FileColumns


class KeptColumns:
    """Columns by their digests: those that are recorded of taken files, and those that are found now.

    `read_as` are the rules by which columns are found: what was found by others tells nothing.
    """

    def __init__(self, read_as: str, taken: TakenColumns) -> None:
        self._read_as = read_as
        self._taken = taken
        self._decoded: dict[str, pa.Schema] = {}
        self._found: dict[str, FileColumns] = {}
        self._last: tuple[pa.Schema, str] | None = None
        self._room = MOST_COLUMNS_BYTES

    @property
    def found(self) -> tuple[FileColumns, ...]:
        return tuple(self._found.values())

    def of_taken(self, path: str) -> pa.Schema | None:
        """Return the columns of a taken file, the same object where they are the same; None: the file has to be opened."""
        known = self._taken.get(path)
        if known is None or known.read_as != self._read_as:
            return None
        if known.digest not in self._decoded:
            self._decoded[known.digest] = decode_schema(known.arrow_schema)
        return self._decoded[known.digest]

    def digest_of(self, columns: pa.Schema) -> str:
        """Return the digest of columns, and keep them, if they are not too many."""
        if self._last is not None and self._last[0] is columns:
            return self._last[1]
        encoded = encode_schema(columns)
        digest = hashlib.sha256(f"{self._read_as}\0{encoded}".encode()).hexdigest()[:16]
        if digest not in self._found and len(encoded) <= self._room:
            self._found[digest] = FileColumns(digest=digest, read_as=self._read_as, arrow_schema=encoded)
            self._room -= len(encoded)
        self._last = columns, digest
        return digest
