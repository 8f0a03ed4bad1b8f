"""What a row step's function is annotated with declares its output, and the class of the rows that it receives."""

from __future__ import annotations

import datetime
import enum
import json
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict
from uuid import UUID

import pyarrow as pa
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PositiveInt, RootModel, computed_field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from checkpoint_formats.rows.type_names import parse_type
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.steps.annotations import output_of, receiver_of
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.values.arrow_rows import to_arrow
from checkpoint_work.steps.values.taking import as_it_is
from tests.unit.project.test_documentation import blocks

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]

COLUMNS = {"id": "int64", "text": "string"}
Key = NewType("Key", int)
Color = enum.Enum("Color", {"RED": "red", "BLUE": "blue"})
Level = enum.IntEnum("Level", "LOW HIGH")
Mixed = enum.Enum("Mixed", {"ONE": 1, "TWO": "two"})


class Model(BaseModel):
    id: int
    text: str | None = Field(default="-", alias="Text")
    hidden: Any = Field(default=None, exclude=True)


@dataclass
class Data:
    id: int
    text: Annotated[str, "note"] = "-"


class Typed(TypedDict):
    id: Key
    text: NotRequired[str]


class TypedByExtensions(typing_extensions.TypedDict):
    id: int
    text: str


class Named(NamedTuple):
    id: int
    text: str = "-"


@pydantic_dataclass
class Validated:
    id: PositiveInt
    text: str = "-"


class Computed(BaseModel):
    id: int

    @computed_field
    def text(self) -> str:
        return str(self.id)


class Open(Model):
    model_config = ConfigDict(extra="allow")


@dataclass
class Tree:
    id: int
    left: Tree | None
    right: Tree | None


class Names(RootModel[list[str]]):
    pass


class Empty(BaseModel):
    pass


def returning(annotation: Any) -> Callable[[Any], Any]:
    def work(row: Any) -> Any:
        return row

    work.__annotations__["return"] = annotation
    return work


@pytest.mark.parametrize("kind", [Model, Data, Typed, TypedByExtensions, Named, Validated, Computed])
@pytest.mark.parametrize(
    "around",
    [
        lambda kind: kind,
        lambda kind: kind.__name__,
        lambda kind: kind | None,
        lambda kind: Optional[kind],  # noqa: UP045 - as code has it
        lambda kind: list[kind],  # type: ignore[valid-type]
        lambda kind: Iterator[kind] | None,  # type: ignore[valid-type]
        lambda kind: Iterable[Annotated[kind, 1]],  # type: ignore[valid-type]
        lambda kind: Generator[kind, None, None],  # type: ignore[valid-type]
        lambda kind: AsyncIterator[kind],  # type: ignore[valid-type]
    ],
    ids=["it", "as text", "or None", "optional", "list", "iterator", "iterable", "generator", "async iterator"],
)
def test_the_fields_of_what_is_returned_are_columns(kind: Any, around: Callable[[Any], Any]) -> None:
    assert output_of(returning(around(kind))) == COLUMNS


@pytest.mark.parametrize(
    "annotation",
    [None, dict, dict[str, int], Any, list, list[int], int, BaseModel, Empty, Open, Tree, Mixed, Names, Model | Data, "Unknown"],
)
def test_another_annotation_declares_nothing(annotation: Any) -> None:
    assert output_of(returning(annotation)) is None


class OfClass:
    def __call__(self, row: Data, factor: int) -> Model: ...  # type: ignore[empty-body]

    def method(self, row: Data) -> Model: ...  # type: ignore[empty-body]


async def waits(row: Data, factor: int) -> Model: ...  # type: ignore[empty-body]


@pytest.mark.parametrize("called", [OfClass(), OfClass().method, waits, partial(waits, factor=1)])
def test_the_annotations_of_whatever_is_called_count(called: Any) -> None:
    receive = receiver_of(called)

    assert output_of(called) == COLUMNS
    assert receive is not None
    assert receive({"id": 1, "more": 2}) == Data(1)


def unknown(row: Unknown) -> Model: ...  # type: ignore[empty-body]


@pytest.mark.parametrize("called", [unknown, len, int, lambda *rows: rows, lambda: None, returning(Model)])
def test_without_an_annotation_that_is_known_a_row_is_a_dict(called: Any) -> None:
    assert receiver_of(called) is None
    assert called is not unknown or output_of(called) is None


