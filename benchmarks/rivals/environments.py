"""Environments of the rivals: released wheels, pinned, in the cache folder. Made at first use."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Final

from tests.services import build_tools, cache

NAMES: Final = ("ray", "daft")


def _requirements(name: str) -> Path:
    return Path(__file__).parent / f"{name}.txt"


def _entry(name: str) -> str:
    what = f"{sys.version_info[:2]} {_requirements(name).read_text()}"
    return f"bench-{name}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def is_there(name: str) -> bool:
    return (cache.cache_root() / _entry(name)).is_dir()


def python_of(name: str) -> str:
    """Return the interpreter of that rival's environment; the first time takes a minute and some hundred megabytes."""

    def build(target: Path) -> None:
        uv = str(Path(sys.executable).parent / "uv")
        build_tools.run([sys.executable, "-m", "venv", "--without-pip", str(target)])
        build_tools.run([uv, "pip", "install", "--python", str(target / "bin" / "python"), "-r", str(_requirements(name))])

    return str(cache.ensure(_entry(name), build) / "bin" / "python")
