"""Archives of code: made alike everywhere, and never unpacked where they do not belong."""

from __future__ import annotations

import io
import struct
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_protocol.code import archives
from checkpoint_protocol.code.archives import ArchiveRefused
from tests.support.archives import HOSTILE, zip_of
from tests.support.effort import examples
from tests.support.peaks import peaks


def test_the_same_files_give_the_same_bytes_whenever_and_in_whatever_order(monkeypatch: pytest.MonkeyPatch) -> None:
    one = archives.pack({"b.py": b"2", "größe.txt": b"\xff"})
    monkeypatch.setattr(time, "time", lambda: 0.0)

    assert archives.pack({"größe.txt": b"\xff", "b.py": b"2"}) == one
    assert archives.pack({"größe.txt": b"\xfe", "b.py": b"2"}) != one


def test_what_was_packed_is_unpacked(tmp_path: Path) -> None:
    files = {"a.py": b"x = 1\n", "data.bin": bytes(range(256)) * 5000, "empty": b""}

    assert archives.unpack(archives.pack(files), tmp_path) == {name: len(data) for name, data in files.items()}

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_a_package_with_folders_and_data_is_unpacked(tmp_path: Path) -> None:
    data = zip_of({"package/": "", "package/__init__.py": "", "package/deep/data.txt": "größe", "./top.py": "x = 1"})

    archives.unpack(data, tmp_path)

    assert (tmp_path / "package" / "deep" / "data.txt").read_text() == "größe"
    assert (tmp_path / "package" / "__init__.py").exists()
    assert (tmp_path / "top.py").exists()


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_is_refused_before_a_byte_is_unpacked(kind: str, tmp_path: Path) -> None:
    make, why = HOSTILE[kind]
    inside = tmp_path / "one" / "two"
    inside.mkdir(parents=True)
    data = make()

    with pytest.raises(ArchiveRefused, match=why):
        archives.check(data)
    with pytest.raises(ArchiveRefused, match=why):
        archives.unpack(data, inside)

    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


def test_a_file_never_unpacks_to_more_than_it_says(tmp_path: Path) -> None:
    data = bytearray(zip_of({"zeros": bytes(1 << 20)}))
    central = data.rindex(b"PK\x01\x02")
    data[central + 24 : central + 28] = (100).to_bytes(4, "little")

    with pytest.raises(ArchiveRefused, match="cannot be read"):
        archives.unpack(bytes(data), tmp_path)

    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 100


def test_damaged_contents_are_noticed(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a.py": "x = 1"}, zipfile.ZIP_STORED))
    data[data.index(b"x = 1")] ^= 1

    with pytest.raises(ArchiveRefused, match=r"'a\.py' in it cannot be read"):
        archives.unpack(bytes(data), tmp_path)


@pytest.mark.parametrize(
    ("limit", "why"), [("MAX_ARCHIVE_BYTES", "bytes"), ("MAX_UNPACKED_BYTES", "unpack"), ("MAX_FILES", "files")]
)
def test_each_bound_counts(limit: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = zip_of({"a": "12345", "b": "12345"})
    archives.check(data)
    monkeypatch.setattr(archives, limit, {"MAX_ARCHIVE_BYTES": len(data) - 1, "MAX_UNPACKED_BYTES": 9, "MAX_FILES": 1}[limit])

    with pytest.raises(ArchiveRefused, match=f"{why}.*are the most"):
        archives.check(data)


# --- the end of an archive, before anything is made of it -------------------------------------------------------------------


def end_of(count: int, size_bytes: int, comment: bytes = b"") -> bytes:
    return struct.pack("<4s4xHHIIH", b"PK\x05\x06", count, count, size_bytes, 0, len(comment)) + comment


def end_of_large(count: int, size_bytes: int) -> bytes:
    """As of an archive with more files, or bytes, than the short form can tell."""
    told = struct.pack("<4sQ2x2x4x4xQQQQ", b"PK\x06\x06", 44, count, count, size_bytes, 0)
    return told + struct.pack("<4s4xQ4x", b"PK\x06\x07", size_bytes) + end_of(0xFFFF, 0xFFFFFFFF)


ENTRY = struct.pack("<4s42x", b"PK\x01\x02")


@pytest.mark.parametrize(
    ("archive", "why"),
    [
        (ENTRY * 60_000 + end_of(60_000, 46 * 60_000), "60,000 files"),
        (ENTRY * 60_000 + end_of(1, 46 * 60_000), "more than 50,000 files"),
        (ENTRY * 60_000 + end_of(1, 46 * 60_000, b"a comment"), "more than 50,000 files"),
        (ENTRY * 60_000 + end_of_large(60_000, 46 * 60_000), "60,000 files"),
        (ENTRY * 60_000 + end_of_large(1, 46 * 60_000), "more than 50,000 files"),
        (bytes(33 << 20) + end_of(1, 33 << 20), "names and attributes of its files have 34,603,008 bytes"),
        (ENTRY + end_of(1, 1_000_000), "larger than itself"),
        (ENTRY[:-1] + end_of(1, 45), "cut off"),
        (b"x" * 46 + end_of(1, 46), "something else in it"),
        (b"x" * 100 + end_of_large(1, 46)[56:], "lies elsewhere"),
    ],
)
def test_what_the_end_of_an_archive_tells_is_looked_at_before_anything_is_made_of_it(
    archive: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(*_: object) -> None:
        raise AssertionError("it is parsed")

    monkeypatch.setattr(zipfile, "ZipFile", parse)

    with pytest.raises(ArchiveRefused, match=why):
        archives.check(archive)


def test_archives_with_a_comment_with_a_prefix_or_in_the_form_of_large_ones_are_taken() -> None:
    plain = zip_of({"a.py": "x = 1", "b/c.txt": "y"})
    end = len(plain) - 22
    count, size_bytes = struct.unpack("<HI", plain[end + 10 : end + 16])
    large = struct.pack("<4sQ2x2x4x4xQQQQ", b"PK\x06\x06", 44, count, count, size_bytes, end - size_bytes)
    large += struct.pack("<4s4xQ4x", b"PK\x06\x07", end) + end_of(0xFFFF, 0xFFFFFFFF)
    with_comment = plain[:-2] + struct.pack("<H", 5) + b"hello"

    for data in (plain, with_comment, b"#!/usr/bin/python\n" + plain, plain[:end] + large):
        archives.check(data)


def test_half_a_million_empty_entries_cost_no_more_than_their_bytes() -> None:
    told = peaks("tests.unit.protocol.hostile_archives", "CASES")["entries"]

    assert "more than 50,000 files" in told.returned
    assert told.megabytes < 32


@given(st.lists(st.sampled_from(["entry", "end", "end with all", "large", "zeros", "zip"]), max_size=12), st.integers(0, 300))
@settings(deadline=None, max_examples=examples(200))
def test_zipfile_never_finds_more_entries_than_were_looked_at(pieces: list[str], cut: int) -> None:
    data = b""
    for piece in pieces:
        match piece:
            case "entry":
                data += ENTRY
            case "end":
                data += end_of(1, 46)
            case "end with all":
                data += end_of(1, len(data))
            case "large":
                data += end_of_large(1, len(data))
            case "zeros":
                data += bytes(7)
            case _:
                data += zip_of({"a": "1", "b": "2"})
    data = data[: max(0, len(data) - cut)] if cut < 40 else data
    try:
        start, end, _ = archives._directory_of(data)
    except ArchiveRefused:
        return
    try:
        found = zipfile.ZipFile(io.BytesIO(data)).infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return

    assert len(found) * 46 <= end - start
