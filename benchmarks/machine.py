"""The facts of the machine that a figure was measured on. No names."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("pyspark", "pyarrow", "pyiceberg", "pylance", "duckdb")


def facts() -> dict[str, Any]:
    """Return what a reader needs to judge times. `load`: what the machine did before; more than a little makes them worthless."""
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "load": round(os.getloadavg()[0], 2),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
