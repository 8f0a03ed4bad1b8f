"""The cgroups that all pods are in, below one of our own, so that pods of the cluster can be told from everything else."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
NAME = "checkpointed-writes"
# Without these two, a group of the first version's cpuset lets no process in.
INHERITED = ("cpuset.cpus", "cpuset.mems")
# What a kubelet wants to find.
CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


def make(name: str) -> None:
    """`name` is a path below the root; what is above it is made too."""
    for hierarchy in _hierarchies():
        above = hierarchy
        for part in Path(NAME, name).parts:
            group = above / part
            group.mkdir(exist_ok=True)
            for file in INHERITED:
                if (above / file).exists() and (group / file).exists():
                    (group / file).write_text((above / file).read_text())
            if _is_unified():
                # Not tried: the machine on which this was written has the first version.
                offered = (above / "cgroup.controllers").read_text().split()
                (above / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in CONTROLLERS if name in offered))
            above = group


def processes() -> list[int]:
    """Those in any pod of the cluster, by the ids of the outside."""
    found: set[int] = set()
    for group in _groups():
        found.update(int(pid) for pid in (group / "cgroup.procs").read_text().split())
    return sorted(found)


def remove_one(name: str) -> None:
    """An empty group that `make` has made."""
    for hierarchy in _hierarchies():
        (hierarchy / NAME / name).rmdir()


def remove() -> None:
    for group in _groups():
        group.rmdir()


def _groups() -> Iterator[Path]:
    """The innermost first, as they must be removed."""
    for hierarchy in _hierarchies():
        top = hierarchy / NAME
        if top.is_dir():
            yield from sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
            yield top


def _hierarchies() -> list[Path]:
    if _is_unified():
        return [ROOT]
    return [path for path in ROOT.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()]


def _is_unified() -> bool:
    return (ROOT / "cgroup.controllers").exists()
