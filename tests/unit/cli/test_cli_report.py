"""`checkpointed-write report`: the page tells what the records do, and nothing in it is anything but text."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from checkpoint_local.cli.main import main
from checkpoint_local.report.collecting import MOST_EPOCHS, PartReport, Report, collect
from checkpoint_local.report.drawing import draw
from checkpoint_local.report.rendering import render
from checkpoint_protocol import writes
from checkpoint_protocol.manifest.spec import parse_manifest
from checkpoint_protocol.progress_reports import DriverProgress, Entered, Work, encode_advice
from checkpoint_protocol.records import Quarantined, QuarantinedRow, RowPosition
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store import layout
from tests.support.records import iceberg_file, seal
from tests.support.stored_writes import UID, StoredWrite

#: 2026-01-01 00:00:00 UTC.
START_S: Final = 1_767_225_600
STAGE: Final = f"embed-{'a' * 16}-1"
GOLDEN: Final = """
default/nightly
Committed | the commit was seen in the table
source | parquet /in
sink | iceberg lake.db.rows, mode Append
checkpoint | STORE
steps | none
row that fails | Fail
uid | 00000000000000aa
The manifest, without secrets and defaults
Epoch 1: Committed
table | lake.db.rows
snapshot or version | 8
commit recorded | 2026-01-01 00:01:02 UTC
rows read | 25
rows written | 25
rows quarantined | 2
files | 2
size | 400 B
commit key | 00000000000000aa/1
Attempts
Input: 2 files, 2.0 KiB
attempt 1: cut off, without a word from its driver
attempt 1, 1 seal
attempt 2: failed: CodeFailed
attempt 2, 1 seal
attempt 3: complete
attempt 3, 2 seals
rows sealed: 25
committed
00:00:00 | 00:00:31 | 00:01:02
2026-01-01 00:00:00 UTC to 2026-01-01 00:01:02 UTC
attempt | rows sealed | sealed before | lost | rows/s | seals | files | size | end
1 | 5 | 0 | 7 | 0.5 | 1 | 1 | 100 B | cut off, without a word from its driver
2 | 5 | 5 | – | 1.0 | 1 | 1 | 100 B | failed: CodeFailed
3 | 15 | 10 | – | 0.8 | 2 | 2 | 200 B | complete
The driver of attempt 1: planning after 1.2 s, running tasks after 4.1 s; the first seal 10.0 s after the launch record.
Attempt 2: | CodeFailed | : | step 'embed' failed
Rows that failed
2 × ValueError in predict
row | message
row 3 of /in/part-0.parquet | no vector
row 4 of /in/part-0.parquet | no vector
"""


@dataclass
class Told(StoredWrite):
    """Records with times: `at` dates all that was put since it was called last."""

    dated: set[Path] = field(default_factory=set)

    def at(self, second: float) -> None:
        for file in self.uri.rglob("*"):
            if file.is_file() and file not in self.dated:
                os.utime(file, (START_S + second, START_S + second))
                self.dated.add(file)

    def quarantine(self, *rows: QuarantinedRow, attempt: int = 1, last: bool = True) -> None:
        """Seal the task 0 with these rows."""
        sealed = seal(0, 0, [(0, 0, 10)], attempt=attempt, rows=5, last=last, files=[iceberg_file(f"{attempt}-q.parquet", 5)])
        self.ledger.seals.put_seal(sealed.model_copy(update={"quarantined": Quarantined(rows=rows)}))


def failed_row(number: int, message: str = "no vector", step: str = "predict", error: str = "ValueError") -> QuarantinedRow:
    place = RowPosition(range=Range(file=0, start=number, end=number + 1))
    return QuarantinedRow(row=place, step=step, error=error, message=message, traceback="")


@pytest.fixture
def write(tmp_path: Path) -> Told:
    """A write of three attempts: the first is cut off, the second fails, and the third is complete, and committed."""
    told = Told(tmp_path)
    told.begin()
    told.launch()
    told.at(0)
    told.plan()
    told.seal(0, last=False, rows=5)
    told.at(10)
    work = (Work(task=0, link=0, rows=3, positions=3), Work(task=0, link=1, rows=7, positions=7))
    entered = (Entered(phase="Planning", after_ms=1_250), Entered(phase="RunningTasks", after_ms=4_100))
    told.store.overwrite(
        told.ledger.at.progress(1),
        encode_advice(DriverProgress(attempt=1, phase="RunningTasks", work=work, entered=entered)),
    )
    told.at(12)
    told.close()
    told.at(20)
    told.launch(2, counted=(1,))
    told.at(21)
    told.plan(2)
    told.seal(1, attempt=2, last=False, rows=5)
    told.at(26)
    told.fail("NeedsChange", "CodeFailed", "step 'embed' failed", attempt=2)
    told.at(27)
    told.close(2)
    told.at(40)
    told.launch(3, counted=(1, 2))
    told.at(41)
    told.plan(3)
    told.quarantine(failed_row(3), failed_row(4), attempt=3)
    told.seal(1, attempt=3)
    told.at(60)
    told.close(3)
    told.claim()
    told.record_commit(rows=25, failed=2)
    told.at(62)
    return told


def run(folder: Path, *arguments: str) -> Result:
    before = Path.cwd()
    os.chdir(folder)
    try:
        return CliRunner(env={"XDG_CONFIG_HOME": "/nonexistent"}).invoke(main, ["report", *arguments], catch_exceptions=False)
    finally:
        os.chdir(before)


def report_of(write: StoredWrite) -> Report:
    return collect(write.store, write.name)


def part_of(write: StoredWrite) -> PartReport:
    return report_of(write).epochs[0].of_table


def parsed(page: str) -> ElementTree.Element:
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>"))  # noqa: S314


def words_of(page: str) -> str:
    """Return what a page says, a line for each block."""
    page = re.sub(r"<(style|footer|pre)\b.*?</\1>|<head>.*?</head>", "", page, flags=re.DOTALL)
    page = re.sub(r"\s*\n\s*", " ", page)
    page = re.sub(r"</(h1|h2|h3|p|dd|tr|summary|rect)>|</text>(?! ?<text)|</text>(?=<rect)", "\n", page)
    lines = (" | ".join(filter(None, map(str.strip, re.split(r"<[^>]*>", line)))) for line in page.splitlines())
    return "\n".join(line.replace("&#39;", "'") for line in lines if line)


# --- the page -------------------------------------------------------------------------------------------------------------


def test_the_page_tells_the_life_of_a_write(write: Told, tmp_path: Path) -> None:
    result = run(tmp_path, str(write.file))

    assert result.exit_code == 0, result.output
    page = (tmp_path / "nightly-report.html").read_text(encoding="utf-8")
    assert words_of(page).replace(str(write.uri), "STORE").splitlines() == GOLDEN.strip().splitlines()


def test_the_page_needs_nothing_from_elsewhere(write: Told, tmp_path: Path) -> None:
    page = run(tmp_path, str(write.file), "-o", "-").stdout

    policy = page.partition("Content-Security-Policy")[2].partition(">")[0]
    assert "default-src 'none'; style-src 'unsafe-inline'" in policy
    assert not re.search(r"https?:|url\(|@import|<script|<link|<img", page)
    assert {
        name for each in parsed(page).iter() for name in each.attrib if name in ("src", "href") or name.startswith("on")
    } == set()


def test_the_uri_of_a_store_and_a_name_make_the_same_page_without_the_manifest(write: Told, tmp_path: Path) -> None:
    page = run(tmp_path, str(write.file), "-o", "-").stdout

    for name in ("nightly", "default/nightly", UID):
        result = run(tmp_path, str(write.uri), "--write", name, "-o", "-")
        assert result.exit_code == 0
        assert set(words_of(result.stdout).splitlines()) < set(words_of(page).splitlines())
        assert "<pre>" not in result.stdout


def test_a_write_of_a_cluster_is_found_by_its_manifest(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    (write.uri / layout.name_path("default", "nightly")).unlink()
    writes.name_write(write.store, layout.scope_in_cluster("c", "default"), "nightly", UID)
    write.commit()

    assert "Epoch 1: Committed" in run(tmp_path, str(write.file), "-o", "-").stdout


# --- exit codes -----------------------------------------------------------------------------------------------------------


def test_a_record_that_cannot_be_read_is_named_and_the_rest_is_in_the_page(write: Told, tmp_path: Path) -> None:
    write.break_record(write.ledger.at.closed(2))

    result = run(tmp_path, str(write.file), "-o", "-")

    assert result.exit_code == 1
    assert write.ledger.at.closed(2) in result.stderr
    assert "Records that could not be read" in result.stdout
    assert write.ledger.at.closed(2) in result.stdout
    assert "attempt 3: complete" in result.stdout


def test_what_is_not_there_is_told_with_the_codes_of_inspect(write: Told, tmp_path: Path) -> None:
    assert run(tmp_path, str(tmp_path / "none"), "--write", "nightly").exit_code == 1
    assert run(tmp_path, str(write.uri), "--write", "other").exit_code == 1
    assert run(tmp_path, str(tmp_path / "none.yaml")).exit_code == 2
    assert run(tmp_path, "ftp://store", "--write", "nightly").exit_code == 2
    result = run(tmp_path, str(write.file), "-o", "no/such/folder.html")
    assert (result.exit_code, "cannot be written" in result.stderr) == (1, True)


# --- what is collected ----------------------------------------------------------------------------------------------------


def test_rows_are_lost_that_a_driver_had_reported_and_not_sealed(write: Told) -> None:
    first, second, third = part_of(write).attempts

    assert (first.rows_lost, second.rows_lost, third.rows_lost) == (7, None, None)
    assert (first.rows_before, second.rows_before, third.rows_before) == (0, 5, 10)
    assert [one.counts for one in (first, second, third)] == [True, True, True]


def test_a_bar_ends_with_the_last_sign_of_a_driver_and_not_after_its_attempt(write: Told) -> None:
    write.seal(1, attempt=1)
    write.at(50)

    first, second, _ = part_of(write).attempts

    assert (first.last_sign, first.shown.seals_not_counted) == (first.closed, 1)
    assert second.last_sign is not None
    assert second.last_sign.timestamp() == START_S + 27


def test_of_a_cleaned_epoch_nothing_is_told_that_its_records_do_not_have(write: Told) -> None:
    write.ledger.commits.put_cleaned()
    write.store.delete([stored.path for stored in write.store.list(f"{write.ledger.at.staged}/")])

    page = render(report_of(write))

    assert "<table" not in page
    assert "attempt 1: incomplete" in page
    assert "attempt 2: incomplete" in page
    assert "rows written" in page


def test_stages_come_before_the_epoch_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    write = Told(tmp_path)
    write.begin()
    for second, stage in enumerate((f"parse-{'b' * 16}-1", STAGE)):
        write.stage = stage
        write.launch()
        write.at(second)

    report = report_of(write)

    assert [part.title for part in report.epochs[0].parts] == ["parse", "embed", ""]
    assert report.phase == "Running"


def test_failed_rows_are_grouped_with_five_examples_of_each_group(tmp_path: Path) -> None:
    write = Told(tmp_path)
    write.begin()
    write.launch()
    write.plan(tasks=1)
    write.quarantine(*[failed_row(number) for number in range(7)], failed_row(9, "m", "embed", "KeyError"))

    first, second = part_of(write).failed_rows

    assert (first.step, first.error, first.count, len(first.examples)) == ("predict", "ValueError", 7, 5)
    assert (second.step, second.error, second.examples) == ("embed", "KeyError", (("row 9 of /in/part-0.parquet", "m"),))


def test_only_the_newest_epochs_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    for write.epoch in range(1, MOST_EPOCHS + 3):
        write.commit()

    page = render(report_of(write))

    assert page.index(f"Epoch {MOST_EPOCHS + 2}:") < page.index("Epoch 3:")
    assert "Epoch 2:" not in page
    assert "Epochs before these: 2." in page


def test_before_the_first_attempt_the_page_says_so(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()

    assert "Nothing was begun." in render(report_of(write))


# --- texts of others ------------------------------------------------------------------------------------------------------

HOSTILE: Final = "<script>alert(1)</script>\" onload='x' \u202egnp\x1b]52;c;\x07 {{ 7 * 7 }} \ufffe]]>-->"


def test_texts_of_others_are_nothing_but_text(tmp_path: Path) -> None:
    write = Told(tmp_path)
    write.begin()
    write.launch()
    write.plan(tasks=1)
    write.quarantine(failed_row(1, HOSTILE, HOSTILE, HOSTILE), last=False)
    write.fail("NeedsChange", HOSTILE, HOSTILE + "x" * 30_000)
    write.close()

    page = render(report_of(write))

    assert "<script" not in page
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ufffe]", page)
    assert "".join(parsed(page).itertext()).count("<script>alert(1)</script>\" onload='x' \\u202egnp") == 5
    assert "{{ 7 * 7 }}" in page
    assert len(page) < 20_000
    assert re.search(r"… \(29,\d{3} characters more\)", page)


def test_a_message_of_a_megabyte_is_cut(tmp_path: Path) -> None:
    report = report_of_one(tmp_path)

    assert len(render(replace(report, asked=(("source", "\u202e" * 1_000_000),)))) < 30_000


def test_secrets_are_masked(tmp_path: Path) -> None:
    arguments = {"api_key": "hunter2-of-the-step", "model": "s3cret-of-the-settings", "maxTokens": 5}
    plain = StoredWrite(tmp_path).manifest.model_dump(mode="json", by_alias=True)
    plain["spec"]["steps"] = [{"call": "s:f", "input": "row", "arguments": arguments}]
    write = StoredWrite(tmp_path, given=parse_manifest(plain))
    write.begin()

    page = render(collect(write.store, "nightly", write.manifest), lambda text: text.replace("s3cret-of-the-settings", "***"))

    assert "hunter2" not in page
    assert "s3cret" not in page
    assert "maxTokens: 5" in page


def test_a_record_names_no_file_outside_the_folder(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path, name="nightly")
    write.begin()
    record = write.uri / layout.write_path(UID)
    record.write_text(record.read_text().replace('"nightly"', '"../../up"'))

    assert run(tmp_path, str(write.uri), "--write", UID).exit_code == 0
    assert (tmp_path / ".._.._up-report.html").exists()


# --- the picture ----------------------------------------------------------------------------------------------------------


def report_of_one(tmp_path: Path) -> Report:
    write = Told(tmp_path)
    write.begin()
    write.commit()
    write.at(0)
    return report_of(write)


def shares(svg: ElementTree.Element, name: str, style: str) -> list[tuple[float, ...]]:
    """Return where things of a style begin, and how wide they are or end, in per cent."""
    found = [each for each in svg.iter(name) if each.get("class") == style]
    ends = ("x", "width") if name == "rect" else ("x1", "x2")
    return [tuple(float((each.get(end) or "").removesuffix("%")) for end in ends) for each in found]


def test_bars_marks_and_lines_are_where_their_times_are(write: Told) -> None:
    svg = ElementTree.fromstring(draw(part_of(write)))  # noqa: S314

    def share(second: float) -> Any:
        return pytest.approx(100 * second / 62, abs=0.5)

    assert shares(svg, "rect", "bar cut-off") == [(share(0), share(12))]
    assert shares(svg, "line", "silent cut-off") == [(share(12), share(20))]
    assert shares(svg, "rect", "bar failed") == [(share(21), share(6))]
    assert shares(svg, "rect", "bar complete") == [(share(41), share(19))]
    assert shares(svg, "line", "seal") == [(share(second), share(second)) for second in (10, 26, 60)]
    assert shares(svg, "line", "commit") == [(100, 100)]
    (curve,) = (each.get("d") for each in svg.iter("path") if each.get("class") == "curve")
    assert curve == "M0,100H161V80.0H419V60.0H968V0.0H1000"


def test_times_that_are_all_the_same_make_a_picture(tmp_path: Path) -> None:
    part = report_of_one(tmp_path).epochs[0].of_table

    assert len(shares(ElementTree.fromstring(draw(part)), "rect", "bar complete")) == 1  # noqa: S314


def test_without_times_there_is_no_picture(write: Told) -> None:
    for path in write.uri.rglob("launch/*.json"):
        path.unlink()

    assert draw(part_of(write)) == ""
