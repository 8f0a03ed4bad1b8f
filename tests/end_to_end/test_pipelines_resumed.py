"""Pipelines that go on after a death where rows become none or several, and where the source has changed meanwhile."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from checkpoint_control.decision.actions import Stall
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from tests.end_to_end.test_pipelines import after, assert_as_from_scratch, has_failed, in_the_middle_of, made, what
from tests.support.checks import assert_exactly_once
from tests.support.pipelines import CALLS, FAULTY, LEFT_OUT, SECOND_OF_ROW, STAGES, VERSIONS, PipelineLab
from tests.support.places import Place
from tests.support.writes import rows_of, write_inputs


@pytest.fixture
def lab(lance_place: Place, tmp_path: Path) -> PipelineLab:
    return PipelineLab(lance_place, tmp_path)


def test_rows_that_a_stage_leaves_out_are_not_brought_back_to_it_by_a_death(lab: PipelineLab) -> None:
    """A segment of them has no row to show that it was done."""
    LEFT_OUT.update([0, 1, 2, 3, 5])
    lab.run(kill_when=in_the_middle_of("second"), until=has_failed)
    assert what(lab)[1] == ("second", "continue", ())

    lab.finish()

    assert_as_from_scratch(lab)
    assert {("first", 1): len(lab.ids), ("second", 1): len(lab.ids), ("third", 1): len(lab.ids) - len(LEFT_OUT)} == CALLS


def test_of_a_row_on_which_a_stage_raises_among_those_that_it_makes_of_it_all_are_of_the_mended_code(lab: PipelineLab) -> None:
    lab.several = True
    FAULTY.add(5)
    failed = lab.run()
    assert failed is not None
    assert isinstance(failed.outcome, Stall)
    before = CALLS["second", 1]
    FAULTY.clear()
    VERSIONS["second"] = 2

    lab.finish()

    assert_exactly_once(lab.place, [*lab.ids, *(row + SECOND_OF_ROW for row in lab.ids)])
    assert made(lab, "second") == {"a by 1", "a by 2"}
    by = {row["id"]: row["second"] for row in lab.place.rows()}
    assert all(by[row] == by[row + SECOND_OF_ROW] for row in lab.ids), "of one row, by two versions"
    assert by[5] == "a by 2 of 5"
    assert before + CALLS["second", 2] <= len(lab.ids) + 2, "what was sealed was done again"
    assert CALLS["third", 1] == 2 * len(lab.ids)


def test_what_becomes_of_the_source_after_the_first_stage_is_of_the_next_epoch(lab: PipelineLab) -> None:
    lab.run(until=after("first"))
    pq.write_table(rows_of([100, 101]), lab.folder / "in" / "part-9.parquet")
    (lab.folder / "in" / "part-0.parquet").unlink()
    assert what(lab) == [("first", "keep", ()), ("second", "begin", ()), ("third", "begin", ())]

    lab.finish()

    assert_as_from_scratch(lab)
    assert {(stage, 1): len(lab.ids) for stage in STAGES} == CALLS
    lab.more["runNonce"] = "2"
    lab.finish()
    assert_exactly_once(lab.place, [*lab.ids, 100, 101])
    assert {(stage, 1): len(lab.ids) + 2 for stage in STAGES} == CALLS


def test_a_source_of_which_nothing_is_sealed_may_be_corrected(lab: PipelineLab) -> None:
    lab.more["files"] = {"paths": [str(lab.folder / "wrong")]}
    stalled = lab.run()
    assert stalled is not None
    assert isinstance(stalled.outcome, Stall)
    assert stalled.outcome.reason == reasons.SOURCE_MISSING

    del lab.more["files"]
    lab.finish()

    assert_as_from_scratch(lab)
    lab.more["files"] = {"paths": [str(lab.folder / "wrong")]}
    with pytest.raises(NeedsChange, match=r"spec\.source") as raised:
        lab.finish()
    assert raised.value.reason == reasons.IDENTITY_CHANGED


@pytest.mark.parametrize("stage", ["first", "second"])
def test_a_source_of_which_the_first_stage_has_sealed_rows_stays(lab: PipelineLab, stage: str) -> None:
    lab.run(kill_when=in_the_middle_of(stage), until=has_failed)
    write_inputs(lab.folder / "other", 1, 4)
    lab.more["files"] = {"paths": [str(lab.folder / "other")]}

    with pytest.raises(NeedsChange, match=r"spec\.source") as raised:
        lab.finish()

    assert raised.value.reason == reasons.IDENTITY_CHANGED
    del lab.more["files"]
    lab.finish()
    assert_as_from_scratch(lab)
