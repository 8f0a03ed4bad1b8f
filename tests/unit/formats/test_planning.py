"""The plan: exactly what is not covered, once, in tasks of like size, wherever a reader can start."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_formats.planning import plan_tasks, whole
from checkpoint_formats.rows.parquet_rows import nearest_start
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range, merge, overlap, subtract
from tests.support.effort import examples

MB = 1 << 20


def rows(end: int | None, size_bytes: int = 1_000_000, start: int = 0, cuts: tuple[int, ...] = ()) -> SourceFile:
    return SourceFile(path="f", etag="e", size_bytes=size_bytes, unit="rows", start=start, end=end, cuts=cuts)


def records(size_bytes: int) -> SourceFile:
    return SourceFile(path="f", etag="e", size_bytes=size_bytes, unit="records", start=0, end=None)


def anywhere(_: SourceFile, position: int, _slack: int) -> int:
    return position


def at_cuts(file: SourceFile, position: int, _slack: int) -> int:
    """As text is cut: at the next line only, however far it is."""
    assert file.end is not None
    return min((cut for cut in file.cuts if cut >= position), default=file.end)


def near_cuts(file: SourceFile, position: int, slack: int) -> int:
    """As Parquet is cut: at a row group, if one is near."""
    assert file.end is not None
    return nearest_start(file.cuts, file.end, position, slack)


# --- whatever the input is ------------------------------------------------------------------------------------------------


@st.composite
def source_files(draw: st.DrawFn) -> SourceFile:
    size_bytes = draw(st.integers(0, 50 * MB) | st.integers(0, 10))
    if draw(st.integers(0, 3)) == 0:
        return SourceFile(path="f", etag="e", size_bytes=size_bytes, unit="records", start=draw(st.integers(0, 2)), end=None)
    start = draw(st.integers(0, 3))
    end = start + draw(st.integers(0, 200) | st.integers(0, 10**6))
    cuts = tuple(sorted(draw(st.sets(st.integers(start, end), max_size=5))))
    return SourceFile(
        path="f", etag="e", size_bytes=size_bytes, unit=draw(st.sampled_from(["rows", "bytes"])), start=start, end=end, cuts=cuts
    )


@st.composite
def coverings(draw: st.DrawFn, files: list[SourceFile]) -> list[Range]:
    covered = []
    for index, file in enumerate(files):
        most = file.end if file.end is not None else 10**6
        for _ in range(draw(st.integers(0, 3))):
            start = draw(st.integers(file.start, most))
            end = draw(st.integers(start, most)) if file.end is not None or draw(st.booleans()) else None
            covered.append(Range(file=index, start=start, end=end))
    return covered


@given(st.data(), st.lists(source_files(), max_size=5), st.sampled_from([anywhere, at_cuts, near_cuts]), st.integers(1, 64))
@settings(deadline=None, max_examples=examples(100))
def test_the_plan_covers_exactly_what_remains_without_overlap_and_without_an_empty_task(
    data: st.DataObject, files: list[SourceFile], align: object, parallelism: int
) -> None:
    covered = data.draw(coverings(files))
    split_size = data.draw(st.sampled_from([1, 1_000, MB, 128 * MB]))

    tasks = plan_tasks(files, covered, align, parallelism, split_size)  # type: ignore[arg-type]

    pieces = [piece for task in tasks for piece in task]
    remaining = subtract(whole(files), covered)
    assert merge(pieces) == remaining
    assert overlap(pieces) is None
    assert all(tasks), "a task without work has no last seal to wait for"
    assert all(piece.end is None or piece.start < piece.end for piece in pieces)
    assert pieces == sorted(pieces, key=lambda piece: (piece.file, piece.start)), "dealt in the order of the input"


@given(st.lists(source_files(), max_size=5), st.integers(1, 64))
@settings(deadline=None, max_examples=examples(40))
def test_planning_again_what_one_attempt_has_sealed_leaves_nothing(files: list[SourceFile], parallelism: int) -> None:
    tasks = plan_tasks(files, [], anywhere, parallelism, MB)

    assert plan_tasks(files, [piece for task in tasks for piece in task], anywhere, parallelism, MB) == ()


@given(st.lists(source_files(), max_size=5), st.integers(1, 64))
@settings(deadline=None, max_examples=examples(40))
def test_the_same_input_gives_the_same_plan(files: list[SourceFile], parallelism: int) -> None:
    assert plan_tasks(files, [], anywhere, parallelism, MB) == plan_tasks(files, [], anywhere, parallelism, MB)


# --- sizes ----------------------------------------------------------------------------------------------------------------


def test_no_files_or_files_without_rows_give_no_tasks() -> None:
    assert plan_tasks([], [], anywhere, 4, MB) == ()
    assert plan_tasks([rows(0), rows(7, start=7)], [], anywhere, 4, MB) == ()


@pytest.mark.parametrize("parallelism", [1, 2, 8, 32])
def test_each_core_gets_about_three_tasks_so_that_a_slow_one_does_not_hold_up_the_rest(parallelism: int) -> None:
    tasks = plan_tasks([rows(1_000_000, 100 * MB)], [], anywhere, parallelism, 1 << 40)

    assert 2 * parallelism <= len(tasks) <= 4 * parallelism


def test_no_split_is_much_larger_than_the_split_size() -> None:
    tasks = plan_tasks([rows(1_000_000, 100 * MB)], [], anywhere, 1, 10 * MB)

    assert len(tasks) == 10
    sizes = [piece.end - piece.start for task in tasks for piece in task if piece.end is not None]
    assert max(sizes) - min(sizes) <= 1


def test_few_bytes_are_still_shared_out_since_what_takes_time_is_the_steps() -> None:
    assert len(plan_tasks([rows(1_000, 10_000)], [], anywhere, 2, MB)) == 6


def test_a_handful_of_bytes_is_one_task() -> None:
    assert len(plan_tasks([rows(100, 400)], [], anywhere, 8, MB)) == 1


def test_many_small_files_share_tasks_in_their_order() -> None:
    tasks = plan_tasks([rows(10, 1_000) for _ in range(100)], [], anywhere, 1, 10_000)

    assert len(tasks) <= 12
    assert [piece.file for task in tasks for piece in task] == list(range(100))


@pytest.mark.parametrize("files", [7, 16, 100])
def test_tasks_are_equal_however_many_files_there_are_so_that_no_core_ends_late(files: int) -> None:
    tasks = plan_tasks([rows(1_000, 100_000) for _ in range(files)], [], anywhere, 2, MB)

    sizes = [sum(piece.end - piece.start for piece in task if piece.end is not None) for task in tasks]
    assert len(sizes) == (10 if files == 100 else 6)
    assert max(sizes) <= 1.15 * min(sizes)


def test_a_file_is_not_cut_for_a_little_more_or_less_than_a_task() -> None:
    files = [rows(1_000 + more, 100 * (1_000 + more)) for more in (0, 20, -20, 10, -10, 0)]

    assert plan_tasks(files, [], anywhere, 2, MB) == tuple(
        (Range(file=number, start=0, end=file.end),) for number, file in enumerate(files)
    )


def test_a_text_that_cannot_be_cut_begins_a_task_where_the_room_is_much_too_small_for_it() -> None:
    tasks = plan_tasks([rows(1_000, 9 * MB), records(30 * MB), rows(1_000, 21 * MB)], [], anywhere, 1, 20 * MB)

    assert tasks[0] == (Range(file=0, start=0, end=1_000),)
    assert tasks[1] == (Range(file=1, start=0, end=None),)


def test_files_that_are_a_row_each_are_shared_out_by_number_where_they_are_small_and_by_bytes_where_they_are_large() -> None:
    small, large = [rows(1, 5_000) for _ in range(600)], [rows(1, 50 * MB) for _ in range(3)]

    tasks = plan_tasks([*small, *large], [], anywhere, 4, 1 << 40)

    assert len(tasks) <= 12
    assert [piece.file for task in tasks for piece in task] == list(range(603))
    assert [len(task) for task in tasks[-3:]] == [1, 1, 1], "each of the large ones is a task"
    assert max(len(task) for task in tasks) <= 100, "hundreds of calls of a step are not one task"


def test_no_split_has_very_many_files_of_a_row_however_small_they_are() -> None:
    tasks = plan_tasks([rows(1, 0) for _ in range(5_000)], [], anywhere, 1, 128 * MB)

    assert 10 <= len(tasks) <= 12
    assert sum(map(len, tasks)) == 5_000


def test_a_row_is_never_split() -> None:
    tasks = plan_tasks([rows(3, 100 * MB)], [], anywhere, 8, MB)

    assert tasks == tuple((Range(file=0, start=number, end=number + 1),) for number in range(3))


def test_splits_begin_where_the_reader_can_start_cheaply() -> None:
    cuts = (0, 400, 1_000)
    tasks = plan_tasks([rows(1_000, 100 * MB, cuts=cuts)], [], at_cuts, 4, MB)

    assert [(piece.start, piece.end) for task in tasks for piece in task] == [(0, 400), (400, 1_000)]


def test_tasks_begin_at_row_groups_where_these_are_small_beside_a_task() -> None:
    """What begins inside a row group is fetched from its beginning, and by the task before to its end."""
    files = [rows(10_000, 10 * MB, cuts=tuple(range(0, 10_000, 130))) for _ in range(4)]

    tasks = plan_tasks(files, [], near_cuts, 2, 1 << 40)

    assert len(tasks) == 6
    assert all(piece.start % 130 == 0 for task in tasks for piece in task)
    sizes = [sum(piece.end - piece.start for piece in task if piece.end is not None) for task in tasks]
    assert max(sizes) - min(sizes) <= 2 * 130, "what one has too much, the next has less"


def test_a_row_group_that_is_large_beside_a_task_is_shared_out() -> None:
    tasks = plan_tasks([rows(1_000, 100 * MB, cuts=(0, 500))], [], near_cuts, 4, 1 << 40)

    assert [(piece.start, piece.end) for task in tasks for piece in task] == [
        *[(0, 83), (83, 167), (167, 250), (250, 333), (333, 417), (417, 500)],
        *[(500, 583), (583, 667), (667, 750), (750, 833), (833, 917), (917, 1_000)],
    ]


def test_text_that_is_read_from_its_start_only_is_never_cut() -> None:
    tasks = plan_tasks([records(500 * MB), records(500 * MB)], [], anywhere, 8, MB)

    assert tasks == ((Range(file=0, start=0, end=None),), (Range(file=1, start=0, end=None),))


def test_what_remains_of_such_a_text_is_its_end_in_one_piece() -> None:
    tasks = plan_tasks([records(500 * MB)], [Range(file=0, start=0, end=700)], anywhere, 8, MB)

    assert tasks == ((Range(file=0, start=700, end=None),),)


def test_the_beginning_of_such_a_text_is_not_cut_either() -> None:
    tasks = plan_tasks([records(500 * MB)], [Range(file=0, start=700, end=None)], anywhere, 8, MB)

    assert tasks == ((Range(file=0, start=0, end=700),),)


def test_a_hole_in_the_middle_is_planned_alone() -> None:
    covered = [Range(file=0, start=0, end=40), Range(file=0, start=50, end=100)]

    assert plan_tasks([rows(100, 400)], covered, anywhere, 1, MB) == ((Range(file=0, start=40, end=50),),)


def test_an_input_of_more_tasks_than_an_attempt_may_have_is_refused_with_the_way_out() -> None:
    files = [rows(1_000, size_bytes=1_024)] * 20

    assert len(plan_tasks(files, (), anywhere, 1, 512, most_tasks=40)) == 40
    with pytest.raises(NeedsChange, match="splitSize") as refused:
        plan_tasks(files, (), anywhere, 1, 512, most_tasks=39)

    assert refused.value.reason == reasons.RECORD_TOO_LARGE
    assert "more than 39 tasks" in refused.value.message
    assert len(plan_tasks(files, (), anywhere, 1, 1_024, most_tasks=39)) <= 39, "the way out"
