"""close() of steps: called at the end of what they were made for, and of those alone that have one."""

from __future__ import annotations

import asyncio
import importlib
import itertools
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.steps import loading
from checkpoint_work.steps.calling import event_loop
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.loading import closing_steps
from checkpoint_work.steps.places import Place
from tests.support.waiting import until

SCHEMA = pa.schema([("id", pa.int64())])
_numbers = itertools.count()

CODE = """
import asyncio, threading
said = []

class Open:
    def __init__(self, name="open"):
        self.name = name
        said.append(f"made {name}")
    def __call__(self, row):
        if row["id"] < 0: raise ValueError("negative")
        return row

class Closed(Open):
    def setup(self):
        self.thread = threading.get_ident()
    def close(self):
        assert self.thread == threading.get_ident()
        said.append(f"closed {self.name}")

class Awaited(Open):
    async def close(self):
        said.append(f"closed {self.name}")

class Endless(Open):
    async def close(self):
        await asyncio.Event().wait()

class Late(Open):
    async def close(self):
        raise TimeoutError("the server said nothing")

class Failing(Open):
    def close(self):
        said.append(f"closing {self.name}")
        raise OSError("no such connection")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"closing_code_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(CODE)
    return importlib.import_module(name)


def task(module: ModuleType, *classes: str, row: int = 1) -> None:
    """Do what a task does with its steps."""
    steps = [Step(call=f"{module.__name__}:{name}", input="row", arguments={"name": name.lower()}) for name in classes]
    with closing_steps():
        list(Pipeline(steps).apply(pa.record_batch({"id": [row]}, schema=SCHEMA), Place("in", "rows", 0), SCHEMA))


def tasks_of_the_loop() -> set[str]:
    """Give by what the tasks of async code are known that have not ended; not this one."""

    async def others() -> set[str]:
        return {one.get_name() for one in asyncio.all_tasks() if one is not asyncio.current_task()}

    return event_loop.run(others())


@pytest.mark.parametrize("name", ["Closed", "Awaited"])
def test_a_step_with_close_is_made_and_closed_for_each_task(module: ModuleType, name: str) -> None:
    task(module, name)
    task(module, name)

    assert module.said == [f"made {name.lower()}", f"closed {name.lower()}"] * 2


def test_a_step_without_close_is_made_once_a_process(module: ModuleType) -> None:
    task(module, "Open")
    task(module, "Open")

    assert module.said == ["made open"]


def test_what_was_made_last_is_closed_first(module: ModuleType) -> None:
    task(module, "Closed", "Open", "Awaited")

    assert module.said[-2:] == ["closed awaited", "closed closed"]


def test_a_step_is_closed_where_the_task_fails(module: ModuleType) -> None:
    with pytest.raises(NeedsChange, match="negative"):
        task(module, "Closed", row=-1)

    assert module.said == ["made closed", "closed closed"]


def test_what_close_raises_goes_to_the_log_and_the_others_are_closed(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    task(module, "Closed", "Failing")

    assert module.said[-2:] == ["closing failing", "closed closed"]
    assert f"step '{module.__name__}:Failing': close() raised OSError: no such connection" in capsys.readouterr().err


def test_an_async_close_that_does_not_end_is_cancelled_and_the_others_are_closed(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loading, "_CLOSE_S", 0.01)

    before = tasks_of_the_loop()

    task(module, "Closed", "Endless")

    assert module.said[-1] == "closed closed"
    until(lambda: tasks_of_the_loop() <= before, what="close() cancelled")
    assert "close() raised TimeoutError: it did not end in 0.01 s, and was cancelled" in capsys.readouterr().err


def test_a_time_limit_of_an_async_close_itself_is_told_as_it_is(module: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    task(module, "Late")

    assert "close() raised TimeoutError: the server said nothing" in capsys.readouterr().err
