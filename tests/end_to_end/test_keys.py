"""Rows known by keys, over Spark's own readers: what is skipped, what is refused, and that every row is there once."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from checkpoint_control.views.inspection import inspect_store
from checkpoint_formats.keys_objects import write_object
from checkpoint_protocol import reasons
from checkpoint_protocol.records import KeysCovered, KeysObject
from checkpoint_protocol.rows.keys import add_key_sets, key_set
from checkpoint_protocol.store.object_store import open_store
from checkpoint_spark.dataframes import anti_join
from checkpoint_spark.dataframes.anti_join import Sealed, Skipped
from checkpoint_spark.dataframes.first_rows import read_first_rows
from checkpoint_spark.preview import Preview
from tests.end_to_end.keyed_writes import TEXTS, KeyedWrite, numbered, session, write_orc
from tests.support.checks import assert_exactly_once
from tests.support.places import Place
from tests.support.slow import slow_except, slow_except_on

__all__ = ["session"]
pytestmark = pytest.mark.spark
STEPS = "tests.support.keyed_steps"


def orc_source(folder: Path, *keys: str, **more: Any) -> dict[str, Any]:
    return {"spark": {"format": "orc", "paths": [str(folder)], "keyColumns": list(keys or ("id",)), **more}}


def failing(folder: Path, number: int, column: str = "id") -> dict[str, Any]:
    arguments = {"number": number, "until": str(folder / "mended"), "column": column}
    return {"call": f"{STEPS}:fail_at", "input": "row", "arguments": arguments}


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_an_attempt_skips_exactly_what_the_one_before_has_sealed(session: Any, disk_place: Place, tmp_path: Path) -> None:
    source = write_orc(numbered(*range(300)), tmp_path / "in")
    disk_place.create(TEXTS)
    write = KeyedWrite(session, disk_place, tmp_path, orc_source(source), [failing(tmp_path, 150)])

    write.stall(reasons.CODE_FAILED, "id=150", "not yet 150")
    sealed = write.sealed_rows(1)
    (tmp_path / "mended").touch()
    write.finish()

    assert 0 < sealed < 300
    assert write.sealed_rows(2) == 300 - sealed
    assert_exactly_once(disk_place, range(300))
    covered = [seal.covered for seal in write.ledger.chains.counted_seals([1])]
    plan = write.ledger.plans.read_plan(2)
    assert plan is not None
    assert plan.skipped == add_key_sets(each.keys for each in covered if isinstance(each, KeysCovered))


@pytest.mark.slow
def test_a_row_has_the_same_row_key_in_every_try_and_attempt(session: Any, iceberg_place: Place, tmp_path: Path) -> None:
    source, log = write_orc(numbered(*range(300)), tmp_path / "in"), tmp_path / "keys.log"
    iceberg_place.create(TEXTS)
    steps = [{"call": f"{STEPS}:note_key", "input": "row", "arguments": {"log": str(log)}}, failing(tmp_path, 150)]
    write = KeyedWrite(session, iceberg_place, tmp_path, orc_source(source), steps)

    write.stall(reasons.CODE_FAILED, "id=150")
    (tmp_path / "mended").touch()
    write.finish()

    noted = [line.split() for line in log.read_text().splitlines()]
    assert len(noted) > 300, "some were computed again"
    assert len({number for number, _ in noted}) == len({key for _, key in noted}) == len({tuple(one) for one in noted}) == 300


def test_rows_have_one_row_key_in_a_preview_in_the_sample_for_a_new_table_and_in_the_run(
    session: Any, iceberg_place: Place, tmp_path: Path
) -> None:
    moments = [datetime.datetime(2024, 7, 1, tzinfo=datetime.UTC) + datetime.timedelta(hours=number) for number in range(300)]
    # The first column, which once was taken for the number of the source, is no key.
    rows = pa.table({"text": [f"zeile {number}" for number in range(300)], "id": list(range(300)), "at": moments})
    log = tmp_path / "keys.log"
    source = {"spark": {"format": "parquet", "paths": [str(write_parquet(rows, tmp_path / "in"))], "keyColumns": ["id", "at"]}}
    steps = [{"call": f"{STEPS}:note_key", "input": "row", "arguments": {"log": str(log)}}]
    sink = {**iceberg_place.sink(), "create": True}
    write = KeyedWrite(session, iceberg_place, tmp_path, source, steps, more={"sink": sink})

    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        write.finish()
    finally:
        session.conf.unset("spark.sql.session.timeZone")
    launch = write.ledger.attempts.read_launch(1)
    assert launch is not None
    shown = Preview(launch, 30)
    shown.run(iter(read_first_rows(session, launch, 30)))

    noted = [line.split() for line in log.read_text().splitlines()]
    assert len(noted) > 330, "some rows were a sample, and some a preview"
    assert len({key for _, key in noted}) == len({tuple(one) for one in noted}) == 300


#: A path in a struct, a quoted name, an expression: what else such a text may mean to Spark.
ODD_NAMES = ("order.id", "back`tick", "`whole`", "a b", "count(1)", "*", "s.x.y", "größe", "1")


@pytest.mark.parametrize("columns", slow_except([{}, {"columns": list(ODD_NAMES)}], {}))
def test_columns_have_any_name_that_spark_allows(
    columns: dict[str, Any], session: Any, iceberg_place: Place, tmp_path: Path
) -> None:
    rows = pa.table({name: [f"{name} {number}" for number in range(300)] for name in ODD_NAMES})
    keys = {"format": "parquet", "paths": [write_parquet(rows, tmp_path / "in")], "keyColumns": list(ODD_NAMES[:7])}
    iceberg_place.create(TEXTS)
    steps = [
        {
            **failing(tmp_path, 150),
            "arguments": {"number": "order.id 150", "until": str(tmp_path / "mended"), "column": "order.id"},
        },
        {"call": f"{STEPS}:number_of", "input": "row", "arguments": {"names": list(ODD_NAMES)}},
    ]
    write = KeyedWrite(session, iceberg_place, tmp_path, {"spark": keys, **columns}, steps)

    write.stall(reasons.CODE_FAILED, "order.id=order.id 150", "not yet")
    assert write.sealed_rows(1) > 0
    (tmp_path / "mended").touch()
    write.finish()

    assert_exactly_once(iceberg_place, range(300))


def test_a_folder_that_is_named_twice_is_read_once(session: Any, iceberg_place: Place, tmp_path: Path) -> None:
    source = write_orc(numbered(*range(30)), tmp_path / "in")
    (tmp_path / "link").symlink_to(source)
    iceberg_place.create(TEXTS)
    paths = [str(source), f"file:///{source}/", str(tmp_path / "link")]
    KeyedWrite(session, iceberg_place, tmp_path, {"spark": {"format": "orc", "paths": paths, "keyColumns": ["id"]}}, []).finish()
    assert_exactly_once(iceberg_place, range(30))


# --- keys of every type ---------------------------------------------------------------------------------------------------

DAY = datetime.date(1583, 1, 1)
NOON = datetime.datetime(2024, 3, 31, 2, 30, 0, 123456)  # noqa: DTZ001 (an hour that some zones do not have)
KEYS: dict[str, tuple[pa.DataType, Any]] = {
    "string": (pa.string(), lambda n: f"schlüssel {n} ✓"),
    "integer": (pa.int32(), lambda n: n - 150),
    "long": (pa.int64(), lambda n: (1 << 62) + n),
    "binary": (pa.binary(), lambda n: bytes([0, 255]) + n.to_bytes(4, "big")),
    "decimal": (pa.decimal128(38, 10), lambda n: Decimal(n) + Decimal("0.0000000001")),
    "small-decimal": (pa.decimal128(12, 2), lambda n: Decimal(n) / 100),
    "date": (pa.date32(), lambda n: DAY + datetime.timedelta(days=n)),
    "timestamp": (pa.timestamp("us", "UTC"), lambda n: (NOON + datetime.timedelta(microseconds=n)).replace(tzinfo=datetime.UTC)),
    "local-timestamp": (pa.timestamp("us"), lambda n: NOON + datetime.timedelta(microseconds=n)),
}


def write_parquet(table: pa.Table, folder: Path, files: int = 3) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-table.num_rows // files)
    for number in range(files):
        pq.write_table(table.slice(number * size, size), folder / f"part-{number}.parquet")
    return folder


@pytest.mark.parametrize("kind", slow_except(KEYS, "long", "binary", "decimal", "timestamp"))
def test_keys_of_every_type_are_compared_by_their_exact_values(
    session: Any, iceberg_place: Place, tmp_path: Path, kind: str
) -> None:
    arrow_type, value = KEYS[kind]
    schema = pa.schema([("id", pa.int64()), ("key", arrow_type)])
    table = pa.table({"id": list(range(120)), "key": [value(number) for number in range(120)]}, schema=schema)
    iceberg_place.create(schema)
    source = {"spark": {"format": "parquet", "paths": [str(write_parquet(table, tmp_path / "in"))], "keyColumns": ["key"]}}
    write = KeyedWrite(session, iceberg_place, tmp_path, source, [failing(tmp_path, 70)])

    write.stall(reasons.CODE_FAILED)
    sealed = write.sealed_rows(1)
    (tmp_path / "mended").touch()
    write.finish()

    assert 0 < sealed < 120
    assert write.sealed_rows(2) == 120 - sealed
    assert {row["key"] for row in iceberg_place.rows()} == set(table["key"].to_pylist())
    assert_exactly_once(iceberg_place, range(120))


@pytest.mark.slow
def test_a_key_may_have_several_columns_of_which_each_alone_occurs_often(
    session: Any, lance_place: Place, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("shop", pa.string()), ("day", pa.date32())])
    rows = [{"id": n, "shop": f"shop {n % 10}", "day": DAY + datetime.timedelta(days=n // 10)} for n in range(120)]
    lance_place.create(schema)
    write_orc(pa.Table.from_pylist(rows, schema=schema), tmp_path / "in")
    write = KeyedWrite(session, lance_place, tmp_path, orc_source(tmp_path / "in", "shop", "day"), [failing(tmp_path, 70)])

    write.stall(reasons.CODE_FAILED, "shop=shop 0, day=1583-01-08")
    (tmp_path / "mended").touch()
    write.finish()

    assert 0 < write.sealed_rows(1) < 120
    assert_exactly_once(lance_place, range(120))


# --- keys that are none ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "join"), [("broadcast", "BroadcastHashJoin"), ("shuffle_hash", "ShuffledHashJoin"), ("merge", "SortMergeJoin")]
)
@slow_except_on("disk_place", "iceberg-sql-disk")
def test_every_strategy_skips_exactly_what_is_sealed(
    session: Any, disk_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: anti_join.Strategy, join: str
) -> None:
    source = write_orc(numbered(*range(300)), tmp_path / "in")
    disk_place.create(TEXTS)
    write = KeyedWrite(session, disk_place, tmp_path, orc_source(source, "text", "id"), [failing(tmp_path, 150)])
    write.stall(reasons.CODE_FAILED, "id=150", "not yet 150")
    sealed = write.sealed_rows(1)
    (tmp_path / "mended").touch()
    plans = list[str]()
    remove = Skipped.remove_from

    def remove_and_tell(*arguments: Any) -> Any:
        left = remove(*arguments)
        plans.append(left._jdf.queryExecution().executedPlan().toString())
        return left

    # Which of them is taken is a matter of gigabytes.
    monkeypatch.setattr(anti_join, "choose_strategy", lambda *sizes: strategy)
    monkeypatch.setattr(Skipped, "remove_from", remove_and_tell)

    write.finish()

    assert [join in plan for plan in plans] == [True], plans
    assert 0 < sealed < 300
    assert write.sealed_rows(2) == 300 - sealed
    assert_exactly_once(disk_place, range(300))


_MANY = 200_000
_DAY = datetime.date(2026, 1, 1)
_INSTANT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("types", "key"),
    [
        pytest.param(["tinyint"], lambda n: (n % 100,), id="few"),
        pytest.param(["int"], lambda n: (n,), id="integers in order"),
        pytest.param(["bigint"], lambda n: (n * 0x9E3779B97F4A7C15 % (1 << 63),), id="integers in no order"),
        pytest.param(["int", "int"], lambda n: (n, -n), id="two integers"),
        pytest.param(["string"], lambda n: (f"u{n}",), id="short text"),
        pytest.param(["string"], lambda n: (f"https://example.com/{'articles/' * 20}{n}",), id="text that compresses well"),
        pytest.param(["string", "string", "string"], lambda n: (f"{n}", "", "x"), id="three texts"),
        pytest.param(["date", "bigint"], lambda n: (_DAY, n), id="a date and an integer"),
        pytest.param(["timestamp", "boolean", "bigint"], lambda n: (_INSTANT, n % 2 == 0, n), id="a timestamp"),
        pytest.param(["decimal(38,2)"], lambda n: (Decimal(n),), id="decimals of sixteen bytes"),
        pytest.param(["binary"], lambda n: (n.to_bytes(9, "big"),), id="bytes"),
    ],
)
def test_a_hash_table_of_spark_takes_no_more_than_is_reckoned_for_it(
    session: Any, tmp_path: Path, types: list[str], key: Callable[[int], tuple[Any, ...]]
) -> None:
    names = ", ".join(f"k{place} {name}" for place, name in enumerate(types))
    schema = StructType.fromDDL(f"source int not null, {names}")
    table = pa.Table.from_pylist(
        [dict(zip(schema.names, (0, *key(number)), strict=True)) for number in range(_MANY)], to_arrow_schema(schema)
    )
    data = write_object(table)
    (tmp_path / "keys").write_bytes(data)
    item = KeysObject(path="keys", rows=_MANY, size_bytes=len(data), values_bytes=table.nbytes)
    sealed = Sealed((item,), key_set(_MANY, 0, 0))
    frame = anti_join.as_dataframe(session, f"file://{tmp_path}", sealed, schema)
    rows = anti_join.of_source(frame, 0)

    left = Skipped(sealed, frame, "broadcast").remove_from(rows, 0, tuple(rows.columns))

    assert left.count() == 0
    taken_bytes, reckoned_bytes = broadcast_bytes(left), sealed.hashed_bytes(schema)
    page_bytes = session.sparkContext._jsc.sc().env().memoryManager().pageSizeBytes()  # of which the last one is not full
    assert taken_bytes - page_bytes < reckoned_bytes < 3 * taken_bytes


def broadcast_bytes(frame: Any) -> int:
    """Return what the only broadcast of a frame takes in memory, as Spark measures it."""
    frame.collect()
    left = [frame._jdf.queryExecution().executedPlan()]
    while left:
        node = left.pop()
        if node.nodeName() == "BroadcastExchange":
            return int(node.metrics().get("dataSize").get().value())
        left += [node.children().apply(place) for place in range(node.children().size())]
    raise AssertionError("nothing was broadcast")


def test_a_null_key_is_refused_with_its_row(session: Any, iceberg_place: Place, tmp_path: Path) -> None:
    table = pa.table({"id": [1, None, 3], "text": ["a", "the one without", "c"]}, schema=TEXTS)
    iceberg_place.create(TEXTS)
    folder = write_orc(table, tmp_path / "in", 1)
    write = KeyedWrite(session, iceberg_place, tmp_path, orc_source(folder))

    write.stall(reasons.KEYS_UNSUITABLE, "'id' is NULL", "the one without")

    # The way out: such rows are left out.
    write.source = orc_source(folder, sql="SELECT * FROM input WHERE id IS NOT NULL")
    write.finish()
    assert_exactly_once(iceberg_place, [1, 3])


def test_a_key_that_comes_twice_in_a_task_is_refused_with_an_example(session: Any, iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(TEXTS)
    source = write_orc(numbered(1, 2, 3, 2, 5), tmp_path / "in", 1)
    write = KeyedWrite(session, iceberg_place, tmp_path, orc_source(source))

    write.stall(reasons.KEYS_NOT_UNIQUE, "id=2")

    # The way out: the source without them.
    write_orc(numbered(1, 2, 3, 5), tmp_path / "in", 1)
    write.finish()
    assert_exactly_once(iceberg_place, [1, 2, 3, 5])


@pytest.mark.slow
def test_a_key_of_a_sealed_row_that_comes_again_elsewhere_stops_the_resume_before_any_work(
    session: Any, iceberg_place: Place, tmp_path: Path
) -> None:
    iceberg_place.create(TEXTS)
    # 7 is sealed with the first rows of the only task, and comes again behind the row that fails.
    table = pa.concat_tables([numbered(*range(150)), numbered(7), numbered(*range(150, 299))])
    write = KeyedWrite(
        session, iceberg_place, tmp_path, orc_source(write_orc(table, tmp_path / "in", 1)), [failing(tmp_path, 140)]
    )
    write.stall(reasons.CODE_FAILED)
    (tmp_path / "mended").touch()

    write.stall(reasons.KEYS_NOT_UNIQUE, "id=7")

    assert write.ledger.plans.read_plan(2) is None
    assert iceberg_place.rows() == []


@pytest.mark.parametrize(
    ("keys", "reason", "words"),
    [
        (["nothing"], reasons.MANIFEST_INVALID, ["no column 'nothing'", "id, text, rate"]),
        (["rate"], reasons.KEYS_UNSUITABLE, ["'rate' is double"]),
    ],
    ids=["a column that is not there", "a float"],
)
def test_columns_that_cannot_be_keys_are_refused(
    session: Any, iceberg_place: Place, tmp_path: Path, keys: list[str], reason: str, words: list[str]
) -> None:
    iceberg_place.create(TEXTS)
    table = numbered(1, 2).append_column("rate", pa.array([0.5, 1.5]))
    write = KeyedWrite(session, iceberg_place, tmp_path, orc_source(write_orc(table, tmp_path / "in", 1), *keys))

    write.stall(reason, *words)


def test_what_combines_rows_is_computed_first_and_read_from_there(session: Any, iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(TEXTS)
    folder = write_orc(pa.concat_tables([numbered(1, 2), numbered(2, 3)]), tmp_path / "in", 1)
    largest = "SELECT id, max(text) AS text FROM input GROUP BY id"
    write = KeyedWrite(session, iceberg_place, tmp_path, orc_source(folder, sql=largest))
    write.stall(reasons.PLAN_NOT_MAP_ONLY)

    first = tmp_path / "first"
    session.read.orc(str(folder)).createOrReplaceTempView("input")
    session.sql(largest).write.orc(str(first))
    write.source = orc_source(first)
    write.finish()

    assert_exactly_once(iceberg_place, [1, 2, 3])


# --- sources that change --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rows_that_came_between_attempts_are_taken_by_the_resume(session: Any, iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(TEXTS)
    source = write_orc(numbered(*range(300)), tmp_path / "in")
    write = KeyedWrite(session, iceberg_place, tmp_path, orc_source(source), [failing(tmp_path, 150)])
    write.stall(reasons.CODE_FAILED)
    (tmp_path / "mended").touch()
    write_orc(numbered(*range(300, 340)), tmp_path / "more", 1)
    (tmp_path / "more" / "part-0.orc").rename(tmp_path / "in" / "part-9.orc")

    write.finish()

    assert_exactly_once(iceberg_place, range(340))


def test_a_sealed_row_that_vanished_stops_the_resume_with_an_example(session: Any, iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(TEXTS)
    source = write_orc(numbered(*range(300)), tmp_path / "in", 1)
    write = KeyedWrite(session, iceberg_place, tmp_path, orc_source(source), [failing(tmp_path, 150)])
    write.stall(reasons.CODE_FAILED)
    (tmp_path / "mended").touch()
    write_orc(numbered(*range(1, 300)), tmp_path / "in", 1)

    write.stall(reasons.SOURCE_CHANGED, "no longer in the source", "id=0 ")

    assert iceberg_place.rows() == []


def test_the_next_epoch_takes_the_rows_that_no_earlier_one_had(session: Any, disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(TEXTS)
    source = write_orc(numbered(*range(30)), tmp_path / "in")
    write = KeyedWrite(session, disk_place, tmp_path, orc_source(source))
    write.finish()
    # Some old rows have left the source, new ones came.
    write_orc(numbered(*range(10, 50)), tmp_path / "in")
    write.more = {"runNonce": "next"}

    write.finish()

    assert_exactly_once(disk_place, range(50))
    assert len(disk_place.keys()) == 2


def test_an_empty_source_is_committed_as_nothing(session: Any, iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(TEXTS)
    write = KeyedWrite(session, iceberg_place, tmp_path, orc_source(write_orc(numbered(), tmp_path / "in", 1)))

    write.finish()

    assert iceberg_place.keys() == []


def test_a_table_is_made_from_the_steps_output(session: Any, disk_place: Place, tmp_path: Path) -> None:
    source = write_orc(numbered(*range(30)), tmp_path / "in")
    write = KeyedWrite(session, disk_place, tmp_path, orc_source(source), more={"sink": {**disk_place.sink(), "create": True}})

    write.finish()

    assert_exactly_once(disk_place, range(30))


@slow_except_on("disk_place", "lance-disk")
def test_a_table_that_is_made_for_row_steps_has_the_types_of_the_source(session: Any, disk_place: Place, tmp_path: Path) -> None:
    # The last row of each file, which the rows of which the table is made do not reach, has a larger value.
    amounts = [Decimal("-9999999999.99" if number % 100 == 99 else "1.50") for number in range(300)]
    rows = numbered(*range(300)).append_column("price", pa.array(amounts, pa.decimal128(12, 2)))
    source = orc_source(write_orc(rows, tmp_path / "in"))
    steps = [{"call": f"{STEPS}:note", "input": "row", "arguments": {"log": str(tmp_path / "rows.log")}}]
    write = KeyedWrite(session, disk_place, tmp_path, source, steps, more={"sink": {**disk_place.sink(), "create": True}})

    write.finish()

    assert sorted(disk_place.rows(), key=lambda row: row["id"]) == rows.to_pylist()


# --- tries ----------------------------------------------------------------------------------------------------------------


def test_a_second_try_goes_on_after_what_the_first_has_sealed(session: Any, iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(TEXTS)
    log = tmp_path / "rows.log"
    steps = [
        {"call": f"{STEPS}:fail_once", "input": "row", "arguments": {"number": 150, "marker": str(tmp_path / "failed")}},
        {"call": f"{STEPS}:note", "input": "row", "arguments": {"log": str(log)}},
    ]
    write = KeyedWrite(session, iceberg_place, tmp_path, orc_source(write_orc(numbered(*range(300)), tmp_path / "in", 1)), steps)

    write.finish()

    assert write.ledger.attempts.list_attempts() == [1], "Spark tries the task again within the attempt"
    assert_exactly_once(iceberg_place, range(300))
    seen = [int(line) for line in log.read_text().split()]
    assert seen.count(0) == 1, "what was sealed was computed again"


# --- sources of all kinds -------------------------------------------------------------------------------------------------


def test_a_jdbc_table_is_read_in_partitions_and_its_password_stands_in_no_record(
    session: Any, iceberg_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD_OF_THE_TEST", "sehr-geheim")
    url = f"jdbc:derby:{tmp_path / 'db'};create=true"
    rows = session.createDataFrame([(number, f"zeile {number}") for number in range(90)], "id bigint, text string")
    rows.coalesce(1).write.jdbc(url, "rows_in")
    iceberg_place.create(TEXTS)
    source = {
        "spark": {
            "format": "jdbc",
            "options": {
                "url": url,
                "dbtable": '(SELECT "id" AS id, "text" AS text FROM rows_in) AS r',
                "partitionColumn": "ID",
                "lowerBound": "0",
                "upperBound": "90",
                "numPartitions": "3",
                "user": "app",
                "password": "${env:PASSWORD_OF_THE_TEST}",
            },
            "sql": "SELECT ID, TEXT FROM input",
            "keyColumns": ["ID"],
        },
        "columns": ["ID", "TEXT"],
    }
    steps = [failing(tmp_path, 50, "ID"), {"call": f"{STEPS}:lower_names", "input": "row"}]
    write = KeyedWrite(session, iceberg_place, tmp_path, source, steps)
    write.stall(reasons.CODE_FAILED)
    (tmp_path / "mended").touch()

    write.finish()

    assert 0 < write.sealed_rows(1) < 90
    assert_exactly_once(iceberg_place, range(90))
    plan = write.ledger.plans.read_plan(1)
    assert plan is not None
    assert plan.partitions == 3
    stored = [path.read_bytes() for path in Path(iceberg_place.checkpoint_uri).rglob("*.json")]
    assert stored
    assert not any(b"sehr-geheim" in data for data in stored)


def test_a_program_reads_two_sources_whose_keys_never_meet(session: Any, iceberg_place: Place, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("origin", pa.string())])
    iceberg_place.create(schema)
    write_orc(numbered(*range(100)), tmp_path / "a", 1)
    write_orc(numbered(*range(50, 150)), tmp_path / "b", 1)
    (tmp_path / "folders").mkdir()
    source = {"program": {"call": f"{STEPS}:unite", "keyColumns": ["id"]}}
    os.environ["FOLDERS_OF_THE_TEST"] = f"{tmp_path / 'a'}:{tmp_path / 'b'}"
    write = KeyedWrite(session, iceberg_place, tmp_path, source, [failing(tmp_path, 70)])
    write.stall(reasons.CODE_FAILED)
    (tmp_path / "mended").touch()

    write.finish()

    assert 0 < write.sealed_rows(1) < 200
    found = sorted((row["origin"], row["id"]) for row in iceberg_place.rows())
    assert found == [("a", number) for number in range(100)] + [("b", number) for number in range(50, 150)]


@pytest.mark.slow
@pytest.mark.parametrize("program", ["tag_apart", "tag_together"])
def test_no_row_that_a_batch_function_makes_is_lost_wherever_it_gives_it(
    program: str, session: Any, iceberg_place: Place, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("origin", pa.string())])
    iceberg_place.create(schema)
    write_orc(numbered(*range(300)), tmp_path / "in", 3)
    os.environ["FOLDERS_OF_THE_TEST"] = str(tmp_path / "in")
    source = {"program": {"call": f"{STEPS}:{program}", "keyColumns": ["id"]}}
    write = KeyedWrite(session, iceberg_place, tmp_path, source, [failing(tmp_path, 250)] if program == "tag_together" else [])
    if program == "tag_apart":
        # A segment that ended among the first ones would have passed over what comes of its keys later.
        write.stall(reasons.KEYS_NOT_UNIQUE, "let it give that one after the other")
        assert iceberg_place.rows() == []
        return
    write.stall(reasons.CODE_FAILED)
    (tmp_path / "mended").touch()

    write.finish()

    assert 0 < write.sealed_rows(1) < 300
    found = sorted((row["id"], row["origin"]) for row in iceberg_place.rows())
    assert found == [(number, origin) for number in range(300) for origin in "ab"]


def test_lines_of_text_are_keyed_by_what_sql_cannot_compute_so_it_is_refused(
    session: Any, iceberg_place: Place, tmp_path: Path
) -> None:
    iceberg_place.create(TEXTS)
    (tmp_path / "in.txt").write_text("1\n2\n3\n")
    source = {
        "spark": {
            "format": "text",
            "paths": [str(tmp_path / "in.txt")],
            "sql": "SELECT CAST(value AS BIGINT) AS id, value AS text FROM input",
            "keyColumns": ["value"],
        }
    }
    write = KeyedWrite(session, iceberg_place, tmp_path, source)

    write.stall(reasons.KEYS_UNSUITABLE, "'value' must come through")


@slow_except_on("disk_place", "lance-disk")
def test_a_format_of_a_package_is_read_where_spark_has_it(session: Any, disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(TEXTS)
    rows = session.createDataFrame(numbered(*range(90)).to_pandas())
    rows.repartition(3).write.format("avro").save(str(tmp_path / "in"))
    source = {"spark": {"format": "avro", "paths": [str(tmp_path / "in")], "keyColumns": ["id"]}}
    write = KeyedWrite(session, disk_place, tmp_path, source, [failing(tmp_path, 50)])
    write.stall(reasons.CODE_FAILED)
    (tmp_path / "mended").touch()

    write.finish()

    assert_exactly_once(disk_place, range(90))


def test_a_table_of_a_spark_catalog_is_read_by_its_name(session: Any, lance_place: Place, tmp_path: Path) -> None:
    lance_place.create(TEXTS)
    write_parquet(numbered(*range(60)), tmp_path / "in", 1)
    session.sql(f"CREATE TABLE rows_of_the_test USING parquet LOCATION '{tmp_path / 'in'}'")
    source = {"spark": {"table": "rows_of_the_test", "keyColumns": ["id"]}}
    write = KeyedWrite(session, lance_place, tmp_path, source)
    try:
        write.finish()
    finally:
        session.sql("DROP TABLE rows_of_the_test")

    assert_exactly_once(lance_place, range(60))


# --- what stands between ---------------------------------------------------------------------------------------------------


def test_sql_stands_between_the_source_and_the_steps(session: Any, iceberg_place: Place, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("part", pa.int32())])
    iceberg_place.create(schema)
    source = orc_source(
        write_orc(numbered(*range(300)), tmp_path / "in"),
        sql="SELECT id, upper(text) AS text, part FROM (SELECT * FROM input WHERE id % 10 < 8) "
        "LATERAL VIEW explode(sequence(0, 1)) parts AS part",
    )
    write = KeyedWrite(session, iceberg_place, tmp_path, source, [failing(tmp_path, 150)])
    write.stall(reasons.CODE_FAILED)
    (tmp_path / "mended").touch()

    write.finish()

    wanted = {(number, f"ZEILE {number}", part) for number in range(300) if number % 10 < 8 for part in (0, 1)}
    rows = [(row["id"], row["text"], row["part"]) for row in iceberg_place.rows()]
    assert len(rows) == len(wanted)
    assert set(rows) == wanted
    assert 0 < write.sealed_rows(1) < 240
    assert write.sealed_rows(1) + write.sealed_rows(2) == 240, "a row of the source counts once, however many it gives"


# --- rows that fail -------------------------------------------------------------------------------------------------------


def poison(*ids: int, input_: str = "row") -> dict[str, Any]:
    return {"call": f"{STEPS}:poison", "input": input_, "name": "predict", "arguments": {"ids": list(ids)}}


def quarantined(write: KeyedWrite) -> list[tuple[dict[str, str] | None, int | None]]:
    """Return the keys and sources of the rows that `inspect` shows of the newest epoch."""
    shown = inspect_store(open_store(write.place.checkpoint_uri, write.place.settings))
    assert not shown.errors
    attempts = shown.writes[0].epochs[-1].attempts
    return [(row.key, row.source) for attempt in attempts for row in attempt.quarantined]


@pytest.mark.parametrize("kind", slow_except(["row", "arrow"], "row"))
@slow_except_on("disk_place", "iceberg-sql-disk")
def test_rows_that_fail_are_set_apart_by_their_keys_and_a_later_epoch_takes_them_again(
    session: Any, disk_place: Place, tmp_path: Path, kind: str
) -> None:
    disk_place.create(TEXTS)
    source = write_orc(numbered(*range(300)), tmp_path / "in")
    write = KeyedWrite(session, disk_place, tmp_path, orc_source(source), [poison(7, 150, 299, input_=kind)])
    write.more = {"onRowError": "Quarantine"}

    write.finish()

    assert_exactly_once(disk_place, [number for number in range(300) if number not in (7, 150, 299)])
    assert sorted(quarantined(write), key=str) == [({"id": "150"}, 0), ({"id": "299"}, 0), ({"id": "7"}, 0)]
    # One of them is mended; a new row came, which this epoch leaves for the next.
    write_orc(numbered(*range(320)), tmp_path / "in")
    write.steps = [poison(150)]
    write.more |= {"runNonce": "again", "quarantine": {"retry": "Only"}}
    write.finish()
    assert_exactly_once(disk_place, [number for number in range(300) if number != 150])
    assert quarantined(write) == [({"id": "150"}, 0)]
    # The last one, and what is new.
    write.steps = []
    write.more |= {"runNonce": "all", "quarantine": {"retry": "Also"}}
    write.finish()
    assert_exactly_once(disk_place, range(320))
    # Nothing is left, and nothing is taken twice.
    write.more |= {"runNonce": "more", "quarantine": {"retry": "Never"}}
    write.finish()
    assert_exactly_once(disk_place, range(320))


@pytest.mark.slow
def test_a_quarantined_row_that_left_the_source_and_comes_back_is_done_until_an_epoch_takes_it_again(
    session: Any, iceberg_place: Place, tmp_path: Path
) -> None:
    iceberg_place.create(TEXTS)
    source = write_orc(numbered(*range(30)), tmp_path / "in", 1)
    write = KeyedWrite(session, iceberg_place, tmp_path, orc_source(source), [poison(3, 4)])
    write.more = {"onRowError": "Quarantine"}
    write.finish()
    write_orc(numbered(*(number for number in range(30) if number != 4)), tmp_path / "in", 1)
    write.steps, write.more = [], {"runNonce": "without 4", "quarantine": {"retry": "Also"}}
    write.finish()
    write_orc(numbered(*range(32)), tmp_path / "in", 1)

    write.more = {"runNonce": "with 4"}
    write.finish()

    assert_exactly_once(iceberg_place, [number for number in range(32) if number != 4])
    write.more = {"runNonce": "again", "quarantine": {"retry": "Also"}}
    write.finish()
    assert_exactly_once(iceberg_place, range(32))


@pytest.mark.slow
def test_quarantined_rows_of_a_dead_attempt_stay_done_and_the_limit_is_the_epochs(
    session: Any, iceberg_place: Place, tmp_path: Path
) -> None:
    iceberg_place.create(TEXTS)
    source = write_orc(numbered(*range(300)), tmp_path / "in", 1)
    write = KeyedWrite(session, iceberg_place, tmp_path, orc_source(source), [poison(3, 250)])
    write.more = {"onRowError": "Quarantine", "quarantine": {"maxRows": 1}}

    write.stall(reasons.TOO_MANY_ROW_ERRORS, "id=250", "quarantine.maxRows allows 1")
    sealed = write.sealed_rows(1)
    write.more = {"onRowError": "Quarantine", "quarantine": {"maxRows": 2}}
    write.finish()

    assert 3 < sealed < 251
    assert_exactly_once(iceberg_place, [number for number in range(300) if number not in (3, 250)])
    plan = write.ledger.plans.read_plan(2)
    assert plan is not None
    assert plan.skipped is not None
    assert plan.skipped.rows == sealed  # among them the row that failed


@pytest.mark.slow
def test_rows_of_several_sources_that_fail_are_told_apart(session: Any, iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(pa.schema([("id", pa.int64()), ("text", pa.string()), ("origin", pa.string())]))
    write_orc(numbered(*range(10)), tmp_path / "a", 1)
    write_orc(numbered(*range(5, 15)), tmp_path / "b", 1)
    source = {"program": {"call": f"{STEPS}:unite", "keyColumns": ["id"]}}
    os.environ["FOLDERS_OF_THE_TEST"] = f"{tmp_path / 'a'}:{tmp_path / 'b'}"
    write = KeyedWrite(session, iceberg_place, tmp_path, source, [poison(7)])
    write.more = {"onRowError": "Quarantine"}

    write.finish()

    assert sorted(quarantined(write), key=str) == [({"id": "7"}, 0), ({"id": "7"}, 1)]
    write.steps = []
    write.more |= {"runNonce": "again", "quarantine": {"retry": "Only"}}
    write.finish()
    found = sorted((row["origin"], row["id"]) for row in iceberg_place.rows())
    assert found == [("a", number) for number in range(10)] + [("b", number) for number in range(5, 15)]


def test_rows_that_sql_makes_several_of_cannot_be_set_apart_so_it_is_refused(
    session: Any, iceberg_place: Place, tmp_path: Path
) -> None:
    iceberg_place.create(TEXTS)
    folder = write_orc(numbered(*range(9)), tmp_path / "in", 1)
    source = orc_source(folder, sql="SELECT id, text FROM input LATERAL VIEW explode(array(1, 2)) AS n")
    write = KeyedWrite(session, iceberg_place, tmp_path, source, [poison(7)], {"onRowError": "Quarantine"})

    write.stall(reasons.PLAN_NOT_MAP_ONLY, "do that in a step that gives several rows")
    assert iceberg_place.rows() == []

    write.more, write.steps = {"onRowError": "Fail"}, []
    write.finish()
    assert len(iceberg_place.rows()) == 18
