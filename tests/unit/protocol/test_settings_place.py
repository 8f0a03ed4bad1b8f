"""Messages say where the settings stand, in the words of who can change them: a file, the chart's values or a pod's Secret."""

from __future__ import annotations

import ast
import errno
import io
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pydantic import SecretStr
from pyiceberg.exceptions import ForbiddenError

from checkpoint_commit.catalogs.named import open_catalog, translate_catalog_error
from checkpoint_formats.failures import reading
from checkpoint_formats.files.binary.reader import BinaryReader
from checkpoint_formats.files.csv.reader import CsvReader
from checkpoint_formats.files.json.reader import JsonReader
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.parquet.reader import ParquetReader
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.port import FileReader
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_operator.config import load_config
from checkpoint_operator.main import load_settings
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.sources.source import FilesSource
from checkpoint_protocol.manifest.spec import ManifestInvalid
from checkpoint_protocol.places.setting_values import (
    CHART_VALUES,
    NO_SETTINGS_FILE,
    SETTINGS_FILE,
    STORAGE_SECRET,
    SecretRef,
    SettingsPlace,
)
from checkpoint_protocol.places.settings import RestCatalogSettings, Settings
from checkpoint_protocol.places.storage import (
    StorageEntry,
    StorageSettings,
    entry_of,
    lance_options,
    obstore_options,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.object_store import translate_store_error
from checkpoint_work.tasks.executor import STORAGE_FILE_VARIABLE, STORAGE_VARIABLE, storage_settings
from tests.support.reading import files_source
from tests.support.sqlite_errors import SqliteProblem, sqlite_error

ROOT: Final = Path(__file__).resolve().parents[3]
PLACES: Final = {"file": SETTINGS_FILE, "no file": NO_SETTINGS_FILE, "chart": CHART_VALUES, "pod": STORAGE_SECRET}
URI: Final = "gs://bucket/table"


def raised(ask: Callable[[], object]) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        ask()
    return caught.value


def with_entry(place: SettingsPlace, **entry: Any) -> Settings:
    return Settings(storage=(StorageEntry(prefix="gs://bucket/", **entry),)).found_in(place)


def of_s3(place: SettingsPlace, **entry: Any) -> Settings:
    keys = {"access_key_id": SecretStr("a"), "secret_access_key": SecretStr("b")}
    return Settings(storage=(StorageEntry(prefix="s3://bucket/", **(keys | entry)),)).found_in(place)


def of_rest(place: SettingsPlace, **entry: Any) -> Settings:
    return Settings(catalogs={"lake": RestCatalogSettings(uri="http://127.0.0.1:1", **entry)}).found_in(place)


def of_sqlite(problem: SqliteProblem, place: SettingsPlace) -> CheckpointError:
    with tempfile.TemporaryDirectory() as folder:
        return translate_catalog_error(sqlite_error(Path(folder), problem), "lake", place)


#: What is to be changed, and the error that says so.
MESSAGES: Final[dict[str, tuple[str, Callable[[SettingsPlace], CheckpointError]]]] = {
    "no entry for a bucket": ("storage", lambda place: raised(lambda: entry_of(URI, Settings().found_in(place)))),
    "an entry without keys": ("storage", lambda place: raised(lambda: entry_of(URI, with_entry(place)))),
    "a store that refuses us": ("storage", lambda place: translate_store_error(PermissionError("403 Forbidden"), URI, place)),
    "a store that does not answer": ("storage", lambda place: translate_store_error(OSError("no route to host"), URI, place)),
    "a variable with a key that is not set": (
        "storage",
        lambda place: raised(
            lambda: obstore_options("s3://bucket/table", of_s3(place, secret_access_key=SecretRef(env="NOT_SET_ANYWHERE")))
        ),
    ),
    "a file with a key that is not there": (
        "storage",
        lambda place: raised(
            lambda: lance_options("s3://bucket/table", of_s3(place, access_key_id=SecretRef(file="/nowhere/key")))
        ),
    ),
    "a variable with a token that is not set": (
        "catalogs.lake.token",
        lambda place: raised(lambda: open_catalog("lake", of_rest(place, token=SecretRef(env="NOT_SET_ANYWHERE")))),
    ),
    "a file with a credential that is not there": (
        "catalogs.lake.credential",
        lambda place: raised(lambda: open_catalog("lake", of_rest(place, credential=SecretRef(file="/nowhere/key")))),
    ),
    "an unknown catalog": ("catalogs", lambda place: raised(lambda: open_catalog("lake", Settings().found_in(place)))),
    "a catalog that refuses us": ("catalogs.lake", lambda place: translate_catalog_error(ForbiddenError("no"), "lake", place)),
    "a catalog that does not answer": ("catalogs.lake.uri", lambda place: translate_catalog_error(OSError("no"), "lake", place)),
    "a full disk of SQLite": ("catalogs.lake.uri", lambda place: of_sqlite("full", place)),
    "no folder of SQLite": ("catalogs.lake.uri", lambda place: of_sqlite("without a folder", place)),
    "a file of SQLite that is read-only": ("catalogs.lake.uri", lambda place: of_sqlite("read-only", place)),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("what", MESSAGES)
def test_a_message_names_the_field_where_this_process_has_it_from(what: str, place: str) -> None:
    field, error_of = MESSAGES[what]

    message = error_of(PLACES[place]).message

    assert PLACES[place].name(field) in message
    assert ("settings file" in message) is (place in ("file", "no file"))


def test_every_text_that_names_the_settings_file_is_among_the_places() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {text}"
        for folder in ("core", "operator", "spark_app", "local")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "setting_values.py"
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


class _Dropped(io.RawIOBase):
    """A file in a bucket whose connection is lost while it is read."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return offset

    def tell(self) -> int:
        return 1 << 20

    def read(self, size: int = -1) -> bytes:
        raise OSError(errno.EIO, "AWS Error NETWORK_CONNECTION: connection reset")


class _FilesThatAreDropped(SourceFiles):
    def open_arrow(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(_Dropped(), mode="r")

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return b"no end of a Parquet file"

    def check_unchanged(self, file: SourceFile | FoundFile) -> None:
        pass


@pytest.mark.parametrize("name", ["a.parquet", "a.csv.gz", "a.json.gz"])
@pytest.mark.parametrize("look", ["describe", "read"])
def test_a_bucket_that_fails_while_a_file_of_any_format_is_read_names_the_place(name: str, look: str) -> None:
    files = _FilesThatAreDropped(StorageSettings().found_in(STORAGE_SECRET))
    source = files_source(name.split(".")[1]).files
    assert source is not None
    found = FoundFile(f"s3://bucket/{name}", "e", 1 << 20, "i", 0)
    file = SourceFile(path=found.path, etag="e", size_bytes=1 << 20, unit="rows" if "parquet" in name else "records", end=None)
    reader = _reader_over(files, source)

    def ask() -> object:
        if look == "describe":
            return reader.describe([found])
        return list(reader.read(file, Range(file=0, start=0), pa.schema([("n", pa.int64())]), BatchSizing(60.0)))

    assert STORAGE_SECRET.name("storage") in raised(ask).message


def _reader_over(files: SourceFiles, source: FilesSource) -> FileReader:
    match source.format:
        case "parquet":
            return ParquetReader(source, None, files)
        case "csv":
            return CsvReader(source, None, files)
        case "json":
            return JsonReader(source, None, files)
        case "binary":
            return BinaryReader(None, files)


# --- where programs are composed --------------------------------------------------------------------------------------------


def test_the_operator_has_its_settings_from_the_chart(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("storage: []\n")

    assert load_settings(file).place == CHART_VALUES


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        (b"a: [", "is not YAML"),
        (b"storage:\n- prefix: s3://b/\n  endpiont: http://x\n", "storage.0.endpiont: unknown field"),
    ],
)
def test_settings_that_the_operator_cannot_read_are_said_to_be_the_charts(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    file = tmp_path / "settings.yaml"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ManifestInvalid) as refused:
        load_settings(file)

    (problem,) = refused.value.problems
    assert problem.startswith("settings in the chart's values (or the Secret that settings.existingSecret names)")
    assert says in problem


def test_a_configuration_of_the_operator_that_is_wrong_is_said_to_be_of_the_charts_values(tmp_path: Path) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text("commitWorkers: many\n")

    with pytest.raises(ManifestInvalid) as refused:
        load_config(file)

    assert all(problem.startswith(f"{file}, made of the chart's values: ") for problem in refused.value.problems)


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
