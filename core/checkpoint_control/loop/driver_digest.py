"""Digests of what of a manifest a driver is started with, and whether one goes on from stage to stage, or from epoch to epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from checkpoint_control.pipelines.decisions import named
from checkpoint_control.pipelines.found import spec_up_to
from checkpoint_control.ports import Write
from checkpoint_protocol.manifest.pipelines import parts_of
from checkpoint_protocol.manifest.spec import Spec

#: For so long a driver waits for the next stage of its epoch: the commit that finds out what it needs takes its time.
_STAGE_S: Final = 60.0
#: Commits in these modes need a stage of their own, of a merge or of a pack.
_MODES_WITH_STAGES: Final = ("Upsert", "AddColumns")
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


def keeps_for_epochs(spec: Spec) -> bool:
    """Whether a driver waits for the next epoch."""
    return spec.trigger is not None and spec.trigger.keep_driver is not None


def keeps_for_stages(spec: Spec) -> bool:
    """Whether a driver waits for the next stage of its epoch. That of a stream waits for the commit, within its attempt."""
    has_stages = bool(spec.stages) or spec.sink.mode in _MODES_WITH_STAGES or spec.sink.audit is not None
    return has_stages and spec.source.stream is None


def digest_of_kept(spec: Spec, defaults: str = "") -> str | None:
    """Return what a driver that waits for the next stage, or epoch, was started with; None where none is to wait.

    `defaults`: what else drivers are started with. A driver goes on with launches of its own digest only.
    """
    if not (keeps_for_epochs(spec) or keeps_for_stages(spec)):
        return None
    return hashlib.sha256(f"{digest_for_attempts(spec)} {defaults}".encode()).hexdigest()


def code_of_session(write: Write, renew: Callable[[Write], Write]) -> str | None:
    """Return the digest of the code of all stages of a write, as it is now; None where no driver goes from stage to stage."""
    spec = write.spec
    if not keeps_for_stages(spec):
        return None
    specs = [spec_up_to(spec, part) for part in parts_of(spec.stages)] if spec.stages else [spec]
    codes = [renew(replace(write, spec=one)) for one in specs]
    return hashlib.sha256(" ".join(f"{code.code_digest} {code.code}" for code in codes).encode()).hexdigest()


def keep_arguments(spec: Spec, stage: str, defaults: str = "") -> list[str]:
    """Return what tells a driver to wait, and for how long.

    One that was started for a stage which only the commit needs does not wait for the next epoch.
    """
    digest = digest_of_kept(spec, defaults)
    if digest is None:
        return []
    arguments: list[str] = []
    if keeps_for_epochs(spec) and (not stage or named(stage) is not None):
        assert spec.trigger is not None
        arguments += ["--keep", f"{spec.trigger.keep_driver:g}"]
    if keeps_for_stages(spec):
        arguments += ["--keep-stages", f"{_STAGE_S:g}"]
    return [*arguments, "--driver-digest", digest] if arguments else []
