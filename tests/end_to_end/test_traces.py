"""A row of the table is traced to its row of the source through every stage, and that one forward to all that was made of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyiceberg.transforms import IdentityTransform

from checkpoint_commit.ports import NO_CODE
from checkpoint_control.decision.actions import Finish
from checkpoint_control.views.tracing import ShownRows, ShownSegment, trace_back, trace_forward
from checkpoint_local.cli.main import main
from checkpoint_local.runner import LocalHost
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.store.object_store import ObjectStore, open_store
from tests.support.command_line import CommandLine
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import IcebergPlace, LancePlace, Place
from tests.support.slow import slow_except_on
from tests.support.writes import drive, manifest_for, reconciler_for, write_inputs

FILES: Final = 3
ROWS_A_FILE: Final = 17
IDS: Final = range(FILES * ROWS_A_FILE)
LEFT_OUT: Final = 3
FAILS: Final = 20
TABLE: Final = pa.schema([("id", pa.int64()), ("part", pa.int64())])

Step = dict[str, Any]
ID: Final = {"output": {"id": "int64"}}
PARTS: Final = {"output": {"id": "int64", "part": "int64"}}


def same(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] == FAILS:
        raise ValueError("this row fails")
    return {"id": row["id"]}


def some(row: dict[str, Any]) -> dict[str, Any] | None:
    return row if row["id"] % 3 != 1 else None


def many(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from ({"id": row["id"], "part": part} for part in range(row["id"] % 4))


def swapped(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Give as many rows as there were, of which one is another's: by the counts alone it looks like a row for each."""
    ids = rows.column("id").to_pylist()
    return pa.RecordBatch.from_pydict({"id": [*ids[1:], ids[-1]]}, pa.schema([("id", pa.int64())]))


SAME: Final = {"call": f"{__name__}:same", "input": "row", **ID}
SOME: Final = {"call": f"{__name__}:some", "input": "row", **ID}
MANY: Final = {"call": f"{__name__}:many", "input": "row", **PARTS}
SWAPPED: Final = {"call": f"{__name__}:swapped", "input": "arrow", **ID}


@dataclass
class Traced:
    """A committed write, whose table is read with the libraries' own readers."""

    place: Place
    manifest: CheckpointedWrite

    @property
    def store(self) -> ObjectStore:
        return open_store(self.place.checkpoint_uri, self.place.settings)

    def rows(self) -> Iterator[tuple[str, int, int]]:
        """Give the data file, the position and the id of each row of the table."""
        if isinstance(self.place, LancePlace):
            for fragment in self.place.dataset().get_fragments():
                ids = fragment.to_table(["id"])["id"].to_pylist()
                yield from ((fragment.data_files()[0].path, position, row) for position, row in enumerate(ids))
            return
        for path in self.place.data_files():
            ids = pq.read_table(path.removeprefix("file://"))["id"].to_pylist()
            yield from ((path, position, row) for position, row in enumerate(ids))

    def back(self, path: str, position: int) -> dict[str | None, list[ShownSegment]]:
        return by_stage(trace_back(self.manifest, self.store, path, position).segments)

    def forward(self, row: int) -> dict[str | None, list[ShownSegment]]:
        return by_stage(trace_forward(self.manifest, self.store, *place_of(row)).segments)


def by_stage(segments: Sequence[ShownSegment]) -> dict[str | None, list[ShownSegment]]:
    found: dict[str | None, list[ShownSegment]] = {}
    for segment in segments:
        found.setdefault(segment.stage, []).append(segment)
    return found


def place_of(row: int) -> tuple[str, int]:
    return f"part-{row // ROWS_A_FILE}.parquet", row % ROWS_A_FILE


def numbers_of(rows: Sequence[ShownRows]) -> set[tuple[str, int]]:
    return {(one.file.rpartition("/")[2], number) for one in rows for number in range(one.start, one.end or 0)}


