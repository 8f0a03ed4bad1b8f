"""Rows known by keys, over Spark's own readers: what is skipped, what is refused, and that every row is there once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.keys import add_key_sets
from checkpoint_protocol.records import KeysCovered
from tests.end_to_end.keyed_writes import TEXTS, KeyedWrite, numbered, session, write_orc
from tests.support.checks import assert_exactly_once
from tests.support.places import Place

__all__ = ["session"]
pytestmark = pytest.mark.spark
STEPS = "tests.support.keyed_steps"


def orc_source(folder: Path, *keys: str, **more: Any) -> dict[str, Any]:
    return {"format": "orc", "path": str(folder), "keyColumns": list(keys or ("id",)), **more}


def failing(folder: Path, number: int, column: str = "id") -> dict[str, Any]:
    arguments = {"number": number, "until": str(folder / "mended"), "column": column}
    return {"call": f"{STEPS}:fail_at", "input": "row", "arguments": arguments}


def test_an_attempt_skips_exactly_what_the_one_before_has_sealed(session: Any, place: Place, tmp_path: Path) -> None:
    source = write_orc(numbered(*range(300)), tmp_path / "in")
    place.create(TEXTS)
    write = KeyedWrite(session, place, tmp_path, orc_source(source), [failing(tmp_path, 150)])

    write.stall(reasons.CODE_FAILED, "id=150", "not yet 150")
    sealed = write.sealed_rows(1)
    (tmp_path / "mended").touch()
    write.finish()

    assert 0 < sealed < 300
    assert write.sealed_rows(2) == 300 - sealed
    assert_exactly_once(place, range(300))
    covered = [seal.covered for seal in write.ledger.counted_seals([1])]
    plan = write.ledger.read_plan(2)
    assert plan is not None
    assert plan.skipped == add_key_sets(each.keys for each in covered if isinstance(each, KeysCovered))
