"""The notebook of the examples, run by a real kernel: what it shows, what it commits, and that it is kept without outputs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import lance
import nbclient
import nbformat
import pytest

from tests.support.waiting import patience

NOTEBOOK = Path(__file__).parents[2] / "examples" / "texts.ipynb"

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    shutil.copy(NOTEBOOK, tmp_path)
    return tmp_path


def executed(folder: Path) -> Any:
    """Return the notebook after a kernel of its own has run all of its cells."""
    book = nbformat.read(folder / NOTEBOOK.name, as_version=4)
    client = nbclient.NotebookClient(
        book, timeout=int(patience(200)), kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    return client.execute()


def shown_by(book: Any, call: str) -> str:
    """Return as HTML what the cell shows that ends with a call."""
    (cell,) = [cell for cell in book.cells if cell.source.rstrip().endswith(call)]
    return "".join(output.data["text/html"] for output in cell.outputs if "text/html" in output.get("data", {}))


def test_functions_and_classes_of_its_cells_are_run_and_committed_and_a_second_kernel_finds_all_done(folder: Path) -> None:
    first = executed(folder)
    second = executed(folder)

    assert "<th>vector: list&lt;item: double&gt;</th>" in shown_by(first, "write.preview(3)")
    assert "<td>rows written</td><td>40</td>" in shown_by(first, "write.run()")
    assert "<td>was committed</td><td>True</td>" in shown_by(second, "write.run()")
    rows = lance.dataset(folder / "texts.lance").to_table(columns=["id", "size"]).to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(40))
    assert {row["size"] for row in rows} == {"short", "long"}
    assert (folder / "texts_steps.py").read_text().count("class ") == 2


def test_it_is_kept_without_outputs() -> None:
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in nbformat.read(NOTEBOOK, 4).cells)
