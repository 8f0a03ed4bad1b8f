"""What the result of a stage depends on, as hashes. Pure.

`hash_in` is of all but the code: what is read (the source, or the stage before, by its `hash_out`), the calls with their
arguments and the columns that they declare, and the nonce of a reset. `hash_out` is of that, of the code, and of how text is
read, which may be mended while a stage is at work.

Stores hold hashes of the algorithm that was in use. One that is added here gets the next number, and the ones before stay: so
what another release has finished is found again, and an upgrade changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from checkpoint_protocol.manifest.pipelines import StagePart
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.records import HASH_ALGORITHM, Grouping


@dataclass(frozen=True, slots=True)
class Hashes:
    """Of one stage."""

    hash_in: str
    hash_out: str


def arguments_of(steps: Sequence[Step], shuffles: Grouping | None = None, groups: Grouping | None = None) -> JsonValue:
    """Return what of a stage decides which rows it gives, beside its code, as plain data."""
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
