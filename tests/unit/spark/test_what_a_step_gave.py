"""A step may use its own objects again: what it gave is taken as it was when it was given."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.places import Place

_numbers = itertools.count()
IDS = range(20)

Write = Callable[[str], str]


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Write]:
    """Return a function that writes a module under a fresh name and returns the name."""
    sys.path.insert(0, str(tmp_path))

    def write(text: str) -> str:
        name = f"reusing_code_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return name

    yield write
    sys.path.remove(str(tmp_path))


def results(*steps: Step, batches: int = 1) -> list[dict[str, Any]]:
    """Return all rows that the steps make of some batches. They are looked at when all are made, as rows that wait are."""
    pipeline, step = Pipeline(steps), len(IDS) // batches
    given = [pa.record_batch({"id": pa.array(IDS[start : start + step], pa.int64())}) for start in IDS[::step]]
    made = [batch for one in given for batch in pipeline.apply(one, Place("/in/a", "rows", 0), None)]
    return [row for batch in made for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "body",
    [
        "def work(row):\n    kept['id'] = row['id']\n    return kept\n",
        "def work(row):\n    kept['id'] = row['id']\n    return [kept]\n",
        "def work(row):\n    kept['id'] = row['id']\n    yield kept\n",
        "async def work(row):\n    kept['id'] = row['id']\n    return kept\n",
        "async def work(row):\n    kept['id'] = row['id']\n    yield kept\n",
    ],
)
def test_rows_of_a_step_that_gives_one_dict_again_and_again_are_all_there(code: Write, body: str) -> None:
    module = code(f"kept = {{}}\n{body}")

    assert results(Step(call=f"{module}:work", input="row")) == [{"id": number} for number in IDS]


@pytest.mark.parametrize("prefix", ["", "async "])
def test_a_generator_that_changes_its_dict_between_two_yields_gives_each_as_it_was(code: Write, prefix: str) -> None:
    module = code(
        f"{prefix}def work(row):\n    for part in range(3):\n        row['part'] = part\n        yield row\n",
    )

    assert results(Step(call=f"{module}:work", input="row")) == [
        {"id": number, "part": part} for number in IDS for part in range(3)
    ]


@pytest.mark.parametrize(
    ("make", "change", "expected"),
    [
        ("[0]", "kept[0] = row['id']", lambda number: [number]),
        ("{'x': 0}", "kept['x'] = row['id']", lambda number: {"x": number}),
        ("([0], [0])", "kept[0][0] = row['id']", lambda number: [[number], [0]]),
        ("[{'x': [0]}]", "kept[0]['x'][0] = row['id']", lambda number: [{"x": [number]}]),
        ("bytearray(1)", "kept[0] = row['id']", lambda number: bytes([number])),
        ("memoryview(bytearray(1))", "kept[0] = row['id']", lambda number: bytes([number])),
        ("numpy.zeros(2, int)", "kept[0] = row['id']", lambda number: [number, 0]),
        ("numpy.array([[0], [0, 1]], dtype=object)", "kept[0][0] = row['id']", lambda number: [[number], [0, 1]]),
        ("set()", "kept.clear(); kept.add(row['id'])", lambda number: [number]),
        ("collections.OrderedDict(x=0)", "kept['x'] = row['id']", lambda number: {"x": number}),
    ],
)
@pytest.mark.parametrize("later_steps", [0, 1])
def test_values_that_a_row_step_changes_later_are_taken_as_they_were(
    code: Write, make: str, change: str, expected: Callable[[int], Any], later_steps: int
) -> None:
    module = code(
        f"import collections, numpy\nkept = {make}\n"
        f"def work(row):\n    {change}\n    return {{'v': kept}}\ndef passed(row): return row\n"
    )
    later = [Step(call=f"{module}:passed", input="row")] * later_steps

    assert [row["v"] for row in results(Step(call=f"{module}:work", input="row"), *later)] == [expected(number) for number in IDS]


def test_a_cached_row_that_the_next_step_changes_stays_as_it_was(code: Write) -> None:
    module = code(
        "kept = {'tags': ['a']}\n"
        "def look(row): return kept\n"
        "def tag(row):\n    row['tags'].append('b')\n    row['n'] = len(row['tags'])\n    return row\n"
    )

    made = results(Step(call=f"{module}:look", input="row"), Step(call=f"{module}:tag", input="row"))

    assert made == [{"tags": ["a", "b"], "n": 2}] * len(IDS)


def test_an_object_that_is_no_value_reaches_the_next_row_step_as_the_same_object(code: Write) -> None:
    module = code(
        "import threading\nlock = threading.Lock()\n"
        "def give(row): return {'id': row['id'], 'o': [lock]}\n"
        "def take(row): return {'id': row['id'], 'same': row['o'][0] is lock}\n"
    )

    made = results(Step(call=f"{module}:give", input="row"), Step(call=f"{module}:take", input="row"))

    assert {row["same"] for row in made} == {True}


@pytest.mark.parametrize(
    ("input", "body"),
    [
        ("pandas", "frame.loc[:, 'id'] = given['id'].to_numpy()\n    return frame"),
        ("pandas", "frame['id'].to_numpy()[:] = given['id'].to_numpy()\n    return frame"),
        ("pandas", "numbers[:] = given['id'].to_numpy()\n    return pandas.DataFrame({'id': numbers}, copy=False)"),
        ("arrow", "numbers[:] = given['id'].to_numpy()\n    return pa.record_batch({'id': pa.array(numbers)})"),
        ("arrow", "numbers[:] = given['id'].to_numpy()\n    return pa.table({'id': pa.array(numbers)}).slice(0)"),
        (
            "arrow",
            (
                "numbers[:] = given['id'].to_numpy()\n"
                "    return pa.record_batch({'id': pa.Array.from_buffers(pa.int64(), 4, [None, pa.py_buffer(numbers)])})"
            ),
        ),
        (
            "arrow",
            (
                "numbers[:] = given['id'].to_numpy()\n    found = pa.DictionaryArray.from_arrays(range(4), pa.array(numbers))\n"
                "    return pa.record_batch({'id': found})"
            ),
        ),
    ],
)
@pytest.mark.parametrize("prefix", ["", "async "])
def test_batches_of_a_step_that_fills_one_buffer_again_and_again_are_taken_as_they_were(
    code: Write, input: str, body: str, prefix: str
) -> None:
    module = code(
        "import numpy, pandas, pyarrow as pa\n"
        "numbers = numpy.zeros(4, 'int64')\nframe = pandas.DataFrame({'id': numpy.zeros(4, 'int64')})\n"
        f"{prefix}def work(given):\n    {body}\n"
    )

    made = results(Step(call=f"{module}:work", input=input), batches=5)  # type: ignore[arg-type]

    assert [row["id"] for row in made] == list(IDS)


def test_columns_that_an_arrow_step_passes_on_are_not_copied(code: Write) -> None:
    module = code("import pyarrow as pa\ndef work(given): return given.append_column('more', pa.array([1] * given.num_rows))\n")
    given = pa.record_batch({"id": pa.array(IDS, pa.int64()), "text": [str(number) for number in IDS]})

    (made,) = Pipeline([Step(call=f"{module}:work", input="arrow")]).apply(given, Place("/in/a", "rows", 0), None)

    for name in ("id", "text"):
        before, after = (batch.column(name).buffers()[-1].address for batch in (given, made))
        assert before == after


def test_a_type_of_the_users_own_is_the_same_type_in_what_is_taken(code: Write) -> None:
    module = code(
        "import pyarrow as pa\n"
        "class Own(pa.ExtensionType):\n"
        "    def __init__(self): super().__init__(pa.int64(), 'unit.own')\n"
        "    def __arrow_ext_serialize__(self): return b''\n"
        "    @classmethod\n    def __arrow_ext_deserialize__(cls, storage, data): return cls()\n"
        "def work(given):\n"
        "    return pa.record_batch({'id': pa.ExtensionArray.from_storage(Own(), pa.array(range(given.num_rows)))})\n"
    )

    (made,) = Pipeline([Step(call=f"{module}:work", input="arrow")]).apply(
        pa.record_batch({"id": pa.array(IDS, pa.int64())}), Place("/in/a", "rows", 0), None
    )

    assert made.schema.field("id").type.extension_name == "unit.own"
