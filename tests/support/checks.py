"""The invariants, checked from the table and the store, never from what the product says."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.support.places import Place


def assert_exactly_once(place: Place, expected: Iterable[int], column: str = "id") -> None:
    """Every number is in the table once, and one snapshot or version carries a key."""
    counted = Counter(row[column] for row in place.rows())
    doubled = {number: count for number, count in counted.items() if count > 1}
    assert not doubled, f"rows doubled: {dict(list(doubled.items())[:5])} and {len(doubled)} in all"
    wanted = set(expected)
    assert counted.keys() == wanted, (
        f"lost: {sorted(wanted - counted.keys())[:5]}, foreign: {sorted(counted.keys() - wanted)[:5]}"
    )
    keys = place.keys()
    assert len(keys) == len(set(keys)), f"a key was committed more than once: {keys}"


def digest_of(folder: Path) -> dict[str, str]:
    """Return the digest of every file below a folder, to see that foreign files stay as they are."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
