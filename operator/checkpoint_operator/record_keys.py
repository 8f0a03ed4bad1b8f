"""The operator's keys for records, in a Secret of its own namespace: made and renewed here, and read by nobody else.

The chart makes the Secret, empty, and keeps it. Each of its entries is a key, named by when it was made (seconds since 1970) and
an id: 1795430000-3f9c0a1b. The newest signs; all of them are believed, for as long as they are there. One entry is no key:
`cluster`, an id under which checkpoint stores have the names of this cluster's writes.
"""

from __future__ import annotations

import base64
import binascii
import functools
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from checkpoint_operator.kube.api import Conflict, KubeApi, Object
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.store.macs import KEY_BYTES, WriteKeys, derive, derive_control

_log = logging.getLogger(__name__)
_ENTRY: Final = re.compile(r"([0-9]{1,12})-([0-9a-f]{8})")
_CLUSTER_ENTRY: Final = "cluster"
_CLUSTER: Final = re.compile(r"[0-9a-f]{16}")
_MOST_WRITES: Final = 4096
#: Records of strangers must not make us ask the API server each time.
_BETWEEN_READS_S: Final = 30.0
_TRIES: Final = 5


class _Key(NamedTuple):
    made_at: int
    id: str
    key: bytes


@dataclass(slots=True)
class RecordKeys:
    """Implements KeySource. Thread-safe; several operators may do so at once.

    `renew_after_s`: a newer key than this one is made when it is so old; 0: never.
    """

    api: KubeApi
    namespace: str
    secret: str
    accepts_unsigned: bool = False
    renew_after_s: float = 0.0
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    random_bytes: Callable[[int], bytes] = secrets.token_bytes
    #: The id of this cluster, after `load`: the same for as long as the Secret is kept.
    cluster: str = ""
    _keys: tuple[_Key, ...] = ()
    _read_at: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _of: Callable[[str], WriteKeys] = field(init=False)

    def __post_init__(self) -> None:
        self._of = functools.lru_cache(_MOST_WRITES)(self._derive)

    def load(self) -> None:
        """Read the keys, and make one where there is none, or the newest is too old.

        Raises NeedsChange where there is no such Secret, or an entry of it is no key; Retryable where the API does not answer.
        """
        with self._lock:
            for _ in range(_TRIES):
                try:
                    keys = self._read()
                    break
                except Conflict:
                    continue
            else:
                raise NeedsChange(
                    reasons.API_CONFLICT, f"{self._where} is changed again and again by somebody else: leave it to the operator"
                )
            self._read_at = self.clock()
            if keys != self._keys:
                self._keys = keys
                self._of = functools.lru_cache(_MOST_WRITES)(self._derive)

    def refresh(self) -> None:
        """As `load`; what goes wrong is told in the log, and what is known stays."""
        try:
            self.load()
        except CheckpointError as error:
            _log.warning("the record keys could not be read anew: %s", error.message)

    def of(self, uid: str, unknown_id: str | None = None) -> WriteKeys:
        """Return a write's keys. For an id that is not known, another operator's of just now, the Secret is read anew."""
        if unknown_id is not None and self.clock() - self._read_at > _BETWEEN_READS_S:
            self.refresh()
        return self._of(uid)

    @property
    def _where(self) -> str:
        return f"the Secret {self.namespace}/{self.secret}"

    def _derive(self, uid: str) -> WriteKeys:
        if not self._keys:
            raise NeedsChange(reasons.CREDENTIALS_REFUSED, f"{self._where} has no key yet")
        newest = max(self._keys)
        return WriteKeys(
            current=newest.id,
            keys={key.id: derive(key.key, uid) for key in self._keys},
            control={key.id: derive_control(key.key, uid) for key in self._keys},
            accepts_unsigned=self.accepts_unsigned,
        )

    def _read(self) -> tuple[_Key, ...]:
        body = self._existing(self.api.get_secret(self.namespace, self.secret))
        keys, entries = self._keys_in(body), {}
        now = int(self.now())
        if not keys or (self.renew_after_s and now - keys[-1].made_at >= self.renew_after_s):
            made = _Key(now, self.random_bytes(4).hex(), self.random_bytes(KEY_BYTES))
            entries[f"{made.made_at}-{made.id}"] = made.key
            _log.info("a key for records is made: %s", made.id)
        if _CLUSTER_ENTRY not in (body.get("data") or {}):
            entries[_CLUSTER_ENTRY] = self.random_bytes(8).hex().encode()
        if entries:
            version = body["metadata"]["resourceVersion"]
            data = {name: base64.b64encode(value).decode() for name, value in entries.items()}
            patch = {"metadata": {"resourceVersion": version}, "data": data}
            body = self._existing(self.api.patch_secret(self.namespace, self.secret, patch))
        self.cluster = self._cluster_in(body)
        return self._keys_in(body)

    def _existing(self, body: Object | None) -> Object:
        if body is None:
            raise NeedsChange(
                reasons.CREDENTIALS_REFUSED, f"{self._where}, for the keys of records, does not exist; helm upgrade makes it"
            )
        return body

    def _cluster_in(self, body: Object) -> str:
        try:
            found = base64.b64decode((body.get("data") or {}).get(_CLUSTER_ENTRY, ""), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            found = ""
        if not _CLUSTER.fullmatch(found):
            raise NeedsChange(
                reasons.CREDENTIALS_REFUSED,
                f"the entry {_CLUSTER_ENTRY!r} of {self._where} is not as the operator made it; bring it back, or set "
                "clusterName: without either, objects that are made again are new writes",
            )
        return found

    def _keys_in(self, body: Object) -> tuple[_Key, ...]:
        data: Mapping[str, str] = body.get("data") or {}
        return tuple(sorted(self._key_of(name, text) for name, text in data.items() if name != _CLUSTER_ENTRY))

    def _key_of(self, name: str, text: str) -> _Key:
        match = _ENTRY.fullmatch(name)
        try:
            key = base64.b64decode(text, validate=True)
        except binascii.Error:
            key = b""
        if match is None or len(key) != KEY_BYTES:
            raise NeedsChange(
                reasons.CREDENTIALS_REFUSED,
                f"the entry {name!r} of {self._where} is no key for records, which only the operator makes; remove the entry",
            )
        return _Key(int(match[1]), match[2], key)
