"""Files by paths with wildcards, and with characters that are wildcards elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.storage import StorageSettings

FILES = SourceFiles(StorageSettings())


def names_found(folder: Path, *paths: str) -> list[str]:
    found = FILES.expand([f"{folder}/{path}" for path in paths])
    return [os.path.relpath(file.path, folder) for file in found]


def test_a_file_whose_name_is_a_pattern_is_found_alone_by_brackets(tmp_path: Path) -> None:
    for name in ("a*.csv", "ab.csv", "a?.csv", "a[.csv", "d*/x.csv", "de/x.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a\n1\n")

    assert names_found(tmp_path, "a[*].csv") == ["a*.csv"]
    assert names_found(tmp_path, "a[?].csv") == ["a?.csv"]
    assert names_found(tmp_path, "a[[].csv") == ["a[.csv"]
    assert names_found(tmp_path, "a[.csv") == ["a[.csv"]
    assert names_found(tmp_path, "d[*]/*.csv") == ["d*/x.csv"]
    assert names_found(tmp_path, "d[*]/") == ["d*/x.csv"]
    assert names_found(tmp_path, "d[*]") == ["d*/x.csv"]
    assert names_found(tmp_path, "a*.csv") == ["a*.csv", "a?.csv", "a[.csv", "ab.csv"]
    (found,) = FILES.expand([f"{tmp_path}/a[*].csv"])
    assert FILES.head(found.path) == found


@pytest.mark.parametrize(
    ("path", "says", "paths"),
    [
        ("{a,b}.csv", "{a,b} is taken as it stands, as the wildcards are *, ** and ? only: add a path", ["a.csv", "b.csv"]),
        ("x[0-9].csv", "[0-9] is taken as it stands, as the wildcards are *, ** and ? only: write ?", ["x?.csv"]),
        ("~/a.csv", "~ is taken as it stands, as the wildcards are *, ** and ? only: write out the path", ["a.csv"]),
        ("$HOME/a.csv", "$HOME is taken as it stands, as the wildcards are *, ** and ? only: write out", ["a.csv"]),
    ],
)
def test_a_path_as_of_a_shell_is_told_what_to_write_and_finds_the_files_then(
    tmp_path: Path, path: str, says: str, paths: list[str]
) -> None:
    for name in ("a.csv", "b.csv", "x1.csv"):
        (tmp_path / name).write_text("a\n1\n")

    with pytest.raises(NeedsChange) as refused:
        names_found(tmp_path, path)
    assert refused.value.reason == reasons.SOURCE_MISSING
    assert f"; correct the path ({says}" in refused.value.message
    assert refused.value.message.endswith("), or put the files there")

    assert names_found(tmp_path, *paths)
