"""Steps that make columns for rows of a dataset, and a dataset to give them to. What they were called on is counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa

from checkpoint_protocol.manifest.spec import CheckpointedWrite
from tests.support.places import LancePlace
from tests.support.writes import SCHEMA, manifest_for, rows_of

DIMENSION = 4
VECTOR = pa.list_(pa.float32(), DIMENSION)
#: The ids of the rows that steps of this process were called on, in order.
CALLED: list[int] = []
#: Rows with these ids fail.
FAILING: set[int] = set()


def vector_of(number: int) -> list[float]:
    return [float(number), float(number) / 2, -float(number), 1.0]


def embed(row: dict[str, Any]) -> dict[str, Any]:
    """Give a row its vector, and pass on what it has."""
    CALLED.append(row["id"])
    if row["id"] in FAILING:
        raise ValueError(f"no vector for {row['id']}")
    return {**row, "vector": vector_of(row["id"]), "length": len(row["text"])}


def embed_all(batch: pa.RecordBatch) -> pa.RecordBatch:
    ids = batch.column("id").to_pylist()
    CALLED.extend(ids)
    if FAILING.intersection(ids):
        raise ValueError("no vector for one of these")
    return pa.RecordBatch.from_pydict(
        {
            "vector": pa.array([vector_of(number) for number in ids], VECTOR),
            "length": [len(text) for text in batch.column("text").to_pylist()],
        }
    )


def embed_only(row: dict[str, Any]) -> dict[str, Any]:
    """Give the columns alone, which the step declares, so that no sample is needed to know them."""
    made = embed(row)
    return {"vector": made["vector"], "length": made["length"]}


def pass_on(row: dict[str, Any]) -> dict[str, Any]:
    CALLED.append(row["id"])
    return row


def copy(row: dict[str, Any]) -> dict[str, Any]:
    """Give the text that the row had."""
    CALLED.append(row["id"])
    if row["id"] in FAILING:
        raise ValueError(f"no copy of {row['id']}")
    return {"copy": row["text"]}


def embed_some(row: dict[str, Any]) -> dict[str, Any] | None:
    """Give nothing for every third row."""
    return None if row["id"] % 3 == 0 else embed(row)


def drop_some(batch: pa.RecordBatch) -> pa.RecordBatch:
    return embed_all(batch).slice(1)


def manifest_of(
    place: LancePlace,
    step: str = "embed_only",
    *,
    columns: tuple[str, ...] = ("vector", "length"),
    name: str = "vectors",
    **more: Any,
) -> CheckpointedWrite:
    """Return a manifest that adds the columns. Fields of `sink` are merged into its own."""
    sink = {
        "lance": {"uri": place.uri, "layout": {"vectorColumns": {"vector": {"dimension": DIMENSION}}}},
        "mode": "AddColumns",
        "columns": list(columns),
    }
    kind = "arrow" if step in ("embed_all", "drop_some") else "row"
    made: dict[str, Any] = {"call": f"tests.support.vectors:{step}", "input": kind}
    if step == "embed_only":
        made["output"] = {"vector": "list<float32>", "length": "int64"}
    source = {"lance": {"uri": place.uri, "splitSize": "1Ki"}}
    where = more.pop("where", None)
    return manifest_for(
        place,
        source | ({"where": where} if where else {}),
        name=name,
        steps=[made],
        whole=("sink",),
        sink=sink | more.pop("sink", {}),
        **more,
    )


def make_dataset(place: LancePlace, rows: int = 200, *, per_fragment: int = 50, stable_row_ids: bool = False) -> None:
    """Make a dataset of fragments with so many rows each."""
    lance.write_dataset(
        rows_of(range(rows)),
        place.uri,
        schema=SCHEMA,
        max_rows_per_file=per_fragment,
        storage_options=place.options,
        enable_stable_row_ids=stable_row_ids,
    )


@dataclass
class Model:
    """The rows as they should be: of each its text, and what the columns have."""

    place: LancePlace
    rows: dict[int, tuple[str, list[float] | None, int | None]]
    next_id: int = 1_000

    @classmethod
    def of(cls, place: LancePlace) -> Model:
        return cls(place, {row["id"]: (row["text"], row.get("vector"), row.get("length")) for row in rows_in(place)})

    def append(self, count: int = 3) -> None:
        numbers = range(self.next_id, self.next_id + count)
        self.next_id += count
        table = rows_of(numbers)
        self.place.append(table)
        self.rows |= {number: (f"zeile {number}", None, None) for number in numbers}

    def delete(self, remainder: int = 0) -> None:
        """Delete every eleventh row."""
        self.place.dataset().delete(f"id % 11 = {remainder}")
        self.rows = {number: row for number, row in self.rows.items() if number % 11 != remainder}

    def update(self, remainder: int = 1) -> None:
        """Give every thirteenth row another text; its columns stay as they are."""
        self.place.dataset().update({"text": "concat(text, '!')"}, where=f"id % 13 = {remainder}")
        for number, (text, vector, length) in self.rows.items():
            if number % 13 == remainder:
                self.rows[number] = (f"{text}!", vector, length)

    def compact(self, rows: int = 120) -> None:
        self.place.dataset().optimize.compact_files(target_rows_per_fragment=rows)

    def all_of_it(self) -> None:
        self.append()
        self.delete()
        self.update()
        self.compact()

    def give(self, numbers: Iterable[int]) -> None:
        """Note that these rows get their values, if they are there, and were not changed meanwhile."""
        for number in numbers:
            if number in self.rows:
                text = self.rows[number][0]
                self.rows[number] = (text, vector_of(number), len(text))

    def check(self) -> None:
        assert {row["id"]: (row["text"], row.get("vector"), row.get("length")) for row in rows_in(self.place)} == self.rows


def rows_in(place: LancePlace) -> list[dict[str, Any]]:
    """Return the rows as Lance itself reads them; each is there once."""
    rows: list[dict[str, Any]] = place.dataset().to_table().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return rows
