"""The harness of the benchmarks, without anything to measure."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from benchmarks import paces, processes
from benchmarks.pairs import OutputsDiffer, Ran, interleave, ratio_of
from benchmarks.rendering import BEGIN, END, PLOT, markdown, render
from benchmarks.results import Result, keep, read_results, result_of
from tests.support.waiting import patience, until


def silent(text: str) -> None:
    pass


def result(figure: str, ratio: float = 0.5, **more: object) -> Result:
    return Result.model_validate({"figure": figure, "ratio": ratio, "target": 0.6, **more})


def test_sides_are_run_in_turn_and_warm_ups_do_not_count() -> None:
    order = []

    def side(name: str, seconds: float) -> Ran:
        order.append(name)
        return Ran(seconds + len(order), "rows")

    sides = {"a": lambda: side("a", 0), "b": lambda: side("b", 100)}
    times = interleave(sides, "rows", rounds=2, warm_ups=1, say=silent)

    assert order == ["a", "b"] * 3
    assert times == {"a": [3, 5], "b": [104, 106]}


def test_a_side_that_left_something_else_is_not_timed() -> None:
    sides = {"a": lambda: Ran(1, "rows"), "b": lambda: Ran(0.1, "fewer rows")}

    with pytest.raises(OutputsDiffer, match="b left fewer rows, and expected was rows"):
        interleave(sides, "rows", rounds=1, warm_ups=0, say=silent)


def test_the_ratio_is_of_the_medians_and_the_spread_of_the_rounds() -> None:
    ratio = ratio_of([1, 2, 9], [2, 4, 3])

    assert round(ratio.middle, 4) == 0.6667
    assert (ratio.lowest, ratio.highest) == (0.5, 3)


def test_a_figure_that_is_measured_again_takes_the_place_of_its_entry(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    for entry in (result("a"), result("b"), result("a", ratio=0.7)):
        keep(entry, file)

    assert [(entry.figure, entry.ratio) for entry in read_results(file)] == [("a", 0.7), ("b", 0.5)]


def test_entries_of_other_benchmarks_are_kept_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text('[{"figure": "other", "ratio": 1.0, "target": 2, "raw_s": [1, 2]}]')

    keep(result("a"), file)

    assert read_results(file)[0].model_dump(exclude_defaults=True)["raw_s"] == [1, 2]


def test_only_the_part_between_the_marks_is_made_anew(tmp_path: Path) -> None:
    file, readme = tmp_path / "results.json", tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    keep(result_of("a", "this / that", {"x": [1, 2], "y": [2, 4]}, "x", "y", target=0.6), file)

    render(file)

    text = readme.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "| `a`: this / that | 0.5 | 0.5 to 0.5, 2 pairs | <= 0.6 | reached |" in text
    first = (tmp_path / PLOT).read_bytes()
    render(file)
    assert (tmp_path / PLOT).read_bytes() == first


def test_a_figure_that_is_not_reached_is_said_so_and_its_outcomes_are_shown() -> None:
    text = markdown([result("a", ratio=0.61, outcomes=[{"engine": "one", "rows": 8_000_000, "missing": 0}])])

    assert "**not reached**" in text
    assert "| one | 8,000,000 | 0 |" in text


def test_a_figure_that_is_to_be_large_is_reached_above_its_target() -> None:
    assert result("a", ratio=1.1, at_least=True).is_reached
    assert not result("a", ratio=0.5, at_least=True).is_reached


def test_processes_that_began_sessions_of_their_own_are_found_and_killed(tmp_path: Path) -> None:
    word, outer = f"test-{uuid.uuid4().hex}", f"test-{uuid.uuid4().hex}"
    code = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], env={})\n"
        "time.sleep(60)"
    )
    process = processes.start([sys.executable, "-c", code], f"{outer} {word}", tmp_path / "log")
    until(lambda: len(processes.known_by(word)) == 3, "three processes")

    assert processes.kill_all(outer) == 3
    process.wait(patience(10))
    assert processes.known_by(word) == []


def test_a_process_that_fails_tells_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = processes.start([sys.executable, "-c", "raise SystemExit('what went wrong')"], "test-fails", log)

    with pytest.raises(processes.Failed, match=r"(?s)ended with 1:.*what went wrong"):
        processes.finish(process, "test-fails", 60, log)


def test_the_log_of_the_paced_step_tells_rows_and_beginnings(tmp_path: Path) -> None:
    log = tmp_path / "log"
    before = time.time() - 1
    code = (
        "from paced import Paced\n"
        "class Batch:\n    num_rows = 7\n"
        f"step = Paced(1.0, {str(log)!r})\nstep.setup()\nstep(Batch)\nstep(Batch)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(paces.CODE)})

    assert paces.rows_done(log) == 14
    assert before < paces.first_begin_after(log, before) <= time.time()
    log.write_text(log.read_text() + "17000.1 r")
    assert paces.rows_done(log) == 14, "a line that is being written does not count yet"


def test_a_figure_without_a_target_is_shown_and_not_judged(tmp_path: Path) -> None:
    keep(Result.model_validate({"figure": "a", "ratio": 1.5, "target": None}), tmp_path / "results.json")

    assert "| a | 1.5 | 1 |  |  |" in render(tmp_path / "results.json")
