"""Whole files as rows."""

from __future__ import annotations

import datetime
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_formats.files.binary.reader import MOST_CONTENT_BYTES, BinaryReader
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.planning import plan_tasks
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import InputRecord
from tests.support.effort import examples
from tests.support.reading import chunks_of, open_reader, read_whole, rows_of, whole

SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("etag", pa.string()),
        ("modified", pa.timestamp("us", "UTC")),
        ("content", pa.binary()),
    ]
)
AT = datetime.datetime(2026, 3, 4, 5, 6, 7, 890_123, tzinfo=datetime.UTC)


def put(folder: Path, name: str, content: bytes = b"x", at: datetime.datetime = AT) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    since = (at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1) * 1_000
    os.utime(path, ns=(since, since))
    return str(path)


class Watched(SourceFiles):
    """Files of this machine, of which it notes what is read, and whose contents it may be refused."""

    def __init__(self, *refused: str, error: CheckpointError | None = None) -> None:
        super().__init__(StorageSettings())
        self.read: list[str] = []
        self.refused = refused
        self.error = error or NeedsChange(reasons.CREDENTIALS_REFUSED, "the store refused access to it")

    def read_range(self, path: str, start: int, end: int) -> bytes:
        self.read.append(path)
        if path in self.refused:
            raise self.error
        return super().read_range(path, start, end)


def test_a_file_is_a_row_of_path_size_etag_time_and_content_also_where_it_is_empty(tmp_path: Path) -> None:
    image = put(tmp_path, "a/é #%20.png", b"\x89PNG\0\xff")
    empty = put(tmp_path, "b/empty.pdf", b"")
    reader = open_reader("binary")

    files, schema = reader.describe([str(tmp_path)])

    assert schema.equals(SCHEMA)
    assert [(file.path, file.unit, file.start, file.end) for file in files] == [(image, "rows", 0, 1), (empty, "rows", 0, 1)]
    etags = [file.etag for file in files]
    assert read_whole(reader, files, schema) == [
        {"path": image, "size": 6, "etag": etags[0], "modified": AT, "content": b"\x89PNG\0\xff"},
        {"path": empty, "size": 0, "etag": etags[1], "modified": AT, "content": b""},
    ]


def test_the_time_is_as_the_input_was_fixed_and_may_lie_before_1970(tmp_path: Path) -> None:
    before = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC)
    put(tmp_path, "a", at=before)
    reader = open_reader("binary", columns=["modified"])
    (file,), schema = reader.describe([str(tmp_path)])
    assert file.modified_us == -1
    assert rows_of(chunks_of(reader, file, whole(file), schema)) == [{"modified": before}]


