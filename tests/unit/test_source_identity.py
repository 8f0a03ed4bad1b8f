"""One file of a source under several names: it is taken once, in one epoch and over all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from checkpoint_protocol.source_paths import identity_of, locate
from checkpoint_protocol.storage import StorageEntry, StorageSettings
from checkpoint_spark.sources.files import SourceFiles

STORAGE = StorageSettings()
FILES = SourceFiles(STORAGE)
TEXT = "id\n1\n2\n"


def put(path: Path, text: str = TEXT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def expanded(*paths: object) -> list[str]:
    return [file.path for file in FILES.expand([str(path) for path in paths])]


# --- in one look ----------------------------------------------------------------------------------------------------------


SPELLINGS: Mapping[str, Callable[[Path], str]] = {
    "two slashes at the start": lambda path: f"/{path}",
    "many slashes at the start": lambda path: f"////{path}",
    "an empty folder name": lambda path: f"{path.parent}//{path.name}",
    "file: without host": lambda path: f"file:{path}",
    "file: with an empty host": lambda path: f"file://{path}",
    "file: with more slashes": lambda path: f"file:///{path}",
    "a dot": lambda path: f"{path.parent}/./{path.name}",
    "a pattern": lambda path: f"/{path.parent}/*",
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_a_file_that_is_spelled_in_two_ways_is_taken_once(spelling: Callable[[Path], str], tmp_path: Path) -> None:
    path = put(tmp_path / "in" / "x.csv")
    assert expanded(path, spelling(path)) == expanded(spelling(path), path) == [str(path)]


def test_links_to_a_file_are_the_file(tmp_path: Path) -> None:
    real = put(tmp_path / "in" / "y.csv")
    (tmp_path / "in" / "a.csv").symlink_to(real)
    (tmp_path / "other").symlink_to(tmp_path / "in")
    assert expanded(tmp_path / "in", tmp_path / "other", tmp_path / "other" / "a.csv") == [str(real)]


def test_a_link_alone_keeps_its_name(tmp_path: Path) -> None:
    real = put(tmp_path / "elsewhere" / "y.csv")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").symlink_to(real)
    assert expanded(tmp_path / "in") == [str(tmp_path / "in" / "a.csv")]


def test_a_hard_link_is_the_same_file_under_its_first_name(tmp_path: Path) -> None:
    real = put(tmp_path / "in" / "y.csv")
    os.link(real, tmp_path / "in" / "b.csv")
    assert expanded(tmp_path / "in") == [str(tmp_path / "in" / "b.csv")]


def test_the_same_content_is_not_the_same_file(tmp_path: Path) -> None:
    one, other = put(tmp_path / "a.csv"), put(tmp_path / "b.csv")
    assert expanded(tmp_path) == [str(one), str(other)]


CONFIGURED = StorageSettings(
    storage=(
        StorageEntry(prefix="s3://elsewhere/", endpoint="http://objects.example.com"),
        StorageEntry(prefix="s3://here/", endpoint="http://objects.example.com"),
        StorageEntry(prefix="s3a://here/", endpoint="http://objects.example.com/"),
        StorageEntry(prefix="az://named/", account_name="acme"),
        StorageEntry(prefix="az://another/", account_name="other"),
    )
)


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        ("s3://b/x", "s3a://b/x", True),
        ("s3://here/x", "s3a://here/x", True),
        ("s3://elsewhere/x", "s3a://elsewhere/x", False),  # another endpoint
        ("s3://b/x", "s3://b/X", False),
        ("s3://b/x", "s3://c/x", False),
        ("s3://b/x", "gs://b/x", False),
        ("gs://b/x", "gcs://b/x", True),
        ("az://c/x", "abfs://c/x", True),
        ("abfs://c/x", "abfss://c/x", True),
        ("abfs://c@acme.dfs.core.windows.net/x", "abfss://c@Acme.blob.core.windows.net/x", True),
        ("abfss://c@acme.dfs.core.windows.net/x", "abfss://c@other.dfs.core.windows.net/x", False),
        ("abfss://c@acme.dfs.core.windows.net/x", "abfss://d@acme.dfs.core.windows.net/x", False),
        ("abfss://c@acme.dfs.core.chinacloudapi.cn/x", "abfss://c@acme.dfs.core.windows.net/x", False),
        ("abfss://c@acme.dfs.core.windows.net/x", "az://c/x", False),  # which account that is nobody says
        ("abfss://named@acme.dfs.core.windows.net/x", "az://named/x", True),
        ("abfss://another@acme.dfs.core.windows.net/x", "az://another/x", False),
        ("/a//b/./c", "file:////a/b/c", True),
        ("/s3/b/x", "s3://b/x", False),
    ],
)
def test_two_spellings_are_one_place_where_that_is_sure(one: str, other: str, is_one: bool) -> None:
    assert (identity_of(locate(one), CONFIGURED) == identity_of(locate(other), CONFIGURED)) is is_one
