"""A checkpoint store in which a record counts only if a process of its write has put it: see `macs.py`.

Signed are all records below control/ and staged/ of a write. Not what a record names with its digest (code, sealed keys),
progress, which is advice, and data files. What a controller reads below control/ a controller has put: see `macs.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.records import LaunchRecord
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.macs import MOST_MAC_BYTES, WriteKeys, is_signed_with, key_id_of, mac_of, sign
from checkpoint_protocol.store.object_store import ObjectStore, StoredObject


class KeySource(Protocol):
    """Where the keys of writes come from."""

    def of(self, uid: str, unknown_id: str | None = None) -> WriteKeys:
        """Return a write's keys. `unknown_id`: a key of this id was met that an earlier answer did not have."""


@dataclass(frozen=True, slots=True)
class KeysOfOneWrite:
    """A driver's: it knows no other write's."""

    keys: WriteKeys = field(repr=False)

    def of(self, uid: str, unknown_id: str | None = None) -> WriteKeys:
        return self.keys


@dataclass(slots=True)
class AuthenticatedStore:
    """Implements ObjectStore over another: signs the records of writes that are put, and refuses those that are not theirs.

    `get` gives the stored form, as copies of records are compared with what lies in the store; whoever decodes a record
    leaves the MAC out. Raises Corrupt(RecordForged) for a record that nobody with the write's key has put.
    """

    inner: ObjectStore
    source: KeySource
    #: The ids of the keys with which attempts were launched, by the paths of their launch records.
    _launched: dict[str, str | None] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return self.inner.uri

    def put_if_absent(self, path: str, data: bytes) -> bool:
        uid = layout.signed_for(path)
        if uid is None:
            return self.inner.put_if_absent(path, data)
        return self.inner.put_if_absent(path, self._signed(path, data, uid))

    def get(self, path: str, most_bytes: int) -> bytes | None:
        uid = layout.signed_for(path)
        stored = self.inner.get(path, most_bytes if uid is None else most_bytes + MOST_MAC_BYTES)
        if stored is not None and uid is not None:
            self._check(path, stored, uid)
        return stored

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        return self.inner.list(folder, borders)

    def delete(self, paths: Iterable[str]) -> None:
        self.inner.delete(paths)

    def _signed(self, path: str, data: bytes, uid: str) -> bytes:
        keys = self.source.of(uid)
        launch = layout.launch_of_answer(path)
        if launch is None:
            return sign(path, data, keys)
        # A driver knows the keys that there were when it was launched, and waits for this record.
        if launch not in self._launched:
            stored = self.inner.get(launch, LaunchRecord.most_bytes + MOST_MAC_BYTES)
            self._launched[launch] = key_id_of(stored) if stored is not None else None
        known = self._launched[launch]
        return sign(path, data, keys, known if known in keys.keys else None)

    def _check(self, path: str, stored: bytes, uid: str) -> None:
        keys, mac = self.source.of(uid), mac_of(stored)
        if mac is None:
            if not keys.accepts_unsigned:
                raise self._forged(
                    path,
                    "has no MAC: no driver of this write, and no operator, has put it; or a release without record keys did, and "
                    "recordKeys.acceptUnsigned in the chart's values lets such writes end",
                )
            return
        if mac.key not in keys.keys:
            keys = self.source.of(uid, mac.key)
        if mac.key not in keys.keys:
            raise self._forged(path, f"is signed with the key {mac.key[:32]!r}, which is not known here")
        if not is_signed_with(keys.keys[mac.key], path, stored, mac.sha256):
            raise self._forged(path, "has a MAC that is not of this write's key: somebody else has put or changed it")
        if keys.control is None or not layout.is_control(path):
            return
        if mac.control is None or not is_signed_with(keys.control[mac.key], path, stored, mac.control):
            raise self._forged(path, "is signed as a driver of this write signs, and only the operator puts such records")

    def _forged(self, path: str, what: str) -> Corrupt:
        return Corrupt(
            reasons.RECORD_FORGED,
            f"{self.uri}/{path} {what}; find out who may write there, and remove the object if it is not this write's",
        )
