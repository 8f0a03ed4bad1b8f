"""CSV and JSON lines from end to end: quoted line breaks, gzip, non-ASCII, a crash in the middle."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_protocol import reasons
from tests.end_to_end.test_input import interrupted
from tests.support.checks import assert_exactly_once
from tests.support.places import Place
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for

ROWS = 3_000


def csv_text(texts: list[str]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["id", "text"])
    writer.writerows(enumerate(texts))
    return out.getvalue()


def run(place: Place, source: Path, /, **spec: object) -> object:
    ended = drive(reconciler_for(manifest_for(place, source, **spec), place))  # type: ignore[arg-type]
    return ended.outcome


def texts(place: Place) -> dict[int, str]:
    return {row["id"]: row["text"] for row in place.rows()}


def test_a_csv_file_is_cut_at_line_ends_and_resumed_after_a_crash(place: Place, tmp_path: Path) -> None:
    place.create(SCHEMA)
    source = tmp_path / "größe.csv"
    expected = [f'"ü" {n}, {"x" * (n % 50)}' for n in range(ROWS)]
    source.write_text(csv_text(expected), encoding="utf-8")
    interrupted(place, source, files={"format": "csv"})

    assert isinstance(run(place, source, files={"format": "csv"}), Finish)
    assert_exactly_once(place, range(ROWS))
    assert texts(place) == dict(enumerate(expected))


def test_quoted_line_breaks_are_refused_unless_multi_line_is_set(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = tmp_path / "in.csv"
    expected = [f"line one {n}\nline two" for n in range(ROWS)]
    source.write_text(csv_text(expected), encoding="utf-8")

    refused = run(disk_place, source, files={"format": "csv"})
    assert isinstance(refused, Stall)
    assert refused.reason == reasons.SOURCE_UNREADABLE
    assert "multiLine" in refused.message
    assert disk_place.rows() == []

    manifest = manifest_for(disk_place, source, name="again", files={"format": "csv", "csv": {"multiLine": True}})
    assert isinstance(drive(reconciler_for(manifest, disk_place)).outcome, Finish)
    assert_exactly_once(disk_place, range(ROWS))
    assert texts(disk_place) == dict(enumerate(expected))


def test_gzip_files_are_one_split_each_and_resumed_after_a_crash(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(4):
        lines = "".join(json.dumps({"id": n, "text": f"ü {n}"}) + "\n" for n in range(part * 500, part * 500 + 500))
        (folder / f"{part}.json.gz").write_bytes(gzip.compress(lines.encode()))
    interrupted(disk_place, folder, files={"format": "json"})

    assert isinstance(run(disk_place, folder, files={"format": "json"}), Finish)
    assert_exactly_once(disk_place, range(2_000))


def test_a_value_that_does_not_fit_the_fixed_schema_is_named_with_the_way_out(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = tmp_path / "in.csv"
    # Beyond the sample that the types are inferred from.
    lines = ["id,text", *(f"{n},{'y' * 100}" for n in range(60_000)), "not a number,z"]
    source.write_text("\n".join(lines))

    refused = run(disk_place, source, files={"format": "csv"})

    assert isinstance(refused, Stall)
    assert refused.reason == reasons.SOURCE_UNREADABLE
    assert "in.csv" in refused.message
    assert "source.files.types" in refused.message


def test_a_missing_column_and_a_missing_path_are_named(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = tmp_path / "in.csv"
    source.write_text(csv_text(["a"]))

    no_column = run(disk_place, source, files={"format": "csv"}, source={"columns": ["id", "txt"]})
    assert isinstance(no_column, Stall)
    assert "'txt'" in no_column.message

    manifest = manifest_for(disk_place, tmp_path / "nothing*.csv", name="other", files={"format": "csv"})
    no_path = drive(reconciler_for(manifest, disk_place)).outcome
    assert isinstance(no_path, Stall)
    assert no_path.reason == reasons.SOURCE_MISSING
    assert "nothing*.csv" in no_path.message
