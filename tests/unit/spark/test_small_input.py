"""Where the tasks of an attempt run: with executors, or in the driver where there is little to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_spark.driver.main import parse
from checkpoint_work.driver.attempt import SmallInput, run_attempt
from tests.support.places import Place, on_disk
from tests.support.writes import SCHEMA, manifest_for, reconciler_for, write_inputs

ORDERS = ["--uri", "s3://b/cw", "--uid", "u", "--epoch", "1", "--attempt", "1", "--parallelism", "2"]


def recorded(place: Place, source: Path) -> Ledger:
    """Return the ledger of a write whose first attempt is recorded, and has no driver."""
    place.create(SCHEMA)
    reconciler = reconciler_for(manifest_for(place, source), place)
    reconciler.step()
    return reconciler.current_ledger()


def run(ledger: Ledger, place: Place, most_bytes: int, attempt: int = 1) -> list[str]:
    shipped: list[str] = []

    def to_executors(orders: Sequence[str]) -> None:
        shipped.append("executors")

    def in_driver(orders: Sequence[str]) -> None:
        shipped.append("driver")

    run_attempt(ledger, attempt, place.settings.for_drivers(), 2, to_executors, small=SmallInput(in_driver, most_bytes))
    return shipped


def test_small_input_is_read_in_the_driver_and_the_plan_says_so(tmp_path: Path) -> None:
    place = on_disk(tmp_path, "iceberg")
    ledger = recorded(place, write_inputs(tmp_path / "in", files=2, rows=10))

    assert run(ledger, place, most_bytes=1 << 20) == ["driver"]

    plan = ledger.plans.read_plan(1)
    assert plan is not None
    assert plan.in_driver


def test_larger_input_is_read_by_executors(tmp_path: Path) -> None:
    place = on_disk(tmp_path, "iceberg")
    ledger = recorded(place, write_inputs(tmp_path / "in", files=2, rows=10))

    assert run(ledger, place, most_bytes=100) == ["executors"]

    plan = ledger.plans.read_plan(1)
    assert plan is not None
    assert not plan.in_driver


def test_after_an_attempt_that_ended_in_the_driver_executors_are_used(tmp_path: Path) -> None:
    place = on_disk(tmp_path, "iceberg")
    ledger = recorded(place, write_inputs(tmp_path / "in", files=2, rows=10))
    run(ledger, place, most_bytes=1 << 20)
    ledger.chains.close(1)
    first = ledger.attempts.read_launch(1)
    assert first is not None
    ledger.attempts.put_launch(first.model_copy(update={"token": new_token(), "attempt": 2}))

    assert run(ledger, place, most_bytes=1 << 20, attempt=2) == ["executors"]


def test_a_driver_that_has_no_executors_is_a_local_master_with_four_tries_of_a_task() -> None:
    assert parse([*ORDERS, "--in-driver", "3"], "k8s://https://10.96.0.1:443").master == "local[3,4]"
    assert parse(ORDERS, "k8s://https://10.96.0.1:443").master == "k8s://https://10.96.0.1:443"
