"""Cases of the judge for source tables of Iceberg: files that were written under one schema, and are read under a later one.

`python -m tests.judge.iceberg_histories --seconds 600 --seed 0` looks for red ones; each is named by its seed.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from checkpoint_protocol.errors import CheckpointError
from tests.contract.test_source_tables import in_folder
from tests.judge import readers_of_tables
from tests.judge.changing_fields import Fields, Row, arrow_of, arrow_table, schema_of, shown, value_of
from tests.judge.sameness import is_same
from tests.judge.search import search
from tests.support.iceberg_upserts import COPY_ON_WRITE, World
from tests.support.places import IcebergPlace, on_disk
from tests.support.position_deletes import delete_positions

#: A table has so many files; before each of them, and after the last, the schema changes so many times.
FILES: Final = 3
CHANGES: Final = 6
ROWS: Final = 5
#: As many cases as this are judged at once by the command, and one of so many is also written anew.
COUNT: Final = 20
REWRITTEN: Final = 10


class Red(AssertionError):
    """A reader found something else than what the table was given."""


@dataclass(slots=True)
class History:
    """A table in a catalog, with what happened to it, and the rows that it has."""

    catalog: Catalog
    name: str
    folder: Path
    of: random.Random
    fields: Fields
    rows: dict[int, Row] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    ids: itertools.count[int] = field(default_factory=itertools.count)
    written: list[set[int]] = field(default_factory=list)

    def table(self) -> Table:
        return self.catalog.load_table(self.name)

    def live(self) -> None:
        """Let files come, the schema change, and rows go."""
        schema = Schema(NestedField(1, "id", LongType(), required=True))
        self.catalog.create_table(self.name, schema, properties=dict(COPY_ON_WRITE))
        self._take_schema()
        for number in range(self.of.randint(1, FILES)):
            if number:
                self._change()
            self.write(number)
            if self.of.random() < 0.4:
                self._delete()
        self._change()

    def expected(self) -> dict[int, dict[str, Any]]:
        return {number: shown(row, self.fields.root) for number, row in self.rows.items()}

    def kind(self) -> pa.DataType:
        return arrow_of(self.fields.root, plain=True).type

    def _change(self) -> None:
        said = [self.fields.change() for _ in range(self.of.randint(0, CHANGES))]
        self.done += filter(None, said)
        self._take_schema()

    def has_structs_of_new_fields(self) -> bool:
        """Whether of a struct in a file no field is left: DuckDB does not see then which of them are NULL."""
        structs = [one for one in self.fields.root.walk() if one.kind == "struct"]
        return any(
            struct.number in numbers and numbers.isdisjoint(part.number for part in struct.parts)
            for numbers in self.written
            for struct in structs
        )

    def make_columns_optional(self) -> None:
        for column in self.fields.root.parts:
            column.is_required = column.number == 1
        self._take_schema()

    def _take_schema(self) -> None:
        table = self.table()
        schema = schema_of(self.fields.root, 1 + max(known.schema_id for known in table.metadata.schemas))
        if schema != table.schema():
            self.catalog.commit_table(table, (), (AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1)))

    def write(self, number: int) -> None:
        """Write a file as any writer may: in row groups of any size, with the types of Arrow or without."""
        ids = itertools.islice(self.ids, self.of.randint(1, ROWS))
        new = {number: {**value_of(self.of, self.fields.root), 1: number} for number in ids}
        table = self.table()
        path = f"{table.location()}/data/{number}.parquet"
        rows = arrow_table(self.fields.root, list(new.values()), is_large=self.of.random() < 0.3)
        with table.io.new_output(path).create() as stream:
            pq.write_table(
                rows,
                stream,
                row_group_size=self.of.randint(1, ROWS),
                store_schema=self.of.random() < 0.5,
                store_decimal_as_integer=self.of.random() < 0.5,
                use_dictionary=self.of.random() < 0.5,
            )
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=rows.num_rows,
            file_size_in_bytes=len(table.io.new_input(path)),
        )
        file.spec_id = 0
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            append.append_data_file(file)
        self.rows |= new
        self.written.append({one.number for one in self.fields.root.walk()})
        self.done.append(f"write {sorted(new)} of {schema_of(self.fields.root)}")

    def _delete(self) -> None:
        table = self.table()
        task = self.of.choice(sorted(table.scan().plan_files(), key=lambda task: task.file.file_path))
        numbers = pq.read_table(task.file.file_path.removeprefix("file://"), columns=["id"]).column("id").to_pylist()
        gone = sorted(self.of.sample(range(len(numbers)), self.of.randint(1, len(numbers))))
        delete_positions(self.catalog, table, task, gone)
        for position in gone:
            self.rows.pop(numbers[position], None)
        self.done.append(f"delete {[numbers[position] for position in gone]}")


@dataclass(frozen=True, slots=True)
class Part:
    """Rows and columns of a table that a source asks for: `where` a column is NULL, or is not, or has a value."""

    where: str
    columns: tuple[str, ...]
    takes: Callable[[Any], bool]
    column: str

    @staticmethod
    def by(of: random.Random, history: History) -> Part:
        plain = [one for one in history.fields.root.parts if not one.parts and not set(one.name) & {".", '"'}]
        column = of.choice(plain[1:] or plain)
        names = [one.name for one in history.fields.root.parts]
        columns = tuple(of.sample(names, of.randint(1, len(names))))
        columns = ("id", *(name for name in columns if name != "id"))
        values = [value for row in history.expected().values() if type(value := row[column.name]) in (int, str)]
        if not values or of.random() < 0.4:
            return of.choice(
                [
                    Part(f'"{column.name}" is null', columns, lambda value: value is None, column.name),
                    Part(f'"{column.name}" is not null', columns, lambda value: value is not None, column.name),
                ]
            )
        least = of.choice(values)
        said = "'" + least.replace("'", "''") + "'" if isinstance(least, str) else str(least)
        return Part(f'"{column.name}" >= {said}', columns, lambda value: value is not None and value >= least, column.name)

    def expected(self, history: History) -> dict[int, dict[str, Any]]:
        rows = {number: row for number, row in history.expected().items() if self.takes(row[self.column])}
        return {number: {name: row[name] for name in self.columns} for number, row in rows.items()}


def compare(who: str, history: History, found: Iterable[dict[str, Any]], part: Part | None = None) -> None:
    expected, kind = history.expected(), history.kind()
    if part is not None:
        expected, who = part.expected(history), f"{who} ({part.where}, {part.columns})"
        kind = pa.struct([field for field in kind if field.name in part.columns])
    rows = list(found)
    by_id = {row["id"]: row for row in rows}
    if len(rows) != len(expected) or by_id.keys() != expected.keys():
        raise Red(f"{who} has the rows {sorted(row['id'] for row in rows)}, and the table {sorted(expected)}: {history.done}")
    for number, row in expected.items():
        if list(by_id[number]) != list(row) or not is_same(row, by_id[number], kind):
            raise Red(f"{who} has {by_id[number]}, and the table {row}: {history.done}, now {schema_of(history.fields.root)}")


def compare_part(history: History, of: random.Random) -> None:
    """Read some of the columns, and the rows that a condition takes."""
    part = Part.by(of, history)
    found = readers_of_tables.by_product(history.catalog, of, history.name, where=part.where, columns=part.columns)
    compare("the product", history, found, part)


def history_in(catalog: Catalog, name: str, folder: Path, seed: int) -> History:
    of = random.Random(seed)
    made = History(catalog, name, folder, of, Fields.by(of, may_default=of.random() < 0.5))
    made.live()
    return made


def judge(seed: int, verdicts: Counter[str]) -> None:
    """Judge how the product reads a table. DuckDB says in another way what the table has."""
    with tempfile.TemporaryDirectory() as folder:
        history = history_in(in_folder(Path(folder)), "db.source", Path(folder), seed)
        try:
            found = readers_of_tables.by_product(history.catalog, history.of)
        except CheckpointError as refusal:
            verdicts[f"refused: {refusal}"[:200]] += 1
            return
        compare("the product", history, found)
        verdicts["equal"] += 1
        _judge_by_duckdb(history, verdicts)
        compare_part(history, history.of)
        verdicts["equal in part"] += 1


def _judge_by_duckdb(history: History, verdicts: Counter[str]) -> None:
    others = None if history.has_structs_of_new_fields() else readers_of_tables.by_duckdb(history.table())
    if others is None:
        verdicts["not read by DuckDB"] += 1
        return
    compare("DuckDB", history, others)
    verdicts["read by DuckDB"] += 1


def judge_rewrite(seed: int, verdicts: Counter[str]) -> None:
    """Judge what is left of a table after an upsert that writes the file of one row anew."""
    with tempfile.TemporaryDirectory() as folder:
        place = on_disk(Path(folder), "iceberg")
        assert isinstance(place, IcebergPlace)
        catalog = place.opened()
        catalog.create_namespace(place.name.split(".")[0])
        history = history_in(catalog, place.name, Path(folder), seed)
        if not history.rows:
            history.write(FILES)
        number = history.of.choice(sorted(history.rows))
        history.make_columns_optional()
        try:
            World(place, Path(folder, "input")).upsert(pa.table({"id": pa.array([number], pa.int64())}))
        except CheckpointError as refusal:
            verdicts[f"rewrite refused: {refusal}"[:200]] += 1
            return
        history.rows[number] = {1: number}
        history.done.append(f"upsert {number}")
        compare("the product", history, readers_of_tables.by_product(place.opened(), history.of, place.name))
        verdicts["equal when rewritten"] += 1
        _judge_by_duckdb(history, verdicts)


def judge_both(seed: int, verdicts: Counter[str]) -> None:
    """Judge a table, and of some seeds also what is left of it after a rewrite."""
    judge(seed, verdicts)
    if seed % REWRITTEN == 0:
        judge_rewrite(seed, verdicts)


if __name__ == "__main__":
    search(judge_both)
