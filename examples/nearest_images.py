"""Show for one image of each digit which others lie nearest to it in the table that examples/images-lance.yaml has written."""

from __future__ import annotations

import sys
from pathlib import Path

import lance

TABLE = Path(__file__).parent / "output" / "images.lance"


def nearest(table: lance.LanceDataset, image: str, count: int) -> list[str]:
    """Return the names of the images whose vectors lie nearest to that of one, itself left out."""
    (given,) = table.to_table(filter=f"image = '{image}'").to_pylist()
    query = {"column": "vector", "q": given["vector"], "k": count + 1, "metric": "cosine"}
    found = table.to_table(columns=["image", "_distance"], nearest=query).to_pylist()
    return [row["image"] for row in found if row["image"] != image][:count]


def main() -> None:
    table = lance.dataset(str(TABLE))
    names = sorted(table.to_table(columns=["image"])["image"].to_pylist())
    shown = [next(name for name in names if name.startswith(f"digit-{digit}-")) for digit in range(10)]
    for name in sys.argv[1:] or shown:
        print(f"{name}: {', '.join(nearest(table, name, 4))}")


if __name__ == "__main__":
    main()
