"""What steps are refused for, and the steps and tables as the message says: then every row has its result."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.records import NoTarget, TargetRecord
from checkpoint_spark.process.gpus import with_variables
from checkpoint_work.driver.output import await_target
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.row_numbers import of_these
from checkpoint_work.steps.values.schema_cast import fit
from tests.support.records import ledger_over
from tests.support.stores import MemoryStore

PLACE: Final = Place("/in/a.parquet", "rows", 100)
TEN: Final = pa.record_batch({"id": list(range(10)), "text": [f"t{number}" for number in range(10)]})
TABLE: Final = pa.schema([("id", pa.int64()), ("text", pa.string())])
WIDER: Final = pa.schema([*TABLE, pa.field("more", pa.int64())])
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Run:
    """A step, and the table that its rows go to; without one, the table is yet to be made."""

    code: str
    input: str = "row"
    output: Mapping[str, str] | None = None
    table: pa.Schema | None = TABLE
    more: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, folder: Path) -> None:
        name = f"way_out_{next(_numbers)}"
        (folder / f"{name}.py").write_text(f"import pyarrow as pa\n{self.code}\n", encoding="utf-8")
        sys.path.insert(0, str(folder))
        try:
            fields = {} if self.output is None else {"output": dict(self.output)}
            pipeline = Pipeline([Step(call=f"{name}:work", input=self.input, **fields)])  # type: ignore[arg-type]
            if self.table is None:
                assert len(pipeline.schema_of(TEN, PLACE)) > 0
                return
            made = [fit(batch, self.table) for batch in pipeline.apply(TEN, PLACE, self.table)]
            assert sum(batch.num_rows for batch in made) == len(TEN)
        finally:
            sys.path.remove(str(folder))


_MORE: Final = "def work(row): return {**row, 'more': 1}"
_PLAIN: Final = "def work(row): return row"
_ALL: Final = {"id": "int64", "text": "string"}
_LETTERS: Final = "def work(row): return {**row, 'id': 'x'}"
_BATCH: Final = "def work(rows): return rows"
_BATCH_MORE: Final = "def work(rows): return rows.append_column('more', rows['id'])"
_NOTHING: Final = "def work(row): return None"

#: What is said, the step and table of which it is said, and each as it says.
STEPS: Final[Mapping[str, tuple[Run, list[Run]]]] = {
    "drop it in the step, or add it to the table": (Run(_MORE), [Run(_PLAIN), Run(_MORE, table=WIDER)]),
    "drop it in the step, or declare it": (
        Run(_MORE, output=_ALL, table=WIDER),
        [Run(_PLAIN, output=_ALL), Run(_MORE, output={**_ALL, "more": "int64"}, table=WIDER)],
    ),
    "which its output does not declare (it declares {}); drop it in the step, or declare it": (
        Run(_BATCH_MORE, "arrow", _ALL),
        [Run(_BATCH, "arrow", _ALL), Run(_BATCH_MORE, "arrow", {**_ALL, "more": "int64"}, table=WIDER)],
    ),
    "correct the step, or what it declares": (
        Run(_LETTERS, output=_ALL),
        [
            Run(_PLAIN, output=_ALL),
            Run(_LETTERS, output={**_ALL, "id": "string"}, table=pa.schema([("id", pa.string()), ("text", pa.string())])),
        ],
    ),
    "column {} needs values of type {}{}: {}; correct the step, or what it declares": (
        Run(_BATCH, "arrow", {"id": "int64", "text": "int64"}),
        [Run(_BATCH, "arrow", _ALL)],
    ),
    "correct the step, or declare its output (output: {name: type}); a table that sink.create has made keeps its types": (
        Run(_LETTERS),
        [Run(_PLAIN), Run(_PLAIN, output=_ALL)],
    ),
    "which the table does not have (it has {}); drop it in a step (or by source.columns, as long as nothing is sealed)": (
        Run(_BATCH_MORE, "arrow"),
        [Run("def work(rows): return rows.select(['id', 'text'])", "arrow"), Run(_BATCH_MORE, "arrow", table=WIDER)],
    ),
    "the steps give {} in the column {}, and the table has {}; cast it in a step": (
        Run("def work(rows): return rows.set_column(0, 'id', rows['text'])", "arrow"),
        [Run("def work(rows): return rows.set_column(0, 'id', rows['id'].cast(pa.int64()))", "arrow")],
    ),
    "declare what it gives by its output (output: {name: type}), or create the table yourself": (
        Run(_NOTHING, table=None),
        [Run(_NOTHING, output=_ALL, table=None), Run(_PLAIN)],
    ),
    "; to leave a row out, give None instead of ending the process": (
        Run("def work(row): raise SystemExit"),
        [Run("def work(row): return row if row['id'] < 10 else None")],
    ),
}


@pytest.mark.parametrize("says", STEPS)
def test_a_step_that_is_corrected_as_the_message_says_gives_its_rows(tmp_path: Path, says: str) -> None:
    refused, ways = STEPS[says]

    with pytest.raises(CheckpointError) as caught:
        refused(tmp_path)
    assert all(part in caught.value.message for part in says.split("{}")), caught.value.message

    for way in ways:
        way(tmp_path)


def test_a_module_that_is_put_where_the_message_says_is_found(tmp_path: Path) -> None:
    name = f"late_{next(_numbers)}"
    later = Step(call=f"{name}:work", input="row")
    with pytest.raises(CheckpointError, match=r"put it where spec\.code says \(code\.path, code\.uri or code\.configMap\)"):
        list(Pipeline([later]).apply(TEN, PLACE, TABLE))

    (tmp_path / f"{name}.py").write_text(_PLAIN)
    sys.path.insert(0, str(tmp_path))
    try:
        assert sum(batch.num_rows for batch in Pipeline([later]).apply(TEN, PLACE, TABLE)) == len(TEN)
    finally:
        sys.path.remove(str(tmp_path))


def test_a_column_of_no_type_is_proposed_once_it_has_one_as_the_message_says() -> None:
    ledger = ledger_over(MemoryStore())
    with pytest.raises(CheckpointError, match="give it a type in the step, or create the table yourself") as caught:
        await_target(ledger, 1, pa.schema([("a", pa.null())]))
    assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG

    ledger.attempts.put_target(1, TargetRecord(token=new_token(), target=NoTarget()))
    assert await_target(ledger, 1, pa.schema([("a", pa.int64())])) == NoTarget()
    output = ledger.attempts.read_output(1)
    assert output is not None


def test_a_variable_that_the_environment_has_by_then_is_filled_in() -> None:
    with pytest.raises(CheckpointError, match=r"does not have; set it \(in a cluster: in spec\.driver\.template"):
        with_variables({"spark.a": "${env:A}"}, {})
    assert with_variables({"spark.a": "${env:A}"}, {"A": "1"}) == {"spark.a": "1"}


def test_the_columns_that_are_asked_for_are_given_once_the_step_or_the_manifest_is_corrected() -> None:
    asked = pa.schema([("more", pa.int64())])
    with pytest.raises(CheckpointError, match=r"of sink\.columns \(it gives id, text\); correct the step, or sink\.columns"):
        of_these(TEN, asked, None)

    assert of_these(TEN.append_column("more", TEN["id"]), asked, None).schema.names == ["more"]
    assert of_these(TEN, pa.schema([("id", pa.int64())]), None).schema.names == ["id"]
