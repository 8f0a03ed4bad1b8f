"""Messages say where the settings stand, in the words of who can change them: a file, the chart's values or a pod's Secret."""

from __future__ import annotations

import ast
import errno
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.exceptions import ForbiddenError
from sqlalchemy.exc import OperationalError

from checkpoint_formats.failures import reading
from checkpoint_operator.catalogs import open_catalog, translate_catalog_error
from checkpoint_operator.cluster.main import load_settings
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.settings_place import CHART_VALUES, SETTINGS_FILE, STORAGE_SECRET, SettingsPlace
from checkpoint_protocol.storage import StorageEntry, entry_of, iceberg_options
from checkpoint_protocol.store import translate_store_error
from checkpoint_spark.executor import STORAGE_FILE_VARIABLE, STORAGE_VARIABLE, storage_settings

ROOT: Final = Path(__file__).resolve().parents[3]
PLACES: Final = {"file": SETTINGS_FILE, "chart": CHART_VALUES, "pod": STORAGE_SECRET}
URI: Final = "gs://bucket/table"


def raised(ask: Callable[[], object]) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        ask()
    return caught.value


def with_entry(place: SettingsPlace, **entry: Any) -> Settings:
    return Settings(storage=(StorageEntry(prefix="gs://bucket/", **entry),)).found_in(place)


def of_sqlite(text: str, place: SettingsPlace) -> CheckpointError:
    return translate_catalog_error(OperationalError("INSERT", {}, sqlite3.OperationalError(text)), "lake", place)


#: What is to be changed, and the error that says so.
MESSAGES: Final[dict[str, tuple[str, Callable[[SettingsPlace], CheckpointError]]]] = {
    "no entry for a bucket": ("storage", lambda place: raised(lambda: entry_of(URI, Settings().found_in(place)))),
    "an entry without keys": ("storage", lambda place: raised(lambda: entry_of(URI, with_entry(place)))),
    "an entry that Iceberg cannot use": (
        "storage",
        lambda place: raised(lambda: iceberg_options(URI, with_entry(place, credentials="anonymous"))),
    ),
    "a store that refuses us": ("storage", lambda place: translate_store_error(PermissionError("403 Forbidden"), URI, place)),
    "a store that does not answer": ("storage", lambda place: translate_store_error(OSError("no route to host"), URI, place)),
    "an unknown catalog": ("catalogs", lambda place: raised(lambda: open_catalog("lake", Settings().found_in(place)))),
    "a catalog that refuses us": ("catalogs.lake", lambda place: translate_catalog_error(ForbiddenError("no"), "lake", place)),
    "a catalog that does not answer": ("catalogs.lake.uri", lambda place: translate_catalog_error(OSError("no"), "lake", place)),
    "a full disk of SQLite": ("catalogs.lake.uri", lambda place: of_sqlite("database or disk is full", place)),
    "no folder of SQLite": ("catalogs.lake.uri", lambda place: of_sqlite("unable to open database file", place)),
    "a file of SQLite that is read-only": (
        "catalogs.lake.uri",
        lambda place: of_sqlite("attempt to write a readonly database", place),
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("what", MESSAGES)
def test_a_message_names_the_field_where_this_process_has_it_from(what: str, place: str) -> None:
    field, error_of = MESSAGES[what]

    message = error_of(PLACES[place]).message

    assert PLACES[place].name(field) in message
    assert ("settings file" in message) is (place == "file")


def test_every_text_that_names_the_settings_file_is_among_the_places() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {text}"
        for folder in ("protocol", "formats", "operator", "spark_app")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "settings_place.py"
        for text in texts_of(ast.parse(path.read_text()))
        if "settings file" in text
    }

    assert not found


def texts_of(tree: ast.Module) -> Iterator[str]:
    """Give the texts of a module that are no docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


@pytest.mark.parametrize("text", ["AWS Error ACCESS_DENIED: Access Denied", "AWS Error NETWORK_CONNECTION: no route"])
def test_a_bucket_that_fails_while_an_input_file_is_opened_names_the_place_too(text: str) -> None:
    def open_file() -> None:
        with reading("s3://bucket/a.parquet", "it cannot be opened", "check its name", STORAGE_SECRET):
            raise OSError(errno.EIO, text)

    assert STORAGE_SECRET.name("storage") in raised(open_file).message


# --- where programs are composed --------------------------------------------------------------------------------------------


def test_the_operator_has_its_settings_from_the_chart(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("storage: []\n")

    assert load_settings(file).place == CHART_VALUES


@pytest.mark.parametrize("text", [None, '{"storage": []}'], ids=["a pod without a Secret", "a pod with one"])
def test_a_driver_pod_has_them_from_a_secret(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    monkeypatch.delenv(STORAGE_FILE_VARIABLE, raising=False)
    monkeypatch.delenv(STORAGE_VARIABLE, raising=False)
    if text is not None:
        monkeypatch.setenv(STORAGE_VARIABLE, text)

    assert storage_settings().place == STORAGE_SECRET


def test_the_driver_of_a_local_run_has_them_from_the_settings_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "storage.json"
    file.write_text(Settings().for_drivers().model_dump_json())
    monkeypatch.setenv(STORAGE_FILE_VARIABLE, str(file))

    assert storage_settings().place == SETTINGS_FILE


@pytest.mark.parametrize("error", [PermissionError("403 Forbidden"), OSError("no route to host")])
def test_where_the_place_is_not_known_no_file_is_named(error: OSError) -> None:
    assert "the storage settings" in translate_store_error(error, URI).message


def test_a_folder_that_cannot_be_read_has_nothing_to_do_with_settings() -> None:
    message = translate_store_error(PermissionError("Permission denied"), "/data/in", SETTINGS_FILE).message

    assert "settings" not in message
    assert "permissions" in message


def test_the_place_is_no_field_of_the_settings() -> None:
    assert "place" not in Settings().found_in(CHART_VALUES).model_dump_json()
    assert Settings().found_in(CHART_VALUES).model_copy(update={"storage": ()}).place == CHART_VALUES