#: Types of fields, each with the name of the type that a column gets and a value of it; None: the annotation declares nothing.
TYPES: list[tuple[Any, str | None, Any]] = [
    (int, "int64", -1),
    (float, "double", 0.1),
    (str, "string", "ü"),
    (bool, "bool", True),
    (bytes, "binary", b"\xff"),
    (datetime.date, "date", datetime.date(2026, 1, 2)),
    (datetime.time, "time", datetime.time(1, 2, 3, 4)),
    (datetime.datetime, "timestamp[us]", datetime.datetime(2026, 1, 2, 3)),  # noqa: DTZ001 - as a column without a zone has it
    (AwareDatetime, "timestamp[us, UTC]", datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC)),
    (Annotated[Decimal, Field(max_digits=12, decimal_places=2)], "decimal(12, 2)", Decimal("0.25")),
    (Path, "string", Path("/a")),
    (Key, "int64", 1),
    (Color, "string", Color.RED),
    (Level, "int64", Level.HIGH),
    (Literal["a", "b", None], "string", "a"),
    (Literal[Color.RED, "b"], "string", Color.RED),
    (list[int | None], "list<int64>", [1, None]),
    (dict[str, list[float]], "map<string, list<double>>", {"a": [0.5]}),
    (Data, "struct<id: int64, text: string>", Data(1, "b")),
    (Names, "list<string>", Names(["a"])),
    (Decimal, None, None),
    (Annotated[Decimal, Field(max_digits=39, decimal_places=2)], None, None),
    (Any, None, None),
    (object, None, None),
    (dict, None, None),
    (dict[int, str], None, None),
    (list, None, None),
    (int | str, None, None),
    (Mixed, None, None),
    (enum.Enum, None, None),
    (Literal[1, "a"], None, None),
    (UUID, None, None),
    (Tree, None, None),
    (Empty, None, None),
    (TypedDict("Strange", {"a: b": int}), None, None),  # type: ignore[operator]
    ("Unknown", None, None),
]


@pytest.mark.parametrize(("kind", "name", "value"), TYPES, ids=repr)
def test_the_type_of_a_field_is_the_exact_one_or_none_is_declared(kind: Any, name: str | None, value: Any) -> None:
    output = output_of(returning(make_dataclass("Made", [("id", int), ("v", kind)])))

    assert output == (None if name is None else {"id": "int64", "v": name})


_TYPED = st.sampled_from([typed for typed in TYPES if typed[1] is not None])


