"""Cases of the judge for steps and stagers: a random column, what a step gives in it, and what a reader of the table finds.

`python -m tests.judge.steps --seconds 600 --seed 0` looks for red ones; each is named by its seed.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import pandas as pd
import pyarrow as pa

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.places import Place
from tests.judge import given_steps, staged
from tests.judge.arrow_types import OF_ICEBERG, OF_LANCE, Value, field_of, value_of
from tests.judge.sameness import is_same
from tests.judge.search import search
from tests.judge.written import written

Verdict = Literal["equal", "refused"]
#: Columns with as many rows as this lie in one table.
ROWS: Final = 5
COLUMNS: Final = 20
_DEPTH: Final = 4
#: Of steps that pass on what they are given, and of those that give values as people write them.
_PASSING: Final = (("same", "row"), ("same", "arrow"), ("same", "pandas"))
_GIVING: Final = (("row", "row"), ("rows", "row"), ("waiting", "row"), ("reused", "row"), ("frame", "pandas"))


@dataclass(frozen=True, slots=True)
class Case:
    """A column of a table, what was given for it, by which step, and whether all of it was of the column's type."""

    seed: int
    field: pa.Field
    given: list[Any]
    step: Step
    is_exact: bool
    has_table: bool = True

    def __str__(self) -> str:
        how = "no table yet" if not self.has_table else "declared" if self.step.output else "as the table has it"
        return f"seed {self.seed}: {self.step.call} ({self.step.input}, {how}), {self.field}, {self.given!r}"


class Red(AssertionError):
    """A value was changed without a word, or one was refused that is of the column's type."""


def case_of(seed: int) -> Case:
    of = random.Random(seed)
    leaves: dict[pa.DataType, Value] = of.choice([OF_ICEBERG, OF_LANCE])
    field = field_of(of, "v", leaves, of.randint(0, _DEPTH))
    values = [value_of(of, field, leaves) for _ in range(ROWS)]
    is_passing = of.random() < 0.4
    call, kind = of.choice(_PASSING if is_passing else _GIVING)
    is_exact = is_passing or of.random() < 0.4
    # NaN and NULL are one in a column of pandas.
    if kind == "pandas" and pa.types.is_floating(field.type):
        values = [None if value is not None and value != value and field.nullable else value for value in values]
        values = [0.5 if value is not None and value != value else value for value in values]
    if not is_passing:
        odds = 0.0 if is_exact else of.choice([0.05, 0.1, 0.3])
        values = [written(of, value, field, odds) for value in values]
    said: dict[str, Any] = {"call": f"tests.judge.given_steps:{call}", "input": kind}
    has_table = is_passing or of.random() < 0.8
    declared = staged.declared(field.type) if not is_passing and of.random() < 0.3 else None
    if declared is not None and has_table:
        said["output"] = {"id": "int32", "v": declared}
    return Case(seed, field, values, Step.model_validate(said), is_exact and has_table, has_table)


def run(case: Case) -> tuple[Verdict, pa.Array | None]:
    """Take the column through its step, and fit it to the table. Red if what comes is not what was given."""
    given_steps.GIVEN[:] = case.given
    ids = pa.array(range(len(case.given)), pa.int32())
    batch = pa.RecordBatch.from_arrays([ids], ["id"])
    if case.step.call.endswith(":same"):
        column = staged.plain_array(case.given, case.field.type)
        batch = batch.append_column("v", column)
    schema = pa.schema([pa.field("id", pa.int32()), case.field]) if case.has_table else None
    try:
        (made,) = Pipeline([case.step]).apply(batch, Place("/in/a", "rows", 0), schema)
    except CheckpointError as refusal:
        if case.is_exact:
            raise Red(f"{case}\nwas refused: {refusal}") from refusal
        return "refused", None
    column = made.column(1)
    compare(case, column.to_pylist(), column.type)
    return "equal", column if case.has_table else None


def compare(case: Case, got: list[Any], kind: pa.DataType) -> None:
    # In a column of pandas, what is none (NaN, NaT, NA) and NULL are one.
    is_none = pd.isna if case.step.input == "pandas" else lambda value: value is None
    for given, found in itertools.zip_longest(case.given, got):
        if found is None and pd.api.types.is_scalar(given) and is_none(given):
            continue
        if not is_same(given, found, kind):
            raise Red(f"{case}\ngave {given!r}, and the table has {found!r}")


def cases(first: int) -> Iterator[Case]:
    return map(case_of, itertools.count(first))


def judge(first: int, count: int, verdicts: Counter[str], *, reads: bool = True) -> None:
    """Judge so many cases, and if `reads`, those that are equal once more in a table, by readers of others."""
    accepted: list[tuple[Case, pa.Array]] = []
    for case in itertools.islice(cases(first), count):
        verdict, column = run(case)
        verdicts[verdict] += 1
        if column is not None:
            accepted.append((case, column))
    if not reads:
        return
    of_iceberg = [
        one
        for one in accepted
        if staged.is_of(one[0].field.type, OF_ICEBERG) and not staged.has_names_of_one_path(one[0].field.type)
    ]
    of_lance = [one for one in accepted if staged.is_of(one[0].field.type, OF_LANCE)]
    with tempfile.TemporaryDirectory() as folder:
        for read, those in ((staged.by_iceberg, of_iceberg), (staged.by_lance, of_lance), (staged.by_stage, accepted)):
            try:
                read_back = list(read(folder, [(case.field, column) for case, column in those])) if those else []
            except BaseException as error:  # a fault in Lance is no Exception
                if isinstance(error, KeyboardInterrupt):
                    raise
                raise Red(f"from seed {first}: cannot be written or read: {type(error).__name__}: {error}") from error
            for known, found in read_back:
                for number, values in zip(known, found, strict=True):
                    compare(those[number][0], values, those[number][0].field.type)
                    verdicts[f"read back ({read.__name__[3:]})"] += 1


if __name__ == "__main__":
    search(lambda seed, verdicts: judge(seed, COLUMNS, verdicts), COLUMNS)
