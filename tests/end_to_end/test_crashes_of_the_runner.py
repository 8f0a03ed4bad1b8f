"""The runner dies before or after each of its external effects; the next run ends with every row once."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_control.decision.actions import Finish
from checkpoint_protocol.store.object_store import open_store
from tests.support.checks import assert_exactly_once, digest_of
from tests.support.crashes import Died, DyingStore, Effects, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import Place
from tests.support.slow import slow_except_on
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

ROWS = 400
STRANGER = range(10_000, 10_003)


def run_until_death(place: Place, source: Path, effects: Effects) -> bool:
    """Run the loop with wrapped ports; return whether it died."""
    manifest = manifest_for(place, source)
    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings)
    sink = dying_sink(manifest, place.settings, effects)
    try:
        drive(reconciler_for(manifest, place, drivers, DyingStore(store, effects), sink))
    except Died:
        drivers.finish()
        return True
    return False


def effects_of_a_clean_run(place: Place, source: Path) -> list[str]:
    effects = Effects()
    assert not run_until_death(place, source, effects)
    return effects.names


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_each_crash_point_of_the_runner_keeps_every_row_once(
    disk_place: Place, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    from tests.end_to_end.conftest import make_place

    source = write_inputs(tmp_path / "in")
    disk_place.create(SCHEMA)
    names = effects_of_a_clean_run(disk_place, source)
    for kind in ("names/", "control/write.json", "launch/", "closed/", "commit/claim-0", "commit/done"):
        assert any(kind in name for name in names), (kind, names)
    assert {"swap", "append"} & set(names)

    for point in range(len(names)):
        for after in (False, True):
            name = "lance-disk" if "append" in names else "iceberg-sql-disk"
            place = make_place(name, tmp_path / f"{point}-{after}", request)
            place.create(SCHEMA)
            place.append(rows_of(STRANGER))
            foreign = set(place.data_files())
            assert run_until_death(place, source, Effects(point, after)), (names[point], after)

            again = reconciler_for(manifest_for(place, source), place)
            ended = drive(again)

            assert isinstance(ended.outcome, Finish), (names[point], after, ended.outcome)
            assert_exactly_once(place, [*range(ROWS), *STRANGER])
            assert len(place.keys()) == 1, (names[point], after)
            assert foreign <= set(place.data_files()), "a stranger's file is gone"
            if names[point].startswith(("control/1/closed", "control/1/commit", "swap", "append")):
                assert again.observer.drivers.started == 0, f"a driver was started after {names[point]}"  # type: ignore[attr-defined]


def test_running_a_committed_write_again_changes_nothing(place: Place, tmp_path: Path) -> None:
    source = write_inputs(tmp_path / "in")
    place.create(SCHEMA)
    drive(reconciler_for(manifest_for(place, source), place))
    before, files = place.keys(), digest_of(tmp_path)

    again = reconciler_for(manifest_for(place, source), place)
    ended = drive(again)

    assert isinstance(ended.outcome, Finish)
    assert ended.commit is not None
    assert ended.commit.rows_written == ROWS
    assert again.observer.drivers.started == 0  # type: ignore[attr-defined]
    assert place.keys() == before
    assert digest_of(tmp_path) == files
