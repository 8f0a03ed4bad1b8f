"""How much memory a step process may take: what its container, or the machine, has left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from checkpoint_work.step_process.memory import left_bytes
from tests.support.waiting import patience

MIB = 1 << 20


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MACHINE = {"proc/meminfo": f"MemTotal: {9 << 20} kB\nMemAvailable:   {4 << 20} kB\nSwapFree: 0 kB\n"}
SECOND = {"proc/self/cgroup": "0::/\n"}


def test_a_machine_leaves_what_is_available_and_its_swap(tmp_path: Path) -> None:
    assert left_bytes(write(tmp_path, MACHINE)) == 4 << 30
    write(tmp_path, {"proc/meminfo": "MemAvailable: 1024 kB\nSwapFree: 1024 kB\n"})
    assert left_bytes(tmp_path) == 2 * MIB


def test_a_container_leaves_what_its_limit_does_beside_what_is_used_and_no_cache(tmp_path: Path) -> None:
    limits = {
        "memory.max": str(1000 * MIB),
        "memory.current": str(700 * MIB),
        "memory.stat": f"anon 1\ninactive_file {50 * MIB}\n",
    }
    write(tmp_path, MACHINE | SECOND | {f"sys/fs/cgroup/{name}": text for name, text in limits.items()})

    assert left_bytes(tmp_path) == 350 * MIB


def test_a_container_without_a_limit_leaves_what_the_machine_does(tmp_path: Path) -> None:
    write(tmp_path, MACHINE | SECOND | {"sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "1"})

    assert left_bytes(tmp_path) == 4 << 30


def test_the_group_of_a_process_outside_of_a_container_counts(tmp_path: Path) -> None:
    group = {"proc/self/cgroup": "0::/user/1000\n", "sys/fs/cgroup/user/1000/memory.max": str(100 * MIB)}
    write(tmp_path, MACHINE | group | {"sys/fs/cgroup/user/1000/memory.current": str(40 * MIB)})

    assert left_bytes(tmp_path) == 60 * MIB


def test_control_groups_of_the_first_version_count(tmp_path: Path) -> None:
    names = {"limit_in_bytes": str(500 * MIB), "usage_in_bytes": str(100 * MIB), "stat": f"total_inactive_file {20 * MIB}\n"}
    groups = {"proc/self/cgroup": "9:cpu,cpuacct:/pod\n4:memory:/pod\n"}
    write(tmp_path, MACHINE | groups | {f"sys/fs/cgroup/memory/memory.{name}": text for name, text in names.items()})

    assert left_bytes(tmp_path) == 420 * MIB


def test_a_container_that_is_full_leaves_nothing_and_where_nobody_says_nothing_is_known(tmp_path: Path) -> None:
    assert left_bytes(tmp_path) is None
    write(tmp_path, SECOND | {"sys/fs/cgroup/memory.max": "10", "sys/fs/cgroup/memory.current": "20"})
    assert left_bytes(tmp_path) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the data of a process")
@pytest.mark.parametrize("taken", ["bytearray(300 << 20)", "numpy.ones(300 << 17)", "pyarrow.allocate_buffer(300 << 20)"])
def test_a_process_beyond_its_limit_is_refused_memory_and_not_ended(tmp_path: Path, taken: str) -> None:
    code = (
        "import numpy, pyarrow, sys, pathlib\n"
        "from checkpoint_work.step_process.memory import limit_memory\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "(root / 'proc/self').mkdir(parents=True)\n"
        "(root / 'proc/self/status').write_text(pathlib.Path('/proc/self/status').read_text())\n"
        "(root / 'proc/meminfo').write_text('MemAvailable: 204800 kB\\n')\n"
        "assert limit_memory(root) == int((200 << 20) * 0.9)\n"
        f"try: {taken}\n"
        "except MemoryError: print('refused')\n"
        "bytearray(50 << 20)\n"
    )
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path), "ARROW_DEFAULT_MEMORY_POOL": "system"}
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "refused"), ended.stderr
