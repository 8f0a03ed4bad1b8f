"""How much more memory does a process take for the commit of 100,000 staged files than for one of ten?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.bench import Bench
from benchmarks.commit_files import ours
from benchmarks.commit_scene import Staged, local_rig, set_the_scene
from benchmarks.pairs import Ratio
from benchmarks.results import Result, with_ratio
from checkpoint_protocol.identity import EpochKey

_LIMIT_MB: Final = 64


def measure(bench: Bench) -> Iterator[Result]:
    count = 100 if bench.small else 100_000
    rig = local_rig(bench.folder)
    ours(rig, set_the_scene(rig, 10))
    # The scene is set by another process: what it takes is not of this one's peak.
    scene = [sys.executable, "-m", "benchmarks.commit_scene", str(bench.folder), str(count)]
    uid, table = subprocess.run(scene, stdout=subprocess.PIPE, check=True).stdout.decode().split()
    before = _peak_mb()
    took = ours(rig, Staged(EpochKey(uid, 1), table, []))
    grown = _peak_mb() - before
    told = f"{grown:.1f} MB more at the peak than after a small commit ({before:.0f} MB); it took {took['ours']:.2f} s"
    bench.say(told)
    ratio = grown / _LIMIT_MB
    yield with_ratio(
        "commit-memory",
        f"memory of close and commit of {count:,} staged files, over that of a small one / {_LIMIT_MB} MB",
        Ratio(ratio, ratio, ratio),
        target=1.0,
        pairs=1,
        raw={"megabytes": {"before": round(before, 1), "more": round(grown, 1)}},
        seen=[told],
    )


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024
