"""Column types of a table that is made of the steps' first rows: declared, else kept from the source, else the widest."""

from __future__ import annotations

import datetime
import itertools
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_commit.sinks.table_types import iceberg_schema, lance_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.failing.row_isolation import RowIsolation
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.values.schema_cast import ValueMismatch

PLACE = Place("/in/a.parquet", "rows", 100)
MONEY = pa.decimal128(12, 2)
_numbers = itertools.count()

Write = Callable[[str], str]


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Write]:
    """Return a function that writes a module under a fresh name and returns the name."""
    sys.path.insert(0, str(tmp_path))

    def write(text: str) -> str:
        name = f"new_table_code_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return name

    yield write
    sys.path.remove(str(tmp_path))


def step(call: str, input: str = "row", **fields: Any) -> Step:
    return Step(call=call, input=input, **fields)  # type: ignore[arg-type]


def column(value: object, kind: pa.DataType) -> pa.RecordBatch:
    """Return a column `c` with this value and a NULL."""
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    array = pa.array([value, None], storage)
    if isinstance(kind, pa.BaseExtensionType):
        array = pa.ExtensionArray.from_storage(kind, array)
    return pa.record_batch({"c": array})


def made(batch: pa.RecordBatch, *steps: Step) -> dict[str, pa.DataType]:
    """Return the columns of the table; the same whether rows may fail or not."""
    schema = Pipeline(steps).schema_of(batch, PLACE)
    assert Pipeline(steps).schema_of(batch, PLACE, sets_apart=True) == schema
    return {field.name: field.type for field in schema}


