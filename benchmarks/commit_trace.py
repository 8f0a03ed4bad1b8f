"""Which requests of a commit wait for which, where each takes 50 ms.

    python -m benchmarks.commit_trace COUNT...

Prints the requests of each commit in their order: how many waits in a row end with this one, when it began, how long it took. A
wait follows all that had ended when it began. The catalog is a file of SQLite, and what it is asked is not among them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote

from benchmarks.commit_files import ours
from benchmarks.commit_scene import TRACE, remove, set_the_scene, slow


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, slow(Path(folder)) as rig:
        ours(rig, set_the_scene(rig, 1))  # what is loaded at first use
        for count in map(int, sys.argv[1:]):
            staged = set_the_scene(rig, count)
            trace = Path(folder) / TRACE
            trace.write_text("")
            steps = ours(rig, staged)
            depths: list[tuple[float, int]] = []
            lines = sorted(line.split(maxsplit=2) for line in trace.read_text().splitlines())
            for began, ended, asked in lines:
                depth = 1 + max((before for end, before in depths if end <= float(began)), default=0)
                depths.append((float(ended), depth))
                after, took = (1000 * (float(end) - float(start)) for start, end in ((lines[0][0], began), (began, ended)))
                print(f"{depth:3} {after:6.0f} {took:4.0f} ms  {unquote(asked)}")
            told = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in steps.items())
            print(f"{count:,} files: {len(lines)} requests, {max(depth for _, depth in depths)} in a row; {told}\n", flush=True)
            remove(rig)


if __name__ == "__main__":
    main()
