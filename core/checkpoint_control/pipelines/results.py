"""Which results of stages a store has: the finished ones, what the others have sealed, and what an edit costs of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import JsonValue

from checkpoint_control.pipelines.decisions import (
    ALGORITHMS,
    Cause,
    Decision,
    Seen,
    Wanted,
    arguments_of,
    as_under_way,
    decide_stages,
    hash_out_of,
    hashes_of,
    is_under_way,
    named,
)
from checkpoint_protocol import writes
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.pipelines import StagePart, parts_of, stages_up_to
from checkpoint_protocol.manifest.spec import CheckpointedWrite, Spec
from checkpoint_protocol.records import HASH_ALGORITHM, LaunchRecord
from checkpoint_protocol.store.object_store import ObjectStore

#: Returns the digest of the code of a manifest whose last stage is the one in question.
DigestOf = Callable[[Spec], str]


def decide(ledger: Ledger, spec: Spec, digest_of: DigestOf) -> tuple[Decision, ...]:
    """Return what becomes of each stage of the epoch that this ledger is of. Changes nothing."""
    parts = parts_of(spec.stages, spec.reset)
    return decide_stages(wanted_stages(spec, parts, digest_of), see_stages(ledger, parts), HASH_ALGORITHM)


def at_work(ledger: Ledger, but: str = "") -> Iterator[tuple[Ledger, int]]:
    """Give the attempts that are at work on stages of the epoch, or may be, also on stages that the manifest has no more.

    The last stage has its attempts in the epoch itself. `but`: not those in this folder.
    """
    for key in writes.list_stages(ledger.store, ledger.key):
        own = replace(ledger, key=key)
        number = max(own.attempts.list_attempts(), default=None) if named(key.stage) is not None and key.stage != but else None
        if number is not None and own.attempts.read_closed(number) is None:
            yield own, number


def foresee(ledger: Ledger, spec: Spec, digest_of: DigestOf) -> tuple[Decision, ...]:
    """Return what will become of each stage: as `decide`, unless the last one is under way. Changes nothing."""
    parts = parts_of(spec.stages, spec.reset)
    wanted, seen = wanted_stages(spec, parts, digest_of), see_stages(ledger, parts)
    last = seen[parts[-1].name]
    return as_under_way(wanted, last[-1]) if is_under_way(last) else decide_stages(wanted, seen, HASH_ALGORITHM)


def digest_to_approve(spec: Spec, digest_of: DigestOf) -> str:
    """Return what says of a manifest which code, of all stages, reads which source, and how: what a person approves."""
    if spec.stages:
        parts: Sequence[StagePart] = parts_of(spec.stages, spec.reset)
        digests = [digest_of(spec_up_to(spec, part)) for part in parts]
    else:
        parts, digests = (spec.last_part,), [digest_of(spec)]
    last = hashes_of(spec.source, parts, digests)[-1]
    content: dict[str, JsonValue] = {
        "stages": last.hash_out,
        "source": spec.source.model_dump(mode="json", by_alias=True, exclude_defaults=True),
    }
    return ALGORITHMS[HASH_ALGORITHM](content)[:16]


def spec_up_to(spec: Spec, part: StagePart) -> Spec:
    """Return the manifest of a write that ends with this stage."""
    number = next(number for number, one in enumerate(parts_of(spec.stages)) if one.name == part.name)
    return spec.model_copy(update={"stages": stages_up_to(spec.stages, number)})


def wanted_stages(spec: Spec, parts: Sequence[StagePart], digest_of: DigestOf) -> list[Wanted]:
    digests = [digest_of(spec_up_to(spec, part)) for part in parts]
    by_algorithm = {algorithm: hashes_of(spec.source, parts, digests, algorithm) for algorithm in ALGORITHMS}
    return [
        Wanted(
            name=part.name,
            hashes={algorithm: hashes[number] for algorithm, hashes in by_algorithm.items()},
            source=spec.source.identity,
            arguments=arguments_of(part.steps, part.shuffles, part.groups),
        )
        for number, part in enumerate(parts)
    ]


def see_stages(ledger: Ledger, parts: Sequence[StagePart]) -> dict[str, list[Seen]]:
    """Return what there is, by the name of the stage, in the order of the folders' numbers. Changes nothing."""
    names = {part.name for part in parts[:-1]}
    seen: dict[str, list[Seen]] = {part.name: [] for part in parts}
    folders = [(known, key) for key in writes.list_stages(ledger.store, ledger.key) if (known := named(key.stage)) is not None]
    for known, key in sorted(folders, key=lambda item: item[0].number):
        if known.stage in names and (one := _see(replace(ledger, key=key), key.stage)) is not None:
            seen[known.stage].append(one)
    numbers = ledger.attempts.list_attempts()
    launch = ledger.attempts.read_launch(numbers[-1]) if numbers else None
    if launch is not None:
        seen[parts[-1].name].append(_seen(ledger, "", launch, None))
    return seen


