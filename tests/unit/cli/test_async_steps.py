"""Steps that are to be awaited: `validate`, which reads their code, and a driver, which runs it, agree about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_control.validation.code import check_code
from checkpoint_control.validation.report import Findings
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.spec import Spec, parse_manifest
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.places import Place
from tests.support.manifests import manifest

ROWS = [{"id": 1}, {"id": 2}]
ASYNC = {
    "a function": ("work", "async def work(row): return row"),
    "a generator": ("work", "async def work(row): yield row"),
    "a call": ("Work", "class Work:\n    async def __call__(self, row): return row"),
    "a call that yields": ("Work", "class Work:\n    async def __call__(self, row): yield row"),
    "a call of a base": (
        "Work",
        "class Base:\n    async def __call__(self, row): return row\nclass Work(Base): ...",
    ),
    "a setup": (
        "Work",
        "class Work:\n    async def setup(self): self.is_ready = True\n    def __call__(self, row): return self.is_ready and row",
    ),
}


def checked(folder: Path, step: dict[str, Any]) -> tuple[Spec, list[str]]:
    spec = parse_manifest(manifest(spec__steps=[step], spec__code={"path": str(folder)})).spec
    findings = Findings()
    check_code(spec, None, findings)
    return spec, [problem.message for problem in findings.problems]


@pytest.mark.parametrize("called", [{}, {"concurrency": 2}], ids=["one after another", "two at once"])
@pytest.mark.parametrize(("name", "text"), ASYNC.values(), ids=ASYNC)
def test_an_async_step_is_taken_and_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, called: dict[str, Any]
) -> None:
    module = f"async_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(f"{text}\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    spec, problems = checked(tmp_path, {"call": f"{module}:{name}", "input": "row", **called})

    assert problems == []
    rows = pa.RecordBatch.from_pylist(ROWS)
    assert next(Pipeline(spec.steps).apply(rows, Place("f", "rows", 0), rows.schema)).to_pylist() == ROWS


def test_an_async_init_is_refused_by_validate_and_by_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"async_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text("class Work:\n    async def __init__(self): ...\n    def __call__(self, row): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    spec, problems = checked(tmp_path, {"call": f"{module}:Work", "input": "row"})

    assert problems == ["Work.__init__ is async, but is never awaited; move what waits to an async setup()"]
    with pytest.raises(NeedsChange, match="making Work raised TypeError"), pytest.warns(RuntimeWarning, match="never awaited"):
        Pipeline(spec.steps)

    (tmp_path / f"{module}_2.py").write_text(ASYNC["a setup"][1])
    assert checked(tmp_path, {"call": f"{module}_2:Work", "input": "row"})[1] == []


@pytest.mark.parametrize("text", ["async def work(row, *, model): ...", "class Work:\n    async def __call__(self): ..."])
def test_arguments_of_async_code_are_checked_like_others(tmp_path: Path, text: str) -> None:
    (tmp_path / "checked_async.py").write_text(f"{text}\n")
    name = "Work" if "class" in text else "work"

    _, problems = checked(tmp_path, {"call": f"checked_async:{name}", "arguments": {"modle": "small"}})

    assert any("modle" in problem or "takes no arguments" in problem for problem in problems)


def test_a_decorator_may_make_an_async_function_a_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"async_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(
        "import asyncio\n"
        "def plain(function): return lambda row: asyncio.run(function(row))\n"
        "@plain\n"
        "async def work(row): return row\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = parse_manifest(
        manifest(spec__steps=[{"call": f"{module}:work", "input": "row"}], spec__code={"path": str(tmp_path)})
    ).spec
    findings = Findings()

    check_code(spec, None, findings)

    assert findings.problems == []
    rows = pa.record_batch({"id": [1]})
    assert next(Pipeline(spec.steps).apply(rows, Place("f", "rows", 0), rows.schema)).to_pylist() == [{"id": 1}]
