"""Rows that fail are found alone: which are set apart, which are kept and in what order, and what is no row's fault."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.failing.row_isolation import OUTPUT, RowIsolation
from checkpoint_work.steps.places import Place

PLACE = Place("/in/a.parquet", "rows", 100)
TEN = pa.record_batch({"id": list(range(10)), "text": [f"t{number}" for number in range(10)]})
TABLE = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
_numbers = itertools.count()

Write = Callable[[str], str]
Apart = list[tuple[int, str, str]]


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Write]:
    """Return a function that writes a module under a fresh name and returns the name."""
    sys.path.insert(0, str(tmp_path))

    def write(text: str) -> str:
        name = f"dividing_code_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return name

    yield write
    sys.path.remove(str(tmp_path))


def step(call: str, input: str = "row", **fields: Any) -> Step:
    return Step(call=call, input=input, **fields)  # type: ignore[arg-type]


def apply(*steps: Step, to: pa.RecordBatch = TEN, schema: pa.Schema | None = TABLE) -> tuple[list[dict[str, Any]], Apart]:
    """Return the rows that were given, and number, step and error of those that were set apart."""
    apart: Apart = []

    def set_apart(number: int, name: str, error: BaseException) -> None:
        apart.append((number, name, f"{type(error).__name__}: {error}"))

    given = Pipeline(steps).apply(to, PLACE, schema, RowIsolation(set_apart))
    return [row for batch in given for row in batch.to_pylist()], apart


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def without(*numbers: int) -> list[int]:
    return [number for number in range(10) if number not in numbers]


def with_a_text_that_is_no_utf8(row: int) -> pa.RecordBatch:
    texts = [b"\xff\xfe" if number == row else b"t%d" % number for number in range(10)]
    return pa.record_batch({"id": list(range(10)), "text": pa.array(texts, pa.binary()).view(pa.string())})


# --- row steps ------------------------------------------------------------------------------------------------------------


def test_where_nothing_fails_all_rows_are_given_and_each_is_computed_once(code: Write) -> None:
    module = code("seen = []\ndef work(row):\n    seen.append(row['id'])\n    return row\n")

    rows, apart = apply(step(f"{module}:work"))

    assert (rows, apart) == (TEN.to_pylist(), [])
    assert sys.modules[module].seen == list(range(10))


def test_a_row_on_which_a_row_step_raises_is_set_apart_and_no_row_is_computed_again(code: Write) -> None:
    module = code(
        "seen = []\ndef work(row):\n    seen.append(row['id'])\n    if row['id'] in (3, 9): raise ValueError('poison')\n"
        "    return row\n"
    )

    rows, apart = apply(step(f"{module}:work", name="predict"))

    assert ids(rows) == without(3, 9)
    assert apart == [(3, "predict", "ValueError: poison"), (9, "predict", "ValueError: poison")]
    assert sys.modules[module].seen == list(range(10))


def test_of_a_row_that_raises_after_its_second_result_none_is_kept(code: Write) -> None:
    module = code(
        "def explode(row):\n    for part in range(3):\n        if row['id'] == 4 and part == 2: raise ValueError(part)\n"
        "        yield {'id': row['id'], 'text': str(part)}\n"
    )

    rows, apart = apply(step(f"{module}:explode"))

    assert ids(rows) == [number for number in without(4) for _ in range(3)]
    assert [number for number, _, _ in apart] == [4]


def test_of_a_row_whose_second_result_fails_in_the_next_step_none_is_kept(code: Write) -> None:
    module = code(
        "def explode(row): return [{'id': row['id'], 'text': str(part)} for part in range(2)]\n"
        "def check(row):\n    assert (row['id'], row['text']) != (5, '1')\n    return row\n"
    )

    rows, apart = apply(step(f"{module}:explode"), step(f"{module}:check"))

    assert ids(rows) == [number for number in without(5) for _ in range(2)]
    assert [(number, name) for number, name, _ in apart] == [(5, f"{module}:check")]


def test_what_is_left_of_a_row_that_failed_in_a_step_is_not_given_to_it_any_more(code: Write) -> None:
    module = code(
        "seen = []\ndef explode(row): return [{'id': row['id'], 'text': str(part)} for part in range(3)]\n"
        "def check(row):\n    seen.append(row['text'])\n    assert (row['id'], row['text']) != (5, '0')\n    return row\n"
    )

    apply(step(f"{module}:explode"), step(f"{module}:check"))

    assert sys.modules[module].seen == ["0", "1", "2"] * 5 + ["0"] + ["0", "1", "2"] * 4


@pytest.mark.parametrize("before", [(), ("arrow",)], ids=["first", "after a batch step"])
def test_a_row_with_a_text_that_is_no_utf8_is_set_apart_by_a_row_step(code: Write, before: tuple[str, ...]) -> None:
    module = code("def work(given):\n    return given\n")
    steps = [step(f"{module}:work", kind) for kind in (*before, "row")]

    rows, apart = apply(*steps, to=with_a_text_that_is_no_utf8(4))

    assert ids(rows) == without(4)
    ((number, _, error),) = apart
    assert number == 4
    assert error.startswith("UnicodeDecodeError")


def test_a_row_with_a_text_that_is_no_utf8_is_named_where_no_row_may_fail(code: Write) -> None:
    module = code("def work(row):\n    return row\n")
    pipeline = Pipeline([step(f"{module}:work")])

    with pytest.raises(NeedsChange, match=r"row 104 of /in/a\.parquet.*UnicodeDecodeError") as caught:
        list(pipeline.apply(with_a_text_that_is_no_utf8(4), PLACE, TABLE))
    assert caught.value.reason == reasons.CODE_FAILED


def test_a_row_step_that_gives_no_dict_for_one_row_sets_it_apart(code: Write) -> None:
    module = code("def work(row): return row if row['id'] != 2 else 7\n")

    rows, apart = apply(step(f"{module}:work"))

    assert ids(rows) == without(2)
    assert [number for number, _, _ in apart] == [2]


# --- batch steps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("poison", [(0,), (9,), (4, 5), (0, 3, 9), tuple(range(10))])
@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_rows_on_which_a_batch_step_raises_are_found_alone_and_the_others_keep_their_order(
    code: Write, kind: str, poison: tuple[int, ...]
) -> None:
    module = code(
        f"def work(batch):\n    ids = batch['id'].to_pylist() if hasattr(batch, 'to_pylist') else list(batch['id'])\n"
        f"    if set(ids) & set({poison}): raise ValueError('poison')\n    return batch\n"
    )

    rows, apart = apply(step(f"{module}:work", kind))

    assert ids(rows) == without(*poison)
    assert [number for number, _, _ in apart] == list(poison)


def test_a_batch_that_fails_as_a_whole_while_its_halves_work_has_no_row_that_failed(code: Write) -> None:
    module = code("def work(batch):\n    if batch.num_rows > 5: raise ValueError('too many at once')\n    return batch\n")

    assert apply(step(f"{module}:work", "arrow")) == (TEN.to_pylist(), [])


def test_a_batch_step_is_called_again_on_the_parts_with_a_poison_row_only(code: Write) -> None:
    module = code(
        "calls = []\ndef work(batch):\n    ids = batch['id'].to_pylist()\n    calls.append(ids)\n"
        "    if 0 in ids: raise ValueError('poison')\n    return batch\n"
    )

    apply(step(f"{module}:work", "arrow"))

    assert sys.modules[module].calls == [list(range(10)), [0, 1, 2, 3, 4], [0, 1], [0], [1], [2, 3, 4], [5, 6, 7, 8, 9]]


def test_a_row_step_after_a_batch_step_is_traced_to_the_source_row(code: Write) -> None:
    module = code(
        "def twice(batch):\n    import pyarrow as pa\n    return pa.Table.from_batches([batch, batch])\n"
        "def check(row):\n    assert row['id'] != 6\n    return row\n"
    )

    rows, apart = apply(step(f"{module}:twice", "arrow"), step(f"{module}:check"))

    assert sorted(ids(rows)) == [number for number in without(6) for _ in range(2)]
    assert [(number, name) for number, name, _ in apart] == [(6, f"{module}:check")]


def test_a_batch_step_after_a_row_step_that_drops_rows_is_traced_to_the_source_row(code: Write) -> None:
    module = code(
        "def odd(row): return row if row['id'] % 2 else None\n"
        "def check(batch):\n    if 7 in batch['id'].to_pylist(): raise KeyError('x')\n    return batch\n"
    )

    rows, apart = apply(step(f"{module}:odd"), step(f"{module}:check", "arrow"))

    assert ids(rows) == [1, 3, 5, 9]
    assert [number for number, _, _ in apart] == [7]


# --- what does not fit the table ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "says"),
    [("None", "NULL"), ("'seven'", "'id'"), ("2**70", "'id'"), ("1.5", "'id'")],
    ids=["null", "another type", "overflow", "would be cut"],
)
def test_a_value_that_does_not_fit_the_table_sets_its_row_apart(code: Write, value: str, says: str) -> None:
    module = code(f"def work(row): return row if row['id'] != 7 else {{**row, 'id': {value}}}\n")

    rows, apart = apply(step(f"{module}:work"))

    assert ids(rows) == without(7)
    assert [(number, name) for number, name, _ in apart] == [(7, OUTPUT)]
    assert says in apart[0][2]


def test_a_batch_steps_value_that_does_not_fit_the_table_sets_its_row_apart(code: Write) -> None:
    module = code(
        "import pyarrow as pa, pyarrow.compute as pc\n"
        "def work(batch):\n    ids = pc.if_else(pc.equal(batch['id'], 8), None, batch['id'])\n"
        "    return pa.record_batch({'id': ids, 'text': batch['text']})\n"
    )

    rows, apart = apply(step(f"{module}:work", "arrow"))

    assert ids(rows) == without(8)
    assert [(number, name) for number, name, _ in apart] == [(8, OUTPUT)]


def test_a_row_that_alone_gives_a_column_that_the_table_does_not_have_is_set_apart(code: Write) -> None:
    module = code("def work(row): return row if row['id'] != 1 else {**row, 'error': 'x'}\n")

    rows, apart = apply(step(f"{module}:work"))

    assert ids(rows) == without(1)
    assert [number for number, _, _ in apart] == [1]
    assert "'error'" in apart[0][2]


def test_a_row_that_alone_leaves_out_a_column_is_set_apart_and_is_kept_where_the_columns_are_declared(code: Write) -> None:
    module = code("def work(row): return row if row['id'] != 1 else {'id': 1}\n")

    rows, apart = apply(step(f"{module}:work"))
    assert ids(rows) == without(1)
    assert [(number, name) for number, name, _ in apart] == [(1, OUTPUT)]
    assert "leaves out the column 'text'" in apart[0][2]

    rows, apart = apply(step(f"{module}:work", output={"id": "int64", "text": "string"}))
    assert (rows[1], apart) == ({"id": 1, "text": None}, [])


def test_a_column_that_every_row_leaves_out_ends_the_task(code: Write) -> None:
    with pytest.raises(NeedsChange, match="leaves out the column 'text'") as ended:
        apply(step(f"{code('def work(row): return dict(id=1)')}:work"))
    assert ended.value.reason == reasons.OUTPUT_SCHEMA_WRONG


@pytest.mark.parametrize("next_input", ["row", "arrow"])
def test_a_row_whose_columns_are_not_those_that_a_step_declares_is_set_apart(code: Write, next_input: str) -> None:
    module = code("def work(row): return row if row['id'] != 1 else {**row, 'error': 'x'}\ndef same(rows): return rows\n")
    first = step(f"{module}:work", output={"id": "int64", "text": "string"})

    rows, apart = apply(first, step(f"{module}:same", next_input))

    assert ids(rows) == without(1)
    assert [number for number, _, _ in apart] == [1]
    assert "its output does not declare" in apart[0][2]


@pytest.mark.parametrize("next_input", ["row", "arrow"])
def test_a_column_that_a_step_does_not_declare_and_every_row_gives_ends_the_task(code: Write, next_input: str) -> None:
    module = code("def work(row): return {**row, 'error': 'x'}\ndef same(rows): return rows\n")
    first = step(f"{module}:work", output={"id": "int64", "text": "string"})

    with pytest.raises(NeedsChange, match="its output does not declare") as ended:
        apply(first, step(f"{module}:same", next_input))
    assert ended.value.reason == reasons.OUTPUT_SCHEMA_WRONG


def test_a_batch_steps_value_that_is_not_of_the_declared_type_sets_its_row_apart(code: Write) -> None:
    module = code("import pyarrow.compute as pc\ndef work(rows): return rows.set_column(0, 'id', pc.multiply(rows['id'], 100))\n")

    rows, apart = apply(step(f"{module}:work", "arrow", output={"id": "int8", "text": "string"}))

    assert ids(rows) == [0, 100]
    assert [number for number, _, _ in apart] == list(range(2, 10))
    assert "column 'id' needs values of type int8" in apart[0][2]


def test_a_pandas_step_whose_one_row_has_another_type_sets_it_apart(code: Write) -> None:
    module = code(
        "def work(frame):\n    frame['text'] = [7 if n == 2 else t for n, t in zip(frame['id'], frame['text'])]\n"
        "    return frame\n"
    )

    rows, apart = apply(step(f"{module}:work", "pandas"))

    assert ids(rows) == without(2)
    assert [number for number, _, _ in apart] == [2]


# --- what is no row's fault -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("row", "return {**given, 'extra': 1}", reasons.OUTPUT_SCHEMA_WRONG),
        ("row", "return {'text': 'no id'}", reasons.OUTPUT_SCHEMA_WRONG),
        ("arrow", "return given.select(['text'])", reasons.OUTPUT_SCHEMA_WRONG),
        ("arrow", "return 5", reasons.CODE_FAILED),
        ("pandas", "return 5", reasons.CODE_FAILED),
        ("row", "raise MemoryError", reasons.CODE_FAILED),
        ("arrow", "raise MemoryError", reasons.CODE_FAILED),
        ("row", "import no_such_module", reasons.CODE_FAILED),
        ("arrow", "import no_such_module", reasons.CODE_FAILED),
        ("row", "raise type('OutOfMemoryError', (RuntimeError,), {})('CUDA')", reasons.CODE_FAILED),
    ],
)
def test_what_is_not_the_fault_of_a_row_ends_the_task_as_ever(code: Write, kind: str, body: str, reason: str) -> None:
    module = code(f"def work(given): {body}\n")

    with pytest.raises(NeedsChange) as caught:
        apply(step(f"{module}:work", kind))

    assert caught.value.reason == reason


def test_an_interruption_is_no_row_error(code: Write) -> None:
    module = code("def work(row): raise KeyboardInterrupt\n")

    with pytest.raises(NeedsChange, match="KeyboardInterrupt"):
        apply(step(f"{module}:work"))


@pytest.mark.parametrize("kind", ["row", "arrow"])
def test_a_step_that_says_itself_that_trying_again_is_right_sets_nothing_apart(code: Write, kind: str) -> None:
    module = code("from checkpoint_protocol.errors import Retryable\ndef work(given): raise Retryable('Busy', 'later')\n")

    with pytest.raises(Retryable):
        apply(step(f"{module}:work", kind))


def test_a_limit_that_is_reached_ends_the_division_at_once(code: Write) -> None:
    module = code("calls = []\ndef work(batch):\n    calls.append(batch.num_rows)\n    raise ValueError('all are poison')\n")

    def refuse(number: int, name: str, error: BaseException) -> None:
        raise NeedsChange(reasons.TOO_MANY_ROW_ERRORS, "enough")

    with pytest.raises(NeedsChange, match="enough"):
        list(Pipeline([step(f"{module}:work", "arrow")]).apply(TEN, PLACE, TABLE, RowIsolation(refuse)))

    assert sys.modules[module].calls == [10, 5, 2, 1]


# --- nothing to do --------------------------------------------------------------------------------------------------------


def test_a_new_tables_columns_are_those_of_the_rows_that_do_not_fail(code: Write) -> None:
    module = code("def work(row):\n    if row['id'] < 9: raise ValueError('bad')\n    return {'twice': row['id'] * 2}\n")

    assert Pipeline([step(f"{module}:work")]).schema_of(TEN, PLACE, sets_apart=True) == pa.schema([("twice", pa.int64())])


_PLAIN = "def work(row):\n    return row['id'] / 0\n"
_BATCH = "def work(batch):\n    raise ValueError('bad')\n"
_SOME = "def work(row):\n    if row['id'] == 0: return None\n    raise ValueError('bad')\n"


@pytest.mark.parametrize(
    ("code_of_step", "input", "said"),
    [
        (_PLAIN, "row", r"9 failed: step '.*:work' raised on row 100 of .*: ZeroDivisionError: division by zero \(.*\.py:2\); "),
        (_BATCH, "arrow", r"9 failed: step '.*:work' raised on row 100 of .*: ValueError: bad \(.*\.py:2\); "),
        (
            _SOME,
            "row",
            r"8 failed, and the others gave no rows: step '.*:work' raised on row 101 of .*: ValueError: bad \(.*\.py:3\)",
        ),
    ],
    ids=["each row", "the batch", "some rows"],
)
def test_why_the_first_rows_fail_is_in_the_answer_where_all_do(code: Write, code_of_step: str, input: str, said: str) -> None:
    module = code(code_of_step)

    with pytest.raises(NeedsChange, match=said) as refused:
        Pipeline([step(f"{module}:work", input)]).schema_of(TEN.slice(0, 9), PLACE, sets_apart=True)
    assert refused.value.reason == reasons.CODE_FAILED
    declared = step(f"{module}:work", input).model_copy(update={"output": {"id": "int64"}})
    assert Pipeline([declared]).schema_of(TEN.slice(0, 9), PLACE, sets_apart=True).names == ["id"]


def test_a_batch_step_that_fails_on_all_first_rows_and_on_none_does_not_tells_the_columns(code: Write) -> None:
    module = code("def work(batch):\n    if batch.num_rows: raise ValueError('bad')\n    return batch\n")

    assert Pipeline([step(f"{module}:work", "arrow")]).schema_of(TEN, PLACE, sets_apart=True) == TEN.schema


def test_no_rows_call_no_step(code: Write) -> None:
    module = code("def work(batch): raise AssertionError\n")

    assert apply(step(f"{module}:work", "arrow"), to=TEN.slice(0, 0)) == ([], [])


def test_without_steps_rows_that_do_not_fit_are_set_apart() -> None:
    batch = pa.record_batch({"id": pa.array([1, None, 3]), "text": ["a", "b", "c"]})

    rows, apart = apply(to=batch)

    assert ids(rows) == [1, 3]
    assert [(number, name) for number, name, _ in apart] == [(1, OUTPUT)]


def test_without_a_table_values_of_any_type_are_taken(code: Write) -> None:
    module = code("def work(row): return {'out': 'x' if row['id'] == 3 else 1}\n")

    rows, apart = apply(step(f"{module}:work"), schema=None)

    assert len(rows) == 10
    assert apart == []
