"""User code: how it is found and called, what it may give, and what is said when it fails."""

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
from checkpoint_work.steps.columns import declared_output
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.values.schema_cast import ValueMismatch

PLACE = Place("/in/größe.parquet", "rows", 100)
TEN = pa.record_batch({"id": list(range(10)), "text": [f"t{number}" for number in range(10)]})
TABLE = pa.schema([("id", pa.int64()), ("text", pa.string())])
_numbers = itertools.count()

Write = Callable[[str], str]


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Write]:
    """Return a function that writes a module under a fresh name and returns the name."""
    sys.path.insert(0, str(tmp_path))

    def write(text: str) -> str:
        name = f"unit_code_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return name

    yield write
    sys.path.remove(str(tmp_path))


def step(call: str, input: str = "row", **fields: Any) -> Step:
    return Step(call=call, input=input, **fields)  # type: ignore[arg-type]


def apply(*steps: Step, to: pa.RecordBatch = TEN, schema: pa.Schema | None = TABLE, place: Place = PLACE) -> list[dict[str, Any]]:
    return [row for batch in Pipeline(steps).apply(to, place, schema) for row in batch.to_pylist()]


def refusal(*steps: Step, reason: str = reasons.CODE_FAILED, **how: Any) -> str:
    with pytest.raises(NeedsChange) as caught:
        apply(*steps, **how)
    assert caught.value.reason == reason
    return caught.value.message


# --- finding the callable -------------------------------------------------------------------------------------------------


def test_no_steps_give_the_rows_as_they_are() -> None:
    assert apply() == TEN.to_pylist()


def test_a_module_that_is_not_there_is_named_with_where_to_put_it() -> None:
    message = refusal(step("no_such_module:work"), reason=reasons.CODE_MISSING)

    assert "there is no module 'no_such_module'" in message
    assert "code.path" in message


def test_a_module_that_the_users_module_needs_is_the_one_that_is_named(code: Write) -> None:
    module = code("import no_such_dependency\ndef work(row): return row\n")

    assert "'no_such_dependency'" in refusal(step(f"{module}:work"), reason=reasons.CODE_MISSING)


def test_a_module_that_raises_while_it_is_imported_says_what_and_where(code: Write) -> None:
    module = code("x = 1\nraise RuntimeError('no licence')\n")

    message = refusal(step(f"{module}:work"))
    assert "RuntimeError: no licence" in message
    assert f"{module}.py:2" in message


def test_a_function_that_is_not_there_is_named_with_its_module_and_file(code: Write) -> None:
    module = code("def work(row): return row\n")

    message = refusal(step(f"{module}:wrok"), reason=reasons.CODE_MISSING)
    assert "'wrok'" in message
    assert f"{module}.py" in message


@pytest.mark.parametrize("call", ["time:no_such_function", "time:timezone"])
def test_a_function_that_a_built_in_module_does_not_have_is_named(call: str) -> None:
    """Built-in modules have no file to name."""
    assert "module 'time' has no callable" in refusal(step(call), reason=reasons.CODE_MISSING)


def test_a_step_is_called_by_its_name_in_messages(code: Write) -> None:
    module = code("def work(row): raise KeyError\n")

    assert "step 'predict'" in refusal(step(f"{module}:work", name="predict"))


# --- classes --------------------------------------------------------------------------------------------------------------


def test_a_class_is_made_once_a_process_with_its_arguments_and_set_up_before_its_first_row(code: Write) -> None:
    module = code(
        "class Model:\n"
        "    made = 0\n"
        "    def __init__(self, size): Model.made += 1; self.size = size; self.ready = False\n"
        "    def setup(self): self.ready = True\n"
        "    def __call__(self, row): assert self.ready; return {'id': self.size, 'text': str(Model.made)}\n"
    )
    for _ in range(3):
        assert apply(step(f"{module}:Model", arguments={"size": 7}))[0] == {"id": 7, "text": "1"}


