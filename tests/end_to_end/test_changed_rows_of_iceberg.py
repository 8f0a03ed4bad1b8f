"""Rows of an Iceberg table that have changed are taken again, into an upsert (`source.changes: Upserts`), against a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.table.update import UpgradeFormatVersionUpdate

from checkpoint_commit.catalogs.source_tables import describe
from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_formats.iceberg.changed import find_changed
from checkpoint_formats.iceberg.manifests_3 import with_lineage
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.source import IcebergSource
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.records import PinnedIceberg
from devtools.rest_catalog import RestCatalog
from tests.end_to_end.test_added_columns import new_input
from tests.support import vectors
from tests.support.changed_rows import begin_without, check_that_it_is_set_where_the_write_has_stopped, run, take_with_a_death
from tests.support.format_3 import on_rest
from tests.support.iceberg_upserts import DELETE, WAYS, World, rows_of, those
from tests.support.places import IcebergPlace, LancePlace
from tests.support.spark_sql import Spark, open_spark
from tests.support.writes import SCHEMA, manifest_for

KEYS: Final = 60


@dataclass
class Pair:
    """A table that is read, and a dataset into which its rows go: the text of each row, by its id.

    `changed`: the rows that the next epoch takes. `known`: what the dataset has.
    """

    source: IcebergPlace
    world: World
    sink: LancePlace
    texts: dict[int, str] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    known: dict[int, str] = field(default_factory=dict)
    step: int = 0

    def manifest(self, epoch: int = 1, **more: Any) -> CheckpointedWrite:
        return manifest_for(
            self.sink,
            {
                "iceberg": {"catalog": self.source.catalog, "table": self.source.name, "splitSize": "1Ki"},
                "changes": more.pop("changes", "Upserts"),
                **more.pop("source", {}),
            },
            name=more.pop("name", "mirror"),
            steps=[{"call": "tests.support.vectors:pass_on", "input": "row", "output": {"id": "int64", "text": "string"}}],
            sink={"mode": "Upsert", "upsertKeys": ["id"]},
            runNonce=str(epoch),
            **more,
        )

    def put(self, numbers: range) -> None:
        """Upsert rows, some of which may be new, with another text."""
        self.step += 1
        text = f"text {self.step}"
        self.world.upsert(rows_of(those(numbers, text)))
        self.texts |= dict.fromkeys(numbers, text)
        self.changed |= {*numbers}

    def append(self, numbers: range) -> None:
        numbers = range(1_000 + 100 * self.step, 1_000 + 100 * self.step + len(numbers))
        self.step += 1
        self.source.append(rows_of(those(numbers, "appended")))
        self.texts |= dict.fromkeys(numbers, "appended")
        self.changed |= {*numbers}

    def delete(self, numbers: range) -> None:
        self.world.upsert(rows_of(those(numbers, "")), sink=DELETE)
        self.take_out(numbers)

    def take_out(self, numbers: range) -> None:
        for number in numbers:
            self.texts.pop(number, None)
            self.changed.discard(number)

    def do(self, what: str, first: int) -> None:
        getattr(self, what)(range(first, first + 5))

    def to_take(self) -> list[int]:
        return sorted(self.changed)

    def check(self) -> None:
        """What was taken by now is in the dataset, each row once: those that are gone from the table, too."""
        self.known |= self.texts
        self.changed.clear()
        rows = self.sink.rows()
        assert {row["id"]: row["text"] for row in rows} == self.known
        assert len(rows) == len(self.known)


def beside(source: IcebergPlace) -> LancePlace:
    sink = LancePlace(source.folder, source.settings, source.checkpoint_uri, f"{source.base_uri}/sink")
    sink.create(SCHEMA)
    return sink


def made(folder: Path, catalog: RestCatalog, way: str, version: int = 3) -> Pair:
    source = on_rest(folder, catalog)
    world = World(source, folder / "input", {"format-version": str(version), **WAYS[way]})
    world.create()
    pair = Pair(source, world, beside(source))
    pair.put(range(KEYS))
    return pair


@pytest.fixture(params=sorted(WAYS))
def pair(tmp_path: Path, rest_catalog: RestCatalog, request: pytest.FixtureRequest) -> Pair:
    return made(tmp_path, rest_catalog, request.param)


def test_rows_that_have_changed_replace_their_former_values_and_no_others_are_taken(pair: Pair) -> None:
    assert isinstance(run(pair.sink, pair.manifest()).outcome, Finish)
    assert sorted(vectors.CALLED) == [*range(KEYS)]
    pair.check()
    for what, first in [("append", 0), ("put", 10), ("delete", 20), ("put", 57), ("delete", 12)]:
        pair.do(what, first)
    changed = sorted(pair.changed)

    assert isinstance(run(pair.sink, pair.manifest(2)).outcome, Finish)

    assert sorted(vectors.CALLED) == changed
    pair.check()
    assert isinstance(run(pair.sink, pair.manifest(3)).outcome, Finish)
    assert vectors.CALLED == []


def test_changed_rows_are_taken_where_a_condition_is_true(pair: Pair) -> None:
    where: dict[str, Any] = {"source": {"where": "id >= 12"}}
    run(pair.sink, pair.manifest(**where))
    pair.put(range(10, 15))

    assert isinstance(run(pair.sink, pair.manifest(2, **where)).outcome, Finish)

    assert sorted(vectors.CALLED) == [12, 13, 14]


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    way=st.sampled_from(sorted(WAYS)),
    epochs=st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from(["append", "put", "delete"]), st.integers(0, KEYS)), max_size=4),
            st.none() | st.tuples(st.integers(4, 20), st.booleans()),
        ),
        max_size=3,
    ),
)
def test_random_changes_and_deaths_leave_what_the_model_says(
    tmp_path_factory: pytest.TempPathFactory,
    rest_catalog: RestCatalog,
    way: str,
    epochs: list[tuple[list[tuple[str, int]], tuple[int, bool] | None]],
) -> None:
    pair = made(tmp_path_factory.mktemp("changes"), rest_catalog, way)
    run(pair.sink, pair.manifest())
    pair.check()
    for number, (acts, death) in enumerate(epochs, 2):
        for act in acts:
            pair.do(*act)
        take_with_a_death(pair, number, death)


def test_it_may_be_set_when_the_write_has_stopped_at_a_change(pair: Pair) -> None:
    begin_without(pair)

    pair.put(range(3))

    check_that_it_is_set_where_the_write_has_stopped(pair)


def test_a_look_finds_what_has_changed_and_no_deletes(tmp_path: Path, rest_catalog: RestCatalog) -> None:
    pair = made(tmp_path, rest_catalog, "merge-on-read")
    manifest = pair.manifest(trigger={"every": "5m"})
    run(pair.sink, manifest)
    assert new_input(pair.sink, manifest) == []
    pair.delete(range(5, 7))
    assert pair.world.said()[0] == "delete"
    assert new_input(pair.sink, manifest) == []

    pair.put(range(3))

    assert new_input(pair.sink, manifest)


def upgrade(pair: Pair) -> None:
    table = pair.source.table()
    table.catalog.commit_table(table, (), (UpgradeFormatVersionUpdate(**{"format-version": 3}),))


def test_a_table_of_format_2_is_refused_until_it_is_upgraded(tmp_path: Path, rest_catalog: RestCatalog) -> None:
    pair = made(tmp_path, rest_catalog, "merge-on-read", version=2)

    ended = run(pair.sink, pair.manifest()).outcome

    assert isinstance(ended, Stall)
    assert ended.reason == reasons.TABLE_UNSUPPORTED
    upgrade(pair)
    assert isinstance(run(pair.sink, pair.manifest()).outcome, Finish)


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("is_changed_before", [True, False])
def test_rows_are_found_that_have_changed_since_an_epoch_that_read_format_2(
    tmp_path: Path, rest_catalog: RestCatalog, way: str, is_changed_before: bool
) -> None:
    pair = made(tmp_path, rest_catalog, way, version=2)
    run(pair.sink, pair.manifest(changes="Fail"))
    pair.check()
    if is_changed_before:
        pair.append(range(4))
    upgrade(pair)
    pair.put(range(3, 5))
    changed = {*pair.changed}

    assert isinstance(run(pair.sink, pair.manifest(2)).outcome, Finish)

    # A file from before the upgrade has no lineage to be kept where it is written anew: all its rows count as changed.
    assert changed <= {*vectors.CALLED} if way == "copy-on-write" else changed == {*vectors.CALLED}
    assert len(vectors.CALLED) == len({*vectors.CALLED})
    pair.check()


def test_a_table_that_was_rolled_back_behind_what_was_taken_stops_the_write(tmp_path: Path, rest_catalog: RestCatalog) -> None:
    pair = made(tmp_path, rest_catalog, "merge-on-read")
    first = pair.source.table().current_snapshot()
    assert first is not None
    pair.put(range(3))
    run(pair.sink, pair.manifest())
    pair.source.table().manage_snapshots().set_current_snapshot(first.snapshot_id).commit()

    ended = run(pair.sink, pair.manifest(2)).outcome

    assert isinstance(ended, Stall)
    assert ended.reason == reasons.SOURCE_CHANGED
    assert "no longer reaches" in ended.message


def pinned_of(pair: Pair) -> PinnedIceberg:
    return describe(IcebergSource(catalog=pair.source.catalog, table=pair.source.name), pair.source.table())


def test_a_column_of_the_name_of_one_of_row_lineage_is_refused_until_it_is_renamed(pair: Pair) -> None:
    pinned = pinned_of(pair)
    named = with_lineage(Schema.model_validate_json(pinned.table_schema_json)).model_dump_json()

    with pytest.raises(NeedsChange, match="the column _row_id of row lineage") as refused:
        find_changed(pinned.model_copy(update={"table_schema_json": named}), None, pair.source.settings, None)
    assert refused.value.reason == reasons.TABLE_UNSUPPORTED
    files, _ = find_changed(pinned, None, pair.source.settings, None)
    assert sum(file.end or 0 for file in files) >= KEYS


# --- what Spark does ------------------------------------------------------------------------------------------------------


@pytest.fixture
def spark(rest_catalog: RestCatalog, tmp_path: Path) -> Iterator[Spark]:
    with open_spark(rest_catalog.uri, tmp_path / "spark.log") as opened:
        yield opened


@dataclass
class BySpark(Pair):
    """Spark changes the table."""

    spark: Spark | None = None

    def sql(self, text: str) -> None:
        assert self.spark is not None
        self.spark.rows(text.replace("TABLE", f"r.{self.source.name}"))

    def put(self, numbers: range) -> None:
        self.step += 1
        text = f"text {self.step}"
        rows = ", ".join(f"({number}, '{text}')" for number in numbers)
        self.sql(
            f"MERGE INTO TABLE t USING (SELECT * FROM VALUES {rows} AS v(id, text)) AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        self.texts |= dict.fromkeys(numbers, text)
        self.changed |= {*numbers}

    def update(self, numbers: range) -> None:
        self.step += 1
        self.sql(f"UPDATE TABLE SET text = 'update {self.step}' WHERE id >= {numbers.start} AND id < {numbers.stop}")
        there = [number for number in numbers if number in self.texts]
        self.texts |= dict.fromkeys(there, f"update {self.step}")
        self.changed |= {*there}

    def delete(self, numbers: range) -> None:
        self.sql(f"DELETE FROM TABLE WHERE id >= {numbers.start} AND id < {numbers.stop}")
        self.take_out(numbers)

    def compact(self, _: range) -> None:
        self.sql(f"CALL r.system.rewrite_data_files(table => 'r.{self.source.name}', options => map('rewrite-all', 'true'))")

    def overwrite(self, _: range) -> None:
        """Write all rows anew, as other rows of the same keys."""
        self.sql("INSERT OVERWRITE TABLE SELECT id, text FROM TABLE")
        self.changed |= {*self.texts}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("way", sorted(WAYS))
def test_of_rows_that_spark_has_changed_or_moved_those_are_taken_that_it_has_changed(
    spark: Spark, rest_catalog: RestCatalog, tmp_path: Path, way: str
) -> None:
    source = on_rest(tmp_path, rest_catalog)
    pair = BySpark(source, World(source, tmp_path / "input"), beside(source), spark=spark)
    spark.rows(f"CREATE NAMESPACE r.{source.name.split('.')[0]}")
    modes = ", ".join(f"'write.{what}.mode' = '{way}'" for what in ("merge", "update", "delete"))
    spark.rows(
        f"CREATE TABLE r.{source.name} (id bigint, text string) USING iceberg TBLPROPERTIES ('format-version' = '3', {modes})"
    )
    pair.put(range(KEYS))
    run(pair.sink, pair.manifest())
    pair.check()

    for number, acts in enumerate(
        [
            [("put", 3), ("update", 20), ("delete", 21)],
            [("compact", 0)],
            [("update", 40), ("compact", 0), ("put", 58), ("compact", 0)],
            [("delete", 0), ("put", 2), ("compact", 0), ("update", 1)],
            [("overwrite", 0)],
        ],
        2,
    ):
        for act in acts:
            pair.do(*act)
        take_with_a_death(pair, number, (3 * number, number % 2 == 0))

    before = pinned_of(pair)
    pair.compact(range(0))
    # A compaction keeps the sequence number that it began at, so that its files are not even opened.
    assert find_changed(pinned_of(pair), None, source.settings, before)[0] == ()
