"""Text in whole lines."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_formats.files import lines as lines_module
from checkpoint_formats.files.lines import Lines, first_line, line_blocks, line_start, piece_of_lines, read_beginning
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records.inputs import SourceFile

FILES = SourceFiles(StorageSettings())

texts = st.lists(st.sampled_from([b"\n", b"\r\n", b"a", b"bc", b"\xc3\xa9", b" "]), max_size=40).map(b"".join)


def lines_of(data: bytes) -> Lines:
    return Lines(b"__" + data + b"\n__", 2, 2 + len(data), 100)


def reading_by(data: bytes, sizes: Sequence[int]) -> Callable[[int], bytes]:
    """Give the data in parts of these sizes, whatever is asked for."""
    parts, at, turn = [], 0, 0
    while at < len(data):
        parts.append(data[at : at + sizes[turn % len(sizes)]])
        at += len(parts[-1])
        turn += 1
    return lambda _: parts.pop(0) if parts else b""


@settings(deadline=None)
@given(data=texts, reads=st.lists(st.integers(1, 9), min_size=1), wanted=st.integers(1, 9), position=st.integers(0, 5))
def test_blocks_are_whole_lines_and_together_the_text(data: bytes, reads: list[int], wanted: int, position: int) -> None:
    blocks = list(line_blocks(reading_by(data, reads), position, lambda: wanted, "x"))
    assert b"".join(block.buffer.to_pybytes() for block in blocks) == data
    assert [block.position for block in blocks] == [
        position + sum(block.size_bytes for block in blocks[:number]) for number in range(len(blocks))
    ]
    for block in blocks[:-1]:
        text = block.buffer.to_pybytes()
        assert text.endswith(b"\n")
        assert len(text) <= wanted or text.count(b"\n") == 1, "longer than asked only for one long line"


@settings(deadline=None)
@given(data=texts.filter(bool), fewer=st.integers(0, 3))
def test_rows_in_blank_lines_are_not_expected_and_missing_ones_are_noticed(data: bytes, fewer: int) -> None:
    lines = data.replace(b"\r\n", b"\n").split(b"\n")
    for spaces_are_blank, filled in (
        (False, sum(1 for line in lines if line)),
        (True, sum(1 for line in lines if line.strip())),
    ):
        assert lines_of(data).are_as_many_as(filled - fewer, spaces_are_blank=spaces_are_blank) is (fewer == 0)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_return_alone_separates_lines_too(rows: int) -> None:
    assert lines_of(b"a\rb\n").are_as_many_as(rows, spaces_are_blank=False) is (rows == 2)


@settings(deadline=None)
@given(data=texts)
def test_lines_are_cut_into_lines_by_halving(data: bytes) -> None:
    parts, todo = [], [lines_of(data)]
    while todo:
        part = todo.pop()
        end = part.line_end_near_the_middle()
        todo += reversed(part.cut_at(end)) if end is not None else []
        parts += [part] if end is None else []
    texts = [part.buffer.to_pybytes() for part in parts]
    assert b"".join(texts) == data
    assert all(b"\n" not in text[:-1] for text in texts)
    assert [part.position for part in parts] == [100 + len(b"".join(texts[:number])) for number in range(len(texts))]


@settings(deadline=None)
@given(data=texts)
def test_last_line_that_is_not_blank(data: bytes) -> None:
    filled = [part for part in data.splitlines() if part]
    assert lines_of(data).last_filled_line() == (filled[-1] if filled else b"")


@pytest.mark.parametrize(("data", "blank"), [(b"", True), (b"\r\n\n\r", True), (b"\n \n", False), (b"a", False), (b"\na", False)])
def test_blank_lines(data: bytes, blank: bool) -> None:
    assert lines_of(data).is_blank is blank


def test_line_that_is_too_long_names_file_and_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "LONGEST_LINE_BYTES", 1 << 20)
    data = b"short\n" + b"x" * (2 << 20) + b"\n"
    with pytest.raises(NeedsChange, match=r"long\.csv: the line at byte 17 is longer than 1 MiB") as refused:
        list(line_blocks(reading_by(data, [64 << 10]), 11, lambda: 1, "long.csv"))
    assert refused.value.reason == reasons.SOURCE_UNREADABLE

    broken_up = b"short\n" + (b"x" * (1 << 19) + b"\n") * 4
    blocks = line_blocks(reading_by(broken_up, [64 << 10]), 11, lambda: 1, "long.csv")
    assert b"".join(block.data[block.begin : block.end] for block in blocks) == broken_up


def test_text_without_line_ends_is_read_a_bounded_number_of_times() -> None:
    """Each read asks for as much as there is already, so that nothing is copied again and again."""
    asked = []

    def read(size_bytes: int) -> bytes:
        asked.append(size_bytes)
        return b"" if sum(asked) > 100 << 20 else b"x" * size_bytes

    (block,) = line_blocks(read, 0, lambda: 1, "x")
    assert block.size_bytes >= 50 << 20
    assert len(asked) < 10


def described(folder: str, data: bytes, start: int = 0) -> SourceFile:
    path = Path(folder) / "x.txt"
    path.write_bytes(data)
    return SourceFile(path=str(path), etag="", size_bytes=len(data), unit="bytes", start=start, end=len(data))


@settings(deadline=None)
@given(data=texts, position=st.integers(0, 60), start=st.integers(0, 5))
def test_line_start_is_the_next_position_after_a_line_break(data: bytes, position: int, start: int) -> None:
    start, position = min(start, len(data)), min(position, len(data))
    with tempfile.TemporaryDirectory() as folder:
        found = line_start(FILES, described(folder, data, start), position)
    legal = [at for at in range(len(data) + 1) if at == start or at == len(data) or (at > start and data[at - 1 : at] == b"\n")]
    assert found == min(at for at in legal if at >= max(position, start))


@pytest.mark.parametrize("position", [1, 6, 7, 300_000])
def test_line_start_after_a_line_of_many_reads(tmp_path: Path, position: int) -> None:
    data = b"short\n" + b"x" * 300_000 + b"\nlast"
    assert line_start(FILES, described(str(tmp_path), data), position) == (6 if position <= 6 else 300_007)


def test_line_start_in_a_file_that_has_become_shorter_is_noticed(tmp_path: Path) -> None:
    file = described(str(tmp_path), b"abc\ndef\n")
    Path(file.path).write_bytes(b"abc")
    with pytest.raises(NeedsChange) as noticed:
        line_start(FILES, file, 6)
    assert noticed.value.reason == reasons.SOURCE_CHANGED


@pytest.mark.parametrize(("start", "end"), [(3, 8), (0, 7), (5, 8), (0, 3)])
def test_piece_that_does_not_begin_and_end_at_lines_is_refused(tmp_path: Path, start: int, end: int) -> None:
    file = described(str(tmp_path), b"abc\ndef\nghi")
    with pytest.raises(NeedsChange, match="a line began, and now none does") as refused:
        list(piece_of_lines(FILES, file, start, end, lambda: 2))
    assert refused.value.reason == reasons.SOURCE_CHANGED


@pytest.mark.parametrize(
    ("data", "line", "position"),
    [
        (b"a,b\nc", b"a,b\n", 0),
        (b"\n\r\n\na,b", b"a,b", 4),
        (b"\xef\xbb\xbfa\n", b"a\n", 3),
        (b"\xef\xbb\xbf\r\na\n", b"a\n", 5),
        (b"y" * 200_000 + b"\nc", b"y" * 200_000 + b"\n", 0),
    ],
)
def test_first_line_is_the_first_that_is_not_blank_without_byte_order_mark(
    tmp_path: Path, data: bytes, line: bytes, position: int
) -> None:
    file = described(str(tmp_path), data)
    found = first_line(FILES, file.path, file.size_bytes, read_beginning(FILES, file.path, file.size_bytes))
    assert found is not None
    assert (found.buffer.to_pybytes(), found.position) == (line, position)


@pytest.mark.parametrize("data", [b"", b"\n\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_text_of_blank_lines_has_no_first_line(tmp_path: Path, data: bytes) -> None:
    file = described(str(tmp_path), data)
    assert first_line(FILES, file.path, file.size_bytes, read_beginning(FILES, file.path, file.size_bytes)) is None


def test_utf16_is_refused(tmp_path: Path) -> None:
    file = described(str(tmp_path), "a,b\n".encode("utf-16"))
    with pytest.raises(NeedsChange, match="UTF-16"):
        first_line(FILES, file.path, file.size_bytes, read_beginning(FILES, file.path, file.size_bytes))


# --- where each row lies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "bounds"),
    [
        (b"a\nbc\n", [(100, 102), (102, 105)]),
        (b"a\r\nbc", [(100, 103), (103, 105)]),
        (b"\n\na\n\nb\n", [(102, 104), (105, 107)]),
        (b" \na\n", [(102, 104)]),
    ],
    ids=["lines", "the last without an end", "blank lines", "a line of spaces"],
)
def test_each_row_is_the_line_that_it_is_read_from_again(data: bytes, bounds: list[tuple[int, int]]) -> None:
    assert lines_of(data).row_bounds("/in/a.json", spaces_are_blank=True) == bounds


def test_for_csv_a_line_of_spaces_is_a_row() -> None:
    assert lines_of(b" \na\n").row_bounds("/in/a.csv", spaces_are_blank=False) == [(100, 102), (102, 104)]


def test_rows_that_only_a_carriage_return_separates_cannot_be_read_again_by_themselves() -> None:
    with pytest.raises(NeedsChange, match="cannot be told from the 1 others"):
        lines_of(b"a\nb\rc\n").row_bounds("/in/a.csv", spaces_are_blank=False)

    for mended in (b"a\nb\nc\n", b"a\r\nb\r\nc\r\n"):
        assert len(lines_of(mended).row_bounds("/in/a.csv", spaces_are_blank=False)) == 3
