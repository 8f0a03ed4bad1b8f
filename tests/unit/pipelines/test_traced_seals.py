"""What a seal tells of rows and positions, and that it is never taken to tell more."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint_control.views.traced_seals import UNENDING, Traced, traced
from checkpoint_protocol.records import Seal, StageFile, StageTarget
from checkpoint_protocol.rows.lineage import Run, Span
from checkpoint_protocol.rows.positions import Range
from tests.support.records import seal

TARGET = StageTarget(folder="file:///store/staged/1/1/stages/a", arrow_schema="")
ALL: Span = (0, UNENDING)


def sealed(
    covers: Sequence[tuple[int, int, int | None]],
    rows: Sequence[int],
    lineage: tuple[Run, ...] | None,
    buckets: tuple[int, ...] = (),
) -> Seal:
    files = [
        StageFile(name=f"{number}.arrow", size_bytes=1, rows=count, batches=(count,), buckets=buckets)
        for number, count in enumerate(rows)
    ]
    return seal(covers=covers, files=files).model_copy(update={"lineage": lineage})


def back(one: Seal, file: int, *spans: Span) -> Traced:
    return traced(one, TARGET).of_rows({f"{TARGET.folder}/{file}.arrow": spans})


def forward(one: Seal, file: int, *spans: Span) -> list[tuple[str, Span]]:
    made = traced(one, TARGET).of_positions(lambda piece: spans if piece.file == file else ())
    return [(name.rpartition("/")[2], span) for name, span in made.rows_by_name()]


def test_rows_are_counted_through_files_and_positions_through_ranges() -> None:
    one = sealed([(0, 10, 13), (4, 0, 2)], [2, 3], ((5, 1, 1),))

    assert back(one, 1, (1, 2)) == Traced((Range(file=4, start=0, end=1),), back(one, 1, (1, 2)).rows, is_exact=True)
    assert forward(one, 4, (0, 1)) == [("1.arrow", (1, 2))]
    assert forward(one, 0, (11, 13)) == [("0.arrow", (1, 2)), ("1.arrow", (0, 1))]


def test_a_seal_that_does_not_tell_is_one_piece() -> None:
    one = sealed([(0, 10, 13)], [3], None)

    assert back(one, 0, (1, 2)).positions == (Range(file=0, start=10, end=13),)
    assert not back(one, 0, (1, 2)).is_exact


def test_a_seal_of_one_position_is_exact_whatever_it_tells() -> None:
    assert back(sealed([(0, 10, 11)], [3], None), 0, (1, 2)).is_exact


def test_what_does_not_add_up_is_not_believed() -> None:
    for lineage in (((2, 1, 1),), ((3, 1, 2),), ()):
        assert not back(sealed([(0, 10, 13)], [3], lineage), 0, (1, 2)).is_exact


def test_an_end_that_nobody_told_is_taken_for_no_row() -> None:
    one = sealed([(0, 0, None), (1, 0, None)], [2], None)

    found = back(one, 0, (1, 2))

    assert found.positions == (Range(file=0, start=0, end=UNENDING), Range(file=1, start=0, end=UNENDING))
    assert not found.is_exact
    assert forward(one, 1, (7, 8)) == [("0.arrow", (0, 2))]


def test_an_end_that_was_counted_is_known() -> None:
    one = sealed([(0, 3, None)], [2], ((2, 1, 1),))

    assert back(one, 0, (1, 2)).positions == (Range(file=0, start=4, end=5),)
    assert forward(one, 0, (9, 10)) == []


def test_of_buckets_each_row_of_the_file_may_be_meant() -> None:
    one = sealed([(0, 0, 3)], [3], ((3, 1, 1),), buckets=(2,))
    bucket = f"{TARGET.folder}/bucket-0002"

    found = traced(one, TARGET).of_rows({bucket: [(700, 701)]})

    assert found.positions == (Range(file=0, start=0, end=3),)
    assert not found.is_exact
    assert forward(one, 0, (1, 2)) == [("bucket-0002", ALL)]


def test_of_a_bucket_no_row_is_exact_since_it_may_have_others() -> None:
    one = sealed([(0, 0, 1)], [3], ((1, 1, 3),), buckets=(2,))

    assert not traced(one, TARGET).of_rows({f"{TARGET.folder}/bucket-0002": [ALL]}).is_exact
    assert not traced(one, TARGET).of_positions(lambda _piece: [ALL]).is_exact
