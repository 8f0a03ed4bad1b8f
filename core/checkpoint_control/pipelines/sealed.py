"""What a stage has sealed by now, for people: `checkpointed-write preview --stage` reads it. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from checkpoint_control.pipelines.decisions import Cause, decide_stages
from checkpoint_control.pipelines.found import DigestOf, see_stages, spec_up_to, wanted_stages
from checkpoint_protocol import writes
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.pipelines import parts_of
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.records import HASH_ALGORITHM
from checkpoint_protocol.store.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class Sealed:
    """A stage that has sealed something.

    `is_as_now`: by the code and the arguments of now, all of it; if not, `because` says what has changed, where that is known.
    """

    key: EpochKey
    is_done: bool
    is_as_now: bool
    because: tuple[Cause, ...] = ()


def find_sealed(manifest: CheckpointedWrite, store: ObjectStore, number: int, digest_of: DigestOf) -> Sealed | None:
    """Return what the part of this number has sealed in the last epoch, best what a run would keep; None if there is nothing."""
    uid = writes.look_up_name(store, manifest.metadata.namespace, manifest.metadata.name)
    last = writes.last_epoch(store, uid) if uid is not None else 0
    if uid is None or not last:
        return None
    ledger, spec = Ledger(store, EpochKey(uid, last)), manifest.spec
    parts = parts_of(spec.stages, spec.reset)
    seen = see_stages(ledger, parts)
    decision = decide_stages(wanted_stages(spec, parts, digest_of), seen, HASH_ALGORITHM)[number]
    newest_first = seen[decision.name][::-1]
    for one in sorted(newest_first, key=lambda one: one.folder != decision.folder):
        own = replace(ledger, key=ledger.key.of_stage(one.folder))
        if not (digests := digests_of_sealed(own, one.attempt)):
            continue
        is_done = own.commits.read_commit() is not None
        if one.folder != decision.folder:
            return Sealed(own.key, is_done, False, decision.because)
        is_as_now = digests == {digest_of(spec_up_to(spec, parts[number]))}
        return Sealed(own.key, is_done, is_as_now, () if is_as_now else ("code",))
    return None


def digests_of_sealed(stage: Ledger, attempt: int) -> set[str]:
    """Return of which code the attempts are that have sealed something, of those that count with this one."""
    launch = stage.attempts.read_launch(attempt)
    numbers = (*launch.counted, attempt) if launch is not None else ()
    sealed = (number for number in numbers if next(stage.chains.seals_so_far([number]), None) is not None)
    return {made.code_digest for number in sealed if (made := stage.attempts.read_launch(number)) is not None}
