"""JSON of the API server that is nested too deep for a recursive parser."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest

from checkpoint_operator.cluster import api_json
from checkpoint_operator.cluster.watching import _BoundedContent
from checkpoint_protocol.manifest import MOST_DEPTH, ManifestInvalid, validate_model
from checkpoint_protocol.settings import Settings


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * depth + b"1" + closing * depth


def depth_of(value: object) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((depth_of(one) for one in inner), default=0)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"\\"[": ', b"}]")])
@pytest.mark.parametrize("depth", [3000, 100_000])
def test_one_value_that_is_too_deep_is_cut_and_all_beside_it_stays(depth: int, opening: bytes, closing: bytes) -> None:
    text = b'{"items": [{"a": "[[{\\"", "deep": ' + nested(depth, opening, closing) + b', "after": "}"}, {"b": [[]]}]}'

    first, second = api_json.loads(text)["items"]

    assert (first["a"], first["after"], second) == ('[[{"', "}", {"b": [[]]})
    assert depth_of(first["deep"]) == api_json.MOST_DEPTH - 3


@pytest.mark.parametrize("depth", [1, api_json.MOST_DEPTH])
def test_what_is_not_too_deep_is_left_as_it_is(depth: int) -> None:
    text = b"[" + nested(depth - 1) + b', "' + b"[" * 500 + b'"' + b", {}" * 500 + b"]"

    assert api_json.cut(text) is text


def test_a_long_list_of_small_objects_is_looked_at_in_no_time() -> None:
    text = json.dumps({"items": [{"metadata": {"labels": {"a": "b"}}, "spec": {"x": "y" * 1000}}] * 5_000}).encode()
    began = time.process_time()

    assert api_json.cut(text) is text
    assert time.process_time() - began < 1.0


def test_what_was_cut_is_too_deep_for_a_manifest() -> None:
    assert api_json.MOST_DEPTH > MOST_DEPTH + 2, "a list of objects is two deep by itself"
    with pytest.raises(ManifestInvalid, match="nested more than 32 deep"):
        validate_model(Settings, api_json.loads(b'{"storage": ' + nested(3000) + b"}"))


def test_what_is_no_json_is_told() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        api_json.loads(nested(200)[:150])


class Arriving:
    """A body that comes in pieces, as from the network."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def read(self) -> bytes:
        return b"".join(self._pieces)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def test_each_line_of_a_watch_is_cut_by_itself_however_it_arrives() -> None:
    lines = [b'{"n": 1}', b'{"deep": ' + nested(3000) + b"}", b'{"n": 3}']
    text = b"\n".join(lines)
    content = _BoundedContent(Arriving(*(text[at : at + 7] for at in range(0, len(text), 7))))  # type: ignore[arg-type]

    async def read() -> list[object]:
        return [json.loads(line) async for line in content.iter_chunked(1 << 20)]

    first, deep, last = asyncio.run(read())

    assert (first, last) == ({"n": 1}, {"n": 3})
    assert depth_of(deep) == api_json.MOST_DEPTH
