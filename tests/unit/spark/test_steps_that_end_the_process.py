"""sys.exit, exit, a panic of a native library and the like in user code: failures of that code, never of the driver."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.records import RowPosition
from checkpoint_protocol.rows.positions import Range
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.failing.row_isolation import RowIsolation
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.quarantine import describe

PLACE = Place("/in/a.parquet", "rows", 100)
TEN = pa.record_batch({"id": list(range(10))})
TABLE = pa.schema([("id", pa.int64())])
PANIC: Final = "class PanicException(BaseException): pass\nPanicException.__module__ = 'pyo3_runtime'\n"
_numbers = itertools.count()

#: What user code may do, and how that is called.
ENDS = {
    "sys.exit(3)": "SystemExit: 3",
    "sys.exit()": "SystemExit",
    "exit('no licence')": "SystemExit: no licence",
    "raise SystemExit(1)": "SystemExit: 1",
    "raise PanicException('index out of bounds')": "PanicException: index out of bounds",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
}
OF_A_ROW = [end for end in ENDS if "Keyboard" not in end]

Write = Callable[[str], str]


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Write]:
    sys.path.insert(0, str(tmp_path))

    def write(text: str) -> str:
        name = f"ending_code_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(f"import sys\nfrom site import *\n{PANIC}{text}", encoding="utf-8")
        return name

    yield write
    sys.path.remove(str(tmp_path))


def step(call: str, input: str) -> Step:
    return Step(call=call, input=input)  # type: ignore[arg-type]


def refusal(made: Step) -> NeedsChange:
    with pytest.raises(NeedsChange) as refused:
        list(Pipeline([made]).apply(TEN, PLACE, TABLE))
    return refused.value


@pytest.mark.parametrize("end", ENDS)
def test_a_row_step_that_ends_the_process_has_failed_on_that_row(code: Write, end: str) -> None:
    module = code(f"def work(row):\n    if row['id'] == 4: {end}\n    return row\n")

    refused = refusal(step(f"{module}:work", "row"))

    assert refused.reason == reasons.CODE_FAILED
    assert f"raised on row 104 of /in/a.parquet: {ENDS[end]} (" in refused.message
    assert f"{module}.py:" in refused.message


@pytest.mark.parametrize("input", ["arrow", "pandas"])
@pytest.mark.parametrize("end", ENDS)
def test_a_batch_step_that_ends_the_process_has_failed_on_that_batch(code: Write, end: str, input: str) -> None:
    module = code(f"def work(batch): {end}\n")

    refused = refusal(step(f"{module}:work", input))

    assert refused.reason == reasons.CODE_FAILED
    assert f"raised on rows 100 to 109 of /in/a.parquet: {ENDS[end]} (" in refused.message


@pytest.mark.parametrize("where", ["import", "init", "setup"])
@pytest.mark.parametrize("end", ENDS)
def test_code_that_ends_the_process_before_any_row_has_failed(code: Write, end: str, where: str) -> None:
    lines = {name: end if name == where else "pass" for name in ("import", "init", "setup")}
    module = code(
        f"{lines['import']}\nclass Work:\n    def __init__(self): {lines['init']}\n    def setup(self): {lines['setup']}\n"
        "    def __call__(self, row): return row\n"
    )

    with pytest.raises(NeedsChange) as refused:
        Pipeline([step(f"{module}:Work", "row")])

    assert refused.value.reason == reasons.CODE_FAILED
    assert ENDS[end] in refused.value.message


def test_what_to_do_instead_of_sys_exit_is_said(code: Write) -> None:
    module = code("def work(row): sys.exit(1)\n")

    assert "give None" in refusal(step(f"{module}:work", "row")).message


# --- onRowError: Quarantine ---------------------------------------------------------------------------------------------------


def apart(made: Step) -> tuple[list[int], list[tuple[int, str]]]:
    found: list[tuple[int, str]] = []
    isolation = RowIsolation(lambda number, _step, error: found.append((number, type(error).__name__)))
    given = Pipeline([made]).apply(TEN, PLACE, TABLE, isolation)
    return [row["id"] for batch in given for row in batch.to_pylist()], found


@pytest.mark.parametrize("input", ["row", "pandas"])
@pytest.mark.parametrize("end", OF_A_ROW)
def test_a_row_on_which_the_code_ends_the_process_is_set_apart_and_the_others_go_on(code: Write, end: str, input: str) -> None:
    condition = "row['id'] == 4" if input == "row" else "(row['id'] == 4).any()"
    module = code(f"def work(row):\n    if {condition}: {end}\n    return row\n")

    given, failed = apart(step(f"{module}:work", input))

    assert given == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert failed == [(4, ENDS[end].partition(":")[0])]


@pytest.mark.parametrize("input", ["row", "pandas"])
def test_an_interrupt_is_of_no_row(code: Write, input: str) -> None:
    """It may come from outside: rows must not be set apart for it."""
    module = code("def work(row): raise KeyboardInterrupt\n")

    with pytest.raises(NeedsChange, match="KeyboardInterrupt"):
        apart(step(f"{module}:work", input))


def test_what_is_kept_of_such_a_row_can_be_stored() -> None:
    kept = describe(RowPosition(range=Range(file=0, start=4, end=5)), "work", SystemExit(3))

    assert (kept.error, kept.message) == ("SystemExit", "3")
