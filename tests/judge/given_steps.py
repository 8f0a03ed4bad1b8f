"""Steps that give what a case of the judge says, and steps that change nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

#: What the steps give in the column v, by the row's id. Set by a case before its steps are called.
GIVEN: list[Any] = []


def same(given: Any) -> Any:
    return given


def row(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "v": GIVEN[row["id"]]}


def rows(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"id": row["id"], "v": GIVEN[row["id"]]}


async def waiting(row: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield {"id": row["id"], "v": GIVEN[row["id"]]}


_kept: dict[str, Any] = {}


def reused(row: dict[str, Any]) -> dict[str, Any]:
    """Give one dict for all rows; where the value is a list, a view of another one."""
    value = GIVEN[row["id"]]
    if type(value) is list:
        _kept.clear()
        _kept.update((str(number), part) for number, part in enumerate(value))
        value = _kept.values()
    elif type(value) is dict:
        _kept.clear()
        _kept.update(value)
        value = _kept
    _row.update(id=row["id"], v=value)
    return _row


_row: dict[str, Any] = {}


def frame(frame: Any) -> Any:
    import pandas as pd

    return pd.DataFrame({"id": frame["id"], "v": pd.Series([GIVEN[number] for number in frame["id"]], dtype=object)})
