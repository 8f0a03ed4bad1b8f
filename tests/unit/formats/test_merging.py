"""The join of an upsert, over Arrow: keys in parts and groups, and what is found of a file's rows, beside plain Python."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_formats.merging.keys import Keys, Placed, Wanted, make_keys, read_bounds
from checkpoint_formats.merging.matching import open_matcher
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import MergeKeysPart, MergeKeysRecord
from tests.support.effort import examples
from tests.support.records import KEY
from tests.support.stores import MemoryStore

SCHEMA = pa.schema([("id", pa.int64()), ("o", pa.int64())])


def wanted(when_matched: str = "Update", on_duplicate: str = "Fail") -> Wanted:
    order_by = "o" if on_duplicate == "Last" else None
    return Wanted(("id",), when_matched, on_duplicate, order_by)  # type: ignore[arg-type]


def placed(numbers: np.ndarray[tuple[int], np.dtype[np.int64]] | list[int], file: int = 0) -> Placed:
    ids = pa.array(numbers, pa.int64())
    batch = pa.RecordBatch.from_arrays([ids, pa.array(range(len(ids)), pa.int64())], schema=SCHEMA)
    return Placed(batch, file, pa.array(range(len(ids)), pa.int64()))


def made(given_rows: list[Placed], asked: Wanted) -> tuple[Keys, MergeKeysRecord, Ledger]:
    ledger = Ledger(MemoryStore(), KEY)
    keys = make_keys(asked, SCHEMA, iter(given_rows), lambda rows, data: ledger.merges.put_part(new_token(), rows, data))
    record = MergeKeysRecord(
        token=new_token(), keys=asked.keys, rows=keys.rows, parts=keys.parts, bounds=keys.bounds, where=keys.where
    )
    return keys, record, ledger


def batches(ids: list[int] | np.ndarray[tuple[int], np.dtype[np.int64]], size: int = 3) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(ids), size):
        some = ids[start : start + size]
        yield pa.RecordBatch.from_pydict(
            {"k0": pa.array(some, pa.int64()), "pos": pa.array(range(start, start + len(some)), pa.int64())}
        )


def test_keys_of_many_parts_and_groups_are_each_found_once_in_files_of_all_of_them_and_of_a_few() -> None:
    count = 2_300_000
    ids = np.random.default_rng(1).permutation(count).astype(np.int64) * 2
    keys, record, ledger = made([placed(ids)], wanted())
    assert (keys.rows, keys.repeated) == (count, 0)
    assert len(keys.parts) == 5
    bounds = read_bounds(keys.bounds).to_pydict()
    assert (bounds["lower"][0], bounds["upper"][-1]) == (0, 2 * count - 2)
    read: list[MergeKeysPart] = []

    def load(part: MergeKeysPart) -> bytes:
        read.append(part)
        return ledger.merges.read_part(part)

    rows = np.arange(0, 2 * count, 1_001, dtype=np.int64)
    with open_matcher(record, load, [pa.int64()]) as matcher:
        found = matcher.rows_with_a_key(batches(rows, 1_000))
        assert found.at.tolist() == [number for number, value in enumerate(rows.tolist()) if value % 2 == 0]
        assert read == list(keys.parts)
        read.clear()
        assert matcher.rows_with_a_key(batches([5, 6, 7])).at.tolist() == [1]
        assert read == [keys.parts[0]]
        assert matcher.rows_with_a_key(batches([])).at.tolist() == []


_IDS = st.lists(st.integers(-4, 4), max_size=12)


@settings(max_examples=examples(30), deadline=None)
@given(staged=st.lists(_IDS, max_size=3), rows=_IDS)
def test_what_is_found_is_what_python_finds(staged: list[list[int]], rows: list[int]) -> None:
    given_rows = [placed(ids, number) for number, ids in enumerate(staged)]
    counts: dict[int, tuple[int, int, int]] = {}
    for number, ids in enumerate(staged):
        for pos, value in enumerate(ids):
            counts[value] = max(counts.get(value, (-1, -1, -1)), (pos, number, pos))
    keys, record, ledger = made(given_rows, wanted("Ignore", "Last"))

    assert keys.rows == len(counts)
    assert keys.repeated == sum(map(len, staged)) - len(counts)
    with open_matcher(record, ledger.merges.read_part, [pa.int64()]) as matcher:
        assert matcher.rows_with_a_key(batches(rows)).at.tolist() == [n for n, value in enumerate(rows) if value in counts]
        found = matcher.staged_rows_with_a_key(batches(rows))
        assert found.file is not None
        assert found.pos is not None
        assert found.at.tolist() == sorted(found.at.tolist())
        assert {
            (at, file, pos) for at, file, pos in zip(found.at.tolist(), found.file.tolist(), found.pos.tolist(), strict=True)
        } == {(rows.index(value), *counts[value][1:]) for value in set(rows) & counts.keys()}
        for number, ids in enumerate(staged):
            lost = matcher.rows_that_do_not_count(batches(ids), number)
            assert lost.at.tolist() == [pos for pos, value in enumerate(ids) if counts[value][1:] != (number, pos)]


def test_several_rows_of_one_key_are_told_by_examples_and_their_number() -> None:
    with pytest.raises(NeedsChange, match=r"id = 1 \(3 rows\); id = 2 \(2 rows\)") as caught:
        made([placed([1, 2, 1, 3]), placed([2, 1], 1)], wanted())

    assert caught.value.reason == reasons.OUTPUT_KEY_REPEATED
    assert "set sink.onDuplicate: Last with sink.orderBy" in caught.value.message
    assert "or leave the others out (source.where, or a step) in a new write" in caught.value.message
    assert made([placed([1, 2, 1, 3])], wanted("Delete"))[0].rows == 3


def test_what_is_known_of_the_keys_is_written_as_a_row_filter() -> None:
    assert made([placed([3, 1])], wanted())[0].where == '"id" in (1, 3)'
    assert made([placed(list(range(7, 1_000)))], wanted())[0].where == '"id" >= 7 and "id" <= 999'
    assert made([], wanted())[0].where is None


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.timestamp("us", "UTC"), [0, 253_402_318_799_000_000]),
        (pa.timestamp("us"), [-62_200_000_000_000_000, 0]),
        (pa.date32(), [0, 2_932_897]),
    ],
)
def test_keys_in_years_that_python_does_not_have_are_keys(kind: pa.DataType, values: list[int]) -> None:
    column = pa.array(values, kind)
    batch = pa.record_batch({"id": column})
    rows = Placed(batch, 0, pa.array(range(2), pa.int64()))
    ledger = Ledger(MemoryStore(), KEY)

    keys = make_keys(wanted(), batch.schema, iter([rows]), lambda rows, data: ledger.merges.put_part(new_token(), rows, data))

    bounds = read_bounds(keys.bounds)
    assert (keys.rows, bounds.column("lower"), bounds.column("upper")) == (2, column[:1], column[1:])
    assert keys.where is None, "a row filter cannot name them"


def test_what_the_rows_raise_is_raised_as_it_is() -> None:
    def failing() -> Iterator[Placed]:
        yield placed([1])
        raise NeedsChange(reasons.SOURCE_CHANGED, "gone")

    with pytest.raises(NeedsChange, match="gone"):
        make_keys(wanted(), SCHEMA, failing(), lambda rows, data: pytest.fail("nothing is put"))


def test_a_part_that_was_touched_is_no_keys() -> None:
    keys, record, ledger = made([placed([1])], wanted())
    path = ledger.at.merge_keys_part(keys.parts[0].token)
    ledger.store.delete([path])
    with (
        pytest.raises(Corrupt, match="is gone"),
        open_matcher(record, ledger.merges.read_part, [pa.int64()]) as matcher,
    ):
        matcher.rows_with_a_key(batches([1]))
    ledger.store.put_if_absent(path, b"x" * keys.parts[0].size_bytes)
    with (
        pytest.raises(Corrupt, match="is not what was put"),
        open_matcher(record, ledger.merges.read_part, [pa.int64()]) as matcher,
    ):
        matcher.rows_with_a_key(batches([1]))
