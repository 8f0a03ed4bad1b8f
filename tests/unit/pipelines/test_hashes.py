"""What a stage's hashes cover: all that its result depends on, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from checkpoint_control.pipelines.decisions import Hashes, hashes_of
from checkpoint_protocol.manifest.pipelines import DEFAULT_BUCKETS, StagePart, StageSpec, parts_of
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.manifest.steps import Step

CSV = {"files": {"format": "csv", "paths": ["/in"]}}


def source(**files: Any) -> Source:
    return Source.model_validate_json(json.dumps({"files": {**CSV["files"], **files}}))


def part(of: str = "a", nonce: str = "", **step: Any) -> StagePart:
    return StagePart(of, (Step.model_validate_json(json.dumps({"call": f"m:{of}", **step})),), nonce=nonce)


def hashes(*parts: StagePart, given_source: Source | None = None, code: str = "c") -> tuple[Hashes, ...]:
    return hashes_of(given_source or source(), parts, [code] * len(parts))


def test_the_hashes_of_algorithm_1_stay_as_they_are() -> None:
    """Stores hold them: another result here means that every stage of every store is done anew. Add an algorithm instead."""
    found = hashes(part("a", arguments={"n": 1}), part("b", output={"id": "int64"}), given_source=source(types={"id": "int64"}))

    assert [(one.hash_in[:12], one.hash_out[:12]) for one in found] == [
        ("78c9b06ce559", "523df3a9752e"),
        ("e01a50c0a20e", "7dd9a8b9392e"),
    ]


def test_what_says_how_a_step_is_called_and_how_it_is_named_is_in_no_hash() -> None:
    plain = hashes(part(input="row"))

    assert hashes(part(input="row", name="other", concurrency=4, timeout="5s", retry={"attempts": 2})) == plain


def test_arguments_output_kind_and_callable_are_in_hash_in() -> None:
    (plain,) = hashes(part())

    for changed in ({"arguments": {"n": 1}}, {"output": {"id": "int64"}}, {"input": "row"}, {"call": "m:other"}):
        (found,) = hashes(part(**changed))
        assert found.hash_in != plain.hash_in, changed


def test_what_rows_come_together_by_is_in_hash_in_of_the_shuffle_and_of_the_aggregate() -> None:
    def parts(**aggregate: Any) -> tuple[StagePart, ...]:
        step = {"call": "m:a"}
        stage = {"name": "a", "kind": "Aggregate", "keyBy": ["k"], "steps": [step], **aggregate}
        of_map = StageSpec.model_validate_json(json.dumps({"name": "m", "steps": [step]}))
        return parts_of([of_map, StageSpec.model_validate_json(json.dumps(stage))])

    plain = hashes(*parts())

    assert [part.name for part in parts()] == ["m", "a-shuffle", "a"]
    assert hashes(*parts(buckets=DEFAULT_BUCKETS)) == plain
    edits: tuple[dict[str, Any], ...] = ({"keyBy": ["k", "l"]}, {"buckets": 7}, {"keyBy": []})
    for changed in edits:
        of_map, *others = zip(plain, hashes(*parts(**changed)), strict=True)
        assert of_map[0] == of_map[1]
        assert all(before.hash_in != after.hash_in for before, after in others), changed


def test_code_is_in_hash_out_alone() -> None:
    (before,), (after,) = hashes(part(), code="c"), hashes(part(), code="d")

    assert before.hash_in == after.hash_in
    assert before.hash_out != after.hash_out


def test_how_text_is_read_is_in_hash_out_of_the_first_stage_alone() -> None:
    before = hashes(part("a"), part("b"))
    after = hashes(part("a"), part("b"), given_source=source(types={"id": "int64"}))

    assert before[0].hash_in == after[0].hash_in
    assert before[0].hash_out != after[0].hash_out
    assert before[1].hash_in != after[1].hash_in


def test_another_source_is_another_first_stage() -> None:
    (before,), (after,) = hashes(part()), hashes(part(), given_source=source(paths=["/other"]))

    assert before.hash_in != after.hash_in


def test_a_reset_changes_the_stage_that_it_names_and_what_reads_it() -> None:
    before, after = hashes(part("a"), part("b"), part("c")), hashes(part("a"), part("b", nonce="1"), part("c"))

    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, False]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.dictionaries(st.text(), VALUES, max_size=4))
def test_arguments_are_the_same_where_they_are_equal_as_json_in_whatever_order(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    backwards = dict(reversed(list(one.items())))
    assert hashes(part(arguments=one)) == hashes(part(arguments=backwards))

    is_same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (hashes(part(arguments=one)) == hashes(part(arguments=other))) == is_same


EDITS = ("code", "arguments", "output", "call", "input", "reset", "another before it", "left out")


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=5), st.integers(0, 4), st.sampled_from(EDITS))
def test_an_edit_changes_its_stage_and_those_after_it_and_none_before(calls: list[str], at: int, edit: str) -> None:
    """Stages may do the same as others: what each of them reads is another result."""
    at %= len(calls)
    names = [f"s{number}" for number in range(len(calls))]
    parts = [StagePart(name, part(call).steps) for name, call in zip(names, calls, strict=True)]
    codes = ["c"] * len(parts)
    before = dict(zip(names, hashes_of(source(), parts, codes), strict=True))
    assert len({one.hash_in for one in before.values()}) == len(names), "two stages have one result"

    edited: dict[str, dict[str, Any]] = {
        "arguments": {"arguments": {"n": 1}},
        "output": {"output": {"id": "int64"}},
        "call": {"call": "m:other"},
        "input": {"input": "row"},
    }
    match edit:
        case "code":
            codes[at] = "d"
        case "reset":
            parts[at] = replace(parts[at], nonce="1")
        case "another before it":
            names.insert(at, "new")
            parts.insert(at, StagePart("new", parts[at].steps))
            codes.append("c")
        case "left out":
            del names[at], parts[at], codes[at]
        case _:
            parts[at] = replace(parts[at], steps=part(calls[at], **edited[edit]).steps)
    after = dict(zip(names, hashes_of(source(), parts, codes), strict=True))

    assert [name for name, one in before.items() if after.get(name) == one] == [f"s{number}" for number in range(at)]
