"""Text that is not UTF-8, and says so in no byte order mark."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from tests.support.reading import open_reader, read_whole

MARKS = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff", "utf-32-le": b"\xff\xfe\0\0", "utf-32-be": b"\0\0\xfe\xff"}


@pytest.mark.parametrize("options", [{}, {"header": False}, {"multiLine": True}, {"compression": "Gzip"}, {"kind": "json"}])
@pytest.mark.parametrize("has_mark", [False, True])
@pytest.mark.parametrize("encoding", MARKS)
def test_text_in_16_or_32_bits_is_refused_with_its_encoding_with_a_mark_and_without(
    tmp_path: Path, encoding: str, has_mark: bool, options: dict[str, object]
) -> None:
    kind = str(options.get("kind", "csv"))
    text = '{"a": 1}\n' if kind == "json" else "a,b\n1,é\n"
    data = (MARKS[encoding] if has_mark else b"") + text.encode(encoding)
    path = tmp_path / "x.txt"
    path.write_bytes(gzip.compress(data) if "compression" in options else data)
    reader = open_reader(kind, options={name: value for name, value in options.items() if name != "kind"})

    with pytest.raises(NeedsChange) as refused:
        reader.describe([str(path)])

    assert refused.value.reason == reasons.SOURCE_UNREADABLE
    assert refused.value.message == f"source file {path}: it is {encoding[:6].upper()} text; convert it to UTF-8"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_header_in_16_bits_that_begins_with_other_letters_is_refused(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("имя,год\nаня,1990\n".encode(encoding))

    with pytest.raises(NeedsChange, match=r"x\.csv: its first line .*convert it to UTF-8"):
        open_reader("csv").describe([str(path)])


def test_a_nul_in_a_row_is_text_as_before(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b\n\0x,1\n")
    reader = open_reader("csv")
    files, schema = reader.describe([str(tmp_path)])
    assert read_whole(reader, files, schema) == [{"a": "\0x", "b": 1}]
