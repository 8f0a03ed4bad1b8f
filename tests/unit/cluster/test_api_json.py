"""JSON of the API server that is nested too deep for a recursive parser."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable

import pytest

from checkpoint_operator.kube import api_json
from checkpoint_operator.objects import manifest_of
from checkpoint_operator.watch.answers import _Lines
from checkpoint_protocol.manifest.spec import MOST_DEPTH, ManifestInvalid, validate_model
from checkpoint_protocol.places.settings import Settings


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


# --- very many values -------------------------------------------------------------------------------------------------------


def crowded(name: str, values: int, within: str = "spec") -> bytes:
    """An object as the API server writes it, with so many small values in its spec or in a part of its metadata."""
    many: object = [{}] * (values // 2)
    spec = {"steps": [{"call": "a:b", "arguments": {"a": [[[[[[many]]]]]] if within == "spec" else 1}}]}
    metadata: dict[str, object] = {"name": name, "uid": "u", "labels": {"a": "b"}}
    if within != "spec":
        metadata[within] = many if within == "managedFields" else {str(number): "" for number in range(values)}
    body = {"apiVersion": "v1", "spec": spec, "metadata": metadata, "status": {"phase": "Running", "spec": {}}}
    return json.dumps(body, separators=(",", ":")).encode()


def listed(*objects: bytes) -> bytes:
    return b'{"kind":"List","metadata":{"resourceVersion":"7"},"items":[' + b",".join(objects) + b"]}"


@pytest.mark.parametrize("within", ["spec", "managedFields", "annotations"])
def test_of_an_object_with_very_many_values_the_spec_is_left_out_and_all_beside_it_stays(within: str) -> None:
    small = crowded("small", 10)
    text = listed(small, crowded("large", 2 * api_json.MOST_VALUES, within), small)

    answer = api_json.loads(text, api_json.OF_A_LIST)
    first, large, last = answer["items"]

    assert answer["metadata"] == {"resourceVersion": "7"}
    assert first == last == json.loads(small)
    assert large["spec"] == "the object has more than 50,000 values, and is not read"
    assert large["status"] == {"phase": "Running", "spec": {}}
    assert {name: large["metadata"][name] for name in ("name", "uid", "labels")} == {
        "name": "large",
        "uid": "u",
        "labels": {"a": "b"},
    }
    assert not large["metadata"].get(within)


@pytest.mark.parametrize(("form", "objects"), [(b"%b", api_json.ALONE), (b'{"type":"ADDED","object":%b}', api_json.OF_A_WATCH)])
def test_it_is_found_alone_and_in_a_watch(form: bytes, objects: int) -> None:
    answer = api_json.loads(form % crowded("large", 2 * api_json.MOST_VALUES), objects)

    large = answer.get("object", answer)
    assert (type(large["spec"]), large["metadata"]["name"]) == (str, "large")


def test_many_objects_with_many_values_together_are_left_as_they_are() -> None:
    text = listed(*(crowded(f"write-{number}", api_json.MOST_VALUES // 2) for number in range(6)))

    assert api_json.cut(text, api_json.OF_A_LIST) is text


def test_an_object_that_was_not_read_is_no_manifest_and_says_why() -> None:
    body = api_json.loads(crowded("large", 2 * api_json.MOST_VALUES))

    with pytest.raises(ManifestInvalid, match="more than 50,000 values"):
        manifest_of(body)


def test_a_spec_that_is_too_large_is_no_manifest_and_says_how_large_it_may_be_and_what_to_do() -> None:
    body = json.loads(crowded("long", 10))
    body["spec"]["steps"][0]["arguments"]["a"] = "x" * api_json.MOST_SPEC_BYTES
    long = json.dumps(body, separators=(",", ":")).encode()

    first, second, third = api_json.loads(listed(crowded("a", 10), long, crowded("b", 10)), api_json.OF_A_LIST)["items"]

    assert (first["metadata"]["name"], third["spec"]) == ("a", first["spec"])
    assert (second["metadata"], second["status"]) == (body["metadata"], body["status"])
    with pytest.raises(ManifestInvalid, match=r"spec: it has 524,\d{3} bytes as JSON, and is not read above 524,288; put long"):
        manifest_of(second)
    assert api_json.loads(long, most_spec_bytes=api_json.NO_LIMIT) == body


@pytest.mark.parametrize("text", [b"]" * 60_000 + b"," * 60_000, b"[" * 60 + b"," * 60_000, b'"' + b"," * 60_000])
def test_many_commas_that_are_no_json_are_told(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        api_json.loads(text)


class Arriving:
    """A body that comes in pieces, as from the network."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def read(self) -> bytes:
        return b"".join(self._pieces)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def test_each_line_of_a_watch_is_taken_by_itself_however_it_arrives() -> None:
    lines = [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}']
    text = b"\n".join(lines)
    taken: list[bytes] = []

    def take(some: Iterable[bytes]) -> bytes:
        taken.extend(some)
        return b"".join(line + b"\n" for line in some)

    content = _Lines(Arriving(*(text[at : at + 7] for at in range(0, len(text), 7))), take)  # type: ignore[arg-type]

    async def read() -> bytes:
        return b"".join([data async for data in content.iter_chunked(1 << 20)])

    assert asyncio.run(read()) == text + b"\n"
    assert taken == lines
