"""A full disk, a folder or a file that cannot be written: said as what they are, with their place, and never as the network."""

from __future__ import annotations

import errno
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import obstore.exceptions as obstore_errors
import pyarrow as pa
import pytest

from checkpoint_commit.catalogs.named import translate_catalog_error
from checkpoint_commit.sinks.port import why_not_writable
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.validation.report import Findings
from checkpoint_control.validation.target import check_target
from checkpoint_formats.port import Placed
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.manifest.spec import Spec, parse_manifest
from checkpoint_protocol.places.setting_values import SETTINGS_FILE
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import StagedFile
from checkpoint_protocol.store.object_store import translate_store_error
from checkpoint_work.tasks.failures import of_spark
from tests.support.privileges import without_privileges
from tests.support.sqlite_errors import SqliteProblem, sqlite_error

#: As each library says it of a file system of 64 KiB.
FULL = [
    obstore_errors.GenericError(
        "Generic LocalFileSystem error: Unable to copy data to file: No space left on device (os error 28)\n\nDebug source:\nX"
    ),
    OSError(errno.ENOSPC, "[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"),
    OSError("LanceError(IO): No space left on device (os error 28), /home/runner/lance-file/src/writer/structural.rs:190:9"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    obstore_errors.GenericError("Generic LocalFileSystem error: Unable to open file: Disk quota exceeded (os error 122)"),
]


class FailingStager:
    """Its disk does what is planned for it."""

    arrow_schema = None

    def __init__(self, error: Exception) -> None:
        self._error = error

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        raise self._error


@pytest.mark.parametrize("error", FULL, ids=lambda error: str(error)[:30])
def test_a_full_disk_under_the_store_is_named_and_no_endpoint_is_to_be_checked(error: Exception) -> None:
    told = translate_store_error(error, "/data/checkpoints/staged/x.json")

    assert (type(told), told.reason) == (Retryable, reasons.DISK_FULL)
    assert "disk full" in told.message
    assert "/data/checkpoints/staged/x.json" in told.message
    assert "endpoint" not in told.message
    assert "network" not in told.message


@pytest.mark.parametrize("error", [error for error in FULL if isinstance(error, OSError)], ids=lambda error: str(error)[:30])
def test_a_full_disk_under_the_table_names_the_folder_of_its_files(error: Exception) -> None:
    with pytest.raises(Retryable) as told:
        Placed(FailingStager(error), "file:///warehouse/db/rows/data").stage(iter(()))

    assert told.value.reason == reasons.DISK_FULL
    assert "file:///warehouse/db/rows/data" in told.value.message


def test_a_table_folder_that_may_not_be_written_to_is_for_a_person() -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "/warehouse/db/rows/data/x.parquet")

    with pytest.raises(NeedsChange) as told:
        Placed(FailingStager(error), "/warehouse/db/rows/data").stage(iter(()))

    assert told.value.reason == reasons.CREDENTIALS_REFUSED
    assert "/warehouse/db/rows/data" in told.value.message


def test_any_other_error_of_a_writer_stays_what_it_is() -> None:
    with pytest.raises(OSError, match="connection reset"):
        Placed(FailingStager(OSError("connection reset")), "s3://bucket/data").stage(iter(()))


def test_a_full_disk_under_spark_itself_is_no_unexplained_failure() -> None:
    text = (
        "Job aborted due to stage failure: Task 3 in stage 1.0 failed 4 times, most recent failure: Lost task 3.3 in stage 1.0 "
        "(TID 9) (host executor driver): java.io.IOException: No space left on device\n\tat java.base/sun.nio.ch.X(Y.java:62)"
    )

    told = of_spark(RuntimeError(text))

    assert (type(told), told.reason) == (Retryable, reasons.DISK_FULL)
    assert "spark.local.dir" in told.message


def test_other_errors_of_a_folder_send_nobody_to_the_network() -> None:
    told = translate_store_error(OSError(errno.EIO, "Input/output error"), "/data/checkpoints/x.json")

    assert told.reason == reasons.STORE_UNAVAILABLE
    assert "endpoint" not in told.message
    assert "disk" in told.message


def test_a_store_beyond_the_network_is_still_asked_for_its_endpoint() -> None:
    told = translate_store_error(OSError("connection refused"), "s3://bucket/x.json")

    assert "endpoint" in told.message


def test_a_file_system_that_is_read_only_is_for_a_person() -> None:
    told = translate_store_error(OSError(errno.EROFS, "Read-only file system"), "/mnt/x.json")

    assert (type(told), told.reason) == (NeedsChange, reasons.CREDENTIALS_REFUSED)


@pytest.mark.parametrize(
    ("problem", "reason", "word"),
    [
        ("full", reasons.DISK_FULL, "disk full"),
        ("read-only", reasons.CREDENTIALS_REFUSED, "cannot be written"),
        ("without a folder", reasons.CATALOG_UNAVAILABLE, "cannot be opened or made"),
    ],
)
def test_an_sqlite_file_is_no_catalog_that_did_not_answer(tmp_path: Path, problem: SqliteProblem, reason: str, word: str) -> None:
    told = translate_catalog_error(sqlite_error(tmp_path, problem), "lake", SETTINGS_FILE)

    assert told.reason == reason
    assert word in told.message
    assert "'lake'" in told.message
    assert "did not answer" not in told.message


