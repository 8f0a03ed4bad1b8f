"""The keys that catalogs hand out to a write, where its pods mount them: an entry of one Secret of its namespace."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from checkpoint_operator.kube.api import KubeApi
from checkpoint_operator.pods.driver_pod import HANDED_KEYS_SECRET, handed_keys_secret
from checkpoint_protocol.places.handed_keys import RenewedKeys, are_over, written


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class HandedKeysEntry:
    """The entry of one write. Entries of others whose keys have all expired are removed: nobody reads them any more."""

    api: KubeApi
    namespace: str
    keys: RenewedKeys
    now: Callable[[], datetime] = _utc_now
    _put: bytes = b""

    def renew(self, uid: str) -> None:
        """Put the keys there if they are others. The catalog is asked when half of their life is over.

        NeedsChange and Retryable as RenewedKeys; Retryable where the API server does not answer, or does not let us.
        """
        if (text := written(self.keys.all())) == self._put:
            return
        data = {uid: base64.b64encode(text).decode()}
        secret = self.api.patch_secret(self.namespace, HANDED_KEYS_SECRET, {"data": data})
        if secret is None:
            self.api.create_secret(self.namespace, handed_keys_secret(data))
            # Another write of the namespace may have made it just now, with its own entry alone.
            secret = self.api.patch_secret(self.namespace, HANDED_KEYS_SECRET, {"data": data}) or {}
        if over := self._expired(secret.get("data") or {}):
            self.api.patch_secret(self.namespace, HANDED_KEYS_SECRET, {"data": dict.fromkeys(over)})
        self._put = text

    def _expired(self, data: Mapping[str, str]) -> list[str]:
        now = self.now()
        found = []
        for name, text in data.items():
            try:
                if are_over(base64.b64decode(text), now):
                    found.append(name)
            except (ValueError, binascii.Error):  # none of ours
                continue
        return found