def committed(place: Place, folder: Path, *, is_created: bool = False, **spec: Any) -> Traced:
    if not is_created:
        place.create(TABLE)
    source = {"files": {"format": "parquet", "paths": [str(folder / "in")]}, "where": f"id <> {LEFT_OUT}"}
    if "source" not in spec:
        write_inputs(folder / "in", FILES, ROWS_A_FILE)
    checkpoint = {"uri": place.checkpoint_uri, "interval": "1h", "maximumRows": 5}
    manifest = manifest_for(
        place, spec.pop("source", source), checkpoint=checkpoint, onRowError="Quarantine", quarantine={"maxShare": "50%"}, **spec
    )
    drivers = DirectDrivers(open_store(place.checkpoint_uri, place.settings), place.settings)
    host = LocalHost(digest_of=lambda spec: NO_CODE if not spec.last_part.steps else "d" * 64)
    reconciler = reconciler_for(manifest, place, drivers, host=host)
    try:
        done = drive(reconciler)
    finally:
        drivers.finish()
    assert isinstance(done.outcome, Finish), done.outcome
    return Traced(place, manifest)


def assert_exact_both_ways(write: Traced, first: str | None, last: str | None) -> None:
    table: dict[int, set[tuple[str, int]]] = {row: set() for row in IDS}
    for path, position, row in write.rows():
        table[row].add((path.rpartition("/")[2], position))
        found = write.back(path, position)
        assert all(one.exact for segments in found.values() for one in segments)
        assert numbers_of([rows for one in found[first] for rows in one.reads]) == {place_of(row)}
    assert {row for row, places in table.items() if places} == {
        row for row in IDS if row % 3 != 1 and row % 4 and row not in (LEFT_OUT, FAILS)
    }
    for row, places in table.items():
        found = write.forward(row)
        assert all(one.exact for segments in found.values() for one in segments)
        assert numbers_of([rows for one in found.get(last, []) for rows in one.made]) == places
        failed = [rows for segments in found.values() for one in segments for rows in one.quarantined]
        assert numbers_of(failed) == ({place_of(row)} if row == FAILS else set())


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_rows_of_three_stages_are_traced_exactly_both_ways(disk_place: Place, tmp_path: Path) -> None:
    stages = [{"name": name, "steps": [step]} for name, step in (("same", SAME), ("some", SOME), ("many", MANY))]

    write = committed(disk_place, tmp_path, stages=stages)

    assert_exact_both_ways(write, "same", "many")


def test_rows_of_a_write_without_stages_are_traced_exactly_both_ways(disk_place: Place, tmp_path: Path) -> None:
    write = committed(disk_place, tmp_path, steps=[SAME, SOME, MANY])

    assert_exact_both_ways(write, None, None)


def test_a_batch_step_that_gives_as_many_rows_as_it_got_is_not_taken_for_one_row_for_each(
    lance_place: Place, tmp_path: Path
) -> None:
    stages = [
        {"name": "swapped", "steps": [SWAPPED]},
        {"name": "many", "steps": [MANY]},
    ]

    write = committed(lance_place, tmp_path, stages=stages)

    for path, position, row in write.rows():
        found = write.back(path, position)
        assert [one.exact for one in found["many"]] == [True]
        among = numbers_of([rows for one in found["swapped"] for rows in one.reads])
        assert place_of(row) in among
        assert 1 < len(among) <= 6, "everything is no answer"
        assert not any(one.exact for one in found["swapped"])
        assert (path.rpartition("/")[2], position) in numbers_of(
            [rows for one in write.forward(row)["many"] for rows in one.made]
        )


@pytest.mark.parametrize("by", ["partition", "sort order"])
def test_rows_of_a_table_that_is_partitioned_or_sorted_are_traced_to_rows_among_which_theirs_is(
    by: str, iceberg_place: Place, tmp_path: Path
) -> None:
    assert isinstance(iceberg_place, IcebergPlace)
    iceberg_place.create(TABLE)
    if by == "partition":
        with iceberg_place.table().update_spec() as spec:
            spec.add_identity("part")
    else:
        with iceberg_place.table().update_sort_order() as order:
            order.desc("part", IdentityTransform())

    write = committed(iceberg_place, tmp_path, is_created=True, steps=[SAME, MANY])

    for path, position, row in write.rows():
        (one,) = write.back(path, position)[None]
        assert place_of(row) in numbers_of(one.reads)
        assert not one.exact


