"""python -m benchmarks: measure figures one after the other, each in a process of its own with a time limit.

What was measured is kept at once: a figure that fails or hangs loses neither those before it nor those after it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Final

from benchmarks import machine, processes, rendering, results
from benchmarks.bench import teller
from benchmarks.figures import FIGURES, Figure, find

_LIMIT: Final = 3.0
#: A smoke test may meet a machine that is busy with everything else.
_SMALL_LIMIT_S: Final = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description="Measure figures; all, if none is named.")
    parser.add_argument("figures", nargs="*", metavar="FIGURE")
    parser.add_argument("--list", action="store_true", help="say which figures there are, and about how long each takes")
    parser.add_argument("--render", action="store_true", help="only make table and plot of what was measured")
    parser.add_argument(
        "--small", action="store_true", help="a smoke test of seconds, whose numbers mean nothing and are not kept"
    )
    parser.add_argument("--rounds", type=int, help="pairs of each figure (5)")
    parser.add_argument("--results", type=Path, help="another file for the results; table and plot go beside it")
    arguments = parser.parse_args()
    if arguments.list:
        _list()
        return 0
    try:
        chosen = [find(name) for name in arguments.figures] or list(FIGURES)
    except KeyError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="checkpointed-writes-bench-", ignore_cleanup_errors=True) as name:
        work = Path(name)
        kept = arguments.results or (work / "results.json" if arguments.small else results.RESULTS)
        failed = [] if arguments.render else _measure(chosen, work, kept, arguments.small, arguments.rounds)
        text = rendering.render(kept)
        if arguments.small and arguments.results is None:
            print(text)
    return 1 if failed else 0


def _list() -> None:
    for figure in FIGURES:
        print(f"{figure.name:16} about {figure.minutes:3.0f} min  {figure.about}")
    print(f"{'all':16} about {sum(figure.minutes for figure in FIGURES):3.0f} min")


def _measure(chosen: list[Figure], work: Path, kept: Path, small: bool, rounds: int | None) -> list[str]:
    """Measure; return the names of the figures that failed."""
    say = teller()
    facts = machine.facts()
    say(", ".join(f"{name}: {value}" for name, value in facts.items()))
    if facts["load"] > 0.5 and not small:
        say("the machine is busy with something else; what is measured now says little")
    failed = []
    for figure in chosen:
        say(f"{figure.name}: {figure.about}" + (f" (about {figure.minutes:g} min)" if not small else ""))
        folder = work / figure.name
        folder.mkdir()
        limit_s = _SMALL_LIMIT_S if small else 60 * figure.minutes * _LIMIT
        if not _measure_one(figure, folder, work / "inputs", kept.absolute(), small, rounds, limit_s):
            failed.append(figure.name)
        shutil.rmtree(folder, ignore_errors=True)
    if failed:
        say(f"failed: {', '.join(failed)}")
    return failed


def _measure_one(figure: Figure, folder: Path, shared: Path, kept: Path, small: bool, rounds: int | None, limit_s: float) -> bool:
    command = [sys.executable, "-m", "benchmarks.one", figure.name]
    command += [f"--folder={folder}", f"--shared={shared}", f"--results={kept}"]
    command += ["--small"] * small + ([f"--rounds={rounds}"] if rounds else [])
    word = f"figure-{uuid.uuid4().hex}"
    process = processes.start(command, word)
    try:
        processes.finish(process, word, limit_s)
    except processes.Failed as failure:
        print(f"{figure.name}: {failure}", file=sys.stderr, flush=True)
        return False
    finally:
        processes.kill_all(word)
    return True


if __name__ == "__main__":
    sys.exit(main())
