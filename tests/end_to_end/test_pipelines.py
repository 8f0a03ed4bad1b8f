"""Writes of several stages: deaths at each effect, and edits between them, against a run from scratch. Without Spark."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_control.decision.actions import Close, EndStage, Finish, Stall
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.pipelines.decisions import named
from checkpoint_control.pipelines.shown import plan_from_here, plan_stages
from checkpoint_control.progress.epoch_progress import measure
from checkpoint_control.progress.tallies import Tallies
from checkpoint_control.views.failed_rows import failed_rows
from checkpoint_control.views.inspection import Inspector
from checkpoint_control.views.stored_status import read_status
from checkpoint_control.views.tracing import trace_back, trace_forward
from checkpoint_control.writes.cleaning import Cleaner
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.writes import list_stages
from checkpoint_work.tasks.rows_by_position import ranges_of
from tests.support.checks import assert_exactly_once
from tests.support.crashes import Effects
from tests.support.effort import examples
from tests.support.pipelines import (
    CALLS,
    FAILING,
    GROUPS,
    LEFT_OUT,
    SECOND_OF_ROW,
    STAGES,
    VERSIONS,
    PipelineLab,
    digest_of,
    digest_of_version,
)
from tests.support.places import LancePlace, Place, on_disk
from tests.support.writes import rows_of


@pytest.fixture
def lab(lance_place: Place, tmp_path: Path) -> PipelineLab:
    return PipelineLab(lance_place, tmp_path)


def what(lab: PipelineLab) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.name, one.what, one.because) for one in lab.plan()]


def made(lab: PipelineLab, stage: str) -> set[str]:
    """Return by which versions of a stage the table's rows were made, and of which argument; each of them of its own row."""
    told = [(row["id"] % SECOND_OF_ROW, *row[stage].split(" of ")) for row in lab.place.rows()]
    assert [(row, of) for row, _, of in told if str(row) != of] == [], "rows have values of others"
    return {by for _, by, _ in told}


def after(stage: str) -> Callable[[Round], bool]:
    """Say of a round that this stage is done in it, and the next one has not begun."""

    def is_after(done: Round) -> bool:
        folder = named(done.key.stage)
        return isinstance(done.actions[-1], EndStage) and folder is not None and folder.stage == stage

    return is_after


def in_the_middle_of(stage: str) -> Callable[[], bool]:
    """Have a driver die once, when some rows of a stage are sealed."""
    deaths = iter([True])
    return lambda: CALLS[stage, VERSIONS[stage]] >= 3 and next(deaths, False)


def has_failed(done: Round) -> bool:
    """Say of a round that it gives an attempt up: the next one is not recorded yet."""
    last = done.seen.last
    return last is not None and not last.is_sealed and isinstance(done.actions[-1], Close)


def assert_as_from_scratch(lab: PipelineLab) -> None:
    """Each row is there once, and was made by the stages of now, or by an earlier version that the stage's record lists."""
    assert_exactly_once(lab.place, set(lab.ids) - LEFT_OUT)
    for stage, ledger in lab.chain().items():
        commit = ledger.commits.read_commit()
        assert commit is not None
        listed = {
            f"{lab.arguments[stage]} by {version}"
            for version in range(1, VERSIONS[stage] + 1)
            if digest_of_version(stage, version) in commit.code_digests
        }
        assert made(lab, stage) <= listed, stage


# --- one after the other ---------------------------------------------------------------------------------------------------


def test_each_row_goes_through_all_stages_once_and_into_one_commit(lab: PipelineLab) -> None:
    lab.finish()

    assert_as_from_scratch(lab)
    assert len(lab.place.keys()) == 1
    assert {(stage, 1): len(lab.ids) for stage in STAGES} == CALLS
    assert_traced(lab)


