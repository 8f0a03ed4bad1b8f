"""Which stages of a write are kept, which go on and which are done anew, and the hashes that tell. Pure.

A stage's folder is named by what the stage depends on, so that a changed stage has another folder, and nothing of the old one is
lost: who takes the change back finds it again. Of one `hash_in` there may be several, numbered: a stage that is done is never
added to, so one whose code was edited since is done anew in the next one. One that is not done goes on, with the code of now.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import JsonValue

from checkpoint_protocol.manifest.pipelines import StagePart
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.records import HASH_ALGORITHM, Grouping

# What the result of a stage depends on, as hashes. Pure.
#
# `hash_in` is of all but the code: what is read (the source, or the stage before, by its `hash_out`), the calls with their
# arguments and the columns that they declare, and the nonce of a reset. `hash_out` is of that, of the code, and of how text is
# read, which may be mended while a stage is at work.
#
# Stores hold hashes of the algorithm that was in use. One that is added here gets the next number, and the ones before stay: so
# what another release has finished is found again, and an upgrade changes nothing.


@dataclass(frozen=True, slots=True)
class Hashes:
    """Of one stage."""

    hash_in: str
    hash_out: str


def arguments_of(steps: Sequence[Step], shuffles: Grouping | None = None, groups: Grouping | None = None) -> JsonValue:
    """Return the fields of a stage that decide which rows it gives, beside its code, as plain data."""
    calls = _calls_of(steps)
    if shuffles is not None:
        return {"steps": calls, "shuffles": shuffles.model_dump(mode="json")}
    return calls if groups is None else {"steps": calls, "groups": groups.model_dump(mode="json")}


def _calls_of(steps: Sequence[Step]) -> list[JsonValue]:
    return [
        {
            "call": step.call,
            "input": step.input,
            "arguments": dict(step.arguments),
            "output": None if step.output is None else dict(step.output),
        }
        for step in steps
    ]


def hashes_of(
    source: Source, parts: Sequence[StagePart], code_digests: Sequence[str], algorithm: int = HASH_ALGORITHM
) -> tuple[Hashes, ...]:
    """Return the hashes of all stages in order, each of which reads the one before."""
    digest, found = ALGORITHMS[algorithm], []
    read: dict[str, JsonValue] = {"source": source.identity}
    read_digest = source.read_digest
    for part, code_digest in zip(parts, code_digests, strict=True):
        hash_in = digest({**read, "steps": arguments_of(part.steps, part.shuffles, part.groups), "reset": part.nonce})
        hash_out = hash_out_of(hash_in, code_digest, read_digest, algorithm)
        found.append(Hashes(hash_in, hash_out))
        read, read_digest = {"stage": hash_out}, None
    return tuple(found)


def hash_out_of(hash_in: str, code_digest: str, read_digest: str | None, algorithm: int) -> str:
    """Return the hash of a stage's result. `read_digest`: how it read text, None where it read none."""
    return ALGORITHMS[algorithm]({"in": hash_in, "code": code_digest, "reading": read_digest})