def test_one_class_with_other_arguments_is_another_instance(code: Write) -> None:
    module = code(
        "class Add:\n"
        "    def __init__(self, n): self.n = n\n"
        "    def __call__(self, row): return {**row, 'id': row['id'] + self.n}\n"
    )
    steps = (step(f"{module}:Add", arguments={"n": 1}), step(f"{module}:Add", arguments={"n": 10}))

    assert [row["id"] for row in apply(*steps)] == list(range(11, 21))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("    def __init__(self): raise OSError('model file is gone')\n", "OSError: model file is gone"),
        ("    def setup(self): raise OSError('no GPU')\n    def __call__(self, row): return row\n", "OSError: no GPU"),
        ("    pass\n", "Work has no __call__ method"),
        ("    def __init__(self, size): pass\n", "size"),
    ],
)
def test_a_class_that_cannot_be_made_says_why(code: Write, body: str, says: str) -> None:
    module = code(f"class Work:\n{body}")

    message = refusal(step(f"{module}:Work"))
    assert "making Work raised" in message
    assert says in message


def test_a_class_whose_making_failed_once_is_made_again_the_next_time(code: Write) -> None:
    module = code(
        "class Work:\n    tries = 0\n    def __init__(self):\n        Work.tries += 1\n        assert Work.tries > 1\n"
        "    def __call__(self, row): return row\n"
    )
    refusal(step(f"{module}:Work"))

    assert len(apply(step(f"{module}:Work"))) == 10


# --- rows -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ("return row", list(range(10))),
        ("return None", []),
        ("return row if row['id'] % 2 else None", [1, 3, 5, 7, 9]),
        ("return [row] * (row['id'] % 3)", [1, 2, 2, 4, 5, 5, 7, 8, 8]),
        ("yield from [row, row][: row['id'] % 3]", [1, 2, 2, 4, 5, 5, 7, 8, 8]),
        ("return ()", []),
    ],
)
def test_a_row_step_may_give_none_one_or_many_rows(code: Write, body: str, ids: list[int]) -> None:
    module = code(f"def work(row):\n    {body}\n")

    assert [row["id"] for row in apply(step(f"{module}:work"))] == ids


def test_arguments_reach_a_row_step(code: Write) -> None:
    module = code("def work(row, suffix, *, times): return {**row, 'text': row['text'] + suffix * times}\n")

    assert apply(step(f"{module}:work", arguments={"suffix": "!", "times": 2}))[0]["text"] == "t0!!"


def test_an_argument_with_the_name_of_the_first_parameter_never_takes_the_place_of_the_rows(code: Write) -> None:
    module = code("def work(row): return row\n")

    assert "multiple values for argument 'row'" in refusal(step(f"{module}:work", arguments={"row": {"id": 99}}))


@pytest.mark.parametrize(
    ("body", "says"), [("return 5", "an int"), ("return 'text'", "a str"), ("return [row, 5]", "a list with an int in it")]
)
def test_a_row_step_that_gives_no_dicts_says_what_it_gave(code: Write, body: str, says: str) -> None:
    module = code(f"def work(row):\n    {body}\n")

    said = refusal(step(f"{module}:work"))

    assert said.endswith(
        "a row step returns a dict, a model, a dataclass or a named tuple (one row), None (no row), or some of them in a list or "
        f"generator (several rows); this one returned {says}"
    )


def test_a_row_step_that_raises_names_step_row_file_cause_and_line(code: Write) -> None:
    module = code("def work(row):\n    if row['id'] == 7:\n        raise KeyError('ü')\n    return row\n")

    message = refusal(step(f"{module}:work"))
    for part in (f"{module}:work", "row 107 of /in/größe.parquet", "KeyError: 'ü'", f"{module}.py:3"):
        assert part in message


def test_a_row_step_that_raises_between_two_yields_names_its_row(code: Write) -> None:
    module = code("def work(row):\n    yield row\n    assert row['id'] < 3\n    yield row\n")

    assert "row 103 of" in refusal(step(f"{module}:work"))


def test_in_text_a_row_is_named_by_the_byte_its_chunk_begins_at(code: Write) -> None:
    module = code("def work(row):\n    assert row['id'] < 3\n    return row\n")

    assert "row 3 after byte 100 of /in/a.csv" in refusal(step(f"{module}:work"), place=Place("/in/a.csv", "bytes", 100))


