"""What a new format of sinks takes: its own modules and one file that lists it; and mypy names each place that it forgot.

The probe is a folder of Parquet files, put into a copy of the product.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.waiting import patience

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = ("core", "operator", "spark_app", "local")
#: What the format consists of, and where that lies.
OWN: Final = {
    "tables.py": "core/checkpoint_protocol/tables/plain.py",
    "records.py": "core/checkpoint_protocol/records/formats/plain.py",
    "formats.py": "core/checkpoint_formats/plain/__init__.py",
    "sink.py": "core/checkpoint_commit/plain/__init__.py",
}
LIST: Final = "core/checkpoint_protocol/records/formats/union.py"
LISTED: Final = (
    (
        "from checkpoint_protocol.tables.none import NoSink\n",
        (
            "from checkpoint_protocol.records.formats.plain import PlainFile, PlainTarget\n"
            "from checkpoint_protocol.tables.none import NoSink\n"
            "from checkpoint_protocol.tables.plain import PlainSink\n"
        ),
    ),
    ("LancePackTarget | NoTarget", "LancePackTarget | NoTarget | PlainTarget"),
    ("    | LanceFragment\n", "    | LanceFragment\n    | PlainFile\n"),
    ("LanceSink | NoSink", "LanceSink | NoSink | PlainSink"),
    ("    none: NoSink | None = None\n", "    none: NoSink | None = None\n    plain: PlainSink | None = None\n"),
)


def edit(path: Path, *changes: tuple[str, str]) -> None:
    text = path.read_text()
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    path.write_text(text)


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """A copy with the fourth format."""
    for name in PROGRAMS:
        shutil.copytree(ROOT / name, tmp_path / name, copy_function=shutil.copy2)
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    if (ROOT / ".mypy_cache").is_dir():  # of the check before: else it takes a minute
        shutil.copytree(ROOT / ".mypy_cache", tmp_path / ".mypy_cache", copy_function=shutil.copy2)
    for name, place in OWN.items():
        path = tmp_path / place
        assert not path.exists()
        path.parent.mkdir(exist_ok=True)
        shutil.copy2(Path(__file__).parent / "plain_format" / name, path)
    edit(tmp_path / LIST, *LISTED)
    return tmp_path


def errors_of_mypy(product: Path) -> list[str]:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *PROGRAMS], cwd=product, capture_output=True, text=True, timeout=patience(280), check=False
    )
    assert checked.returncode in (0, 1), checked.stdout + checked.stderr
    return [line for line in checked.stdout.splitlines() if ": error: " in line]


@pytest.mark.slow
def test_a_fourth_format_takes_its_own_modules_and_one_line_in_one_list(product: Path, tmp_path: Path) -> None:
    assert errors_of_mypy(product) == []

    rows = pa.table({"id": pa.array(range(1000), pa.int64())})
    pq.write_table(rows, tmp_path / "rows.parquet")
    manifest = tmp_path / "write.yaml"
    manifest.write_text(
        "apiVersion: checkpointed.dev/v1alpha1\nkind: CheckpointedWrite\nmetadata: {name: plain}\n"
        "spec:\n  source: {files: {format: parquet, paths: [rows.parquet]}}\n"
        "  sink: {plain: {uri: folder}, create: true}\n  checkpoint: {uri: checkpoints}\n"
    )
    path = os.pathsep.join(str(product / name) for name in PROGRAMS)
    command = [sys.executable, "-m", "checkpoint_local.cli.main", "run", str(manifest)]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path},
        cwd=elsewhere,
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    (listed,) = (tmp_path / "folder").glob("_*.json")
    written = pa.concat_tables(pq.read_table(file) for file in json.loads(listed.read_text()))
    assert sorted(written["id"].to_pylist()) == list(range(1000))


def test_mypy_names_each_place_that_asks_what_a_fourth_format_does_not_answer(product: Path) -> None:
    edit(product / OWN["tables.py"], ("committed_by: ", "unasked: "), ("def title", "def a_title"), ("def uris", "def its_uris"))
    edit(product / OWN["tables.py"], ("def with_uris", "def changed"), ("modes: ", "no_modes: "))
    edit(product / OWN["records.py"], ("staged_by: ", "unasked: "), ("def outputs", "def its_outputs"))

    named = {error.partition(":")[0] for error in errors_of_mypy(product)}

    assert named >= {
        "core/checkpoint_protocol/manifest/spec.py",
        "core/checkpoint_protocol/places/outputs.py",
        "core/checkpoint_protocol/manifest/sink.py",
        "core/checkpoint_formats/stagers.py",
        "local/checkpoint_local/cli/files.py",
        "operator/checkpoint_operator/objects.py",
        "core/checkpoint_commit/sinks/registry.py",
        "core/checkpoint_control/loop/table_facts.py",
    }
