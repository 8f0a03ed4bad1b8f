"""Figures of the benchmarks still run: small, once, and in a process of its own. What it measures then means nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures import Figure, find
from benchmarks.rendering import PLOT
from benchmarks.results import read_results

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
#: One of each kind, with the harness. The others take minutes of starting Spark again and again, and `crash` installs two other
#: systems: that they run is shown by `make bench`.
HERE = [find(name) for name in ("bytes-written", "commit", "commit-memory", "commit-alone", "driver-pods")]


@pytest.mark.spark
@pytest.mark.timeout(620)
@pytest.mark.parametrize("figure", HERE, ids=lambda figure: figure.name)
def test_a_figure_runs_small_and_keeps_its_results(figure: Figure, tmp_path: Path) -> None:
    kept = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks", figure.name, "--small", "--results", str(kept)]

    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-5000:]
    results = read_results(kept)
    assert results
    assert all(result.figure.startswith(figure.name) and result.machine for result in results)
    assert f"`{results[0].figure}`" in (tmp_path / "README.md").read_text()
    assert (tmp_path / PLOT).stat().st_size > 0