def assert_traced(lab: PipelineLab) -> None:
    """Each data file is traced to rows of the source through all stages, and each of these to the file that it is in."""
    assert isinstance(lab.place, LancePlace)
    files = {
        fragment.data_files()[0].path: set(fragment.to_table(["id"])["id"].to_pylist())
        for fragment in lance.dataset(lab.place.uri).get_fragments()
    }
    assert len(files) > 2
    for path, ids in files.items():
        trace = trace_back(lab.manifest, lab.store, f"data/{path}")
        assert list(dict.fromkeys(one.stage for one in trace.segments)) == list(STAGES)
        found = {
            (rows.file.rpartition("/")[2], number)
            for one in trace.segments
            if one.stage == "first"
            for rows in one.reads
            for number in range(rows.start, rows.end or 0)
        }
        assert {lab.place_of(row) for row in ids} <= found
        assert len(found) < len(lab.ids), "everything is no answer"
    for row in lab.ids:
        file, number = lab.place_of(row)
        trace = trace_forward(lab.manifest, lab.store, file, number)
        (become,) = (path for path, ids in files.items() if row in ids)
        last = [one for one in trace.segments if one.stage == STAGES[-1]]
        assert become in {path.rpartition("/")[2] for one in last for path in one.files}
        assert len(last) < len(files), "everything is no answer"
    with pytest.raises(NeedsChange, match="no committed epoch has read position 99 of"):
        trace_forward(lab.manifest, lab.store, file, 99)
    with pytest.raises(NeedsChange, match="no committed epoch has put a data file other"):
        trace_back(lab.manifest, lab.store, "other.lance")


def test_another_run_of_a_committed_write_does_nothing(lab: PipelineLab) -> None:
    lab.finish()
    lab.arguments["first"] = "b"

    lab.finish()

    assert made(lab, "first") == {"a by 1"}
    assert CALLS.total() == 3 * len(lab.ids)


def test_rows_that_a_stage_leaves_out_are_none_of_the_next_one_and_no_rows_at_all_end_without_a_commit(
    lance_place: Place, tmp_path: Path
) -> None:
    lab = PipelineLab(
        lance_place,
        tmp_path,
        more={"source": {"files": {"format": "parquet", "paths": [str(tmp_path / "in")]}, "where": "id < 0"}},
    )

    lab.finish()

    assert lab.place.rows() == []
    assert CALLS.total() == 0


# --- edits ------------------------------------------------------------------------------------------------------------------


def test_code_of_the_last_stage_that_is_edited_costs_that_stage_only(lab: PipelineLab) -> None:
    lab.run(until=after("second"))
    VERSIONS["third"] = 2
    assert what(lab) == [("first", "keep", ()), ("second", "keep", ()), ("third", "begin", ())]

    lab.finish()

    assert_as_from_scratch(lab)
    assert CALLS["first", 1] == CALLS["second", 1] == len(lab.ids)


def test_code_of_a_stage_that_is_done_has_it_and_those_after_it_done_anew(lab: PipelineLab) -> None:
    lab.run(until=after("second"))
    VERSIONS["second"] = 2
    assert what(lab) == [("first", "keep", ()), ("second", "redo", ("code",)), ("third", "begin", ())]

    lab.finish()

    assert_as_from_scratch(lab)
    assert made(lab, "second") == {"a by 2"}
    assert CALLS["first", 1] == len(lab.ids)


def test_code_that_is_edited_back_finds_what_it_had_done(lab: PipelineLab) -> None:
    lab.run(until=after("second"))
    VERSIONS["first"] = 2
    lab.run(until=after("first"))
    VERSIONS["first"] = 1
    assert what(lab)[:2] == [("first", "keep", ()), ("second", "keep", ())]

    lab.finish()

    assert_as_from_scratch(lab)
    assert CALLS["first", 1] == CALLS["second", 1] == len(lab.ids)


def test_code_of_a_stage_that_failed_goes_on_with_the_rows_that_are_left_and_says_so(lab: PipelineLab) -> None:
    lab.run(kill_when=in_the_middle_of("second"), until=has_failed)
    assert what(lab)[1] == ("second", "continue", ())
    VERSIONS["second"] = 2
    assert what(lab)[1] == ("second", "continue", ())

    lab.finish()

    assert_as_from_scratch(lab)
    assert made(lab, "second") == {"a by 1", "a by 2"}
    assert CALLS["second", 1] + CALLS["second", 2] == len(lab.ids)
    commit = lab.chain()["second"].commits.read_commit()
    assert commit is not None
    assert len(commit.code_digests) == 2