def test_after_a_step_that_drops_rows_the_row_that_is_named_is_still_the_source_row(code: Write) -> None:
    module = code(
        "def odd(row): return row if row['id'] % 2 else None\ndef work(row):\n    assert row['id'] < 7\n    return row\n"
    )

    assert "row 107 of" in refusal(step(f"{module}:odd"), step(f"{module}:work"))


def test_an_error_inside_a_library_is_placed_at_the_users_own_line(code: Write) -> None:
    module = code("import json\ndef work(row):\n    return json.loads('{')\n")

    assert f"{module}.py:3" in refusal(step(f"{module}:work"))


def test_a_step_may_say_itself_that_trying_again_is_right(code: Write) -> None:
    module = code(
        "from checkpoint_protocol.errors import Retryable\ndef work(row): raise Retryable('ApiBusy', 'the API said 429')\n"
    )

    with pytest.raises(Retryable, match="429"):
        apply(step(f"{module}:work"))


@pytest.mark.parametrize("input", ["row", "arrow", "pandas"])
@pytest.mark.parametrize("body", ["async def inner(rows): return rows", "async def inner(rows): yield rows"])
def test_what_a_plain_function_gives_is_awaited_where_it_must_be(code: Write, input: str, body: str) -> None:
    module = code(f"{body}\ndef work(rows): return inner(rows)\n")
    made = step(f"{module}:work", input=input)

    if input != "row" and "yield" in body:
        assert f"{'an arrow' if input == 'arrow' else 'a pandas'} step gives a " in refusal(made)
    else:
        assert apply(made, schema=TABLE) == TEN.to_pylist()


def test_an_instance_whose_call_is_async_is_awaited(code: Write) -> None:
    module = code("class Work:\n    async def __call__(self, row): return row\nwork = Work()\n")

    assert apply(step(f"{module}:work"), schema=TABLE) == TEN.to_pylist()


# --- rows become Arrow ----------------------------------------------------------------------------------------------------


def test_a_key_that_only_a_later_row_has_is_not_lost(code: Write) -> None:
    module = code("def work(row): return {'id': row['id']} if row['id'] < 9 else {'id': 9, 'text': 'late'}\n")

    assert apply(step(f"{module}:work", output={"text": "string", "id": "int64"}))[-1] == {"text": "late", "id": 9}
    assert apply(step(f"{module}:work"), schema=None)[-1] == {"id": 9, "text": "late"}


LEAVES_OUT = "def work(row): return row if row['id'] != 7 else {'id': 7}\n"


def test_a_column_that_a_row_leaves_out_is_refused_with_step_row_column_and_ways_out_that_work(code: Write) -> None:
    module = code(LEAVES_OUT)

    message = refusal(step(f"{module}:work"), reason=reasons.OUTPUT_SCHEMA_WRONG)

    for part in (f"step '{module}:work' leaves out the column 'text' in row 107 of {PLACE.file}", "None", "output: {name: type}"):
        assert part in message
    null = {"id": 7, "text": None}
    assert apply(step(f"{code('def work(row): return row | dict(text=None)')}:work"))[7] == null
    assert apply(step(f"{module}:work", output={"id": "int64", "text": "string"}))[7] == null


def test_a_column_that_all_rows_leave_out_is_no_fault_of_one_of_them(code: Write) -> None:
    with pytest.raises(NeedsChange) as caught:
        apply(step(f"{code(LEAVES_OUT)}:work"))
    assert isinstance(caught.value, ValueMismatch)
    with pytest.raises(NeedsChange) as caught:
        apply(step(f"{code('def work(row): return dict(id=1)')}:work"))
    assert not isinstance(caught.value, ValueMismatch)


def test_rows_that_say_nothing_are_refused_or_are_rows_of_null_where_the_columns_are_declared(code: Write) -> None:
    module = code("def work(row): return {}\n")

    assert "leaves out the column 'id'" in refusal(step(f"{module}:work"), reason=reasons.OUTPUT_SCHEMA_WRONG)
    assert apply(step(f"{module}:work", output={"id": "int64"})) == [{"id": None, "text": None}] * 10


