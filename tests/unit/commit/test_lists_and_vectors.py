"""A column of lists of numbers, in a dataset that cannot search it, is named before rows are in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_commit.lance.columns import notes_on_vectors, schema_of_new
from checkpoint_commit.sinks.registry import format_of
from checkpoint_protocol.manifest.sink import Sink

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("vector", pa.list_(pa.float64())),
        ("stored", pa.list_(pa.float32(), 3)),
        ("counts", pa.list_(pa.int64())),
        ("words", pa.list_(pa.string())),
    ]
)


def sink(**layout: Any) -> Sink:
    lance = {"uri": "/rows.lance", **({"layout": layout} if layout else {})}
    return Sink.model_validate({"lance": lance, "create": True})


def notes_of_rows(*vectors: list[float] | None, **layout: Any) -> list[str]:
    lance = sink(**layout).lance
    assert lance is not None
    return notes_on_vectors(lance, pa.table({"vector": pa.array(vectors, pa.list_(pa.float64()))}))


def test_lists_of_one_length_are_proposed_as_vectors_and_stored_as_it_says() -> None:
    (note,) = notes_of_rows([1, 2, 3], None, [4, 5, 6])
    assert note == (
        "the column 'vector' has lists of 3 numbers each, which Lance does not search; sink.lance.layout.vectorColumns: "
        "{vector: {dimension: 3}} stores them as vectors"
    )
    lance = sink(vectorColumns={"vector": {"dimension": 3}}).lance
    assert lance is not None
    made = schema_of_new(pa.schema([SCHEMA.field("vector")]), lance.layout)
    assert made.field("vector").type == pa.list_(pa.float32(), 3)


@pytest.mark.parametrize(
    "notes",
    [
        lambda: notes_of_rows([1, 2], [1, 2, 3]),
        lambda: notes_of_rows([1], [2]),
        lambda: notes_of_rows(None, None),
        lambda: notes_of_rows([1, 2, 3], vectorColumns={"vector": {"dimension": 3}}),
    ],
    ids=["of several lengths", "single numbers", "no lists", "named already"],
)
def test_other_lists_are_not_proposed(notes: Callable[[], list[str]]) -> None:
    assert notes() == []


def test_of_columns_alone_lists_of_fractional_numbers_are_named_that_are_no_vectors() -> None:
    (note,) = format_of(sink()).notes_on(SCHEMA)

    assert note == (
        "the column 'vector' has lists of numbers, which Lance does not search; sink.lance.layout.vectorColumns: "
        "{vector: {dimension: N}} stores them, where all have one length, as vectors"
    )
    assert format_of(sink(vectorColumns={"vector": {"dimension": 3}})).notes_on(SCHEMA) == ()
