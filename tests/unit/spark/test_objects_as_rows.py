"""Row steps may return objects with fields, enums and paths: what they hold is kept as it was given."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, computed_field, field_serializer

from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.row_steps import rows_of_result
from checkpoint_work.steps.values.taking import as_it_is


class Color(str, Enum):  # noqa: UP042 - as most code has it
    RED = "red"


class Point(NamedTuple):
    x: float
    y: float = 0.5


class Shape(Enum):
    ROUND = "round"
    EDGES = (4, 8)
    CORNER = Point(1, 2)


class Level(IntEnum):
    HIGH = 3


class Access(Flag):
    READ = 1
    WRITE = 2


Pair = namedtuple("Pair", "left right")


@dataclass
class Box:
    at: Point
    tags: list[Color] = field(default_factory=list)
    area: float = field(init=False, default=1.5)


class Animal(BaseModel):
    name: str


class Dog(Animal):
    breed: str


class Order(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    number: int = Field(alias="No")
    price: Decimal
    secret: str = Field(default="s", exclude=True)
    pets: list[Animal] = []

    @computed_field
    def double(self) -> Decimal:
        return self.price * 2

    @field_serializer("price")
    def rounded(self, price: Decimal) -> float:
        return round(float(price), 1)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Names(RootModel[list[str]]):
    pass


PRICE = Decimal("12.345678901234567890123")
ORDER = Order(number=1, price=PRICE, pets=[Dog(name="Rex", breed="pug")])
ORDER_ROW = {"number": 1, "price": PRICE, "pets": [{"name": "Rex", "breed": "pug"}], "double": PRICE * 2}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (Color.RED, "red"),
        (Shape.EDGES, (4, 8)),
        (Shape.CORNER, {"x": 1, "y": 2}),
        (Level.HIGH, 3),
        (Access.READ | Access.WRITE, 3),
        (PurePosixPath("/a/ü"), "/a/ü"),
        (Point(1), {"x": 1, "y": 0.5}),
        (Pair([Color.RED], None), {"left": ["red"], "right": None}),
        (Box(Point(1), [Color.RED]), {"at": {"x": 1, "y": 0.5}, "tags": ["red"], "area": 1.5}),
        (ORDER, ORDER_ROW),
        (Open.model_validate({"b": 1, "a": Level.HIGH}), {"b": 1, "a": 3}),
        (Names(["a"]), ["a"]),
        ({Color.RED: [Level.HIGH], Level.HIGH: {"p": Path("/p")}}, {"red": [3], 3: {"p": "/p"}}),
        ((Color.RED, [Point(1)]), ("red", [{"x": 1, "y": 0.5}])),
        ({Color.RED, "blue"}, {"red", "blue"}),
        (frozenset([Level.HIGH]), frozenset([3])),
        ({Shape.ROUND}, {"round"}),
        ({Point(1)}, [{"x": 1, "y": 0.5}]),
    ],
)
def test_a_value_is_what_it_holds(value: Any, kept: Any) -> None:
    found = as_it_is([value])[0]

    assert found == kept
    assert type(found) is type(kept)
    assert as_it_is({"a": value}) == {"a": kept}
    assert as_it_is(np.array([value, None], object))[0] == kept


def test_members_of_a_set_that_are_equal_as_values_are_all_kept() -> None:
    assert sorted(as_it_is({Shape.ROUND, "round"})) == ["round", "round"]


def test_keys_that_are_equal_as_values_are_refused_and_none_is_lost() -> None:
    with pytest.raises(ValueError, match="two keys that are the same"):
        as_it_is({Shape.ROUND: 1, "round": 2})


@pytest.mark.parametrize(
    "result",
    [ORDER, [ORDER], iter([ORDER]), RootModel[Order](ORDER), {name: getattr(ORDER, name) for name in ORDER_ROW}],
    ids=["one", "a list", "an iterator", "a root", "a dict"],
)
def test_an_object_with_fields_is_a_row(result: Any) -> None:
    assert rows_of_result(result) == [ORDER_ROW]


@pytest.mark.parametrize("result", [Names(["a"]), Color.RED, Path("/a"), [Path("/a")], Order, [Order]])
def test_what_has_no_fields_is_no_row(result: Any) -> None:
    with pytest.raises(TypeError, match="a row step returns"):
        rows_of_result(result)


_plain: st.SearchStrategy[Any] = st.none() | st.integers() | st.floats(allow_nan=False) | st.decimals(allow_nan=False) | st.text()


@given(st.recursive(_plain, lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts)))
def test_an_object_holds_what_a_dict_would(value: Any) -> None:
    makes: list[Callable[..., Any]] = [Pair, lambda left, right: Open.model_validate({"left": left, "right": right})]
    for make in makes:
        assert as_it_is(make(value, [value])) == {"left": value, "right": [value]}


_box = Box(Point(1))


def reused(row: dict[str, Any]) -> Box:
    """Give one object again and again."""
    _box.at, _box.area = Point(row["id"]), row["id"] / 2
    _box.tags[:] = [Color.RED] * row["id"]
    return _box


def test_an_object_that_is_used_again_is_taken_as_it_was() -> None:
    ids = pa.record_batch({"id": range(10)})
    made = list(Pipeline([Step(call=f"{__name__}:reused", input="row")]).apply(ids, Place("/in/a", "rows", 0), None))

    assert [row for batch in made for row in batch.to_pylist()] == [
        {"at": {"x": number, "y": 0.5}, "tags": ["red"] * number, "area": number / 2} for number in range(10)
    ]
