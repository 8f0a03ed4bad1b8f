"""Local catalogs lie where they are said to lie, whatever characters are in the names, or are refused before a file is made."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from checkpoint_commit.catalogs.named import is_unmade, open_catalog
from checkpoint_commit.catalogs.sqlite_files import sqlite_file
from checkpoint_local.cli.files import FoundSettings, load_settings
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.settings import Settings

NAMES = ["a b", "a+b", "größe", "a%20b", "a%zz", "a;b@c&d=e", "a#b", "a?b"]


def settings_in(folder: Path, uri: str = "sqlite:///catalog.db", warehouse: str = "warehouse") -> Settings:
    """Load a settings file in a folder, which is made."""
    folder.mkdir(exist_ok=True)
    file = folder / "settings.yaml"
    file.write_text(f"catalogs: {{lake: {{type: sql, uri: '{uri}', warehouse: '{warehouse}'}}}}", encoding="utf-8")
    return load_settings(FoundSettings(file, True))


def make_table(settings: Settings) -> None:
    catalog = open_catalog("lake", settings)
    catalog.create_namespace("n")
    catalog.create_table("n.t", schema=pa.schema([("id", pa.int64())]))


@pytest.mark.parametrize("name", NAMES[:-2])
def test_a_catalog_lies_in_the_folder_of_its_settings_whatever_its_name(tmp_path: Path, name: str) -> None:
    settings = settings_in(tmp_path / name)
    assert is_unmade("lake", settings)

    make_table(settings)

    assert not is_unmade("lake", settings)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert {path.name for path in (tmp_path / name).iterdir()} == {"settings.yaml", "catalog.db", "warehouse"}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_sqlite_lies_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    written = name.replace("%", "%25").replace("?", "%3F")
    settings = settings_in(tmp_path, uri=f"sqlite:///{written}/catalog.db?timeout=7")
    assert sqlite_file(settings.catalogs["lake"].uri) == tmp_path / name / "catalog.db"

    make_table(settings)

    assert {path.name for path in tmp_path.iterdir()} == {"settings.yaml", name, "warehouse"}
    assert [path.name for path in (tmp_path / name).iterdir()] == ["catalog.db"]


@pytest.mark.parametrize("name", ["a#b", "a?b"])
@pytest.mark.parametrize("is_in_setting", [True, False], ids=["in the setting", "in the folder of the settings"])
def test_a_warehouse_that_pyiceberg_would_take_for_another_is_refused_by_name(
    tmp_path: Path, name: str, is_in_setting: bool
) -> None:
    folder = tmp_path / "settings" if is_in_setting else tmp_path / name

    with pytest.raises(
        NeedsChange, match=r"catalogs\.lake\.warehouse: '[#?]' stands in .*a[#?]b.*use a folder without it"
    ) as caught:
        settings_in(folder, warehouse=name if is_in_setting else "warehouse")

    assert caught.value.reason == reasons.MANIFEST_INVALID
    assert [path.name for path in folder.iterdir()] == ["settings.yaml"]
    settings_in(tmp_path / "other")


def test_a_question_mark_that_sqlalchemy_would_take_for_options_is_refused_until_it_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "a?b").mkdir()

    with pytest.raises(NeedsChange, match=r"catalogs\.lake\.uri: what follows a \? is taken for options .*write %3F"):
        settings_in(tmp_path, uri="sqlite:///a?b/catalog.db")

    assert (
        sqlite_file(settings_in(tmp_path, uri="sqlite:///a%3Fb/catalog.db").catalogs["lake"].uri) == tmp_path / "a?b/catalog.db"
    )


@pytest.mark.parametrize(
    ("place", "written", "word"),
    [
        ("warehouse", "~/warehouse", "~"),
        ("warehouse", "$HOME/warehouse", "$HOME"),
        ("warehouse", "s3://lake/${STAGE}", "${STAGE}"),
        ("uri", "sqlite:///~/catalog.db", "~"),
        ("uri", "sqlite:///$HOME/catalog.db?timeout=7", "$HOME"),
    ],
)
def test_a_place_of_a_catalog_that_a_shell_would_expand_is_refused_and_not_made(
    tmp_path: Path, place: str, written: str, word: str
) -> None:
    with pytest.raises(NeedsChange) as caught:
        settings_in(tmp_path, **{place: written})

    assert caught.value.reason == reasons.MANIFEST_INVALID
    assert caught.value.message.startswith(f"catalogs.lake.{place}: ")
    assert f"cannot be used: {word} is not expanded; write out" in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["settings.yaml"]