def test_a_failed_stage_whose_code_was_edited_begins_anew_where_the_manifest_says_restart(lab: PipelineLab) -> None:
    lab.more["onCodeChange"] = "Restart"
    lab.run(kill_when=in_the_middle_of("second"), until=has_failed)
    VERSIONS["second"] = 2

    lab.finish()

    assert made(lab, "second") == {"a by 2"}


@pytest.mark.parametrize("stage", STAGES)
def test_an_argument_that_is_changed_drops_what_a_stage_has_done_so_far(lab: PipelineLab, stage: str) -> None:
    lab.run(kill_when=in_the_middle_of(stage), until=has_failed)
    lab.arguments[stage] = "b"
    assert what(lab)[STAGES.index(stage)] == (stage, "redo", ("arguments",))

    lab.finish()

    assert_as_from_scratch(lab)
    assert made(lab, stage) == {"b by 1"}


def test_a_reset_has_a_stage_done_anew_and_once_only(lab: PipelineLab) -> None:
    lab.run(until=after("second"))
    lab.nonces["second"] = "1"
    assert what(lab) == [("first", "keep", ()), ("second", "redo", ("reset",)), ("third", "begin", ())]
    lab.run(until=after("second"))
    assert what(lab)[1] == ("second", "keep", ())

    lab.finish()

    assert_as_from_scratch(lab)
    assert CALLS["second", 1] == 2 * len(lab.ids)
    assert CALLS["first", 1] == len(lab.ids)


def test_the_next_epoch_takes_what_came_since_also_where_the_first_one_was_cleaned(lab: PipelineLab) -> None:
    lab.finish()
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    list(Cleaner(lab.store, lab.place.settings, later).clean(lab.uid()))
    pq.write_table(rows_of([100, 101]), lab.folder / "in" / "part-9.parquet")
    lab.more["runNonce"] = "2"

    lab.finish()

    assert_exactly_once(lab.place, [*lab.ids, 100, 101])
    assert len(lab.place.keys()) == 2
    assert CALLS["first", 1] == len(lab.ids) + 2


def test_what_a_run_would_do_is_told_with_the_rows_that_are_left(lab: PipelineLab) -> None:
    assert [stage.what for stage in plan_stages(lab.manifest, None, digest_of).stages] == ["begin", "begin", "begin"]
    lab.run(kill_when=in_the_middle_of("second"), until=has_failed)
    VERSIONS["third"] = 2

    plan = plan_stages(lab.manifest, lab.store, digest_of)

    first, second, third = plan.stages
    assert (first.what, first.rows_done, first.rows_left) == ("keep", len(lab.ids), 0)
    assert second.what == "continue"
    assert second.rows_done is not None
    assert second.rows_left is not None
    assert 0 < second.rows_done < len(lab.ids)
    assert second.rows_done + second.rows_left == len(lab.ids)
    assert second.seconds_left is not None
    assert (third.what, third.rows_done, third.rows_left) == ("begin", None, None)
    lab.finish()
    assert plan_stages(lab.manifest, lab.store, digest_of).is_committed


def test_status_tells_the_same_until_the_commit(lab: PipelineLab) -> None:
    assert [stage.what for stage in plan_from_here(lab.manifest, None, digest_of)] == ["begin", "begin", "begin"]
    lab.run(kill_when=in_the_middle_of("second"), until=has_failed)
    VERSIONS["first"] = 2

    told = plan_from_here(lab.manifest, lab.store, digest_of)

    assert told == plan_stages(lab.manifest, lab.store, digest_of).stages
    assert [(stage.what, stage.because) for stage in told] == [("redo", ("code",)), ("redo", ("upstream",)), ("begin", ())]
    assert [stage.rows_left for stage in told] == [len(lab.ids), None, None]
    lab.finish()
    assert plan_from_here(lab.manifest, lab.store, digest_of) == ()


