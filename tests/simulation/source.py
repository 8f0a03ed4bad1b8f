"""A small input of numbered rows, the steps on it, and a stager that keeps rows in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.port import NOTHING_TAKEN, Chunk, Described, TakenColumns
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.records import IcebergFile, LanceDataFile, LanceFragment, StagedFile
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from tests.simulation.scheduler import Order, Scheduler
from tests.simulation.tables import DataFiles, Row

SOURCE_SCHEMA: Final = pa.schema([("id", pa.int64())])
TABLE_SCHEMA: Final = pa.schema([("id", pa.int64()), ("copy", pa.int64())])
EXPLODING: Final = Step(call="tests.simulation.source:explode", input="row")
WAITING: Final = Step(call="tests.simulation.source:explode_in_time", input="row", concurrency=3)
#: After a row step: batches that end in the middle of what was read together.
IN_PAIRS: Final = Step(call="tests.simulation.source:pass_on", input="arrow", batch_size=2)

_SERIALS: Final = itertools.count()

_SLOW_S: Final = 10.0
#: Rows in one data file: a segment with more makes several.
_ROWS_OF_A_FILE: Final = 2


def explode(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Give no row, one or two: by the number's remainder."""
    return [{"id": row["id"], "copy": number} for number in range(row["id"] % 3)]


