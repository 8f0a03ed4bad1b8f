"""Values of records as JSON objects: each is one row, and a bad one is told from the others by its number."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_formats.files.parsing import BadLine
from checkpoint_formats.kafka.columns import infer_fields, parse_values

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
BAD = (
    b"",
    b" \n",
    b"no json",
    b"[1]",
    b"7",
    b'{"id": 1} {"id": 2}',
    b'{"id": "x"}',
    b'{"late": 1}',
    b'{"id": 1',
    b'"text"',
    b"\xff",
)


def parsed(values: list[bytes | None]) -> list[dict[str, Any] | None]:
    """One row for each value; None where it is bad."""
    found: list[dict[str, Any] | None] = []
    for start, end, rows in parse_values(values, SCHEMA, "error", {}):
        assert start == len(found)
        found += [None] if isinstance(rows, BadLine) else rows.to_pylist()
        assert end == len(found)
    return found


@given(st.lists(st.one_of(st.integers(0, 99), st.sampled_from(BAD)), max_size=20))
def test_each_value_is_one_row_and_each_bad_one_is_found(given_values: list[int | bytes]) -> None:
    values = [json.dumps({"id": value}).encode() if isinstance(value, int) else value for value in given_values]

    assert parsed([*values]) == [{"id": value, "text": None} if isinstance(value, int) else None for value in given_values]


def test_a_value_may_be_written_over_several_lines_and_a_missing_one_is_a_row_of_nulls() -> None:
    assert parsed([b'{\r\n  "id": 1,\n  "text": "a\\nb"\n}\n', None, b'{"id": 2}']) == [
        {"id": 1, "text": "a\nb"},
        {"id": None, "text": None},
        {"id": 2, "text": None},
    ]


def test_any_value_of_a_field_that_is_to_be_text_is_read_as_it_is_written() -> None:
    values: list[bytes | None] = [b'{"id": 1, "text": 7.10}', b'{"id": 2, "text": "seven"}', b'{"id": 3, "text": {"a": [1]}}']
    given_types = {"text": pa.string()}

    assert infer_fields(values, given_types, sets_apart=False).field("text").type == pa.string()
    ((_, _, rows),) = parse_values(values, SCHEMA, "error", given_types)
    assert not isinstance(rows, BadLine)
    assert rows.column("text").to_pylist() == ["7.10", "seven", '{"a": [1]}']


def test_what_is_wrong_with_a_value_is_said() -> None:
    ((_, _, found),) = parse_values([b'{"late": 1}'], SCHEMA, "error", {})
    assert isinstance(found, BadLine)
    assert "unexpected field 'late'" in found.message


def test_fields_are_those_of_the_values_that_can_be_read() -> None:
    assert infer_fields([b'{"id": 1}', None, b'{"at": "2026-01-01"}'], {}, sets_apart=False) == pa.schema(
        [("id", pa.int64()), ("at", pa.string())]
    )
    assert infer_fields([b"no json", b'{"id": 1}'], {}, sets_apart=True) == pa.schema([("id", pa.int64())])
    with pytest.raises((pa.ArrowException, ValueError)):
        infer_fields([b"no json", b'{"id": 1}'], {}, sets_apart=False)