def _see(ledger: Ledger, folder: str) -> Seen | None:
    commit = ledger.commits.read_commit()
    numbers = ledger.attempts.list_attempts()
    number = commit.attempts if commit is not None else numbers[-1] if numbers else None
    launch = ledger.attempts.read_launch(number) if number is not None else None
    if launch is None or launch.stage is None:
        return None
    read_digest = launch.source.read_digest if not launch.reads_stage else None
    is_known = commit is not None and launch.stage.algorithm in ALGORITHMS
    made = hash_out_of(launch.stage.hash_in, launch.code_digest, read_digest, launch.stage.algorithm) if is_known else None
    # One of a later release's algorithm is nothing that could be gone on with here.
    return _seen(ledger, folder, launch, made)


def _seen(ledger: Ledger, folder: str, launch: LaunchRecord, hash_out: str | None) -> Seen:
    identity, closed = launch.stage, ledger.attempts.read_closed(launch.attempt)
    return Seen(
        folder=folder,
        algorithm=identity.algorithm if identity is not None else 0,
        hash_in=identity.hash_in if identity is not None else "",
        hash_out=hash_out,
        source=launch.source.identity,
        arguments=arguments_of(launch.steps, identity.shuffles, identity.groups) if identity is not None else None,
        reads=launch.reads_stage,
        attempt=launch.attempt,
        is_open=closed is None,
        is_complete=closed is not None and closed.complete,
    )


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


_EDITS: Final[frozenset[Cause]] = frozenset({"code", "input", "arguments"})


def redone_by_an_edit(epoch: Ledger, spec: Spec, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """Return the stages with sealed rows that are to be done anew, where a person has not asked for it.

    `spec.reset` asks for it. A stage that has begun anew was approved, and what comes after it with it.
    """
    first = next((number for number, one in enumerate(decisions) if one.what != "keep"), None)
    redone = [one for one in decisions if one.what == "redo"]
    if first is None or not redone:
        return ()
    seen = see_stages(epoch, parts_of(spec.stages, spec.reset))
    if not _is_edited(decisions[first], decisions[first - 1] if first else None, seen):
        return ()
    return tuple(one for one in redone if any(_holds_rows(epoch, there) for there in seen[one.name]))


def _is_edited(one: Decision, before: Decision | None, seen: Mapping[str, Sequence[Seen]]) -> bool:
    """Whether the first stage that is not kept is one because of an edit, and has not begun since."""
    if one.what != "redo":
        return one.what == "begin"  # it may have come between two that are done
    if one.because == ("upstream",) and before is not None:
        # Of the same stage before, another result: that was approved. Another stage before: one was taken out.
        read = named(seen[one.name][-1].reads)
        return read is None or read.stage != before.name
    return bool(_EDITS & set(one.because))


def _holds_rows(epoch: Ledger, there: Seen) -> bool:
    own = replace(epoch, key=epoch.key.of_stage(there.folder)) if there.folder else epoch
    return bool(digests_of_sealed(own, there.attempt))