def test_a_column_that_the_table_got_after_the_write_began_may_be_left_out(code: Write) -> None:
    module = code("def work(row): return {'id': row['id']}\n")

    (made,) = Pipeline([step(f"{module}:work")], optional=("text",)).apply(TEN, PLACE, TABLE)

    assert made.schema == TABLE
    assert made["text"].null_count == 10


@pytest.mark.parametrize("input", ["row", "arrow", "pandas"])
def test_a_step_gives_what_it_declares_and_nothing_else(code: Write, input: str) -> None:
    module = code("def work(rows): return rows\n")
    declared = {"id": "int32", "more": "decimal(5, 2)", "text": "string"}

    (made,) = Pipeline([step(f"{module}:work", input=input, output=declared)]).apply(TEN, PLACE, None)

    assert [str(kind) for kind in made.schema.types] == ["int32", "decimal128(5, 2)", "string"]
    assert made.to_pylist()[3] == {"id": 3, "more": None, "text": "t3"}
    message = refusal(step(f"{module}:work", input=input, output={"id": "int64"}), reason=reasons.OUTPUT_SCHEMA_WRONG)
    assert f"step '{module}:work' gives column 'text'" in message
    assert "its output does not declare (it declares id)" in message
    wrong = refusal(
        step(f"{module}:work", input=input, output={"id": "int64", "text": "int64"}), reason=reasons.OUTPUT_SCHEMA_WRONG
    )
    assert "column 'text' needs values of type int64" in wrong


@pytest.mark.parametrize("input", ["row", "arrow", "pandas"])
def test_the_next_step_gets_what_the_one_before_declares(code: Write, input: str) -> None:
    module = code(f"{LEAVES_OUT}def same(rows): return rows\ndef seen(row): assert list(row) == ['text', 'id']; return row\n")
    declared = {"text": "string", "id": "int64"}
    second = step(f"{module}:{'seen' if input == 'row' else 'same'}", input=input)
    assert apply(step(f"{module}:work", output=declared), second)[7] == {"text": None, "id": 7}


def test_an_unknown_type_of_an_output_names_step_and_column(code: Write) -> None:
    module = code("def work(row): return row\n")
    message = refusal(step(f"{module}:work", output={"id": "integer"}), reason=reasons.MANIFEST_INVALID)
    assert f"the output of step '{module}:work'.id: unknown type 'integer'" in message


def test_a_column_that_the_table_does_not_have_is_named_with_those_it_has(code: Write) -> None:
    module = code("def work(row): return {**row, 'more': 1}\n")

    message = refusal(step(f"{module}:work"), reason=reasons.OUTPUT_SCHEMA_WRONG)
    assert "'more'" in message
    assert "id, text" in message


@pytest.mark.parametrize("value", ["'x'", "2**70", "[1]", "object()", "True", "float('nan')"])
def test_a_value_that_the_column_cannot_hold_is_told_with_column_and_type(code: Write, value: str) -> None:
    module = code(f"def work(row): return {{**row, 'id': {value}}}\n")

    message = refusal(step(f"{module}:work"), reason=reasons.OUTPUT_SCHEMA_WRONG)
    assert "'id'" in message
    assert "int64" in message


@pytest.mark.parametrize(
    ("value", "type"),
    [
        ("1.5", pa.int64()),
        ("Decimal('1.5')", pa.int64()),
        ("[1.5]", pa.list_(pa.int64())),
        ("{'a': 1, 'typo': 2}", pa.struct([("a", pa.int64())])),
        ("datetime(2024, 1, 1, 5)", pa.date32()),
        ("datetime(2024, 1, 1, 5, tzinfo=timezone(timedelta(hours=2)))", pa.timestamp("us")),
        ("datetime(2024, 1, 1, 5)", pa.timestamp("us", "UTC")),
        ("datetime(2024, 1, 1, microsecond=1)", pa.timestamp("ms")),
        ("1e300", pa.float32()),
        ("5", pa.timestamp("us")),
        ("'ab'", pa.list_(pa.string())),
    ],
)
def test_a_value_that_would_be_changed_to_fit_its_column_is_refused(code: Write, value: str, type: pa.DataType) -> None:
    module = code(
        "from datetime import datetime, timedelta, timezone\nfrom decimal import Decimal\n"
        f"def work(row): return {{'value': {value}}}\n"
    )

    assert "'value'" in refusal(step(f"{module}:work"), reason=reasons.OUTPUT_SCHEMA_WRONG, schema=pa.schema([("value", type)]))