AT = datetime.datetime.fromisoformat("2024-02-29T12:00:00")
KEPT: list[tuple[object, pa.DataType]] = [
    (Decimal("1.50"), MONEY),
    (Decimal("1.50"), pa.decimal256(40, 2)),
    (1, pa.int8()),
    (1, pa.int32()),
    (1, pa.uint64()),
    (0.1, pa.float32()),
    (float("nan"), pa.float32()),
    (True, pa.bool_()),
    (AT.date(), pa.date32()),
    (AT.date(), pa.date64()),
    (AT.time(), pa.time32("s")),
    (AT, pa.timestamp("s")),
    (AT, pa.timestamp("us")),
    (AT, pa.timestamp("ns")),
    (AT, pa.timestamp("ms", "UTC")),
    (AT, pa.timestamp("us", "Europe/Berlin")),
    ("text", pa.large_string()),
    (b"ab", pa.binary(2)),
    (b"ab", pa.large_binary()),
    ({"a": 1, "b": None}, pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ([Decimal("1.50")], pa.list_(MONEY)),
    ([0.5], pa.large_list(pa.float32())),
    ([0.5, 1.5], pa.list_(pa.float32(), 2)),
    ([("k", 1)], pa.map_(pa.string(), pa.int32())),
    ([{"price": Decimal("1.50")}], pa.list_(pa.struct([("price", MONEY)]))),
    (b"0123456789abcdef", pa.uuid()),
]


@pytest.mark.parametrize(("value", "kind"), KEPT, ids=lambda item: str(item) if isinstance(item, pa.DataType) else "")
def test_a_column_that_a_row_step_passes_through_keeps_its_type(value: object, kind: pa.DataType, code: Write) -> None:
    module = code("def same(row): return row\n")

    assert made(column(value, kind), step(f"{module}:same")) == {"c": kind}


@pytest.mark.parametrize(
    ("value", "kind"),
    [(value, kind) for value, kind in KEPT if not pa.types.is_map(kind)],
    ids=lambda item: str(item) if isinstance(item, pa.DataType) else "",
)
def test_a_column_that_a_pandas_step_passes_through_keeps_its_type(value: object, kind: pa.DataType, code: Write) -> None:
    module = code("def same(frame): return frame\n")

    assert made(column(value, kind), step(f"{module}:same", "pandas")) == {"c": kind}


def test_text_that_comes_with_a_dictionary_is_text(code: Write) -> None:
    module = code("def same(row): return row\n")

    batch = column("a", pa.string()).set_column(0, "c", pa.array(["a", "b"]).dictionary_encode())

    assert made(batch, step(f"{module}:same")) == {"c": pa.string()}


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_column_keeps_its_type_through_steps_of_all_kinds(steps: int, code: Write) -> None:
    module = code("def same(rows): return rows\n")
    kinds = itertools.permutations(["row", "arrow", "pandas"], steps)

    for inputs in kinds:
        found = made(column(Decimal("1.50"), MONEY), *(step(f"{module}:same", input) for input in inputs))
        assert found == {"c": MONEY}, inputs


@pytest.mark.parametrize("missing", ["None", "[]"])
def test_a_column_without_values_in_the_first_rows_keeps_its_type(missing: str, code: Write) -> None:
    module = code(f"def work(row): return {{'c': {missing}}}\n")

    assert made(column([1], pa.list_(pa.int32())), step(f"{module}:work")) == {"c": pa.list_(pa.int32())}


@pytest.mark.parametrize(
    ("given", "kind", "value", "wanted"),
    [
        (1, pa.int32(), "2**31", pa.int64()),
        (1, pa.int32(), "1.5", pa.float64()),
        (0.5, pa.float32(), "0.1", pa.float64()),
        (0.5, pa.float64(), "1", pa.float64()),
        (Decimal("1.5"), MONEY, "Decimal('1.234')", pa.decimal128(38, 3)),
        (Decimal("1.5"), MONEY, "7", MONEY),
        (Decimal("1.5"), MONEY, "'1.5'", pa.string()),
        (AT, pa.timestamp("us"), "row['c'].date()", pa.date32()),
        (AT.date(), pa.date32(), "datetime.datetime(2024, 1, 1)", pa.timestamp("us")),
        (AT, pa.timestamp("s"), "row['c'].replace(microsecond=1)", pa.timestamp("us")),
        (AT, pa.timestamp("us", "UTC"), "row['c'].replace(tzinfo=None)", pa.timestamp("us")),
        (b"ab", pa.binary(2), "b'abc'", pa.binary()),
        ([1], pa.list_(pa.int32()), "[2**40]", pa.list_(pa.int64())),
        ([1], pa.list_(pa.int32()), "[Decimal('1.5')]", pa.list_(pa.decimal128(38, 1))),
    ],
)
def test_a_column_whose_values_do_not_fit_its_type_is_the_widest_of_its_kind(
    given: object, kind: pa.DataType, value: str, wanted: pa.DataType, code: Write
) -> None:
    module = code(
        f"import datetime\nfrom decimal import Decimal\ndef work(row): return {{'c': row['c'] and {value}}}\n",
    )

    assert made(column(given, kind), step(f"{module}:work")) == {"c": wanted}


def test_new_columns_are_the_widest_of_their_kind_at_every_depth(code: Write) -> None:
    module = code(
        "import datetime\nimport numpy\nfrom decimal import Decimal\nprice = Decimal('1.50')\ndef work(row): return {\n"
        "    'n': numpy.int8(1), 'x': numpy.float32(1), 'd': price, 'many': [price], 'in': {'d': price, 'n': numpy.int16(1)},\n"
        "    'text': 'a', 'raw': b'a', 'flag': True, 'on': datetime.date(2024, 1, 1), 'at': datetime.datetime(2024, 1, 1),\n"
        "    'utc': datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)}\n"
    )
    wide = pa.decimal128(38, 2)

    assert made(column(1, pa.int32()), step(f"{module}:work")) == {
        "n": pa.int64(),
        "x": pa.float64(),
        "d": wide,
        "many": pa.list_(wide),
        "in": pa.struct([("d", wide), ("n", pa.int64())]),
        "text": pa.string(),
        "raw": pa.binary(),
        "flag": pa.bool_(),
        "on": pa.date32(),
        "at": pa.timestamp("us"),
        "utc": pa.timestamp("us", "UTC"),
    }


def test_a_struct_keeps_the_fields_that_the_first_rows_leave_out_and_gets_those_that_are_new(code: Write) -> None:
    module = code("def drops(row): return {'c': {'a': 1}}\ndef adds(row): return {'c': {'a': 1, 'more': 2}}\n")
    kind = pa.struct([("a", pa.int32()), ("b", MONEY)])
    batch = column({"a": 1, "b": None}, kind)

    assert made(batch, step(f"{module}:drops")) == {"c": kind}
    assert made(batch, step(f"{module}:adds")) == {"c": pa.struct([("a", pa.int32()), ("b", MONEY), ("more", pa.int64())])}


@pytest.mark.parametrize("after", [(), ("arrow",), ("row",), ("pandas",)])
def test_what_a_step_declares_goes_before_the_type_of_the_source(after: tuple[str, ...], code: Write) -> None:
    module = code("def same(rows): return rows\n")
    declares = step(f"{module}:same", output={"c": "decimal(20, 4)"})

    found = made(column(Decimal("1.50"), MONEY), declares, *(step(f"{module}:same", input) for input in after))

    assert found == {"c": pa.decimal128(20, 4)}


def test_lists_structs_and_maps_are_declared_where_the_first_rows_do_not_show_what_they_hold(code: Write) -> None:
    module = code(
        "def row(row):\n"
        "    if row['c'] is None:\n"
        "        return {'tags': ['a'], 'at': {'x': 1.5}, 'counts': [('k', 2)]}\n"
        "    return {'tags': [], 'at': {}, 'counts': []}\n"
    )
    output = {"tags": "list<string>", "at": "struct<x: double, y: int64>", "counts": "map<string, int64>"}
    declares = step(f"{module}:row", output=output)
    batch = column(1, pa.int32())

    schema = Pipeline([declares]).schema_of(batch, PLACE)

    kinds = [pa.list_(pa.string()), pa.struct([("x", pa.float64()), ("y", pa.int64())]), pa.map_(pa.string(), pa.int64())]
    assert schema.types == kinds
    rows = [row for made in Pipeline([declares]).apply(batch, PLACE, schema) for row in made.to_pylist()]
    assert rows == [
        {"tags": [], "at": {"x": None, "y": None}, "counts": []},
        {"tags": ["a"], "at": {"x": 1.5, "y": None}, "counts": [("k", 2)]},
    ]


@pytest.mark.parametrize("input", ["arrow", "pandas"])
def test_a_type_that_a_batch_step_sets_itself_stays(input: str, code: Write) -> None:
    module = code(
        "import pyarrow as pa\ndef arrow(batch): return pa.table({'c': batch.column(0).cast(pa.int16())})\n"
        "def pandas(frame): return frame.astype('int16')\n"
    )

    assert made(column(1, pa.int32()).slice(0, 1), step(f"{module}:{input}", input)) == {"c": pa.int16()}


def test_a_price_that_a_row_step_makes_is_wide_also_behind_a_batch_step(code: Write) -> None:
    module = code("from decimal import Decimal\ndef row(row): return {'d': Decimal('1.50')}\ndef same(batch): return batch\n")

    found = made(column(1, pa.int32()), step(f"{module}:row"), step(f"{module}:same", "arrow"))

    assert found == {"d": pa.decimal128(38, 2)}


def test_types_are_those_of_the_rows_that_do_not_fail(code: Write) -> None:
    module = code("def work(row):\n    if row['c'] is None: raise ValueError\n    return row\ndef same(batch): return batch\n")
    steps = [step(f"{module}:work"), step(f"{module}:same", "arrow")]

    found = Pipeline(steps).schema_of(column(Decimal("1.50"), MONEY), PLACE, sets_apart=True)

    assert found == pa.schema([("c", MONEY)])


def test_both_formats_make_tables_of_the_widest_types() -> None:
    wide = pa.schema([("d", pa.decimal128(38, 2)), ("u", pa.uint64()), ("n", pa.int64()), ("x", pa.float64())])

    assert lance_schema(wide) == wide
    assert iceberg_schema(wide).field("u").type == pa.decimal128(20, 0)


@pytest.mark.parametrize("nested", [False, True])
def test_nanoseconds_pass_a_row_step_and_are_not_cut_off(nested: bool, code: Write) -> None:
    module = code("def same(row): return row\n")
    kind = pa.timestamp("ns")
    array = pa.array([1_001], kind)
    if nested:
        array, kind = pa.array([[1_001]], pa.list_(kind)), pa.list_(kind)
    batch = pa.record_batch({"c": array})

    (given,) = Pipeline([step(f"{module}:same")]).apply(batch, PLACE, pa.schema([("c", kind)]))

    assert given.column(0) == array


# --- a later value that does not fit ---------------------------------------------------------------------------------------


PRICES = pa.record_batch({"c": pa.array([Decimal("1.50"), Decimal("2.50"), Decimal("123456.78")], MONEY)})
NARROW = pa.schema([("c", pa.decimal128(5, 2))])
SAME = "def same(rows): return rows\n"


def test_a_value_of_a_row_step_that_does_not_fit_is_named_with_step_row_file_and_way_out(code: Write) -> None:
    call = f"{code(SAME)}:same"

    with pytest.raises(ValueMismatch) as caught:
        list(Pipeline([step(call)]).apply(PRICES, PLACE, NARROW))

    assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG
    for word in (call, "column 'c'", "Decimal('123456.78')", "row 102 of /in/a.parquet", "output: {name: type}"):
        assert word in caught.value.message


def test_kinds_that_do_not_go_together_name_the_rows_in_which_they_lie(code: Write) -> None:
    module = code("def work(row): return {'c': 1 if row['c'] < 2 else 'x'}\n")

    with pytest.raises(NeedsChange, match=r"rows 100 to 102 of /in/a\.parquet"):
        Pipeline([step(f"{module}:work")]).schema_of(PRICES, PLACE)


@pytest.mark.parametrize("input", ["arrow", "pandas"])
def test_a_value_of_a_batch_step_that_does_not_fit_is_named_with_step_and_rows(input: str, code: Write) -> None:
    call = f"{code(SAME)}:same"

    with pytest.raises(ValueMismatch) as caught:
        list(Pipeline([step(call, input)]).apply(PRICES, PLACE, NARROW))

    for word in (call, "'c'", "Decimal('123456.78')", "row 2 of what", "rows 100 to 102 of /in/a.parquet", "output: {"):
        assert word in caught.value.message


def test_a_value_that_does_not_fit_without_steps_is_named_by_its_own_row() -> None:
    with pytest.raises(ValueMismatch, match=r"has Decimal\('123456.78'\) in row 102 of /in/a.parquet"):
        list(Pipeline([]).apply(PRICES, PLACE, NARROW))


def test_a_null_that_the_table_does_not_take_is_named_by_its_row() -> None:
    required = pa.schema([pa.field("c", pa.int32(), nullable=False)])

    with pytest.raises(ValueMismatch, match=r"NULL in the column 'c' in row 101 of /in/a\.parquet, which the table requires"):
        list(Pipeline([]).apply(column(1, pa.int32()), PLACE, required))


@pytest.mark.parametrize("input", ["row", "arrow", "pandas"])
def test_a_value_that_does_not_fit_what_the_step_declares_is_named(input: str, code: Write) -> None:
    call = f"{code(SAME)}:same"

    with pytest.raises(ValueMismatch) as caught:
        list(Pipeline([step(call, input, output={"c": "decimal(5, 2)"})]).apply(PRICES, PLACE, None))

    for word in (call, "'c'", "Decimal('123456.78')", "/in/a.parquet", "what it declares"):
        assert word in caught.value.message


@pytest.mark.parametrize("input", ["row", "arrow"])
def test_a_row_whose_value_does_not_fit_is_set_apart_alone_with_its_value(input: str, code: Write) -> None:
    apart: list[tuple[int, str]] = []
    pipeline = Pipeline([step(f"{code(SAME)}:same", input)])

    isolation = RowIsolation(lambda number, _step, error: apart.append((number, str(error))))
    given = list(pipeline.apply(PRICES, PLACE, NARROW, isolation))

    assert [row["c"] for batch in given for row in batch.to_pylist()] == [Decimal("1.50"), Decimal("2.50")]
    assert [number for number, _ in apart] == [2]
    assert "Decimal('123456.78')" in apart[0][1]
