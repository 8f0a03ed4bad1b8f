"""Spark's own checkpoint of a query, and whether it is still the one that the rows of the table come from.

    <checkpoint URI>/streams/<uid>/metadata      the query's id, which is the write's, put before Spark sees the folder
                                   offsets/<n>   what micro-batch n reads, put by Spark before it runs; never changed
                                   commits/<n>   put by Spark after our function has returned: micro-batch n is committed
                                   state/        of aggregates, joins and windows

It is Spark's, and no record of ours: what counts is the digest of offsets/<n> in the plan of the epoch, and in its commit. A
folder that is older, or gone, would have Spark give other rows under numbers that are committed already.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.store.layout import stream_folder
from checkpoint_protocol.store.object_store import local_path
from checkpoint_protocol.store.plain_files import open_file_below, open_root

#: Of the file that has a query's id, and nothing else.
_METADATA_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Known:
    """What the records say of the micro-batches: so many are committed, the last one with these offsets (None for none).

    `planned`: the digests that attempts of the next one have planned with, of which nothing is committed.
    """

    committed: int
    offsets: str | None
    planned: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The folder of one write's query; in a volume that of one driver (`volume.py`).

    `root`: a folder that settings name. Below it, where others may write, no link is followed (`plain_files.py`).
    """

    root: Path
    uid: str
    path: str = ""

    @classmethod
    def below(cls, uri: str, uid: str) -> Checkpoint:
        """Return that of a write. NeedsChange for a store that is no disk."""
        store = local_path(uri)
        if store is None:
            raise NeedsChange(reasons.STREAM_REFUSED, f"{uri} is no folder on a disk, which Spark's checkpoint of a stream needs")
        return cls(store, uid, stream_folder(uid))

    @property
    def folder(self) -> Path:
        return self.root / self.path

    @property
    def query_id(self) -> str:
        """The uid as Spark wants it: itself, where it is a UUID."""
        try:
            return str(uuid.UUID(self.uid))
        except ValueError:
            return str(uuid.uuid5(uuid.NAMESPACE_OID, self.uid))

    def prepare(self, known: Known) -> None:
        """Make the folder, or make sure that it is the one of the rows that are committed. NeedsChange(CheckpointLost) if not."""
        if not self.check(known):
            self._put_id()

    def check(self, known: Known) -> bool:
        """Return whether the folder is there, as the one of the rows that are committed. NeedsChange(CheckpointLost) if not."""
        logged, done = self._numbers("offsets"), self._numbers("commits")
        found = self._read_id()
        if found is None:
            if known.committed or known.planned or logged or done:
                raise self.lost("has no metadata, by which Spark knows the query")
            return False
        if found != self.query_id:
            raise self.lost(f"is that of another query, {found}")
        last, next_batch = known.committed - 1, known.committed
        if max(logged, default=-1) < last:
            raise self.lost(f"ends before micro-batch {last}, which is in the table")
        if max(logged, default=-1) > next_batch or max(done, default=-1) > last:
            raise self.lost(f"is ahead: micro-batch {last} is the last one that is committed")
        # Spark logs what a micro-batch reads after it has noted that the one before is done.
        if max(done, default=-1) < last - 1:
            raise self.lost(f"has no note that micro-batch {last - 1} is done, which is in the table")
        if known.offsets is not None:
            self.compare(last, (known.offsets,))
        if known.planned:
            self.compare(next_batch, known.planned)
        return True

    def compare(self, batch: int, recorded: Collection[str | None]) -> None:
        """Refuse a micro-batch whose offsets are not those that were recorded under its number."""
        if self._numbers("offsets").isdisjoint({batch}):
            raise self.lost(f"does not say what micro-batch {batch} has read, of which there are records")
        digest = self.digest_of(batch)
        if any(digest != one for one in recorded):
            raise self.lost(f"has other offsets for micro-batch {batch} than those that it was staged with")

    def digest_of(self, batch: int) -> str:
        """Return the SHA-256 of what Spark has logged of a micro-batch before it ran it."""
        try:
            with open_file_below(self.root, f"{self.path}/offsets/{batch}") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise Corrupt(reasons.CHECKPOINT_LOST, f"{self.folder}/offsets/{batch} cannot be read: {error}") from error

    def lost(self, what: str) -> NeedsChange:
        return NeedsChange(
            reasons.CHECKPOINT_LOST,
            f"Spark's checkpoint of this stream, {self.folder}, {what}; going on would lose rows, or put some into the table "
            "twice. Put the folder back as it was when the write ran last; if it is lost, begin a write of another name, whose "
            "program reads the source from where the rows of the table end",
        )

    def _numbers(self, name: str) -> set[int]:
        try:
            with open_root(self.root) as root, root.folder(f"{self.path}/{name}") as folder:
                return {int(entry) for entry in folder.names() if entry.isdecimal()}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def _read_id(self) -> str | None:
        try:
            with open_file_below(self.root, f"{self.path}/metadata") as file:
                return str(json.loads(file.read(_METADATA_BYTES))["id"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.lost(f"has metadata that cannot be read ({error})") from error

    def _put_id(self) -> None:
        with open_root(self.root) as root, root.folder(self.path, make=True) as folder:
            made = f".metadata.{new_token()}"
            with folder.new_file(made) as file:
                file.write(json.dumps({"id": self.query_id}).encode())
            os.replace(made, "metadata", src_dir_fd=folder.handle, dst_dir_fd=folder.handle)