@pytest.mark.parametrize(
    ("error", "reason", "word"),
    [
        (OSError(errno.EROFS, "Failed to open local file '/w/db/00000.metadata.json'"), reasons.CREDENTIALS_REFUSED, "read-only"),
        (PermissionError(errno.EACCES, "Cannot create directory '/w/db'"), reasons.CREDENTIALS_REFUSED, "permissions"),
        (OSError(errno.ENOSPC, "Error writing bytes to file '/w/db/00000.metadata.json'"), reasons.DISK_FULL, "disk full"),
    ],
)
def test_a_warehouse_that_cannot_be_written_is_no_catalog_that_did_not_answer(error: OSError, reason: str, word: str) -> None:
    told = translate_catalog_error(error, "lake", SETTINGS_FILE)

    assert told.reason == reason
    assert word in told.message
    assert "the warehouse of the catalog 'lake'" in told.message
    assert "/w/db" in told.message
    assert "did not answer" not in told.message


def test_a_table_in_a_warehouse_that_is_read_only_is_made_once_the_permissions_are_others(ground: Path) -> None:
    warehouse = ground / "warehouse"
    warehouse.mkdir()
    catalog = {"type": "sql", "uri": f"sqlite:///{ground}/catalog.db", "warehouse": f"file://{warehouse}"}
    settings = Settings.model_validate({"catalogs": {"lake": catalog}})
    sink = open_sink(spec_of({"iceberg": {"catalog": "lake", "table": "db.rows"}, "create": True}).sink, settings)
    (ground / "catalog.db").touch(mode=0o666)
    (ground / "catalog.db").chmod(0o666)
    ground.chmod(0o777)

    with closed(warehouse), pytest.raises(NeedsChange, match="check the permissions of its folder") as told:
        sink.create(encode_schema(pa.schema([("id", pa.int64())])))

    assert told.value.reason == reasons.CREDENTIALS_REFUSED
    assert str(warehouse) in told.value.message
    assert "the catalog 'lake' did not answer" not in told.value.message
    assert sink.create(encode_schema(pa.schema([("id", pa.int64())]))) is not None


# --- validate -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ground() -> Iterator[Path]:
    """A folder that others may enter, which pytest's are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def closed(path: Path) -> Iterator[None]:
    """Nothing can be written there, for us."""
    mode = path.stat().st_mode
    path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with without_privileges():
            yield
    finally:
        path.chmod(mode)


def test_a_folder_that_cannot_be_written_or_made_is_told(ground: Path) -> None:
    (ground / "there").mkdir()
    (ground / "file").write_text("x")
    with closed(ground / "there"):
        for place in (ground / "there", ground / "there" / "deep" / "er"):
            assert f"{ground / 'there'} cannot be written" in (why_not_writable(place) or "")
    assert f"{ground / 'file'} is a file" in (why_not_writable(ground / "file" / "deep") or "")
    assert why_not_writable(ground / "there" / "deep") is None


def spec_of(sink: dict[str, object]) -> Spec:
    return parse_manifest(
        {
            "apiVersion": "checkpointed.dev/v1alpha1",
            "kind": "CheckpointedWrite",
            "metadata": {"name": "nightly"},
            "spec": {"source": {"files": {"format": "parquet", "paths": ["/in"]}}, "sink": sink, "checkpoint": {"uri": "/cp"}},
        }
    ).spec


def a_new_catalog(folder: Path) -> tuple[dict[str, object], str]:
    return {"iceberg": {"catalog": "lake", "table": "db.rows"}, "create": True}, "spec.sink.iceberg.catalog"


def a_new_dataset(folder: Path) -> tuple[dict[str, object], str]:
    return {"lance": {"uri": f"{folder}/rows.lance"}, "create": True}, "spec.sink.lance.uri"


@pytest.mark.parametrize("kind", [a_new_catalog, a_new_dataset])
def test_validate_tells_that_a_target_cannot_be_made(ground: Path, kind: Callable[[Path], tuple[dict[str, object], str]]) -> None:
    folder = ground / "closed"
    folder.mkdir()
    sink, path = kind(folder)
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
    findings = Findings()
    with closed(folder):
        check_target(spec_of(sink), Settings.model_validate({"catalogs": {"lake": catalog}}), findings)

    assert any(problem.path == path and f"{folder} cannot be written" in problem.message for problem in findings.problems)


def test_validate_tells_of_an_sqlite_file_that_cannot_be_written(ground: Path) -> None:
    file = ground / "catalog.db"
    sqlite3.connect(file).close()
    file.touch()
    catalog = {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": f"{ground}/warehouse"}
    findings = Findings()
    with closed(file):
        check_target(
            spec_of({"iceberg": {"catalog": "lake", "table": "db.rows"}, "create": True}),
            Settings.model_validate({"catalogs": {"lake": catalog}}),
            findings,
        )

    assert any(str(file) in problem.message and "cannot be written" in problem.message for problem in findings.problems)