DATE, NAIVE, AWARE = "date(2020, 1, 1)", "datetime(2020, 1, 1, 5)", "datetime(2020, 1, 1, 5, tzinfo=timezone.utc)"


@pytest.mark.parametrize("input", ["row", "pandas"])
@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        (DATE, NAIVE, pa.timestamp("us")),
        (NAIVE, DATE, pa.date32()),
        (AWARE, NAIVE, pa.timestamp("us", "UTC")),
        (NAIVE, AWARE, pa.timestamp("us")),
        (f"[{DATE}, {NAIVE}]", "[]", pa.list_(pa.timestamp("us"))),
        (f"{{'a': {AWARE}}}", f"{{'a': {NAIVE}}}", pa.struct([("a", pa.timestamp("us", "UTC"))])),
    ],
)
def test_times_of_several_kinds_in_one_column_are_refused_and_not_cut(
    code: Write, first: str, second: str, wanted: pa.DataType, input: str
) -> None:
    """pyarrow takes all for what the first is: a time becomes a date, and a zone is dropped or made up."""
    module = code(
        "from datetime import date, datetime, timezone\nimport pandas as pd\n"
        f"def row(row): return {{'value': {second} if row['id'] % 2 else {first}}}\n"
        f"def pandas(frame): return pd.DataFrame({{'value': pd.Series([{first}, {second}], dtype=object)}})\n"
    )
    schema = pa.schema([("value", wanted)])

    reason = reasons.CODE_FAILED if input == "pandas" else reasons.OUTPUT_SCHEMA_WRONG
    assert refusal(step(f"{module}:{input}", input=input), reason=reason, schema=schema)


def test_a_date_and_a_time_of_two_fields_are_not_mixed(code: Write) -> None:
    module = code(
        "from datetime import date, datetime\n"
        "def work(row): return {'value': {'day': date(2020, 1, 1), 'at': datetime(2020, 1, 1, 5) if row['id'] else None}}\n"
    )
    schema = pa.schema([("value", pa.struct([("day", pa.date32()), ("at", pa.timestamp("us"))]))])

    assert len(apply(step(f"{module}:work"), schema=schema)) == 10


@pytest.mark.parametrize("input", ["arrow", "pandas"])
def test_a_batch_step_may_say_itself_that_trying_again_is_right(code: Write, input: str) -> None:
    module = code(
        "from checkpoint_protocol.errors import Retryable\ndef work(rows): raise Retryable('ApiBusy', 'the API said 429')\n"
    )

    with pytest.raises(Retryable, match="429"):
        apply(step(f"{module}:work", input=input))


def test_a_class_may_say_while_it_is_made_that_trying_again_is_right(code: Write) -> None:
    module = code(
        "from checkpoint_protocol.errors import Retryable\n"
        "class Work:\n    def setup(self): raise Retryable('ApiBusy', 'the API said 429')\n"
        "    def __call__(self, row): return row\n"
    )

    with pytest.raises(Retryable, match="429"):
        apply(step(f"{module}:Work"))


def test_values_become_the_tables_type_and_are_not_guessed_from_each_batch(code: Write) -> None:
    module = code("def work(row): return {'id': None, 'text': None}\n")
    (batch,) = Pipeline([step(f"{module}:work")]).apply(TEN, PLACE, TABLE)

    assert batch.schema.field("id").type == pa.int64()
    assert batch.schema.field("text").type == pa.string()


def test_between_two_row_steps_values_stay_what_python_made_of_them(code: Write) -> None:
    module = code(
        "def mixed(row): return {**row, 'id': (row['id'], {row['id']}) if row['id'] % 2 else 'even'}\n"
        "def plain(row): return {**row, 'id': 0 if row['id'] == 'even' else row['id'][0]}\n"
    )

    assert [row["id"] for row in apply(step(f"{module}:mixed"), step(f"{module}:plain"))] == [0, 1, 0, 3, 0, 5, 0, 7, 0, 9]


