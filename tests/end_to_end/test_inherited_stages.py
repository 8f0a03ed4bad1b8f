"""A new write takes over what another one has made of its stages: which results, and whatever dies meanwhile. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.loop.looks import listing_of
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.pipelines.inherited import parent_of
from checkpoint_control.pipelines.shown import plan_stages
from checkpoint_control.views.inspection import Inspector
from checkpoint_control.views.tracing import trace_forward
from checkpoint_control.writes.deletion import Deleted, delete_write
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.writes import list_stages
from devtools.s3_server import S3Server
from tests.end_to_end.test_pipelines import after, assert_as_from_scratch, has_failed, in_the_middle_of
from tests.support.crashes import Effects
from tests.support.pipelines import CALLS, FAILING, STAGES, VERSIONS, PipelineLab, digest_of
from tests.support.places import LancePlace, Place, on_disk, on_s3
from tests.support.writes import rows_of, write_inputs


@pytest.fixture
def lab(lance_place: Place, tmp_path: Path) -> PipelineLab:
    return PipelineLab(lance_place, tmp_path)


def heir_of(lab: PipelineLab, **more: Any) -> PipelineLab:
    """Return a write into another table that takes over what this one has."""
    assert isinstance(lab.place, LancePlace)
    changed = {"name": "heir", "inherit": lab.name, "arguments": dict(lab.arguments), **more}
    place = replace(lab.place, base_uri=f"{lab.place.base_uri}/{changed['name']}")
    return replace(lab, place=place, **changed)


def calls() -> dict[str, int]:
    return {stage: sum(count for (name, _), count in CALLS.items() if name == stage) for stage in STAGES}


def planned(heir: PipelineLab) -> list[tuple[str, str, int | None, int | None]]:
    """Return what `plan` says of each stage: with the rows that are done, and left."""
    spec, settings = heir.manifest.spec, heir.place.settings
    parent = parent_of(spec, heir.store, "default", settings, listing_of(spec, settings))
    plan = plan_stages(heir.manifest, heir.store, digest_of, parent)
    return [(one.name, one.what, one.rows_done, one.rows_left) for one in plan.stages]


def finish(heir: PipelineLab) -> list[str]:
    """Run the new write to its end; return what is told of what it takes over."""
    told: list[str] = []

    def until(done: Round) -> bool:
        told.extend(done.notes)
        return False

    done = heir.run(until=until)
    assert done is not None
    assert done.commit is not None, done.outcome
    return told


def test_stages_that_are_done_are_taken_over_and_the_last_one_is_computed(lab: PipelineLab) -> None:
    lab.finish()
    CALLS.clear()
    heir = heir_of(lab)
    assert planned(heir) == [("first", "inherit", 8, 0), ("second", "inherit", 8, 0), ("third", "begin", None, None)]

    told = finish(heir)

    assert told == ["the stage first is taken over from write", "the stage second is taken over from write"]
    assert calls() == {"first": 0, "second": 0, "third": len(lab.ids)}
    assert_as_from_scratch(heir)
    assert len(heir.place.keys()) == 1
    inspector = Inspector(heir.store, shows_rows=True)
    assert len(inspector.read_epoch(EpochKey(heir.uid(), 1)).stages) == 2
    assert inspector.reader.strays == []
    for row in heir.ids:
        traced = trace_forward(heir.manifest, heir.store, *heir.place_of(row))
        assert list(dict.fromkeys(one.stage for one in traced.segments)) == list(STAGES)


def test_rows_that_an_unfinished_stage_has_sealed_are_taken_over(lab: PipelineLab) -> None:
    lab.run(kill_when=in_the_middle_of("second"), until=has_failed)
    (key,) = (key for key in list_stages(lab.store, lab.ledger().key) if key.stage.startswith("second"))
    sealed = sum(seal.rows_read for seal in replace(lab.ledger(), key=key).chains.seals_so_far([1]))
    assert 0 < sealed < len(lab.ids)
    CALLS.clear()
    heir = heir_of(lab)
    assert planned(heir)[1] == ("second", "inherit", sealed, len(lab.ids) - sealed)

    finish(heir)

    assert calls() == {"first": 0, "second": len(lab.ids) - sealed, "third": len(lab.ids)}
    assert_as_from_scratch(heir)


def test_what_does_not_agree_is_computed(lab: PipelineLab) -> None:
    lab.finish()
    for changed, computed in (
        ({"arguments": {**lab.arguments, "second": "b"}}, ("second", "third")),
        ({"arguments": {**lab.arguments, "first": "b"}}, STAGES),
    ):
        CALLS.clear()
        heir = heir_of(lab, name=f"heir-{len(computed)}", **changed)
        finish(heir)
        assert {stage for stage, count in calls().items() if count} == {*computed}
        assert_as_from_scratch(heir)
    CALLS.clear()
    VERSIONS["second"] = 2
    heir = heir_of(lab, name="heir-of-code")
    finish(heir)
    assert {stage for stage, count in calls().items() if count} == {"second", "third"}
    assert_as_from_scratch(heir)


def test_rows_of_an_unfinished_stage_that_other_code_has_sealed_are_computed(lab: PipelineLab) -> None:
    lab.run(kill_when=in_the_middle_of("second"), until=has_failed)
    CALLS.clear()
    VERSIONS["second"] = 2
    heir = heir_of(lab)

    assert finish(heir) == ["the stage first is taken over from write"]

    assert calls() == {"first": 0, "second": len(lab.ids), "third": len(lab.ids)}
    assert_as_from_scratch(heir)


def test_another_source_is_read_anew(lab: PipelineLab) -> None:
    lab.finish()
    write_inputs(lab.folder / "in", lab.files, lab.rows_a_file)  # the files are others now, with the same rows
    CALLS.clear()
    heir = heir_of(lab)

    assert finish(heir) == []

    assert calls() == dict.fromkeys(STAGES, len(lab.ids))
    assert_as_from_scratch(heir)


def test_files_that_came_since_are_left_to_the_next_epoch(lab: PipelineLab) -> None:
    lab.finish()
    CALLS.clear()
    pq.write_table(rows_of(range(len(lab.ids), len(lab.ids) + 4)), lab.folder / "in" / "part-2.parquet")
    heir = heir_of(lab)

    finish(heir)

    assert calls() == {"first": 0, "second": 0, "third": len(lab.ids)}
    assert_as_from_scratch(heir)
    given = heir.chain()["first"].inputs.read_committed_input()
    assert given is not None
    assert given.totals.left == 1
    CALLS.clear()
    heir.more = {"runNonce": "2"}
    done = heir.run()
    assert done is not None
    assert calls() == dict.fromkeys(STAGES, 4)
    assert sorted(row["id"] for row in heir.place.rows()) == list(range(len(lab.ids) + 4))


def test_the_other_write_may_be_deleted_afterwards(lab: PipelineLab) -> None:
    lab.finish()
    heir = heir_of(lab)
    heir.run(until=after("first"))
    assert isinstance(delete_write(lab.store, lab.uid(), open_sink(lab.manifest.spec.sink, lab.place.settings)), Deleted)
    CALLS.clear()

    finish(heir)

    assert_as_from_scratch(heir)


def test_a_write_that_is_deleted_while_its_results_are_copied_stops_the_new_one_with_a_way_out(lab: PipelineLab) -> None:
    lab.finish()
    heir = heir_of(lab)
    recorded = Effects()
    heir_of(lab, name="other").run(recorded)
    at = next(point for point, name in enumerate(recorded.names) if name.endswith("inherited.json"))
    assert heir.run(Effects(at, after=True)) is None
    assert isinstance(delete_write(lab.store, lab.uid(), open_sink(lab.manifest.spec.sink, lab.place.settings)), Deleted)

    with pytest.raises(NeedsChange, match="start a new write under another name, without it"):
        heir.run()

    other = heir_of(lab, name="anew", inherit=None)
    finish(other)
    assert_as_from_scratch(other)


def test_rows_that_were_set_aside_there_are_not_missing_here_without_a_word(lab: PipelineLab) -> None:
    lab.more = {"onRowError": "Quarantine", "quarantine": {"maxShare": "100%"}}
    FAILING.add(("first", 3))
    lab.finish()
    FAILING.clear()
    CALLS.clear()
    heir = heir_of(lab, more={})

    assert finish(heir) == []

    assert calls() == dict.fromkeys(STAGES, len(lab.ids))
    assert_as_from_scratch(heir)


def test_in_a_bucket_the_store_copies_the_rows(tmp_path: Path, s3_server: S3Server) -> None:
    lab = PipelineLab(on_s3(tmp_path, "lance", s3_server), tmp_path)
    lab.finish()
    CALLS.clear()
    heir = heir_of(lab)

    finish(heir)

    assert calls() == {"first": 0, "second": 0, "third": len(lab.ids)}
    assert_as_from_scratch(heir)


def test_a_name_that_no_write_has_is_nothing_to_take_over(lab: PipelineLab) -> None:
    heir = heir_of(lab, inherit="nobody")

    assert finish(heir) == []

    assert_as_from_scratch(heir)


def test_a_death_around_each_effect_takes_over_the_same_and_computes_nothing_twice(tmp_path: Path) -> None:
    def begun(folder: Path) -> PipelineLab:
        place = on_disk(folder, "lance")
        lab = PipelineLab(place, folder)
        lab.run(until=after("second"))
        CALLS.clear()
        return heir_of(lab)

    recorded = Effects()
    begun(tmp_path / "clean").run(recorded)
    inherited = [point for point, name in enumerate(recorded.names) if "third" not in name and "commit" not in name]
    for point in inherited[:: max(1, len(inherited) // 5)]:
        for is_after in (False, True):
            heir = begun(tmp_path / f"{point}-{is_after}")
            assert heir.run(Effects(point, is_after)) is None, recorded.names[point]

            finish(heir)

            assert calls()["first"] == calls()["second"] == 0, recorded.names[point]
            assert_as_from_scratch(heir)


#: How far the other write has come, and which stages it has computed by then as a whole.
POINTS: dict[str, tuple[Callable[[PipelineLab], object], tuple[str, ...]]] = {
    "nothing": (lambda lab: None, ()),
    "first": (lambda lab: lab.run(until=after("first")), ("first",)),
    "middle": (lambda lab: lab.run(kill_when=in_the_middle_of("second"), until=has_failed), ("first",)),
    "second": (lambda lab: lab.run(until=after("second")), ("first", "second")),
    "all": (lambda lab: lab.finish(), ("first", "second")),
}
#: What the new write has otherwise, and from which stage on it is computed again.
EDITS: dict[str, int] = {"none": 3, "second by other arguments": 1, "second by other code": 1, "first by other arguments": 0}


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    point=st.sampled_from([*POINTS]),
    edit=st.sampled_from([*EDITS]),
    deaths=st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=3),
)
def test_whatever_dies_each_row_is_there_once_and_nothing_that_agrees_is_computed_again(
    tmp_path_factory: pytest.TempPathFactory, point: str, edit: str, deaths: list[tuple[int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("inherited")
    lab = PipelineLab(on_disk(folder, "lance"), folder)
    run_to, done = POINTS[point]
    run_to(lab)
    CALLS.clear()
    heir = heir_of(lab)
    match edit:
        case "second by other arguments":
            heir.arguments["second"] = "b"
        case "second by other code":
            VERSIONS["second"] = 2
        case "first by other arguments":
            heir.arguments["first"] = "b"
    for at, is_after in deaths:
        heir.run(Effects(at, is_after))

    finish(heir)

    assert_as_from_scratch(heir)
    for stage in done:
        if STAGES.index(stage) < EDITS[edit]:
            assert calls()[stage] == 0