def test_rows_that_fail_in_a_stage_are_none_of_the_next_one_and_are_counted_to_the_end(lab: PipelineLab) -> None:
    FAILING.update({("first", 1), ("second", 2), ("second", 3), ("third", 4)})
    lab.more |= {"onRowError": "Quarantine", "quarantine": {"maxShare": "50%"}}

    ended = lab.run(kill_when=in_the_middle_of("second"))

    assert ended is not None
    assert ended.commit is not None
    assert (ended.commit.rows_quarantined, ended.commit.rows_quarantined_before, ended.commit.rows_failed) == (1, 3, 4)
    assert_exactly_once(lab.place, [number for number in lab.ids if number not in (1, 2, 3, 4)])
    told = read_status(lab.manifest, lab.store)
    assert (told.sealed.rows_quarantined, told.rows_quarantined_before) == (1, 3)
    ledger = Ledger(lab.store, ended.key)
    assert measure(Tallies(ledger)).rows_failed == 4
    assert failed_rows_traced_to_the_source(lab) == {lab.place_of(row) for row in (2, 3, 4)}
    listed = failed_rows(lab.manifest, lab.store, lab.place.settings, columns=["id"])
    found = {(row.stage, row.values["id"]) for row in listed.rows}
    assert found == {("first", 1), ("second", 2), ("second", 3), ("third", 4)}
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    list(Cleaner(lab.store, lab.place.settings, later).clean(lab.uid()))
    assert measure(Tallies(ledger), ended.commit).rows_failed == 4


def test_a_record_of_a_stage_that_is_gone_ends_the_epoch_before_anything_is_in_the_table(lab: PipelineLab) -> None:
    lab.run(until=lambda done: not done.key.stage and any(isinstance(action, Close) for action in done.actions))
    (second,) = (key for key in list_stages(lab.store, EpochKey(lab.uid(), 1)) if key.stage.startswith("second-"))
    lab.store.delete([Ledger(lab.store, second).at.commit_record])

    with pytest.raises(Corrupt, match="is gone, and attempt 1 of"):
        lab.run()

    assert lab.place.rows() == []


def failed_rows_traced_to_the_source(lab: PipelineLab) -> set[tuple[str, int]]:
    """Return of which rows of the source those are that failed in a stage which reads the result of another."""
    epoch = Inspector(lab.store, shows_rows=True).read_epoch(EpochKey(lab.uid(), 1))
    failed = [row for one in (epoch, *epoch.stages) if one.input_stage for at in one.attempts for row in at.quarantined]
    found: set[tuple[str, int]] = set()
    for row in failed:
        assert row.file is not None
        (read,) = trace_back(lab.manifest, lab.store, row.file.rpartition("/")[2], row.start).segments[0].reads
        assert read.end == read.start + 1
        found.add((read.file.rpartition("/")[2], read.start))
    return found


def test_of_a_write_of_a_cluster_status_tells_no_plan_from_another_machine(lab: PipelineLab) -> None:
    lab.recorder = ""
    lab.run(until=after("first"))

    assert plan_from_here(lab.manifest, lab.store, digest_of) == ()


def test_a_group_on_which_the_step_raises_ends_the_attempt_with_its_key_also_where_rows_are_set_apart(lab: PipelineLab) -> None:
    lab.groups = True
    lab.more |= {"onRowError": "Quarantine", "quarantine": {"maxShare": "50%"}}
    GROUPS[1] = 99

    done = lab.run()

    assert done is not None
    assert isinstance(done.outcome, Stall)
    assert done.outcome.reason == reasons.CODE_FAILED
    assert "the 3 rows with key = 1" in done.outcome.message
    assert lab.place.rows() == []


def test_another_key_costs_the_shuffle_and_the_aggregate_and_no_stage_before(lab: PipelineLab) -> None:
    lab.groups = True
    lab.run(until=after("second"))
    lab.buckets = 3
    assert [(name, done, because[:1]) for name, done, because in what(lab)] == [
        ("first", "keep", ()),
        ("second-shuffle", "redo", ("arguments",)),
        ("second", "redo", ("upstream",)),
        ("third", "begin", ()),
    ]

    lab.finish()

    assert_as_from_scratch(lab)
    assert CALLS["first", 1] == len(lab.ids)


