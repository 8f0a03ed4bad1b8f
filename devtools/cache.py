"""The folder that keeps downloads and builds, so that only the first run on a machine pays for them."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_root() -> Path:
    """Read at each call, so that a test can point the cache elsewhere."""
    configured = os.environ.get("CHECKPOINTED_WRITES_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "checkpointed-writes"


def ensure(name_with_version: str, build: Callable[[Path], None]) -> Path:
    """The finished entry of that name; `build` fills an empty directory when there is none yet.

    An entry appears by one rename, so what exists is whole even if an earlier build was killed. Each build has a directory
    name of its own, because a tool that outlives its killed build may still be writing to the old one.
    """
    root = cache_root().absolute()
    entry = root / name_with_version
    if entry.is_dir():
        return entry
    root.mkdir(parents=True, exist_ok=True)
    with locked(root / f".{name_with_version}.lock"):
        if entry.is_dir():
            return entry
        unfinished = f".{name_with_version}.unfinished-"
        for left_behind in root.glob(f"{unfinished}*"):
            shutil.rmtree(left_behind, ignore_errors=True)
        workplace = Path(tempfile.mkdtemp(prefix=unfinished, dir=root))
        try:
            build(workplace)
            workplace.rename(entry)
        except BaseException:
            shutil.rmtree(workplace, ignore_errors=True)
            raise
    return entry


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Held by an open file: the kernel lets go of it when the process dies, however it dies."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