def test_the_input_says_how_many_rows_there_are(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        put(tmp_path, name, b"")
    files, _ = open_reader("binary").describe([str(tmp_path)])
    record = InputRecord(token="0" * 32, files=files, arrow_schema="")
    assert record.totals.rows == 3


@pytest.mark.parametrize(
    ("columns", "where"),
    [
        (("path", "size"), None),
        (("etag", "modified", "path"), "size > 0"),
        (None, "size > 100"),
        (None, "path like '/nowhere%'"),
        (None, "modified >= '2027-01-01T00:00:00Z'"),
    ],
)
def test_contents_are_not_read_where_nobody_asks_for_them(
    tmp_path: Path, columns: tuple[str, ...] | None, where: str | None
) -> None:
    path = put(tmp_path, "a")
    options: dict[str, Any] = {name: value for name, value in (("columns", columns), ("where", where)) if value is not None}
    watched, described = Watched(path), open_reader("binary", **options)
    (file,), schema = described.describe([path])
    reader = BinaryReader(described._selection.columns_to_read, watched, described._selection.condition)

    chunks = chunks_of(reader, file, whole(file), schema)

    assert watched.read == []
    assert sum(chunk.batch.num_rows for chunk in chunks) == (0 if columns is None else 1)


def test_a_condition_takes_files_by_what_is_known_of_them(tmp_path: Path) -> None:
    later = AT + datetime.timedelta(days=1)
    paths = [put(tmp_path, "a.png", b"1"), put(tmp_path, "b.png", b"22", later), put(tmp_path, "c.pdf", b"333", later)]
    for where, taken in [
        ("size >= 2", [1, 2]),
        ("modified < '2026-03-05T00:00:00Z'", [0]),
        (f"path = '{paths[2]}' or size = 1", [0, 2]),
        ("content is not null and size = 2", [1]),
        ("content is null", []),
    ]:
        reader = open_reader("binary", where=where, columns=["path"])
        files, schema = reader.describe([str(tmp_path)])
        chunks = [chunk for file in files for chunk in reader.read(file, whole(file), schema, BatchSizing(60.0))]
        assert [row["path"] for row in rows_of(chunks)] == [paths[number] for number in taken], where


@pytest.mark.parametrize("reason", [reasons.CREDENTIALS_REFUSED, reasons.SOURCE_UNREADABLE])
def test_a_content_that_alone_cannot_be_read_is_a_row_that_failed(tmp_path: Path, reason: str) -> None:
    path = put(tmp_path, "a")
    error = NeedsChange(reason, f"{path}: no")
    reader = BinaryReader(None, Watched(path, error=error))
    (file,), schema = open_reader("binary").describe([path])

    (chunk,) = chunks_of(reader, file, whole(file), schema)

    assert chunk.failed is error
    assert list(chunk.bounds()) == [(0, 1)]


def test_a_store_that_does_not_answer_fails_no_row(tmp_path: Path) -> None:
    path = put(tmp_path, "a")
    reader = BinaryReader(None, Watched(path, error=Retryable(reasons.STORE_UNAVAILABLE, "no answer")))
    (file,), schema = open_reader("binary").describe([path])
    with pytest.raises(Retryable):
        chunks_of(reader, file, whole(file), schema)


def test_a_file_that_goes_between_look_and_reading_fails_no_row(tmp_path: Path) -> None:
    path = put(tmp_path, "a")

    class Going(Watched):
        def read_range(self, path: str, start: int, end: int) -> bytes:
            os.unlink(path)
            raise self.error

    (file,), schema = open_reader("binary").describe([path])
    with pytest.raises(NeedsChange) as stopped:
        chunks_of(BinaryReader(None, Going()), file, whole(file), schema)
    assert stopped.value.reason == reasons.SOURCE_CHANGED


def test_a_content_that_is_too_large_is_a_row_that_failed_and_its_size_can_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "film"
    with path.open("wb") as film:
        film.truncate(MOST_CONTENT_BYTES + 1)
    (file,), schema = open_reader("binary").describe([str(path)])

    (chunk,) = chunks_of(open_reader("binary"), file, whole(file), schema)

    assert chunk.failed is not None
    assert str(path) in chunk.failed.message
    assert "1,073,741,825 bytes" in chunk.failed.message
    assert f"size <= {MOST_CONTENT_BYTES}" in chunk.failed.message
    reader = open_reader("binary", columns=["size"])
    (file,), schema = reader.describe([str(path)])
    assert rows_of(chunks_of(reader, file, whole(file), schema)) == [{"size": MOST_CONTENT_BYTES + 1}]


def test_a_file_that_was_replaced_is_noticed_when_it_is_opened_also_where_only_its_path_is_read(tmp_path: Path) -> None:
    path = put(tmp_path, "a", b"old")
    reader = open_reader("binary", columns=["path"])
    (file,), schema = reader.describe([path])
    put(tmp_path, "a", b"newer")
    for use in (lambda: reader.check_unchanged(file), lambda: chunks_of(reader, file, whole(file), schema)):
        with pytest.raises(NeedsChange) as noticed:
            use()
        assert noticed.value.reason == reasons.SOURCE_CHANGED


def test_a_column_that_no_file_has_is_named(tmp_path: Path) -> None:
    with pytest.raises(NeedsChange, match=r"has no column 'length' \(it has path, size, etag, modified, content\)"):
        open_reader("binary", columns=["path", "length"]).describe([put(tmp_path, "a")])


contents = st.lists(st.binary(max_size=40), min_size=1, max_size=12)


@given(contents, st.data(), st.integers(1, 8), st.sampled_from([1, 300_000, 128 << 20]))
@settings(deadline=None, max_examples=examples(30))
def test_whatever_was_sealed_before_each_file_comes_once_and_in_order(
    contents: list[bytes], data: st.DataObject, parallelism: int, split_size: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        for number, content in enumerate(contents):
            put(Path(name), f"{number:02}", content)
        reader = open_reader("binary")
        files, schema = reader.describe([name])
        first = plan_tasks(files, [], reader.align, parallelism, split_size)
        sealed = data.draw(st.lists(st.sampled_from([piece for task in first for piece in task]), unique=True))

        rest = plan_tasks(files, sealed, reader.align, parallelism, split_size)

        pieces = sorted((*sealed, *(piece for task in rest for piece in task)), key=lambda piece: piece.file)
        assert [piece.file for piece in pieces] == list(range(len(contents)))
        rows = [row for piece in pieces for row in rows_of(chunks_of(reader, files[piece.file], piece, schema))]
        assert [row["content"] for row in rows] == contents
