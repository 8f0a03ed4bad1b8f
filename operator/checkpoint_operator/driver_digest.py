"""Digests of what of a manifest a driver is started with."""

from __future__ import annotations

import hashlib
from typing import Final

from checkpoint_protocol.manifest import Spec

#: What counts at once, for whatever driver is at work.
_COUNTS_AT_ONCE: Final = frozenset(
    {
        "on_row_error",
        "quarantine",
        "run_nonce",
        "suspend",
        "backoff_limit",
        "active_deadline_seconds",
        "progress_deadline_seconds",
        "ttl_seconds_after_finished",
        "on_recreate",
        "deletion_policy",
    }
)


def digest_for_attempts(spec: Spec) -> str:
    """Return a digest of what of a manifest counts from the next attempt only."""
    return hashlib.sha256(spec.model_dump_json(exclude=set(_COUNTS_AT_ONCE)).encode()).hexdigest()[:32]


def digest_of_kept(spec: Spec, defaults: str = "") -> str | None:
    """Return what a driver that waits for the next epoch was started with; None where none is to wait.

    `defaults`: what else drivers are started with. A driver goes on with launches of its own digest only.
    """
    if spec.trigger is None or spec.trigger.keep_driver is None:
        return None
    return hashlib.sha256(f"{digest_for_attempts(spec)} {defaults}".encode()).hexdigest()


def keep_arguments(spec: Spec, stage: str, defaults: str = "") -> list[str]:
    """Return what tells a driver to wait for the next epoch, and for how long. Drivers of stages do not wait."""
    digest = digest_of_kept(spec, defaults)
    if digest is None or stage:
        return []
    assert spec.trigger is not None
    return ["--keep", f"{spec.trigger.keep_driver:g}", "--driver-digest", digest]
