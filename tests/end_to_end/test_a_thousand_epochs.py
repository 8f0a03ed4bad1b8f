"""A thousand epochs in four places, of which three of four lose their driver, their operator or both, at every step there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_control.decision.actions import Finish
from checkpoint_control.loop.reconcile import Round
from checkpoint_protocol.store.object_store import open_store
from tests.end_to_end.conftest import make_place
from tests.support.crashes import Died, DyingStore, Effects, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.places import Place
from tests.support.writes import drive, manifest_for, reconciler_for

EPOCHS = 250
ROWS = 4
SCHEMA = pa.schema([("id", pa.int64())])


def kill_driver() -> None:
    raise Killed


@dataclass
class Lab:
    """One write whose source gets a file for each epoch."""

    place: Place
    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "in").mkdir()
        self.place.create(SCHEMA)

    def bring(self, epoch: int) -> None:
        first = (epoch - 1) * ROWS
        pq.write_table(pa.table({"id": range(first, first + ROWS)}), self.folder / "in" / f"{epoch:04}.parquet")

    def run(self, epoch: int, operator: Effects, driver: Effects) -> Round | None:
        """Run the loop to its end; None where its operator died. No driver is at work afterwards."""
        checkpoint = {"uri": self.place.checkpoint_uri, "interval": "1h", "maximumRows": 2}
        manifest = manifest_for(self.place, self.folder / "in", checkpoint=checkpoint, runNonce=str(epoch), backoffLimit=100)
        store = open_store(self.place.checkpoint_uri, self.place.settings)
        drivers = DirectDrivers(DyingStore(store, driver), self.place.settings)
        sink = dying_sink(manifest, self.place.settings, operator)
        try:
            return drive(reconciler_for(manifest, self.place, drivers, DyingStore(store, operator), sink))
        except Died:
            return None
        finally:
            drivers.finish()


def kills() -> Iterator[tuple[bool, bool]]:
    """Say who dies in an epoch: driver, operator, both, nobody."""
    return cycle([(True, False), (False, True), (True, True), (False, False)])


# Some minutes each.
@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("name", ["iceberg-sql-disk", "lance-disk", "iceberg-sql-s3", "lance-s3"])
def test_no_kill_at_any_step_of_an_epoch_loses_or_doubles_a_row_or_changes_the_order_of_epochs(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    lab = Lab(make_place(name, tmp_path, request), tmp_path)
    died: set[tuple[str, str, bool]] = set()
    steps = {"driver": 1, "operator": 1}

    for epoch, (driver_dies, operator_dies) in zip(range(1, EPOCHS + 1), kills(), strict=False):
        lab.bring(epoch)
        after = epoch % 8 >= 4
        driver = Effects(epoch % steps["driver"] if driver_dies else None, after, kill_driver)
        operator = Effects(epoch // 3 % steps["operator"] if operator_dies else None, after)
        done = lab.run(epoch, operator, driver)
        for who, effects in (("driver", driver), ("operator", operator)):
            if effects.point is not None and effects.point < len(effects.names):
                died.add((who, effects.names[effects.point].rpartition("/")[2], after))
            steps[who] = max(steps[who], len(effects.names))
        if done is None:
            done = lab.run(epoch, Effects(), Effects())
        assert done is not None
        assert isinstance(done.outcome, Finish), (epoch, done.outcome)

    assert sorted(row["id"] for row in lab.place.rows()) == list(range(EPOCHS * ROWS))
    committed = lab.place.keys()
    assert [int(key.rpartition("/")[2]) for key in committed] == list(range(EPOCHS, 0, -1))
    commit = "append" if name.startswith("lance") else "swap"
    steps_of_all = {("driver", "input.json"), ("driver", "plan.json")} | {
        ("operator", step) for step in ("1.json", "claim-0.json", commit, "done.json")
    }
    assert died >= {(*step, after) for step in steps_of_all for after in (False, True)}, "not each step was hit"
