"""Results of calls that are kept until their rows are sealed: which come back, to whom, and when they are removed."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.records import ClosedRecord, PlanRecord
from checkpoint_protocol.rows.positions import Range
from checkpoint_work.process.reporting import InHand
from checkpoint_work.steps.calling.calls import Surroundings
from checkpoint_work.steps.calling.memo_values import encode, memo_key, rows_of
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.failing.row_isolation import RowIsolation
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.row_keys import NamedRow
from checkpoint_work.tasks.memos import Memos, MemosOf, earlier_memos, earlier_memos_by_number
from tests.support.records import DIGEST, launch, ledger_over, plan
from tests.support.stores import MemoryStore
from tests.support.waiting import until

_numbers = itertools.count()
PLACE = Place("/in/a.parquet", "rows", 100, version="etag")
SCHEMA = pa.schema([("id", pa.int64())])

# --- values -------------------------------------------------------------------------------------------------------------------

_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.datetimes(timezones=st.none() | st.timezones()),
    st.tuples(st.integers(), st.text()),
    st.datetimes(timezones=st.just(UTC)).map(lambda value: value.replace(fold=0)),
    st.dates(),
    st.times().map(lambda value: value.replace(fold=0)),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.timedeltas(),
)
_values = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


def back(value: Any) -> Any:
    text = encode([{"value": value}])
    assert text is not None
    rows = rows_of(text)
    assert rows is not None
    return rows[0]["value"]


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, datetime) and (str(one.tzinfo), one.fold) != (str(other.tzinfo), other.fold):
        return False
    if isinstance(one, datetime):
        return bool(one.replace(tzinfo=None) == other.replace(tzinfo=None))
    return bool(one == other) and (not isinstance(one, Decimal | float) or str(one) == str(other))


@given(_values)
def test_a_value_comes_back_as_it_was_with_its_type(value: Any) -> None:
    assert same(back(value), value)


ARROW = {
    "timestamps with a zone": (pa.timestamp("us", "UTC"), 1_700_000_000_123_456),
    "of another zone": (pa.timestamp("us", "Europe/Berlin"), 1_700_000_000_123_456),
    "nanoseconds": (pa.timestamp("ns"), 1_700_000_000_123_456_789),
    "nanoseconds with a zone": (pa.timestamp("ns", "America/New_York"), 1_700_000_000_123_456_789),
    "long ago": (pa.timestamp("s"), -60_000_000_000),
    "durations": (pa.duration("ns"), 123_456_789),
    "maps": (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", 2)]),
    "structs": (pa.struct([("when", pa.timestamp("ns"))]), {"when": 17}),
    "decimals": (pa.decimal128(10, 2), Decimal("1.50")),
    "binary": (pa.large_binary(), b"\0\xff"),
}


@pytest.mark.parametrize("name", ARROW)
def test_what_arrow_gives_of_a_row_comes_back(name: str) -> None:
    type_, value = ARROW[name]
    (given,) = pa.array([value], type_).to_pylist()

    found = back(given)

    assert same(found, given)
    assert pa.array([found], type_).equals(pa.array([value], type_))


def test_the_tag_of_other_values_may_be_a_column_and_what_is_no_number_comes_back() -> None:
    assert back({"$": "bytes", "of": "xyz"}) == {"$": "bytes", "of": "xyz"}
    assert math.isnan(back(float("nan")))
    assert back(-0.0) == 0.0
    assert math.copysign(1, back(-0.0)) == -1
    assert back("\ud800") == "\ud800"


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        {1: "a"},
        {1},
        np.float32(1.5),
        np.array([1.0]),
        Text("a"),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2))),
        slice(1),
        1j,
    ],
    ids=repr,
)
def test_a_value_that_would_come_back_as_another_is_not_kept(value: Any) -> None:
    assert encode([{"value": value}]) is None
    assert encode([{"value": [{"inner": value}]}]) is None


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"$":"none","of":""}]', '[{"$":"bytes"}]', '[{"a":{"$":"date","of":"x"}}]', "null"]
)
def test_what_is_no_such_text_is_no_result(text: str) -> None:
    assert rows_of(text) is None


def test_a_call_is_known_by_write_step_row_and_content() -> None:
    def key(
        write: str = "w", step: str = "s", place: Place = PLACE, number: int | None = 1, ordinal: int = 0, **row: Any
    ) -> str | None:
        return memo_key(NamedRow(write, step, place, number, ordinal), {"id": 1, **row})

    other = Place("/in/a.parquet", "rows", 100, version="another")
    keys = [
        key(),
        key(write="v"),
        key(step="t"),
        key(place=other),
        key(number=2),
        key(ordinal=1),
        key(text="a"),
        key(id=2),
        key(id=1.0),
    ]
    assert len(set(keys)) == len(keys)
    assert key() == key()
    assert key(number=None) is None
    assert key(text=object()) is None


# --- in the store -------------------------------------------------------------------------------------------------------------


def memos(ledger: Ledger, task: int = 0, attempt: int = 1, link: int = 0, code: str = DIGEST, at_once: int = 1) -> Memos:
    in_hand = InHand()
    in_hand.begin(link)
    return Memos(ledger, attempt, task, code, in_hand, at_once)


def leave(ledger: Ledger, results: dict[str, str], **of: Any) -> None:
    """Leave results as a try that fails does."""
    kept = memos(ledger, **of)
    with suppress(KeyError), kept.kept():
        for key, text in results.items():
            kept.keep(key, text)
        raise KeyError


def found_by(ledger: Ledger, earlier: Iterable[MemosOf], *keys: str, code: str = DIGEST) -> list[str | None]:
    later = memos(ledger, attempt=2, code=code)
    later.load(earlier)
    return [later.find(key) for key in keys]


def paths(ledger: Ledger) -> list[str]:
    return sorted(stored.path for stored in ledger.store.list(""))


def test_a_later_try_finds_what_one_that_failed_has_kept() -> None:
    ledger = ledger_over(MemoryStore())
    leave(ledger, {"a": "1", "b": "2"}, task=3)

    assert found_by(ledger, [(1, 3, 0)], "a", "b", "c") == ["1", "2", None]
    assert found_by(ledger, [(1, 4, 0)], "a") == [None]


def test_results_of_other_code_are_not_found() -> None:
    ledger = ledger_over(MemoryStore())
    leave(ledger, {"a": "1"})

    assert found_by(ledger, [(1, 0, 0)], "a", code="e" * 64) == [None]


@pytest.mark.parametrize("garbage", [b"", b"[]", b'{"version":2}', b"{", b'{"version":1,"code":"' + DIGEST.encode() + b'"}'])
def test_an_object_that_cannot_be_read_costs_its_results_only(garbage: bytes) -> None:
    store = MemoryStore()
    ledger = ledger_over(store)
    leave(ledger, {"a": "1"})
    store.put_if_absent(ledger.at.memo(1, 0, 0, new_token()), garbage)
    store.put_if_absent(f"{ledger.at.memos(1)}0/stray", b"?")

    assert found_by(ledger, [(1, 0, 0)], "a") == ["1"]


def test_only_objects_of_the_last_sealed_segment_and_later_ones_are_read() -> None:
    ledger = ledger_over(MemoryStore())
    for link in range(4):
        leave(ledger, {f"of-{link}": "1"}, link=link)

    assert found_by(ledger, [(1, 0, 3)], *(f"of-{link}" for link in range(4))) == [None, None, "1", "1"]


def test_as_many_results_as_calls_are_made_at_once_are_put_without_waiting() -> None:
    ledger = ledger_over(MemoryStore())
    kept = memos(ledger, at_once=3)
    now = [0.0]
    kept.clock = lambda: now[0]
    with kept.kept():
        for number in range(3):
            kept.keep(f"k{number}", "1")
        now[0] = 0.1
        until(lambda: len(paths(ledger)) == 1)
        (document,) = [json.loads(ledger.store.get(path, 1 << 20) or b"") for path in paths(ledger)]
        assert set(document["calls"]) == {"k0", "k1", "k2"}


def test_a_single_result_is_put_after_a_while() -> None:
    ledger = ledger_over(MemoryStore())
    now = [0.0]
    kept = memos(ledger, at_once=100)
    kept.clock = lambda: now[0]
    with kept.kept():
        kept.keep("a", "1")
        assert not paths(ledger), "it is put after a while, and the clock stands"
        now[0] = 2.1
        with kept._changed:
            kept._changed.notify()
        until(lambda: len(paths(ledger)) == 1)


def test_what_is_sealed_is_removed_and_what_the_segment_at_work_may_need_is_not() -> None:
    ledger = ledger_over(MemoryStore())
    kept = memos(ledger)
    with suppress(KeyError), kept.kept():
        for link in range(4):
            kept.in_hand.begin(link)
            kept.keep(f"of-{link}", "1")
            until(lambda: not kept._waiting and any(f"/0/{link}-" in path for path in paths(ledger)))  # noqa: B023
        raise KeyError

    assert found_by(ledger, [(1, 0, 0)], *(f"of-{link}" for link in range(4))) == [None, None, "1", "1"]


def test_nothing_is_left_of_a_task_that_is_done_nor_of_its_earlier_tries() -> None:
    ledger = ledger_over(MemoryStore())
    leave(ledger, {"a": "1"})
    leave(ledger, {"a": "1"}, task=10)
    kept = memos(ledger)
    with kept.kept():
        kept.keep("b", "1")

    assert all("/memos/10/" in path for path in paths(ledger))
    assert len(paths(ledger)) == 1


# --- whose --------------------------------------------------------------------------------------------------------------------

ASK = Step(call="code:work", input="row", memo=True)


def left_by(*tasks: tuple[int, int], attempt: int = 1, lengths: tuple[int, ...] = ()) -> Ledger:
    """Return a ledger with the memos of some tasks of an attempt: two tasks of a hundred rows of file 0."""
    ledger = ledger_over(MemoryStore())
    record: PlanRecord = plan([(0, 0, 100)], [(0, 100, 200)])
    ledger.plans.put_plan(record)
    for task, link in tasks:
        leave(ledger, {"a": "1"}, task=task, link=link, attempt=attempt)
    closed = ClosedRecord(token=new_token(), attempt=1, plan_token=record.token, chain_lengths=lengths, complete=False)
    ledger.attempts.put_closed(closed)
    return ledger


def ranges(*bounds: tuple[int, int]) -> tuple[Range, ...]:
    return tuple(Range(file=0, start=start, end=end) for start, end in bounds)


def test_a_task_is_told_of_those_that_had_some_of_its_positions_and_have_left_results() -> None:
    ledger = left_by((0, 2), (1, 0), lengths=(2,))
    record = launch(2).model_copy(update={"steps": (ASK,)})
    tasks = [ranges((50, 60)), ranges((90, 110)), ranges((200, 300))]

    assert earlier_memos(ledger, record, tasks) == [((1, 0, 2),), ((1, 0, 2), (1, 1, 0)), ()]
    assert earlier_memos_by_number(ledger, record) == ((1, 0, 2), (1, 1, 0))


def test_no_task_is_told_where_no_step_keeps_results_or_none_are_left() -> None:
    assert earlier_memos(left_by((0, 0)), launch(2), [ranges((0, 10))]) == [()]
    assert earlier_memos(left_by(), launch(2).model_copy(update={"steps": (ASK,)}), [ranges((0, 10))]) == [()]


# --- in a pipeline ------------------------------------------------------------------------------------------------------------


class Kept:
    """Implements Memory by a dict."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def find(self, key: str) -> str | None:
        return self.texts.get(key)

    def keep(self, key: str, text: str) -> None:
        self.texts[key] = text