async def explode_in_time(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Do the same, but not in the order of the rows."""
    for _ in range(row["id"] % 4):
        await asyncio.sleep(0)
    return explode(row)


def pass_on(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


class Fail:
    """Raises on some rows, after the first result: on poison always, on a flaky one at every other call. One for each example."""

    def __init__(self, serial: int, explodes: bool, poison: Sequence[int], flaky: Sequence[int]) -> None:
        self._explodes = explodes
        self._poison = frozenset(poison)
        self._flaky = frozenset(flaky)
        self._calls: Counter[int] = Counter()

    def __call__(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        number = row["id"]
        self._calls[number] += 1
        yield from explode(row) if self._explodes else ({**row, "copy": None},)
        if number in self._poison or (number in self._flaky and self._calls[number] % 2):
            raise ValueError(f"row {number}")


@dataclass(slots=True)
class Input:
    """Files of numbered rows; `sizes` are their rows. Row p of file f is number first + 100 f + p.

    The steps raise on `poison` rows always and on `flaky` ones now and then.
    """

    first: int
    sizes: list[int]
    explodes: bool
    poison: frozenset[int] = frozenset()
    flaky: frozenset[int] = frozenset()
    #: The steps are called on several rows at once, and batches of exact sizes follow.
    waits: bool = False
    serial: int = field(default_factory=lambda: next(_SERIALS))

    @property
    def fails(self) -> bool:
        return bool(self.poison or self.flaky)

    @property
    def steps(self) -> tuple[Step, ...]:
        if self.fails:
            arguments = {
                "serial": self.serial,
                "explodes": self.explodes,
                "poison": sorted(self.poison),
                "flaky": sorted(self.flaky),
            }
            called = {"call": "tests.simulation.source:Fail", "input": "row", "arguments": arguments}
            failing = Step.model_validate(called | ({"concurrency": 3} if self.waits else {}))
            return (failing, IN_PAIRS) if self.waits else (failing,)
        if self.waits:
            return (WAITING, IN_PAIRS) if self.explodes else (IN_PAIRS,)
        return (EXPLODING,) if self.explodes else ()

    def number(self, file: int, position: int) -> int:
        return self.first + 100 * file + position

    def expected(self, first_file: int = 0, end: int | None = None) -> Counter[Row]:
        """Return what must be in the table, of all files or of some."""
        files = list(enumerate(self.sizes))[first_file:end]
        numbers = [self.number(file, position) for file, size in files for position in range(size)]
        return self.made_of(numbers)

    def made_of(self, numbers: Iterable[int]) -> Counter[Row]:
        """Return the result rows of these input rows."""
        if not self.explodes:
            return Counter((number, None) for number in numbers)
        return Counter((number, copy) for number in numbers for copy in range(number % 3))


@dataclass(slots=True)
class SimulatedReader:
    """Implements FileReader, a row at a time. Reading may be slow, so that segments end anywhere.

    Two looks at the source may differ: one may find a file without rows, in front of all others, that the other does not. So the
    same number means different files in the two, and whoever goes by its own look, and not by what was fixed, reads wrong rows.
    """

    scheduler: Scheduler
    input: Input
    row_bytes: int
    path: str = "in"

    def check(self, file: FoundFile) -> None:
        raise AssertionError("asked by `validate` only")

    def found(self) -> list[FoundFile]:
        """Return the files that are there. Which looks oldest is no matter of which came first."""
        return [
            FoundFile(f"{self.path}/{index}", f"etag {index}", size * self.row_bytes, f"{self.path}/{index}", index * 7 % 10)
            for index, size in enumerate(self.input.sizes)
        ]

    def describe(self, found: Sequence[FoundFile], taken: TakenColumns = NOTHING_TAKEN) -> Described:
        wanted = {file.path for file in found} - set(taken)
        files = tuple(
            SourceFile(path=f"{self.path}/{index}", etag=f"etag {index}", size_bytes=size * self.row_bytes, unit="rows", end=size)
            for index, size in enumerate(self.input.sizes)
            if f"{self.path}/{index}" in wanted
        )
        empty = SourceFile(path=f"{self.path}/-1", etag="etag", size_bytes=0, unit="rows", end=0)

        def effect(order: Order) -> Described:
            there = (empty, *files) if order.fault == "longer" else files
            return Described(there, SOURCE_SCHEMA, self.path, tuple(SOURCE_SCHEMA.names))

        return self.scheduler.at("describe-input", "", effect, ("longer",))

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        return position

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        assert piece.end is not None
        index = int(file.path.removeprefix(f"{self.path}/"))
        if piece.start == piece.end:
            yield Chunk(pa.RecordBatch.from_pylist([], schema=SOURCE_SCHEMA), piece.start, piece.end)
        for position in range(piece.start, piece.end):
            self.scheduler.at("read", f"{file.path} row {position}", self._take_time, ("slow",))
            yield Chunk(
                pa.RecordBatch.from_pylist([{"id": self.input.number(index, position)}], schema=SOURCE_SCHEMA),
                position,
                position + 1,
            )

    def check_unchanged(self, file: SourceFile) -> None:
        pass

    def _take_time(self, order: Order) -> None:
        if order.fault == "slow":
            self.scheduler.now_s += _SLOW_S


@dataclass(slots=True)
class SimulatedStager:
    """Implements Stager. `layout` is that of the table when the attempt was launched."""

    scheduler: Scheduler
    files: DataFiles
    make: type[IcebergFile] | type[LanceFragment]
    layout: int
    label: str
    arrow_schema: pa.Schema = field(default=TABLE_SCHEMA)
    number: int = 0

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        rows: list[Row] = [(row["id"], row["copy"]) for batch in batches for row in batch.to_pylist()]
        return tuple(self._stage_file(rows[start : start + _ROWS_OF_A_FILE]) for start in range(0, len(rows), _ROWS_OF_A_FILE))

    def _stage_file(self, rows: Sequence[Row]) -> StagedFile:
        def effect(_: Order) -> str:
            path = self.name_file()
            self.files.put(path, rows, self.layout)
            return path

        path = self.scheduler.at("stage", f"rows {', '.join(str(row[0]) for row in rows)}", effect)
        return self._described(path, len(rows))

    def name_file(self) -> str:
        """Return a name that no other try has or will have."""
        return self.files.new_name(self.label)

    def _described(self, path: str, rows: int) -> StagedFile:
        size_bytes = self.files.size_of(path)
        if self.make is IcebergFile:
            return IcebergFile(
                path=path, size_bytes=size_bytes, rows=rows, schema_id=0, spec_id=0, partition=(), metrics=(), split_offsets=()
            )
        data_file = LanceDataFile(
            path=path, size_bytes=size_bytes, fields=(0,), column_indices=(0,), major_version=2, minor_version=1
        )
        return LanceFragment(files=(data_file,), rows=rows)