def test_a_row_that_a_data_file_does_not_have_is_told_with_how_many_it_has(lance_place: Place, tmp_path: Path) -> None:
    write = committed(lance_place, tmp_path, steps=[SAME, MANY])
    path, last = max((path, position) for path, position, _ in write.rows())

    has = counted(last + 1, "row")  # which task makes the file that is last by its name is not the same in every run
    with pytest.raises(NeedsChange, match=rf"{path} has {has}, counted from 0, and none at 99; correct --position"):
        write.back(path, 99)
    assert write.back(path, last)


def test_the_command_names_the_row_and_says_what_it_cannot_tell(lance_place: Place, tmp_path: Path) -> None:
    write = committed(lance_place, tmp_path, steps=[SAME, MANY])
    files = CommandLine(tmp_path / "manifests", lance_place, write.manifest)
    path, position, row = list(write.rows())[-1]
    source, number = place_of(row)

    text = said(files, "--data-file", path, "--position", str(position))
    assert f"{source}, row {number}" in text
    assert f"in {path}, row {position}" in text
    assert "some of" not in text
    found = json.loads(said(files, "--source-file", source, "--position", str(number), "-o", "json"))
    (segment,) = found["segments"]
    assert segment["exact"]
    assert {"file": path, "unit": "rows", "start": position - row % 4 + 1, "end": position + 1} in segment["made"]
    assert "quarantined: " in said(files, "--source-file", *place_options(FAILS))
    assert "nothing was made of it" in said(files, "--source-file", *place_options(LEFT_OUT))
    assert "counted from 0, and none at 99" in said(files, "--data-file", path, "--position", "99", exit_code=2)
    assert "no committed epoch has put a data file" in said(files, "--data-file", "other.lance", exit_code=2)
    assert "exactly one of --data-file and --source-file" in said(files, "--position", "1", exit_code=2)


def place_options(row: int) -> tuple[str, str, str]:
    file, number = place_of(row)
    return file, "--position", str(number)


def said(files: CommandLine, *arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(main, ["trace", str(files.file), "--settings", str(files.settings_file), *arguments])
    assert done.exit_code == exit_code, done.output
    return done.output


def test_rows_that_wait_together_for_a_service_are_traced_each_to_its_own(lance_place: Place, tmp_path: Path) -> None:
    write = committed(lance_place, tmp_path, steps=[{**SAME, "concurrency": 4}, {**MANY, "concurrency": 4}])

    for path, position, row in write.rows():
        (one,) = write.back(path, position)[None]
        assert numbers_of(one.reads) == {place_of(row)}
        assert one.exact


def test_lines_of_text_are_traced_to_the_bytes_among_which_they_are(lance_place: Place, tmp_path: Path) -> None:
    lines = [f"{row}\n" for row in IDS]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ids.csv").write_text("id\n" + "".join(lines))
    source = {"files": {"format": "csv", "paths": [str(tmp_path / "in")], "types": {"id": "int64"}}}

    write = committed(lance_place, tmp_path, source=source, steps=[MANY])

    for path, position, row in write.rows():
        (one,) = write.back(path, position)[None]
        start = len("id\n") + sum(len(line) for line in lines[:row])
        assert any(rows.start <= start and (rows.end is None or start < rows.end) for rows in one.reads)
        assert {rows.unit for rows in one.reads} == {"bytes"}
        assert not one.exact


def test_rows_of_groups_are_traced_to_all_rows_of_their_bucket(lance_place: Place, tmp_path: Path) -> None:
    stages = [
        {"name": "same", "steps": [SAME]},
        {
            "name": "grouped",
            "kind": "Aggregate",
            "keyBy": ["id"],
            "buckets": 4,
            "steps": [{**SWAPPED, "call": f"{__name__}:grouped"}],
        },
    ]

    write = committed(lance_place, tmp_path, stages=stages)

    for path, position, row in write.rows():
        found = write.back(path, position)
        assert not any(one.exact for one in found["same"])
        assert place_of(row) in numbers_of([rows for one in found["same"] for rows in one.reads])
        forward = [rows for one in write.forward(row)["grouped"] for rows in one.made]
        assert (path, position) in numbers_of(forward)


def grouped(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(["id"])