@dataclass(frozen=True)
class Asking:
    """A module with the row step `ask`, and its async twin `wait`, and the ids that they were called with."""

    module: str
    called: list[int]

    def through(self, memory: Kept, call: str, ids: Iterable[int] = range(6), memo: bool = True) -> list[int]:
        pipeline = Pipeline(
            [Step(call=f"{self.module}:{call}", input="row", memo=memo)], around=Surroundings(write="w", memory=memory)
        )
        made = pipeline.apply(pa.record_batch({"id": list(ids)}, schema=SCHEMA), PLACE, SCHEMA, RowIsolation(lambda *_: None))
        return [one for batch in made for one in batch.column("id").to_pylist()]


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asking:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"memo_code_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(
        "seen = []\n"
        "def ask(row):\n"
        "    seen.append(row['id'])\n"
        "    if row['id'] == 3: raise ValueError('three')\n"
        "    if row['id'] == 4: return None\n"
        "    return [{'id': row['id'] * 10}, {'id': row['id'] * 10 + 1}]\n"
        "async def wait(row):\n"
        "    return ask(row)\n"
    )
    return Asking(name, importlib.import_module(name).seen)


RESULT = [0, 1, 10, 11, 20, 21, 50, 51]


@pytest.mark.parametrize("call", ["ask", "wait"])
def test_a_result_is_taken_instead_of_a_call_and_only_rows_that_failed_are_called_again(asking: Asking, call: str) -> None:
    memory = Kept()
    assert asking.through(memory, call) == RESULT
    assert sorted(asking.called) == [0, 1, 2, 3, 4, 5]
    asking.called.clear()

    assert asking.through(memory, call) == RESULT
    assert asking.called == [3]


