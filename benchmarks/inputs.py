"""The input of the figures: 16 Parquet files of like size with six columns, the same bytes each time."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FILES: Final = 16


@dataclass(frozen=True, slots=True)
class Input:
    """A folder of Parquet files; `id` runs from 0 to `rows` - 1."""

    folder: Path
    rows: int

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))

    @property
    def schema(self) -> pa.Schema:
        return pq.read_schema(self.files[0]).remove_metadata()


def make_input(parent: Path, rows: int, group_rows: int | None = None) -> Input:
    """Return that input, made unless it is there. `group_rows`: rows of a row group; None: one row group a file."""
    rows -= rows % FILES
    folder = parent / f"input-{rows}-{group_rows or 'whole'}"
    if not folder.is_dir():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        part = rows // FILES
        rng = np.random.default_rng(11)
        for number in range(FILES):
            table = _rows(rng, number * part, part)
            pq.write_table(table, unfinished / f"{number:02}.parquet", compression="zstd", row_group_size=group_rows or part)
        unfinished.rename(folder)
    return Input(folder, rows)


def _rows(rng: np.random.Generator, first: int, count: int) -> pa.Table:
    """int64, 16 hex digits, timestamp, a string of 20 values, double, 60 characters: about 124 bytes a row in Arrow."""
    ids = np.arange(first, first + count)
    hexes = pa.array([f"{word:016x}" for word in rng.integers(0, 1 << 63, count, dtype=np.int64).tolist()])
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "key": hexes,
            "at": pa.array(1_700_000_000_000_000 + ids * 1000, pa.timestamp("us", "UTC")),
            "kind": pa.array(rng.integers(0, 20, count)).cast(pa.string()),
            "value": pa.array(rng.normal(size=count)),
            "text": pc.binary_join_element_wise(hexes, hexes, hexes, "............", ""),
        }
    )