# --- batches --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ("return batch", list(range(10))),
        ("return None", []),
        ("return batch.slice(8)", [8, 9]),
        ("return batch.slice(0, 0)", []),
        ("return pa.Table.from_batches([batch.slice(5), batch.slice(0, 2)])", [5, 6, 7, 8, 9, 0, 1]),
        ("return pa.Table.from_batches([], schema=batch.schema)", []),
    ],
)
def test_an_arrow_step_may_give_a_batch_a_table_or_nothing(code: Write, body: str, ids: list[int]) -> None:
    module = code(f"import pyarrow as pa\ndef work(batch):\n    {body}\n")

    assert [row["id"] for row in apply(step(f"{module}:work", "arrow"))] == ids


@pytest.mark.parametrize("body", ["return 5", "return batch.to_pylist()", "return batch.to_pandas()", "yield batch"])
def test_an_arrow_step_that_gives_something_else_says_what(code: Write, body: str) -> None:
    module = code(f"def work(batch):\n    {body}\n")

    message = refusal(step(f"{module}:work", "arrow"))
    assert "an arrow step gives a pyarrow.RecordBatch or Table" in message
    assert "rows 100 to 109 of /in/größe.parquet" in message


def test_a_batch_step_that_raises_names_its_rows_cause_and_line(code: Write) -> None:
    module = code("def work(batch):\n    raise ZeroDivisionError('x')\n")

    message = refusal(step(f"{module}:work", "arrow"))
    for part in ("rows 100 to 109 of", "ZeroDivisionError: x", f"{module}.py:2"):
        assert part in message
    assert "the 10 rows after byte 100 of" in refusal(step(f"{module}:work", "arrow"), place=Place("/a", "bytes", 100))


def test_of_rows_beside_some_that_were_left_out_the_error_of_a_step_after_one_that_made_more_of_them_names_where_they_lie(
    code: Write,
) -> None:
    module = code("def more(row): return [row, row]\ndef work(batch):\n    raise ZeroDivisionError('x')\n")
    place = Place("/in/a.parquet", "rows", 100, pa.array([n * 2 for n in range(10)], pa.uint64()))

    message = refusal(step(f"{module}:more"), step(f"{module}:work", "arrow"), place=place)

    assert "20 of the rows 100 to 118 of /in/a.parquet" in message


def test_a_pandas_step_gives_rows_without_an_index_column(code: Write) -> None:
    module = code("def work(frame):\n    return frame[frame['id'] > 7].sort_values('id', ascending=False)\n")

    assert apply(step(f"{module}:work", "pandas")) == [{"id": 9, "text": "t9"}, {"id": 8, "text": "t8"}]


def test_a_pandas_step_that_gives_no_frame_is_told(code: Write) -> None:
    module = code("def work(frame): return None\n")

    assert "raised on rows 100 to 109" in refusal(step(f"{module}:work", "pandas"))


def test_a_pandas_step_that_changes_nothing_keeps_integers_beside_a_null(code: Write) -> None:
    module = code("def work(frame): return frame\n")
    batch = pa.record_batch({"id": pa.array([1, None, (1 << 53) + 1])})
    (result,) = Pipeline([step(f"{module}:work", "pandas")]).apply(batch, PLACE, None)

    assert result.schema.field("id").type == pa.int64()
    assert result.to_pylist() == batch.to_pylist()


def test_steps_of_all_kinds_work_in_a_chain(code: Write) -> None:
    module = code(
        "import pyarrow.compute as pc\n"
        "def rows(row): return row if row['id'] != 3 else None\n"
        "def batch(batch): return batch.set_column(0, 'id', pc.add(batch['id'], 100))\n"
        "def frame(frame): return frame.assign(text=frame['text'].str.upper())\n"
    )
    chain = (step(f"{module}:rows"), step(f"{module}:batch", "arrow"), step(f"{module}:frame", "pandas"), step(f"{module}:rows"))

    assert apply(*chain)[:4] == [{"id": 100 + number, "text": f"T{number}"} for number in (0, 1, 2, 4)]


