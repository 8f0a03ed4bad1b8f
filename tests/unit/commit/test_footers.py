"""Row counts by footers: which files are looked at, what is refused, and that a hostile footer costs nothing."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_operator.commit.footers import Footers, parquet_rows
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.sink import Sink, Verify


def looked_at(verify: Verify, count: int, wrong: int | None = None) -> list[str]:
    """Take so many files of seven rows; return those whose footers were read."""
    seen: list[str] = []

    def count_rows(path: str) -> int:
        seen.append(path)
        return 6 if path == f"file-{wrong}" else 7

    footers = Footers(verify, count_rows, lambda below: below - 1)
    for number in range(count):
        footers.add(f"file-{number}", 7)
    footers.finish()
    return sorted(seen)


def parquet(rows: int, columns: int = 1) -> bytes:
    made = io.BytesIO()
    pq.write_table(pa.table({f"column-{number}": list(range(rows)) for number in range(columns)}), made)
    return made.getvalue()


def rows_of(data: bytes, asked: list[int] | None = None) -> int:
    def tail(most_bytes: int) -> bytes:
        if asked is not None:
            asked.append(most_bytes)
        return data[-most_bytes:]

    return parquet_rows("s3://lake/a.parquet", tail)


def test_by_default_no_footer_is_read() -> None:
    assert looked_at("Seals", 500, wrong=3) == []


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201, 450])
def test_every_footer_is_read_where_all_are_asked_for(count: int) -> None:
    assert len(looked_at("Footers", count)) == count


@pytest.mark.parametrize(("count", "read"), [(0, 0), (1, 1), (19, 1), (20, 1), (21, 2), (400, 20)])
def test_one_of_twenty_is_read_where_they_are_sampled_and_one_at_least(count: int, read: int) -> None:
    assert len(looked_at("SampledFooters", count)) == read


@pytest.mark.parametrize("wrong", [0, 199, 200, 204])
def test_a_file_whose_footer_says_otherwise_is_named_with_both_counts(wrong: int) -> None:
    with pytest.raises(NeedsChange, match=rf"file-{wrong} has 6 rows by its footer, and its seal says 7") as refused:
        looked_at("Footers", 205, wrong=wrong)
    assert refused.value.reason == reasons.STAGED_RESULT_REFUSED


def test_the_rows_of_a_parquet_file_are_in_the_first_request() -> None:
    asked: list[int] = []
    assert rows_of(parquet(1234), asked) == 1234
    assert asked == [64 << 10]


def test_a_footer_that_is_larger_is_asked_for_as_a_whole() -> None:
    asked: list[int] = []
    wide = parquet(3, columns=1500)
    assert rows_of(wide, asked) == 3
    assert len(asked) == 2


@pytest.mark.parametrize(
    "data",
    [b"", b"PAR1", parquet(3)[:-1], b"\xff\xff\xff\x7fPAR1", b"x" * 100 + (90).to_bytes(4, "little") + b"PAR1"],
    ids=["empty", "only magic", "cut off", "a footer of 2 GiB", "no thrift"],
)
def test_what_has_no_footer_is_refused_and_little_of_it_is_read(data: bytes) -> None:
    asked: list[int] = []
    with pytest.raises(NeedsChange, match=r"s3://lake/a\.parquet is no Parquet file"):
        rows_of(data, asked)
    assert max(asked) == 64 << 10


def test_how_a_commit_is_verified_is_no_part_of_what_a_write_is() -> None:
    def sink(**fields: object) -> Sink:
        return Sink.model_validate({"lance": {"uri": "s3://lake/a.lance"}, **fields})

    assert sink(verify="Footers").identity == sink().identity


def test_without_a_table_there_is_nothing_to_verify() -> None:
    with pytest.raises(ValueError, match="there are no files"):
        Sink.model_validate({"none": {}, "verify": "Footers"})
