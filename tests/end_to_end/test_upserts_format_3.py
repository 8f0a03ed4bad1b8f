"""Upserts of a table of format version 3 that Spark makes, appends to and deletes rows of: compared with a model, as Spark reads
it. One session of Spark.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent

from checkpoint_control.decision.actions import EndStage, Finish
from checkpoint_formats.iceberg.manifests_3 import referenced_data_file
from devtools.rest_catalog import RestCatalog
from tests.support.format_3 import Format3Place, on_rest, upgrade_by_hand
from tests.support.iceberg_upserts import DELETE, IGNORE, World, rows_of, step_until
from tests.support.places import IcebergPlace, on_disk
from tests.support.spark_sql import Spark, open_spark
from tests.support.writes import drive

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEYS = 300
STEPS = 12
WAYS = ("copy-on-write", "merge-on-read")
SINKS: dict[str, dict[str, Any]] = {
    "update": {},
    "delete": DELETE,
    "last": {"onDuplicate": "Last", "orderBy": "text"},
    "ignore": IGNORE,
}


@pytest.fixture
def spark(rest_catalog: RestCatalog, tmp_path: Path) -> Iterator[Spark]:
    with open_spark(rest_catalog.uri, tmp_path / "spark.log") as opened:
        yield opened


@dataclass
class Model:
    """What the table should have. `lineage`: the ids and sequence numbers of rows that were not replaced since they were read."""

    spark: Spark
    place: Format3Place
    chance: random.Random
    rows: dict[int, str] = field(default_factory=dict)
    lineage: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def table(self) -> str:
        return f"r.{self.place.name}"

    def some(self, count: int, among: range | None = None) -> list[int]:
        return self.chance.sample(among or range(KEYS), count)

    def insert_by_spark(self) -> None:
        new = [number for number in self.some(40) if number not in self.rows]
        if new:
            self.spark.rows(
                f"INSERT INTO {self.table} VALUES {', '.join(f'({number}, {chr(39)}spark{chr(39)})' for number in new)}"
            )
            self.rows |= dict.fromkeys(new, "spark")

    def delete_by_spark(self) -> None:
        gone = self.some(12)
        self.spark.rows(f"DELETE FROM {self.table} WHERE id IN ({', '.join(map(str, gone))})")
        self.take_out(gone)

    def take_out(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.rows.pop(number, None)
            self.lineage.pop(number, None)

    def compact_by_spark(self) -> None:
        self.spark.rows(f"CALL r.system.rewrite_data_files(table => '{self.table}', options => map('rewrite-all', 'true'))")

    def upsert(self, world: World, kind: str, text: str, *, meanwhile: bool) -> None:
        """Upsert some keys. `meanwhile`: Spark deletes and inserts rows after the merge has read the table."""
        keys = self.some(25)
        given = [(number, text) for number in keys]
        if kind == "last":
            given += [(number, f"{text} again") for number in keys[:5]]
        half = len(given) // 2
        begun = world.begin(rows_of(given[:half]), rows_of(given[half:]), sink=SINKS[kind])
        step_until(begun, EndStage)
        # A row that others delete after the merge has found it counts as there, as if they had come after the upsert.
        there = set(self.rows)
        if meanwhile:
            self.delete_by_spark()
            self.insert_by_spark()
        ended = drive(begun)
        assert isinstance(ended.outcome, Finish), ended.outcome
        new = dict(given)
        if kind == "ignore":
            new = {number: text for number, text in new.items() if number not in there | self.rows.keys()}
        self.take_out(new)
        if kind != "delete":
            self.rows |= new

    def check(self, where: object) -> None:
        """Compare what Spark and pyiceberg read."""
        said = self.spark.rows(f"SELECT id, text, _row_id, _last_updated_sequence_number FROM {self.table}")
        assert sorted((row[0], row[1]) for row in said) == sorted(self.rows.items()), where
        assert sorted((row["id"], row["text"]) for row in self.place.rows()) == sorted(self.rows.items()), where
        now = {row[0]: (row[2], row[3]) for row in said}
        assert len({row_id for row_id, _ in now.values()}) == len(now), where
        assert {number: now[number] for number in self.lineage} == self.lineage, where
        vectors = [referenced_data_file(file) for file in self.place.files(ManifestContent.DELETES)]
        assert len(set(vectors)) == len(vectors), where
        self.lineage = now


@dataclass
class InSqlCatalog(Model):
    """The table of a catalog whose metadata files we write. Spark reads each of them, under another name."""

    number: int = 0

    @property
    def table(self) -> str:
        self.number += 1
        name, location = f"{self.place.name}_{self.number}", self.place.table().metadata_location
        self.spark.rows(f"CALL r.system.register_table(table => '{name}', metadata_file => '{location}')")
        return f"r.{name}"


@pytest.mark.parametrize("way", WAYS)
def test_any_history_of_upserts_in_a_catalog_whose_metadata_files_we_write_is_read_by_spark_as_the_model_says(
    spark: Spark, tmp_path: Path, way: str
) -> None:
    place, chance = in_sql_catalog(tmp_path), random.Random(3)
    model, world = InSqlCatalog(spark, place, chance), World(place, tmp_path / "input", {"write.merge.mode": way})
    spark.rows(f"CREATE NAMESPACE r.{place.name.split('.')[0]}")
    world.create()
    upgrade_by_hand(place)
    for step in range(2):
        numbers = range(100 * step, 100 * step + 60)
        place.append(rows_of([(number, "appended") for number in numbers]))
        model.rows |= dict.fromkeys(numbers, "appended")
    model.check("begin")

    for step in range(STEPS):
        kind = chance.choice([*SINKS])
        model.upsert(world, kind, f"ours {step}", meanwhile=False)
        model.check((step, kind))


def in_sql_catalog(folder: Path) -> Format3Place:
    disk = on_disk(folder, "iceberg")
    assert isinstance(disk, IcebergPlace)
    return Format3Place(disk.folder, disk.settings, disk.checkpoint_uri, disk.base_uri, name=disk.name)


def test_a_table_that_spark_has_changed_in_many_ways_moves_to_such_a_catalog_and_is_read_by_spark_as_the_model_says(
    spark: Spark, rest_catalog: RestCatalog, tmp_path: Path
) -> None:
    before = Model(spark, on_rest(tmp_path / "rest", rest_catalog), random.Random(5))
    spark.rows(f"CREATE NAMESPACE r.{before.place.name.split('.')[0]}")
    spark.rows(
        f"CREATE TABLE {before.table} (id bigint, text string) USING iceberg PARTITIONED BY (bucket(2, id)) TBLPROPERTIES "
        "('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    before.insert_by_spark()
    before.insert_by_spark()
    before.delete_by_spark()
    spark.rows(f"ALTER TABLE {before.table} WRITE ORDERED BY id")
    spark.rows(f"ALTER TABLE {before.table} ADD PARTITION FIELD truncate(2, text)")
    spark.rows(f"ALTER TABLE {before.table} CREATE BRANCH other")
    spark.rows(f"CALL r.system.compute_table_stats(table => '{before.place.name}')")
    before.insert_by_spark()
    before.check("before")
    place = in_sql_catalog(tmp_path / "sql")
    place.opened().create_namespace(place.name.split(".")[0])
    place.opened().register_table(place.name, before.place.table().metadata_location)
    model, world = InSqlCatalog(spark, place, before.chance, before.rows, before.lineage), World(place, tmp_path / "input")

    for kind in SINKS:
        model.upsert(world, kind, f"ours {kind}", meanwhile=False)
        model.check(kind)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", [1, 2])
def test_any_history_of_upserts_and_of_what_spark_does_in_between_is_what_the_model_says(
    spark: Spark, rest_catalog: RestCatalog, tmp_path: Path, way: str, seed: int
) -> None:
    place, chance = on_rest(tmp_path, rest_catalog), random.Random(seed)
    model, world = Model(spark, place, chance), World(place, tmp_path / "input")
    spark.rows(f"CREATE NAMESPACE r.{place.name.split('.')[0]}")
    spark.rows(
        f"CREATE TABLE {model.table} (id bigint, text string) USING iceberg PARTITIONED BY (bucket(2, id)) TBLPROPERTIES "
        f"('format-version' = '3', 'write.merge.mode' = '{way}', 'write.delete.mode' = 'merge-on-read')"
    )
    for _ in range(5):
        model.insert_by_spark()
    model.check("begin")
    kinds = ["update", "delete", "last", "ignore"]

    for step in range(STEPS):
        kind = chance.choice(["insert", "delete by spark", "compact", *kinds, *kinds])
        meanwhile = chance.random() < 0.5
        if kind == "insert":
            model.insert_by_spark()
        elif kind == "delete by spark":
            model.delete_by_spark()
        elif kind == "compact":
            model.compact_by_spark()
        else:
            model.upsert(world, kind, f"ours {step}", meanwhile=meanwhile)
        model.check((seed, step, kind, meanwhile))
