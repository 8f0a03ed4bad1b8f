"""User code: what it may give, how its errors are told, and that mended code resumes."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.decision.code_changes import Approval, Choice
from checkpoint_protocol import reasons
from checkpoint_protocol.ledger import Ledger
from tests.support.checks import assert_exactly_once
from tests.support.places import Place
from tests.support.slow import slow_except_on
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, write_inputs

ROWS = 400
_numbers = itertools.count()


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Any]:
    """Return a function that writes a module under a fresh name and returns the name."""
    folder = tmp_path / "code"
    folder.mkdir()
    sys.path.insert(0, str(folder))

    def write(text: str) -> str:
        name = f"user_code_{next(_numbers)}"
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        return name

    yield write
    sys.path.remove(str(folder))


def run(place: Place, source: Path, *steps: dict[str, Any], **spec: Any) -> Any:
    return drive(reconciler_for(manifest_for(place, source, steps=steps, **spec), place))


def test_a_row_step_that_drops_rows_commits_the_others(disk_place: Place, tmp_path: Path, code: Any) -> None:
    disk_place.create(SCHEMA)
    module = code("def even(row):\n    return row if row['id'] % 2 == 0 else None\n")

    ended = run(disk_place, write_inputs(tmp_path / "in"), {"call": f"{module}:even", "input": "row"})

    assert isinstance(ended.outcome, Finish)
    assert (ended.commit.rows_read, ended.commit.rows_written) == (ROWS, ROWS // 2)
    assert_exactly_once(disk_place, range(0, ROWS, 2))


def prices(kind: str, *amounts: str) -> pa.Table:
    values = pa.array([Decimal(amount) for amount in amounts], pa.decimal128(12, 2))
    return pa.table({"id": pa.array(range(len(amounts)), pa.int32()), "price": values, "kind": [kind] * len(amounts)})


def test_a_table_that_is_made_for_row_steps_has_the_types_of_the_source(disk_place: Place, tmp_path: Path, code: Any) -> None:
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(prices("small", "1.50", "2.25"), source / "a.parquet")
    pq.write_table(prices("large", "-9999999999.99"), source / "b.parquet")
    module = code("def twice(row):\n    return {**row, 'twice': row['price'] * 2}\n")

    ended = run(disk_place, source, {"call": f"{module}:twice", "input": "row"}, sink={**disk_place.sink(), "create": True})

    assert isinstance(ended.outcome, Finish), ended.outcome
    rows = {(row["kind"], row["id"]): (row["price"], row["twice"]) for row in disk_place.rows()}
    assert rows["small", 1] == (Decimal("2.25"), Decimal("4.50"))
    assert rows["large", 0] == (Decimal("-9999999999.99"), Decimal("-19999999999.98"))


def test_a_later_value_that_a_made_table_cannot_hold_is_named_with_its_place(
    disk_place: Place, tmp_path: Path, code: Any
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(prices("small", "1.50", "2.25"), source / "a.parquet")
    pq.write_table(prices("large", "3.50", "9999999999.99"), source / "b.parquet")
    module = code("def times(row):\n    return {**row, 'price': row['price'] if row['price'] < 9 else row['price'] * 10}\n")

    ended = run(disk_place, source, {"call": f"{module}:times", "input": "row"}, sink={**disk_place.sink(), "create": True})

    assert isinstance(ended.outcome, Stall), ended.outcome
    assert ended.outcome.reason == reasons.OUTPUT_SCHEMA_WRONG
    for word in (f"{module}:times", "'price'", "Decimal('99999999999.90')", "row 1 of", "b.parquet", "output: {name: type}"):
        assert word in ended.outcome.message


def test_a_row_step_that_yields_many_rows_commits_all_of_them(disk_place: Place, tmp_path: Path, code: Any) -> None:
    disk_place.create(SCHEMA)
    module = code(
        "def explode(row):\n    for part in range(row['id'] % 4):\n        yield {'id': row['id'], 'text': str(part)}\n"
    )

    run(disk_place, write_inputs(tmp_path / "in"), {"call": f"{module}:explode", "input": "row"})

    counted = Counter(row["id"] for row in disk_place.rows())
    assert counted == {number: number % 4 for number in range(ROWS) if number % 4}


def test_arrow_pandas_and_row_steps_with_arguments_and_setup_work_in_a_chain(
    disk_place: Place, tmp_path: Path, code: Any
) -> None:
    disk_place.create(SCHEMA)
    module = code(
        "import pyarrow as pa, pyarrow.compute as pc\n"
        "def add(batch, number):\n"
        "    return pa.record_batch({'id': pc.add(batch['id'], number), 'text': batch['text']})\n"
        "def upper(frame):\n"
        "    frame['text'] = frame['text'].str.upper()\n"
        "    return frame\n"
        "class Mark:\n"
        "    made = 0\n"
        "    def __init__(self, sign): self.sign = sign; self.ready = False\n"
        "    def setup(self): self.ready = True; Mark.made += 1; assert Mark.made == 1\n"
        "    def __call__(self, row): assert self.ready; return {**row, 'text': row['text'] + self.sign}\n"
    )
    steps = (
        {"call": f"{module}:add", "arguments": {"number": 1000}},
        {"call": f"{module}:upper", "input": "pandas"},
        {"call": f"{module}:Mark", "input": "row", "arguments": {"sign": "!"}},
    )

    run(disk_place, write_inputs(tmp_path / "in"), *steps)

    assert_exactly_once(disk_place, range(1000, 1000 + ROWS))
    assert {row["text"] for row in disk_place.rows()} == {f"ZEILE {number}!" for number in range(ROWS)}


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_a_step_that_raises_names_itself_file_row_and_cause_and_the_mended_code_resumes(
    disk_place: Place, tmp_path: Path, code: Any
) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    broken = code("def work(row):\n    if row['id'] == 250:\n        raise KeyError('no such thing: ü')\n    return row\n")

    ended = run(disk_place, source, {"call": f"{broken}:work", "input": "row", "name": "look up"})

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.CODE_FAILED
    for part in ("'look up'", "row 50 of", "part-2.parquet", "KeyError", "no such thing: ü", f"{broken}.py:3"):
        assert part in ended.outcome.message, part
    assert disk_place.rows() == []

    mended = code("def work(row):\n    assert row['id'] >= 200, 'sealed rows must not be computed again'\n    return row\n")
    reconciler = reconciler_for(manifest_for(disk_place, source, steps=[{"call": f"{mended}:work", "input": "row"}]), disk_place)
    resumed = drive(reconciler)

    assert isinstance(resumed.outcome, Finish), resumed.outcome
    assert len(resumed.commit.code_digests) == 2  # type: ignore[union-attr]
    assert_exactly_once(disk_place, range(ROWS))


@slow_except_on("disk_place", "lance-disk")
def test_restart_on_a_code_change_drops_what_other_code_has_sealed(disk_place: Place, tmp_path: Path, code: Any) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    broken = code("def work(row):\n    assert row['id'] != 250\n    return {**row, 'text': 'old'}\n")
    run(disk_place, source, {"call": f"{broken}:work", "input": "row"})
    mended = code("def work(row):\n    return {**row, 'text': 'new'}\n")

    ended = run(disk_place, source, {"call": f"{mended}:work", "input": "row"}, onCodeChange="Restart")

    assert isinstance(ended.outcome, Finish)
    assert len(ended.commit.code_digests) == 1
    assert_exactly_once(disk_place, range(ROWS))
    assert {row["text"] for row in disk_place.rows()} == {"new"}


@pytest.mark.parametrize(("choice", "texts"), [("Continue", {"old", "new"}), ("Restart", {"new"})])
@slow_except_on("disk_place", "lance-disk")
def test_with_ask_a_write_whose_code_was_edited_waits_and_does_what_a_person_says(
    disk_place: Place, tmp_path: Path, code: Any, choice: Choice, texts: set[str]
) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    broken, mended = (
        code("def work(row):\n    assert row['id'] != 250\n    return {**row, 'text': 'old'}\n"),
        code("def work(row):\n    return {**row, 'text': 'new'}\n"),
    )

    def manifest(module: str) -> Any:
        return manifest_for(disk_place, source, steps=[{"call": f"{module}:work", "input": "row"}], onCodeChange="Ask")

    drive(reconciler_for(manifest(broken), disk_place))
    reconciler = reconciler_for(manifest(mended), disk_place)
    asked = drive(reconciler)
    assert isinstance(asked.outcome, Stall)
    assert asked.outcome.reason == reasons.CODE_CHANGED
    assert disk_place.rows() == []

    reconciler.observer.approval = Approval(choice, reconciler.observer.digest_to_approve())
    ended = drive(reconciler)

    assert isinstance(ended.outcome, Finish)
    assert_exactly_once(disk_place, range(ROWS))
    assert {row["text"] for row in disk_place.rows()} == texts


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return {**row, 'more': 1}", "'more'"),
        ("return {'id': 'x', 'text': 'y'}", "'id'"),
        ("return [1, 2]", "a row step returns a dict"),
    ],
)
@slow_except_on("disk_place", "lance-disk")
def test_a_step_that_gives_the_wrong_columns_names_them(
    disk_place: Place, tmp_path: Path, code: Any, body: str, says: str
) -> None:
    disk_place.create(SCHEMA)
    module = code(f"def work(row):\n    {body}\n")

    ended = run(disk_place, write_inputs(tmp_path / "in"), {"call": f"{module}:work", "input": "row"})

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason in (reasons.OUTPUT_SCHEMA_WRONG, reasons.CODE_FAILED)
    assert says in ended.outcome.message
    assert disk_place.rows() == []


def test_a_batch_step_that_gives_the_wrong_type_names_the_column_and_both_types(
    disk_place: Place, tmp_path: Path, code: Any
) -> None:
    disk_place.create(SCHEMA)
    module = code("import pyarrow as pa\ndef work(batch):\n    return batch.set_column(0, 'id', batch['id'].cast(pa.string()))\n")

    ended = run(disk_place, write_inputs(tmp_path / "in"), {"call": f"{module}:work"})

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.OUTPUT_SCHEMA_WRONG
    assert "'id'" in ended.outcome.message
    assert "string" in ended.outcome.message
    assert "int64" in ended.outcome.message


def test_a_step_that_cannot_be_imported_says_where_to_put_it(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)

    ended = run(disk_place, write_inputs(tmp_path / "in"), {"call": "no_such_module_at_all:work"})

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.CODE_MISSING
    assert "no_such_module_at_all" in ended.outcome.message


def test_a_write_without_a_table_runs_its_steps_once_for_each_row(disk_place: Place, tmp_path: Path, code: Any) -> None:
    log = tmp_path / "calls.txt"
    module = code(f"def call(row):\n    with open({str(log)!r}, 'a') as f: f.write(f\"{{row['id']}}\\n\")\n    return None\n")
    source = write_inputs(tmp_path / "in")
    manifest = manifest_for(disk_place, source, steps=[{"call": f"{module}:call", "input": "row"}])
    plain = manifest.model_dump(mode="json", by_alias=True)
    plain["spec"]["sink"] = {"none": {}}
    from checkpoint_protocol.manifest.spec import parse_manifest

    ended = drive(reconciler_for(parse_manifest(plain), disk_place))

    assert isinstance(ended.outcome, Finish)
    assert sorted(map(int, log.read_text().split())) == list(range(ROWS))


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_short_intervals_make_many_segments_and_every_row_once(disk_place: Place, tmp_path: Path, code: Any) -> None:
    disk_place.create(SCHEMA)
    module = code("import time\ndef slow(row):\n    time.sleep(0.002)\n    return row\n")
    checkpoint = {"uri": disk_place.checkpoint_uri, "interval": "0.01s", "minimumBytes": "1"}
    reconciler = reconciler_for(
        manifest_for(
            disk_place,
            write_inputs(tmp_path / "in", files=1, rows=600),
            steps=[{"call": f"{module}:slow", "input": "row"}],
            checkpoint=checkpoint,
        ),
        disk_place,
    )

    ended = drive(reconciler)

    ledger = Ledger(reconciler.observer.store, ended.key)
    closed = ledger.attempts.read_closed(1)
    assert closed is not None
    assert max(closed.chain_lengths) >= 3
    assert_exactly_once(disk_place, range(600))


def test_how_a_step_is_called_may_be_edited_in_the_middle_and_nothing_sealed_is_computed_again(
    iceberg_place: Place, tmp_path: Path, code: Any
) -> None:
    iceberg_place.create(SCHEMA)
    log, mended = tmp_path / "log", tmp_path / "mended"
    module = code(
        "import os\ndef call(row):\n"
        f"    with open({str(log)!r}, 'a') as f: f.write(f\"{{row['id']}}\\n\")\n"
        f"    if row['id'] == 90 and not os.path.exists({str(mended)!r}): raise ValueError\n    return row\n"
    )
    source = write_inputs(tmp_path / "in", files=1, rows=100)
    checkpoint = {"uri": iceberg_place.checkpoint_uri, "interval": "1h", "maximumRows": 10}

    def ended(**called: Any) -> Any:
        steps = [{"call": f"{module}:call", "input": "row", **called}]
        manifest = manifest_for(iceberg_place, source, steps=steps, checkpoint=checkpoint, onCodeChange="Restart")
        return drive(reconciler_for(manifest, iceberg_place))

    assert isinstance(ended().outcome, Stall)
    mended.touch()
    assert isinstance(ended(concurrency=4, timeout="1m", retry={"attempts": 2}).outcome, Finish)

    assert_exactly_once(iceberg_place, range(100))
    computed = list(map(int, log.read_text().split()))
    again = {number for number in computed if computed.count(number) > 1}
    assert 90 in again
    assert len(again) <= 20, "only what was not sealed: a segment of each task"


def test_what_a_killed_try_has_kept_of_calls_is_gone_after_the_commit(disk_place: Place, tmp_path: Path, code: Any) -> None:
    disk_place.create(SCHEMA)
    module = code("def same(row):\n    return row\n")
    step = {"call": f"{module}:same", "input": "row", "memo": True}
    reconciler = reconciler_for(manifest_for(disk_place, write_inputs(tmp_path / "in"), steps=[step]), disk_place)
    store, at = reconciler.observer.store, reconciler.current_ledger().at
    store.put_if_absent(at.memo(1, 99, 0, "0" * 32), b"{}")

    assert isinstance(drive(reconciler).outcome, Finish)
    assert list(store.list(at.memos(1))) == []