def _sha256_of_json(content: Mapping[str, JsonValue]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


ALGORITHMS: Final[Mapping[int, Callable[[Mapping[str, JsonValue]], str]]] = {1: _sha256_of_json}


#: What of a stage has changed since it was done, or had got so far.
Cause = Literal["code", "input", "arguments", "upstream", "reset"]
IN_WORDS: Final[Mapping[Cause, str]] = {
    "code": "its code has changed",
    "input": "spec.source has changed",
    "arguments": "the definition of its steps has changed",
    "upstream": "its input is computed again",
    "reset": "spec.reset asks for it",
}
#: Keep: it is done. Continue: the rows that are left. Begin: nothing of it is there. Redo: what there is, is of something else.
What = Literal["keep", "continue", "begin", "redo"]

_FOLDER: Final = re.compile(r"(?P<stage>[a-z0-9][a-z0-9-]*)-(?P<hash>[0-9a-f]{16})-(?P<number>[1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class Named:
    """The name of a stage's folder, taken apart."""

    stage: str
    short_hash: str
    number: int

    def __str__(self) -> str:
        return f"{self.stage}-{self.short_hash}-{self.number}"


def named(folder: str) -> Named | None:
    """Take the name of a folder apart; None if it is none of a pipeline."""
    match = _FOLDER.fullmatch(folder)
    return Named(match["stage"], match["hash"], int(match["number"])) if match else None


def title_of(folder: str) -> str:
    """Return what people call a stage: the name that the manifest gives it, where it is one of these."""
    known = named(folder)
    return known.stage if known is not None else folder


@dataclass(frozen=True, slots=True)
class Seen:
    """What the store has of a stage under one name.

    `folder` is empty for the last stage, whose records are the epoch's own. `hash_out`: None until it is done. `source` and
    `arguments`: what it read and was called with at last, to say what has changed since.
    """

    folder: str
    algorithm: int
    hash_in: str
    hash_out: str | None
    source: JsonValue
    arguments: JsonValue
    reads: str = ""
    #: The last attempt, and whether it is at work, or may be.
    attempt: int = 0
    is_open: bool = False
    #: All is sealed: what follows needs nobody's code.
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """A stage as the manifest and the code say now. `hashes` by algorithm."""

    name: str
    hashes: Mapping[int, Hashes]
    source: JsonValue
    arguments: JsonValue


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a stage. `folder` is where it is, or will be, done: empty for the last one."""

    name: str
    what: What
    folder: str
    algorithm: int
    hash_in: str
    because: tuple[Cause, ...] = ()


def said_of(stage: Decision) -> str:
    """Return a line on a stage that is being done now."""
    match stage.what:
        case "redo":
            return f"the stage {stage.name} is repeated: {'; '.join(IN_WORDS[cause] for cause in stage.because)}"
        case "continue":
            return f"the stage {stage.name} continues with the rows that are left"
        case "begin" | "keep":
            return f"the stage {stage.name} begins"


def is_under_way(there: Sequence[Seen]) -> bool:
    """Whether the last stage is at work, or has done all: it ends with what it was recorded with, and the epoch with it.

    An edit counts from the next attempt on, as in writes without stages.
    """
    return any(one.is_open or one.is_complete for one in there)


def as_under_way(wanted: Sequence[Wanted], last: Seen) -> tuple[Decision, ...]:
    """Return the decisions where nothing is to be decided any more."""
    kept = tuple(Decision(stage.name, "keep", "", last.algorithm, "") for stage in wanted[:-1])
    return (*kept, Decision(wanted[-1].name, "continue", "", last.algorithm, last.hash_in))


def decide_stages(wanted: Sequence[Wanted], seen: Mapping[str, Sequence[Seen]], newest: int) -> tuple[Decision, ...]:
    """Return a decision for each stage, in order. `seen`: by the name of the stage. `newest`: the algorithm for new folders."""
    decisions: list[Decision] = []
    for number, stage in enumerate(wanted):
        there, is_last = seen.get(stage.name, ()), number == len(wanted) - 1
        before = decisions[-1] if decisions else None
        decisions.append(_decide_last(stage, there, before, newest) if is_last else _decide(stage, there, before, newest))
    return tuple(decisions)


def _decide(stage: Wanted, there: Sequence[Seen], before: Decision | None, newest: int) -> Decision:
    same = [one for one in there if _is_same(stage, one)]
    for one in same:
        if one.hash_out is not None and one.hash_out == stage.hashes[one.algorithm].hash_out:
            return Decision(stage.name, "keep", one.folder, one.algorithm, one.hash_in)
    for one in same:
        if one.hash_out is None:
            return Decision(stage.name, "continue", one.folder, one.algorithm, one.hash_in)
    hash_in = stage.hashes[newest].hash_in
    numbers = [known.number for one in there if (known := named(one.folder)) and known.short_hash == hash_in[:16]]
    folder = str(Named(stage.name, hash_in[:16], max(numbers, default=0) + 1))
    what: What = "redo" if there else "begin"
    return Decision(stage.name, what, folder, newest, hash_in, _causes(stage, there, before) if there else ())


def _decide_last(stage: Wanted, there: Sequence[Seen], before: Decision | None, newest: int) -> Decision:
    """Decide of the stage whose result is the table's: it is not committed, or nobody would ask."""
    reads = before.folder if before is not None else ""
    for one in there:
        if _is_same(stage, one) and one.reads == reads:
            return Decision(stage.name, "continue", "", one.algorithm, one.hash_in)
    hash_in = stage.hashes[newest].hash_in
    what: What = "redo" if there else "begin"
    return Decision(stage.name, what, "", newest, hash_in, _causes(stage, there, before) if there else ())


def _is_same(stage: Wanted, one: Seen) -> bool:
    known = stage.hashes.get(one.algorithm)
    return known is not None and known.hash_in == one.hash_in


def _causes(stage: Wanted, there: Sequence[Seen], before: Decision | None) -> tuple[Cause, ...]:
    """Say what has changed against what is nearest: a folder of the same `hash_in`, else the last one."""
    if any(_is_same(stage, one) and one.hash_out is not None for one in there):
        return ("code",)
    last = there[-1]
    causes: list[Cause] = []
    if before is not None and (before.what in ("redo", "begin") or before.folder != last.reads):
        causes.append("upstream")
    if before is None and last.source != stage.source:
        causes.append("input")
    if last.arguments != stage.arguments:
        causes.append("arguments")
    return tuple(causes) or ("reset",)
