"""Archives of code: made alike everywhere, and never unpacked where they do not belong."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path

import pytest

from checkpoint_protocol import archives
from checkpoint_protocol.archives import ArchiveRefused
from tests.support.archives import HOSTILE, zip_of


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
