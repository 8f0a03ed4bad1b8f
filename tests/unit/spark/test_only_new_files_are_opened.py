"""What an epoch takes, and under which columns, is the same whether taken files are opened or known by the index."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_formats.files import file_columns
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import index_of
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import InputRecord
from checkpoint_protocol.records import inputs as input_records
from checkpoint_work.inputs.epoch_input import Earlier, fix_input, list_source
from tests.support.records import end_epoch, launch
from tests.support.sources import source_of
from tests.support.stores import MemoryStore

Edit = dict[str, Any]


@dataclass
class Write:
    """Epochs of one write, of files in a folder. `opened` are the files of which the last look has read anything."""

    folder: Path
    files: dict[str, Any]
    opened: set[str]
    store: MemoryStore = field(default_factory=MemoryStore)
    epoch: int = 0
    more: Edit = field(default_factory=dict)

    def put(self, contents: Mapping[str, Any]) -> None:
        for name, content in contents.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, pa.Table):
                pq.write_table(content, path)
            else:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def next_epoch(self) -> tuple[Sequence[str], pa.Schema] | str:
        """Return which files it takes, and the columns; or why it cannot. The same is found where all files are opened."""
        source = source_of({"files": {"paths": [str(self.folder)], **self.files}})
        orders = launch().model_copy(update={"source": source, **self.more})
        ledger = Ledger(self.store, EpochKey("ab" * 16, self.epoch + 1))
        index_of(ledger).ensure(self.epoch)

        def look(earlier: Earlier) -> InputRecord:
            unknown = replace(earlier, files=tuple(replace(file, columns=None) for file in earlier.files), columns=())
            by_opening = self._look(orders, unknown)
            self.opened.clear()
            found = self._look(orders, earlier)
            if isinstance(found, CheckpointError) or isinstance(by_opening, CheckpointError):
                assert str(found) == str(by_opening)
                assert isinstance(found, CheckpointError)
                raise found
            assert found.files == by_opening.files
            assert decode_schema(found.arrow_schema).equals(decode_schema(by_opening.arrow_schema), check_metadata=True)
            return found

        try:
            fixed = fix_input(ledger, orders, look)
        except CheckpointError as error:
            return f"{error.reason}: {error.message}"
        end_epoch(ledger, orders)
        self.epoch += 1
        return [Path(file.path).name for file in fixed.files], decode_schema(fixed.arrow_schema)

    def _look(self, orders: Any, earlier: Earlier) -> InputRecord | CheckpointError:
        try:
            return list_source(orders, StorageSettings(), "memory://checkpoints", earlier)
        except NeedsChange as error:
            return error


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    names: set[str] = set()

    def noted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(files: SourceFiles, path: str, *more: Any) -> Any:
            names.add(Path(path).name)
            return method(files, path, *more)

        return call

    for name in ("read_range", "open_arrow"):
        monkeypatch.setattr(SourceFiles, name, noted(getattr(SourceFiles, name)))
    return names


def table(**columns: Any) -> pa.Table:
    return pa.table({name: pa.array([1], kind) for name, kind in columns.items()})


INT, LONG, DOUBLE = pa.int32(), pa.int64(), pa.float64()

#: A source, what the first epoch takes, what comes then, and which of the files of before are opened for it.
CASES: Mapping[str, tuple[Edit, Mapping[str, Any], Mapping[str, Any], set[str]]] = {
    "Parquet": (
        {"format": "parquet"},
        {"b": table(id=INT, x=DOUBLE), "d": table(id=LONG)},
        {"a": table(y=LONG, id=INT), "c": table(x=DOUBLE, z=INT, id=INT)},
        set(),
    ),
    "CSV": (
        {"format": "csv"},
        {"b": "id,x\n1,2\n", "d": "id\n1\n", "e": ""},
        {"a": "y,id\n1,1\n", "c": "x,z\n1.5,a\n"},
        {"b", "d"},  # their first rows tell types
    ),
    "many CSV": (
        {"format": "csv"},
        {f"a{number:02}": f"id\n{number}\n" for number in range(20)},
        {"b": "id\n1\n"},
        {"a00", "a01", "a02"},
    ),
    "CSV without header": ({"format": "csv", "csv": {"header": False}}, {"b": "1,2\n", "d": ""}, {"a": "3,x\n"}, {"b", "d"}),
    "CSV in gzip": ({"format": "csv"}, {"a.gz": gzip.compress(b"id\n1\n")}, {"b.gz": gzip.compress(b"id,x\n1,2\n")}, {"a.gz"}),
    "JSON": (
        {"format": "json"},
        {f"a{number}": f'{{"id": {number}}}' for number in range(5)},
        {"b": '{"id": 7}'},
        {"a0", "a1", "a2"},
    ),
    "whole files": ({"format": "binary"}, {"a": "1"}, {"b": "2"}, set()),
    "folders of columns": (
        {"format": "parquet"},
        {"day=1/a": table(id=INT), "day=2/b": table(id=LONG)},
        {"day=x/c": table(id=INT)},
        set(),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_epoch_finds_what_it_would_find_by_opening_all_files(case: str, opened: set[str], tmp_path: Path) -> None:
    files, before, then, opened_again = CASES[case]
    write = Write(tmp_path / "in", files, opened)
    write.put(before)
    first = write.next_epoch()
    write.put(then)
    second, opened_for_second = write.next_epoch(), set(opened)
    third = write.next_epoch()

    names = [{Path(name).name for name in found} for found in (before, then, ())]
    assert [set(found[0]) for found in (first, second, third)] == names
    assert opened_for_second & names[0] == opened_again


def two_epochs(write: Write, before: Mapping[str, Any], then: Mapping[str, Any], edit: Edit) -> Any:
    write.put(before)
    write.next_epoch()
    write.put(then)
    write.files = {**write.files, **edit}
    return write.next_epoch()


@pytest.mark.parametrize(
    ("files", "before", "then", "edit", "said"),
    [
        (
            {"format": "parquet"},
            {"a": table(x=pa.int64())},
            {"b": table(x=DOUBLE)},
            {},
            "b has double .* and source file .*a has",
        ),
        ({"format": "parquet"}, {"a": table(x=INT)}, {"b": table(X=INT)}, {}, "differ by case"),
        ({"format": "parquet"}, {"b": table(x=INT)}, {"a": table(x=LONG)}, {"schema": "Same"}, "schema: Same"),
        ({"format": "csv"}, {"a": "id\n1\n"}, {"b": "no\n1\n"}, {}, "no column in common"),
        ({"format": "csv", "csv": {"header": False}}, {"a": "1,2\n"}, {"b": "1\n"}, {}, "columns"),
        ({"format": "csv"}, {"a": "id;x\n1;2\n"}, {"b": "id;x\n1;2\n"}, {"types": {"y": "int64"}}, "no column 'y'"),
        ({"format": "parquet"}, {"a": table(x=INT)}, {"b": "no"}, {}, "b: .*Parquet"),
        ({"format": "csv"}, {"a": "id\n1\n"}, {}, {"format": "parquet"}, "a: .*Parquet"),
        ({"format": "parquet"}, {"a": table(x=INT)}, {"_delta_log/0.json": "{}"}, {}, "a Delta table"),
        ({"format": "csv"}, {"a": "id\n1\n"}, {"a": "id\n1\n2\n"}, {}, reasons.SOURCE_CHANGED),
    ],
)
def test_files_that_do_not_go_with_taken_ones_are_refused_in_the_same_words(
    files: Edit, before: Mapping[str, Any], then: Mapping[str, Any], edit: Edit, said: str, opened: set[str], tmp_path: Path
) -> None:
    found = two_epochs(Write(tmp_path / "in", files, opened), before, then, edit)
    assert isinstance(found, str)
    assert re.search(said, found)


def test_another_delimiter_has_taken_files_opened_again(opened: set[str], tmp_path: Path) -> None:
    write = Write(tmp_path / "in", {"format": "csv"}, opened)
    before = {f"a{number}": "id;x\n1;2\n" for number in range(9)}
    found = two_epochs(write, before, {"b": "id;x\n1;2\n"}, {"csv": {"delimiter": ";"}})
    assert found[1].names == ["id", "x"]
    assert opened == {*before, "b"}


@pytest.mark.parametrize("on_replaced", ["Process", "Skip"])
def test_a_replaced_file_counts_with_the_columns_that_it_has_now(on_replaced: str, opened: set[str], tmp_path: Path) -> None:
    write = Write(tmp_path / "in", {"format": "parquet"}, opened, more={"on_replaced": on_replaced})
    found = two_epochs(write, {"a": table(x=INT), "b": table(x=INT)}, {"a": table(x=INT, y=INT)}, {})
    assert found[0] == (["a"] if on_replaced == "Process" else [])
    assert found[1].names == ["x", "y"]
    assert opened == {"a"}


def test_columns_of_a_file_that_is_gone_are_not_those_of_the_source(opened: set[str], tmp_path: Path) -> None:
    write = Write(tmp_path / "in", {"format": "parquet"}, opened)
    write.put({"a": table(x=INT), "b": table(y=INT, x=INT)})
    write.next_epoch()
    (write.folder / "b").unlink()
    assert write.next_epoch() == ([], pa.schema([("x", INT)]))


def test_a_file_that_has_another_name_now_is_not_opened(opened: set[str], tmp_path: Path) -> None:
    write = Write(tmp_path / "in", {"format": "parquet"}, opened)
    write.put({"b": table(x=INT)})
    write.next_epoch()
    (write.folder / "a").hardlink_to(write.folder / "b")
    assert write.next_epoch() == ([], pa.schema([("x", INT)]))
    assert opened == set()


def test_columns_that_are_too_many_for_a_record_are_not_kept_and_their_files_are_opened(
    opened: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (file_columns, input_records):
        monkeypatch.setattr(module, "MOST_COLUMNS_BYTES", 1_000)
    write = Write(tmp_path / "in", {"format": "parquet"}, opened)
    write.put({f"a{number}": table(**{"id": INT, f"x{number}": LONG}) for number in range(5)})
    write.next_epoch()
    write.put({"b": table(id=INT)})
    found: Any = write.next_epoch()
    assert found[0] == ["b"]
    assert found[1].names == ["id", *(f"x{number}" for number in range(5))]
    assert {"a4", "b"} <= opened
    assert "a0" not in opened
