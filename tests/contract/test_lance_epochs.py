"""Which rows of a Lance dataset with stable row ids an epoch takes: over any history, exactly those that none has taken."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from typing import Any

import lance
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint_formats.lance.reader import LanceReader, find_fragments, list_fragments
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol.manifest.sources.source import LanceSource
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import TakenFile
from checkpoint_protocol.records.formats.lance import PinnedLance
from checkpoint_protocol.rows.positions import Range

STORAGE = StorageSettings()
IDS = pa.schema([("n", pa.int64())])
OPERATIONS = ("append", "late append", "insert", "delete new rows", "compact", "compact with deletes", "take")


class Epochs:
    """The epochs of a write, and what each has read."""

    def __init__(self, uri: str) -> None:
        self.source = LanceSource(uri=uri)
        self.taken: list[int] = []
        self._files: list[TakenFile] = []
        self._before: PinnedLance | None = None

    def take(self) -> None:
        described, table = find_fragments(self.source, ("n",), STORAGE, self._files, "Fail", None, self._before)
        known = {file.path for file in self._files}
        new = [file for file in described.files if file.path not in known]
        for index, file in enumerate(new):
            assert file.end is not None
            reader, middle = LanceReader(table, STORAGE), file.end // 2
            for start, end in itertools.pairwise(sorted({0, middle, file.end})):
                chunks = reader.read(file, Range(file=index, start=start, end=end), IDS, BatchSizing(60.0, scale=2**-16))
                self.taken += [number for chunk in chunks for number in chunk.batch.column(0).to_pylist()]
        self._files += [TakenFile(path=file.path, etag=file.etag, size_bytes=0, fragment=file.fragment) for file in new]
        self._before = table

    def news(self) -> list[str]:
        """What a look at the dataset finds."""
        known = {(file.path, file.etag) for file in self._files}
        return [file.path for file in list_fragments(self.source, STORAGE, self._before) if (file.path, file.etag) not in known]


def change(uri: str, operation: str, numbers: Iterator[int], taken: list[int]) -> None:
    dataset: Any = lance.dataset(uri)
    rows = pa.table({"n": list(itertools.islice(numbers, 3))}, schema=IDS)
    match operation:
        case "append":
            lance.write_dataset(rows, uri, mode="append")
        case "late append":
            staged = lance.fragment.write_fragments(rows, uri, mode="append", schema=dataset.schema)
            dataset.update_config({"version": str(dataset.version)})
            lance.LanceDataset.commit(uri, lance.LanceOperation.Append(staged), read_version=dataset.version - 1)
        case "insert":
            dataset.merge_insert("n").when_not_matched_insert_all().execute(rows)
        case "delete new rows":
            dataset.delete(f"n % 2 = 0 and n > {max(taken, default=-1)}")
        case "compact":
            dataset.optimize.compact_files(target_rows_per_fragment=12)
        case "compact with deletes":
            dataset.optimize.compact_files(materialize_deletions_threshold=0.0)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(OPERATIONS), min_size=4, max_size=14))
def test_over_any_history_each_row_is_taken_once_and_a_look_has_news_where_there_are_new_rows(operations: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        uri, numbers = f"{folder}/source.lance", itertools.count()
        lance.write_dataset(pa.table({"n": list(itertools.islice(numbers, 3))}), uri, enable_stable_row_ids=True)
        epochs = Epochs(uri)
        for operation in (*operations, "take"):
            if operation != "take":
                change(uri, operation, numbers, epochs.taken)
                continue
            there = set(lance.dataset(uri).to_table().column("n").to_pylist())
            has_new = not there <= set(epochs.taken)
            assert bool(epochs.news()) == has_new
            epochs.take()
            assert sorted(epochs.taken) == sorted(there)
            assert not epochs.news()