def _within(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return types that have others as parts."""

    def struct(of: list[Any]) -> tuple[Any, str, Any]:
        kind = make_dataclass("Made", [(f"f{number}", one[0]) for number, one in enumerate(of)])
        text = ", ".join(f"f{number}: {one[1]}" for number, one in enumerate(of))
        return kind, f"struct<{text}>", kind(*(one[2] for one in of))

    lists = parts.map(lambda one: (list.__class_getitem__(one[0]), f"list<{one[1]}>", [one[2]]))
    maps = parts.map(lambda one: (dict.__class_getitem__((str, one[0])), f"map<string, {one[1]}>", {"a b": one[2]}))
    return lists | maps | st.lists(parts, min_size=1, max_size=3).map(struct)


@given(st.recursive(_TYPED, _within, max_leaves=5))
def test_values_of_a_type_fit_the_type_that_is_declared(typed: tuple[Any, str, Any]) -> None:
    kind, name, value = typed

    output = output_of(returning(TypedDict("Made", {"v": kind})))  # type: ignore[operator]
    made = to_arrow([(as_it_is({"v": value}), 0)], None, Step(call="a:b", output=output))

    assert output == {"v": name}
    assert made.schema == pa.schema([("v", parse_type("v", name, nested=True))])
    assert made["v"].null_count == 0


def test_types_are_as_deep_as_those_of_a_manifest() -> None:
    deepest: Any = int
    for _ in range(16):
        deepest = list.__class_getitem__(deepest)

    (text,) = (output_of(returning(TypedDict("Made", {"v": deepest}))) or {}).values()  # type: ignore[operator]
    assert parse_type("v", text, nested=True)
    assert output_of(returning(TypedDict("Made", {"v": list.__class_getitem__(deepest)}))) is None  # type: ignore[operator]


# --- received rows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Model, Data, Named, Validated])
def test_a_row_is_received_by_the_names_of_its_columns(kind: Any) -> None:
    def work(row: Any) -> Any:
        return row

    work.__annotations__["row"] = kind | None
    receive = receiver_of(work)

    assert receive is not None
    assert [receive({"id": 1, "more": 2}), receive({"id": 1, "text": "a"})] == [
        kind(id=1),
        Model(id=1, Text="a") if kind is Model else kind(1, "a"),
    ]
    with pytest.raises(ValueError, match="needs the columns id, which the row does not have" if kind is not Model else "id\n"):
        receive({"text": "a"})


# --- steps ----------------------------------------------------------------------------------------------------------------


@dataclass
class Half:
    number: int
    half: float | None = None


class Id(TypedDict):
    id: int


def work(row: Model, by: int = 1) -> Half | None:
    return Half(row.id * by) if row.id % 2 else None


class Work:
    def __init__(self, by: int) -> None:
        self.by = by

    async def __call__(self, row: Model) -> list[Half]:
        return [Half(row.id * self.by)] if row.id % 2 else []


def again(row: Half) -> Half:
    return Half(row.number, row.number / 2)


def surplus(row: Id) -> Id:
    return row


def fails(row: dict[str, Any]) -> Half:
    raise ValueError


def as_batch(batch: Half) -> Half:
    return batch


PLACE = Place("/in/a", "rows", 100)
TEN = pa.record_batch({"id": range(10), "text": ["a"] * 10})
HALVES = pa.schema([("number", pa.int64()), ("half", pa.float64())])


def step(name: str, input: Literal["row", "arrow"] = "row", **fields: Any) -> Step:
    return Step(call=f"{__name__}:{name}", input=input, **fields)


def apply(*steps: Step, to: pa.RecordBatch = TEN) -> list[dict[str, Any]]:
    return [row for batch in Pipeline(steps).apply(to, PLACE, None) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", ["work", "Work"])
def test_a_step_gives_the_columns_of_its_annotation(name: str) -> None:
    one = step(name, arguments={"by": 2})
    pipeline = Pipeline([one])

    assert pipeline.declared == pipeline.schema_of(TEN, PLACE) == HALVES
    assert apply(one) == [{"number": number * 2, "half": None} for number in range(1, 10, 2)]
    assert "output" not in json.loads(one.result_json), "the digest of the code does not know annotations"


def test_a_step_that_fails_on_all_rows_tells_its_columns() -> None:
    assert Pipeline([step("fails")]).schema_of(TEN, PLACE) == HALVES


def test_what_a_step_returns_is_received_by_the_next_one_as_it_is_annotated() -> None:
    assert apply(step("work"), step("again")) == [{"number": number, "half": number / 2} for number in range(1, 10, 2)]


def test_the_output_of_the_manifest_goes_before() -> None:
    one = step("work", output={"half": "float32", "number": "int8"})

    assert Pipeline([one]).declared == pa.schema([("half", pa.float32()), ("number", pa.int8())])


def test_a_batch_step_is_called_as_before() -> None:
    one = step("as_batch", "arrow")

    assert Pipeline([one]).declared is None
    assert apply(one) == TEN.to_pylist()


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("surplus", ["id", "text"], "step '{call}' gives column 'text'"),
        ("surplus", ["id", "text"], "which its output does not declare (it declares id)"),
        ("work", ["text"], "step '{call}' raised on row 100 of /in/a: ValidationError: 1 validation error for Model\nid\n"),
        ("again", ["id"], "step '{call}' raised on row 100 of /in/a: ValueError: a Half needs the columns number, which"),
    ],
)
def test_rows_that_are_not_as_the_annotations_say_are_refused(name: str, given: list[str], says: str) -> None:
    with pytest.raises(NeedsChange) as caught:
        apply(step(name), to=TEN.select(given))

    assert says.format(call=step(name).call) in caught.value.message


def test_the_example_of_the_guide_does_what_the_guide_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = (text for where, text in blocks("python") if "steps.md" in where)
    (tmp_path / "orders_of_the_guide.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    one = Step(call="orders_of_the_guide:price", input="row")
    orders = pa.record_batch({"id": [1, 2], "amount": [3, 0], "unit_price": pa.array(["0.25", "1.00"]).cast(pa.decimal128(8, 2))})

    assert Pipeline([one]).declared == pa.schema(
        [("id", pa.int64()), ("total", pa.decimal128(12, 2)), ("currency", pa.string()), ("at", pa.timestamp("us", "UTC"))]
    )
    (row,) = apply(one, to=orders)
    assert row.pop("at").tzinfo is not None
    assert row == {"id": 1, "total": Decimal("0.75"), "currency": "EUR"}
