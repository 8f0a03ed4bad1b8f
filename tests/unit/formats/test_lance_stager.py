"""What Lance says of rows that it does not take is no failure of the store: the rows would be the same in every attempt."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from checkpoint_formats.lance.datasets import rows_refused
from checkpoint_formats.lance.stager import Writing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

NOT_NULL = pa.schema([pa.field("place", pa.struct([pa.field("x", pa.int64(), nullable=False)]))])
NULLABLE = pa.schema([pa.field("place", pa.struct([pa.field("x", pa.int64())]))])


def written(folder: Path, schema: pa.Schema, x: int | None) -> int:
    """Write one row into a new dataset, and return how many fragments it has become."""
    writing = Writing(lance.write_dataset(schema.empty_table(), folder / "table.lance", mode="overwrite"), schema, {})
    writing.put(pa.record_batch([pa.array([{"x": x}], schema.field(0).type)], schema=schema))
    return len(writing.finish())


def test_rows_that_lance_does_not_take_need_a_change_of_the_step_or_of_the_table(tmp_path: Path) -> None:
    with pytest.raises(NeedsChange, match=r"does not take the rows for the Lance dataset .*table\.lance.*`x`") as caught:
        written(tmp_path, NOT_NULL, None)

    assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG
    assert written(tmp_path, NOT_NULL, 1) == 1
    assert written(tmp_path, NULLABLE, None) == 1


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        (pa.field("id", pa.int64(), nullable=False), None, "'id' is declared as non-nullable"),
        (pa.field("a.b", pa.int64()), 1, "Top level field a.b cannot contain"),
    ],
    ids=["a null where none may be", "a name that Lance has no column of"],
)
def test_rows_that_lance_refuses_before_it_writes_any_need_a_change(
    tmp_path: Path, field: pa.Field, value: int | None, said: str
) -> None:
    dataset = lance.write_dataset(pa.schema([("id", pa.int64())]).empty_table(), tmp_path / "table.lance")
    rows = pa.record_batch([pa.array([value], field.type)], schema=pa.schema([field]))
    writing = Writing(dataset, rows.schema, {})
    writing.put(rows)

    with pytest.raises(NeedsChange, match=said) as caught:
        writing.finish()

    assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG


@pytest.mark.parametrize(
    ("said", "is_of_the_rows"),
    [
        ("Invalid user input: The field `id` contained null values, /x.rs:1:2", True),
        ("LanceError(Arrow): Invalid argument error: Column 'id' is declared as non-nullable but contains null values", True),
        ("LanceError(Schema): Top level field a.b cannot contain `.`", True),
        ("LanceError(IO): Generic S3 error: connection reset", False),
        ("LanceError(Arrow): C Data interface error: connection reset", False),
        ("Invalid argument (os error 22)", False),
    ],
)
def test_words_of_lance_about_rows_are_told_from_those_about_the_store(said: str, is_of_the_rows: bool) -> None:
    assert (rows_refused(OSError(said), "the table") is not None) == is_of_the_rows
