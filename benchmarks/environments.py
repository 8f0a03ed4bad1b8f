"""Python environments beside the project's own: released wheels, pinned, in the cache folder. Made at first use."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from devtools import build_tools, cache

RIVALS: Final = ("ray", "daft")
_ROOT: Final = Path(__file__).resolve().parent.parent


def rival_is_there(name: str) -> bool:
    return (cache.cache_root() / _entry(name, [_rival_requirements(name)])).is_dir()


def python_of_rival(name: str) -> str:
    """Return the interpreter of that rival's environment; the first time takes a minute and some hundred megabytes."""
    requirements = _rival_requirements(name)
    return _python(_entry(name, [requirements]), ["-r", str(requirements)])


def python_of_operator() -> str:
    """Return an interpreter with the packages of the operator's image and no more: the project's own are not in it.

    The project's environment has pandas too, which pyarrow imports wherever it finds it, at a cost of 30 MB.
    """
    pyproject, constraints = _ROOT / "pyproject.toml", _ROOT / "constraints.txt"
    extras = [f"--extra={name}" for name in ("operator", "cluster", "postgres", "glue")]
    arguments = ["--constraint", str(constraints), "-r", str(pyproject), *extras]
    return _python(_entry("operator", [pyproject, constraints]), arguments)


def _rival_requirements(name: str) -> Path:
    return Path(__file__).parent / "rivals" / f"{name}.txt"


def _entry(name: str, files: Sequence[Path]) -> str:
    what = f"{sys.version_info[:2]} {''.join(file.read_text() for file in files)}"
    return f"bench-{name.replace('/', '-')}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def _python(entry: str, install: Sequence[str]) -> str:
    def build(target: Path) -> None:
        uv = str(Path(sys.executable).parent / "uv")
        build_tools.run([sys.executable, "-m", "venv", "--without-pip", str(target)])
        build_tools.run([uv, "pip", "install", "--python", str(target / "bin" / "python"), *install])

    return str(cache.ensure(entry, build) / "bin" / "python")