# --- deaths -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_death_of_the_runner_at_each_effect_of_three_stages_keeps_every_row_once(tmp_path: Path) -> None:
    clean = PipelineLab(on_disk(tmp_path / "clean", "lance"), tmp_path / "clean", groups=True)
    effects = Effects()
    clean.run(effects)
    at_borders = [name for name in effects.names if "done" in name]
    assert len(at_borders) == 4, effects.names
    for point, name in enumerate(effects.names):
        for after in (False, True):
            if not _is_at_a_border(name, after=after):
                continue
            folder = tmp_path / f"{point}-{after}"
            lab = PipelineLab(on_disk(folder, "lance"), folder, groups=True)
            assert lab.run(Effects(point, after)) is None

            lab.finish()

            assert_as_from_scratch(lab)
            assert len(lab.place.keys()) == 1


def _is_at_a_border(name: str, *, after: bool) -> bool:
    """Whether a death there is between two stages. Those inside of one are those of a write without stages.

    Not after the record of a stage's first attempt: the one that follows has its steps tried in a process of their own, as
    nothing was sealed, which takes its time.
    """
    return (
        name.endswith("done.json") or (name.endswith("closed/1.json") and after) or (name.endswith("launch/1.json") and not after)
    )


@pytest.mark.parametrize("stage", STAGES)
def test_a_driver_that_dies_in_the_middle_of_a_stage_leaves_its_seals_to_the_next(lab: PipelineLab, stage: str) -> None:
    done = lab.run(kill_when=in_the_middle_of(stage))

    assert done is not None
    assert isinstance(done.outcome, Finish)
    assert_as_from_scratch(lab)
    assert {(stage, 1): len(lab.ids) for stage in STAGES} == CALLS, "what was sealed was done again"


def test_a_driver_that_dies_between_buckets_leaves_those_that_are_sealed_to_the_next(lab: PipelineLab) -> None:
    lab.groups = True
    lab.run(kill_when=in_the_middle_of("second"), until=has_failed)
    assert [one[:2] for one in what(lab)] == [
        ("first", "keep"),
        ("second-shuffle", "keep"),
        ("second", "continue"),
        ("third", "begin"),
    ]
    VERSIONS["second"] = 2

    lab.finish()

    assert_as_from_scratch(lab)
    assert CALLS["second", 1] + CALLS["second", 2] == len(lab.ids)
    assert made(lab, "second") == {"a by 1", "a by 2"}
    second = lab.chain()["second"]
    buckets = second.inputs.read_input()
    assert buckets is not None
    covered = [piece for seal in second.chains.counted_seals((1, 2)) for piece in ranges_of(seal)]
    assert sorted((piece.file, piece.start, piece.end) for piece in covered) == [
        (number, 0, bucket.end) for number, bucket in enumerate(buckets.files)
    ], "a seal has a part of a bucket"


@settings(max_examples=examples(6), deadline=None)
@given(data=st.data())
def test_whatever_is_edited_killed_and_reset_the_table_is_that_of_a_run_from_scratch(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as made_folder:
        folder = Path(made_folder)
        lab = PipelineLab(on_disk(folder, "lance"), folder, files=data.draw(st.integers(1, 2)), rows_a_file=3)
        lab.groups = data.draw(st.booleans())
        for step in range(data.draw(st.integers(1, 4))):
            kind = data.draw(st.sampled_from(["driver", "runner", "code", "argument", "reset", "back"]))
            stage = data.draw(st.sampled_from(STAGES))
            match kind:
                case "driver":
                    lab.run(kill_when=in_the_middle_of(stage), until=has_failed)
                case "runner":
                    lab.run(Effects(data.draw(st.integers(0, 40)), data.draw(st.booleans())))
                case "code":
                    VERSIONS[stage] += 1
                case "back":
                    VERSIONS[stage] = max(1, VERSIONS[stage] - 1)
                case "argument":
                    lab.arguments[stage] = data.draw(st.sampled_from("abc"))
                case _:
                    lab.nonces = {stage: str(step)}
            if _is_committed(lab):
                return  # an edit after the commit is none of this epoch
        lab.finish()

        assert_as_from_scratch(lab)


def _is_committed(lab: PipelineLab) -> bool:
    try:
        return lab.ledger().commits.read_commit() is not None
    except AssertionError:
        return False
