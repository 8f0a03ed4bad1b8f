"""What may stand between source and sink: Spark's own analysed plans, accepted or refused with what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_spark.dataframes.map_only import Checked, check_map_only, refuse_chance
from tests.end_to_end.keyed_writes import session

__all__ = ["session"]
pytestmark = pytest.mark.spark

ACCEPTED = {
    "all": ("SELECT * FROM input", False),
    "a projection": ("SELECT id, upper(text) AS text FROM input", False),
    "a filter": ("SELECT * FROM input WHERE id > 3 AND text LIKE 'a%'", False),
    "a key under its own name again": ("SELECT id AS id, text FROM input", False),
    "a key renamed and back": ("SELECT number AS id FROM (SELECT id AS number FROM input)", False),
    "other aliases": ("SELECT i.id FROM input AS i", False),
    "chance in a value": ("SELECT id, rand() AS text FROM input", False),
    "the time in a value": ("SELECT id, current_timestamp() AS seen FROM input", False),
    "explode": ("SELECT id, explode(parts) AS part FROM input", True),
    "lateral view": ("SELECT id, part FROM input LATERAL VIEW explode(parts) p AS part", True),
    "union of two sources": ("SELECT * FROM input UNION ALL SELECT * FROM other", False),
}
REFUSED = {
    "GROUP BY": ("SELECT id, count(*) FROM input GROUP BY id", "Aggregate", "aggregate"),
    "an aggregate over all": ("SELECT max(id) AS id FROM input", "Aggregate", "aggregate"),
    "DISTINCT": ("SELECT DISTINCT id FROM input", "Distinct", "DISTINCT"),
    "a join": ("SELECT i.id FROM input i JOIN other o ON i.id = o.id", "Join", "a join"),
    "a window": ("SELECT id, row_number() OVER (ORDER BY id) AS n FROM input", "Window", "OVER"),
    "ORDER BY": ("SELECT * FROM input ORDER BY id", "Sort", "leave it out"),
    "SORT BY": ("SELECT * FROM input SORT BY id", "Sort", "leave it out"),
    "LIMIT": ("SELECT * FROM input LIMIT 3", "Limit", "WHERE"),
    "OFFSET": ("SELECT * FROM input OFFSET 3", "Offset", "WHERE"),
    "a sample": ("SELECT * FROM input TABLESAMPLE (5 PERCENT)", "Sample", "xxhash64"),
    "a repartition hint": ("SELECT /*+ REPARTITION(3) */ * FROM input", "Repartition", "leave it out"),
    "DISTRIBUTE BY": ("SELECT * FROM input DISTRIBUTE BY id", "RepartitionByExpression", "leave it out"),
    "EXCEPT": ("SELECT id FROM input EXCEPT SELECT id FROM other", "Except", "WHERE"),
    "UNION that drops duplicates": ("SELECT id FROM input UNION SELECT id FROM other", "Distinct", "DISTINCT"),
    "WITH": ("WITH q AS (SELECT * FROM input) SELECT * FROM q", "WithCTE", "subquery"),
    "IN a subquery": ("SELECT * FROM input WHERE id IN (SELECT id FROM other)", "subquery", "step"),
    "a scalar subquery": ("SELECT *, (SELECT max(id) FROM other) AS m FROM input", "subquery", "step"),
    "rows from beside": ("SELECT id, text, parts FROM input UNION ALL SELECT 1, 'a', array(1)", "beside the source", "input"),
    "itself twice": ("SELECT * FROM input UNION ALL SELECT * FROM input", "read twice", "explode"),
    "chance in a filter": ("SELECT * FROM input WHERE rand() < 0.5", "not the same each time", "hash"),
    "chance in a filter by way of a column": (
        "SELECT * FROM (SELECT *, uuid() AS u FROM input) WHERE u < '8'",
        "not the same each time",
        "hash",
    ),
    "the time in a filter": ("SELECT * FROM input WHERE now() > '2020-01-01'", "not the same each time", "fixed values"),
    "a row number in a filter": (
        "SELECT * FROM (SELECT *, monotonically_increasing_id() AS n FROM input) WHERE n % 2 = 0",
        "not the same each time",
        "hash",
    ),
}
KEYS_LOST = {
    "not selected": "SELECT text FROM input",
    "computed": "SELECT id + 1 AS id, text FROM input",
    "another column under its name": "SELECT length(text) AS id FROM input",
    "cast": "SELECT CAST(id AS INT) AS id FROM input",
    "under another name": "SELECT id AS number FROM input",
    "made by chance": "SELECT monotonically_increasing_id() AS id FROM input",
    "lost in one branch": "SELECT id FROM input UNION ALL SELECT id + 1 FROM other",
}


def _same(batches: Any) -> Any:
    yield from batches


def sql(query: str) -> Callable[[Any], Any]:
    return lambda session: session.sql(query)


def of_groups(session: Any, *, in_arrow: bool) -> Any:
    groups = session.table("input").groupBy("id")
    return groups.applyInArrow(lambda rows: rows, "id bigint") if in_arrow else groups.applyInPandas(_same, "id bigint")


ALL = sql("SELECT * FROM input")
ARROW = lambda session: session.table("input").mapInArrow(_same, session.table("input").schema)  # noqa: E731
PANDAS = lambda session: session.table("input").mapInPandas(_same, session.table("input").schema)  # noqa: E731
#: What is said, of what, and what is written in its place.
WAYS_OUT: dict[str, tuple[Callable[[Any], Any], list[Callable[[Any], Any]]]] = {
    "look values up in a step instead, or {}": (sql(REFUSED["a join"][0]), [sql("SELECT id, text FROM input")]),
    "use LATERAL VIEW or explode() of the row's own columns": (
        sql("SELECT i.id, o.text FROM input i, LATERAL (SELECT text FROM other WHERE other.id = i.id) o"),
        [sql(ACCEPTED["lateral view"][0]), sql(ACCEPTED["explode"][0])],
    ),
    "leave it out: a table has no order; sort when reading": (sql(REFUSED["ORDER BY"][0]), [ALL]),
    "use WHERE on the key columns": (sql(REFUSED["LIMIT"][0]), [sql("SELECT * FROM input WHERE id <= 3")]),
    "use WHERE on a hash of the key columns, e.g. pmod(xxhash64(id), 100) < 5": (
        sql(REFUSED["a sample"][0]),
        [sql("SELECT * FROM input WHERE pmod(xxhash64(id), 100) < 5")],
    ),
    "leave it out; set the number of tasks by source.spark.options or sparkConf": (
        sql(REFUSED["a repartition hint"][0]),
        [ALL],
    ),
    "leave it out; set the number of tasks by sparkConf": (sql(REFUSED["DISTRIBUTE BY"][0]), [ALL]),
    "use WHERE": (sql(REFUSED["EXCEPT"][0]), [sql("SELECT id FROM input WHERE id <> 3")]),
    "use explode() of an array of structs": (
        sql("SELECT * FROM (SELECT id, text, upper(text) AS large FROM input) UNPIVOT (value FOR name IN (text, large))"),
        [
            sql(
                "SELECT id, pair.name, pair.value FROM (SELECT id, explode(array(struct('text' AS name, text AS value), "
                "struct('large' AS name, upper(text) AS value))) AS pair FROM input)"
            )
        ],
    ),
    "write the named query as a subquery: SELECT ... FROM (SELECT ... FROM input)": (
        sql(REFUSED["WITH"][0]),
        [sql("SELECT * FROM (SELECT * FROM input)")],
    ),
    "use a batch function (mapInPandas), or a step": (lambda session: of_groups(session, in_arrow=False), [PANDAS, ALL]),
    "use a batch function (mapInArrow), or a step": (lambda session: of_groups(session, in_arrow=True), [ARROW, ALL]),
    "select it unchanged: SELECT {}, ... FROM input": (
        sql(KEYS_LOST["cast"]),
        [sql("SELECT id, CAST(id AS INT) AS number FROM input")],
    ),
    "read only what is declared as source: in sql from input, in a program through job.read": (
        sql(REFUSED["rows from beside"][0]),
        [ALL],
    ),
    "use projections, filters, explode, union and batch functions (mapInArrow, mapInPandas), or a step": (
        sql("SELECT TRANSFORM(id, text) USING 'cat' AS (id bigint, text string) FROM input"),
        [sql(ACCEPTED[name][0]) for name in ("a projection", "a filter", "explode", "union of two sources")] + [ARROW, PANDAS],
    ),
    "write fixed values, or filter by a hash of the key columns": (
        sql(REFUSED["the time in a filter"][0]),
        [
            sql("SELECT * FROM input WHERE DATE '2026-01-31' > '2020-01-01'"),
            sql("SELECT * FROM input WHERE pmod(xxhash64(id), 2) = 0"),
        ],
    ),
    "what it gives may change between attempts; look values up in a step instead, or {}": (
        sql(REFUSED["IN a subquery"][0]),
        [ALL],
    ),
    "read it once, and use explode() of an array to make several rows of one": (
        sql(REFUSED["itself twice"][0]),
        [sql("SELECT input.*, explode(array(1, 2)) AS copy FROM input")],
    ),
    "as another type it would not be known again; declare it as {}": (
        lambda session: session.table("input").mapInPandas(_same, "id string, text string"),
        [lambda session: session.table("input").mapInPandas(_same, "id bigint, text string")],
    ),
}


@pytest.fixture
def views(session: Any) -> dict[str, tuple[str, ...]]:
    """Two sources, `input` and `other`, under the names by which they are known in plans."""
    frame = session.createDataFrame([(1, "a", [1, 2])], "id bigint, text string, parts array<int>")
    sources: dict[str, tuple[str, ...]] = {"checkpointed_source_1": ("id",), "checkpointed_source_2": ("id",)}
    for view, alias in zip(("input", "other"), sources, strict=True):
        frame.alias(alias).createOrReplaceTempView(view)
    return sources


def checked(session: Any, sources: dict[str, tuple[str, ...]], query: str) -> Checked:
    return check_map_only(session.sql(query), sources)


@pytest.mark.parametrize("name", ACCEPTED)
def test_row_by_row_work_is_accepted(session: Any, views: dict[str, tuple[str, ...]], name: str) -> None:
    query, expands = ACCEPTED[name]

    assert checked(session, views, query).expands == expands


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_several_rows_is_refused_with_what_to_write_instead(
    session: Any, views: dict[str, tuple[str, ...]], name: str
) -> None:
    query, what, instead = REFUSED[name]

    with pytest.raises(NeedsChange) as caught:
        checked(session, views, query)

    assert caught.value.reason == reasons.PLAN_NOT_MAP_ONLY
    assert what in caught.value.message
    assert instead in caught.value.message


@pytest.mark.parametrize("name", KEYS_LOST)
def test_keys_that_do_not_come_through_are_refused(session: Any, views: dict[str, tuple[str, ...]], name: str) -> None:
    with pytest.raises(NeedsChange) as caught:
        checked(session, views, KEYS_LOST[name])

    assert caught.value.reason == reasons.KEYS_UNSUITABLE
    assert "select it unchanged: SELECT id" in caught.value.message


@pytest.mark.parametrize("column", ["monotonically_increasing_id()", "uuid()", "floor(rand() * 100)"])
def test_a_source_that_depends_on_chance_is_refused(session: Any, views: dict[str, tuple[str, ...]], column: str) -> None:
    refuse_chance(session.table("input"), ["id"])

    with pytest.raises(NeedsChange, match="depends on chance") as caught:
        refuse_chance(session.sql(f"SELECT {column} AS id, text FROM input"), ["id"])

    assert caught.value.reason == reasons.KEYS_UNSUITABLE


def test_a_key_that_a_window_function_has_made_is_refused_and_other_columns_of_it_are_not(session: Any) -> None:
    numbered = "SELECT id, text, row_number() OVER (PARTITION BY text ORDER BY id) AS place FROM input"
    frame = session.sql(f"SELECT id, text, place + 1 AS nr FROM ({numbered})")
    refuse_chance(frame, ["id"])

    with pytest.raises(NeedsChange, match="'nr' is made by a window function") as caught:
        refuse_chance(frame, ["text", "nr"])

    assert caught.value.reason == reasons.KEYS_UNSUITABLE


@pytest.mark.parametrize("made", ["rand()", "current_timestamp()"])
def test_a_filter_over_what_an_explode_makes_of_chance_is_refused(
    session: Any, views: dict[str, tuple[str, ...]], made: str
) -> None:
    exploded = f"SELECT id, text, explode(array({made})) AS made FROM input"
    checked(session, views, exploded)

    with pytest.raises(NeedsChange, match="is not the same each time"):
        checked(session, views, f"SELECT * FROM ({exploded}) WHERE made IS NOT NULL")


@pytest.mark.parametrize("says", WAYS_OUT)
def test_what_is_written_in_its_place_as_the_message_says_is_accepted(
    session: Any, views: dict[str, tuple[str, ...]], says: str
) -> None:
    refused, instead = WAYS_OUT[says]

    with pytest.raises(NeedsChange) as caught:
        check_map_only(refused(session), views)
    assert all(part in caught.value.message for part in says.split("{}"))

    for made in instead:
        check_map_only(made(session), views)


def test_batch_functions_are_accepted_and_take_keys_at_their_names(session: Any, views: dict[str, tuple[str, ...]]) -> None:
    frame = session.table("input")

    for made in (frame.mapInArrow(_same, frame.schema), frame.mapInPandas(_same, frame.schema)):
        found = check_map_only(made, views)
        assert (found.expands, found.reorders) == (True, True)
    exploded = check_map_only(session.sql("SELECT id, explode(array(1, 2)) AS n FROM input"), views)
    assert (exploded.expands, exploded.reorders) == (True, False)
    with pytest.raises(NeedsChange, match="declares the key column 'id' as string, and in the source it is bigint"):
        check_map_only(frame.mapInPandas(_same, "id string, text string"), views)
    with pytest.raises(NeedsChange, match="must come through"):
        check_map_only(frame.select("text").mapInArrow(_same, "text string"), views)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda frame: frame.dropDuplicates(["id"]), "Deduplicate"),
        (lambda frame: frame.repartition(3), "Repartition"),
        (lambda frame: frame.coalesce(1), "Repartition"),
        (lambda frame: frame.groupBy("id").applyInPandas(_same, "id bigint"), "FlatMapGroupsInPandas"),
        (lambda frame: frame.rdd.toDF(frame.schema), "beside the source"),
        (lambda frame: frame.sample(0.5), "Sample"),
    ],
    ids=["dropDuplicates", "repartition", "coalesce", "applyInPandas", "an RDD in between", "sample"],
)
def test_what_a_program_may_do_besides_is_refused_by_its_name(
    session: Any, views: dict[str, tuple[str, ...]], change: Any, what: str
) -> None:
    with pytest.raises(NeedsChange, match=what):
        check_map_only(change(session.table("input")), views)
