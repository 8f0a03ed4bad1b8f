"""What a new format of sinks has to touch: its own modules and a few lists, and mypy names each place that does not know it.

On a copy of the product a fourth format is added to the lists of the protocol, and nothing else is done for it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = ("protocol", "formats", "operator", "spark_app")

RECORDS: Final = '''
"""What records say of plain folders of Parquet files."""

from __future__ import annotations

from typing import Literal

from checkpoint_protocol.records.base import Count, Part
from checkpoint_protocol.records.output_places import Output


class PlainTarget(Part):
    """A folder."""

    format: Literal["plain"] = "plain"
    uri: str

    @property
    def title(self) -> str:
        return self.uri

    @property
    def identity(self) -> str:
        return self.uri

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("the sink's folder", self.uri, ("0.parquet",)),)


class PlainFile(Part):
    """A Parquet file."""

    format: Literal["plain"] = "plain"
    path: str
    size_bytes: Count
    rows: Count

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        return (self.size_bytes,)


class PlainBase(Part):
    """The folder as it was."""

    format: Literal["plain"] = "plain"
    uri: str

    @property
    def table_identity(self) -> str:
        return self.uri

    @property
    def at(self) -> int | None:
        return None
'''


def edit(path: Path, *changes: tuple[str, str]) -> None:
    text = path.read_text()
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    path.write_text(text)


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """A copy in which the protocol lists a fourth format."""
    for name in PROGRAMS:
        shutil.copytree(ROOT / name, tmp_path / name, copy_function=shutil.copy2)
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    if (ROOT / ".mypy_cache").is_dir():  # of the check before: else it takes a minute
        shutil.copytree(ROOT / ".mypy_cache", tmp_path / ".mypy_cache", copy_function=shutil.copy2)
    protocol = tmp_path / "protocol" / "checkpoint_protocol"
    (protocol / "records" / "plain.py").write_text(RECORDS.lstrip())
    edit(
        protocol / "records" / "formats.py",
        (
            "from checkpoint_protocol.records.no_table",
            (
                "from checkpoint_protocol.records.plain import PlainBase, PlainFile, PlainTarget\n"
                "from checkpoint_protocol.records.no_table"
            ),
        ),
        ("LanceTarget | NoTarget", "LanceTarget | NoTarget | PlainTarget"),
        ("IcebergFile | LanceFragment", "IcebergFile | LanceFragment | PlainFile"),
        ("IcebergBase | LanceBase", "IcebergBase | LanceBase | PlainBase"),
    )
    edit(
        protocol / "sink.py",
        ('"lance", "none")', '"lance", "none", "plain")'),
        (
            "SinkKind = IcebergSink",
            'class PlainSink(Section):\n    """A folder."""\n\n    uri: Uri\n\n\nSinkKind = PlainSink | IcebergSink',
        ),
        ("    none: NoSink | None = None\n", "    none: NoSink | None = None\n    plain: PlainSink | None = None\n"),
    )
    return tmp_path


def test_mypy_names_each_place_that_does_not_know_a_fourth_format(product: Path) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *PROGRAMS], cwd=product, capture_output=True, text=True, timeout=280, check=False
    )

    assert checked.returncode == 1, checked.stdout + checked.stderr
    named = {found[1] for found in re.finditer(r"^([^:]+):\d+: error: ", checked.stdout, re.MULTILINE)}
    assert named == {
        # Beside the lists of the protocol: what stages its files, what opens its table, and nothing else.
        "formats/checkpoint_formats/stagers.py",
        "operator/checkpoint_operator/sink_formats/registry.py",
    }, checked.stdout