def test_a_step_after_one_that_dropped_everything_is_not_called(code: Write) -> None:
    module = code("def none(row): return None\ndef fails(batch): raise AssertionError\n")

    assert apply(step(f"{module}:none"), step(f"{module}:fails", "arrow")) == []


def test_no_rows_call_no_step(code: Write) -> None:
    module = code("def fails(row): raise AssertionError\n")

    assert apply(step(f"{module}:fails"), to=TEN.slice(0, 0)) == []


# --- the schema of the output ---------------------------------------------------------------------------------------------


def test_the_schema_is_that_of_what_the_first_rows_become(code: Write) -> None:
    module = code("def work(row): return {'n': row['id'] / 2, 'tags': [row['text']]}\n")

    assert Pipeline([step(f"{module}:work")]).schema_of(TEN, PLACE) == pa.schema(
        [("n", pa.float64()), ("tags", pa.list_(pa.string()))]
    )


def test_without_rows_the_schema_is_that_of_the_batch_steps(code: Write) -> None:
    module = code("def work(batch): return batch.select(['text'])\n")

    assert Pipeline([step(f"{module}:work", "arrow")]).schema_of(TEN.slice(0, 0), PLACE) == pa.schema([("text", pa.string())])
    assert Pipeline([]).schema_of(TEN.slice(0, 0), PLACE) == TABLE


def test_columns_that_are_declared_need_no_rows_and_no_call(code: Write) -> None:
    module = code("def work(row): raise ValueError\n")
    steps = [step(f"{module}:work"), step(f"{module}:work", output={"a": "int8", "b": "timestamp[us, UTC]"})]

    assert declared_output(steps) == pa.schema([("a", pa.int8()), ("b", pa.timestamp("us", "UTC"))])
    assert Pipeline(steps).schema_of(TEN, PLACE) == declared_output(steps)
    assert declared_output(steps[:1]) is None
    assert declared_output([]) is None


def test_without_rows_a_row_step_cannot_tell_its_columns(code: Write) -> None:
    module = code("def work(row): return None\n")

    for batch in (TEN, TEN.slice(0, 0)):
        with pytest.raises(NeedsChange, match="create the table yourself") as caught:
            Pipeline([step(f"{module}:work")]).schema_of(batch, PLACE)
        assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG


# --- what pyarrow cannot take ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "said"), [("7", "7"), ("None", "None"), ("('a', 1)", "('a', 1)"), ("'\\ud800'", r"'\ud800'")])
@pytest.mark.parametrize("schema", [None, TABLE], ids=["a new table", "a table"])
def test_a_row_with_a_key_that_is_no_text_is_named_with_its_step(
    code: Write, key: str, said: str, schema: pa.Schema | None
) -> None:
    module = code(f"def work(row):\n    return {{**row, {key}: 1}} if row['id'] == 3 else row\n")

    message = refusal(step(f"{module}:work"), reason=reasons.OUTPUT_SCHEMA_WRONG, schema=schema)

    for part in (f"{module}:work", said, "row 103 of /in/größe.parquet"):
        assert part in message


def test_a_key_that_is_no_text_is_named_also_before_a_batch_step(code: Write) -> None:
    module = code("def number(row): return {7: row['id']}\ndef work(batch): return batch\n")

    message = refusal(step(f"{module}:number"), step(f"{module}:work", "arrow"), reason=reasons.OUTPUT_SCHEMA_WRONG)

    assert "gives a row with the key 7 in row 100" in message


def test_what_a_value_raises_that_pyarrow_asks_is_named_with_the_column_and_the_row(code: Write) -> None:
    module = code(
        "import datetime\n"
        "class Zone(datetime.tzinfo):\n"
        "    def utcoffset(self, when): raise KeyError('no such zone')\n"
        "def work(row):\n"
        "    return {**row, 'at': datetime.datetime(2026, 1, 1, tzinfo=Zone() if row['id'] == 3 else datetime.UTC)}\n"
    )

    message = refusal(step(f"{module}:work"), reason=reasons.OUTPUT_SCHEMA_WRONG, schema=None)

    for part in (f"{module}:work", "'at'", "row 103", "no such zone"):
        assert part in message