@pytest.mark.parametrize("call", ["ask", "wait"])
def test_some_results_that_are_missing_are_called_for_and_the_order_stays(asking: Asking, call: str) -> None:
    memory = Kept()
    asking.through(memory, call)
    for key in sorted(memory.texts)[::2]:
        del memory.texts[key]
    asking.called.clear()

    assert asking.through(memory, call) == RESULT
    assert 3 in asking.called
    assert len(asking.called) == 4


def test_another_content_of_a_row_is_called_for(asking: Asking) -> None:
    memory = Kept()
    asking.through(memory, "ask", [0, 1, 2])
    asking.called.clear()

    assert asking.through(memory, "ask", [0, 7, 2]) == [0, 1, 70, 71, 20, 21]
    assert asking.called == [7]


def test_a_row_whose_source_row_is_not_known_is_called_and_not_kept(asking: Asking) -> None:
    (Path(sys.modules[asking.module].__file__ or "").with_name(f"{asking.module}_batches.py")).write_text(
        "def same(batch):\n    return batch\n"
    )
    memory = Kept()
    steps = [Step(call=f"{asking.module}_batches:same"), Step(call=f"{asking.module}:ask", input="row", memo=True)]
    pipeline = Pipeline(steps, around=Surroundings(write="w", memory=memory))

    (made,) = pipeline.apply(pa.record_batch({"id": [1, 2]}, schema=SCHEMA), PLACE, SCHEMA)

    assert made.column("id").to_pylist() == [10, 11, 20, 21]
    assert not memory.texts


def test_without_memo_nothing_is_kept(asking: Asking) -> None:
    memory = Kept()
    asking.through(memory, "ask", memo=False)

    assert not memory.texts
