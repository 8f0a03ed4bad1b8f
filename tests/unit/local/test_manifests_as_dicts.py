"""Manifests as dicts: functions stand for their names, and what is no plain data is refused with its place."""

from __future__ import annotations

import datetime
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.compute
import pytest

from checkpoint_local.cli.files import manifest_of
from checkpoint_protocol.manifest.spec import ManifestInvalid
from checkpointed_writes.documents import plain_manifest

CODE = """
def embed(row):
    def inner(row): return row
    return inner

class Model:
    def __call__(self, row): return row
    def method(self, row): return row
"""


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module `own.steps_of_dicts`, in a package, as a notebook imports one."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("")
    (tmp_path / "own" / "steps_of_dicts.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("own.steps_of_dicts")
    for name in ("own", "own.steps_of_dicts"):
        sys.modules.pop(name, None)


def a_manifest(call: Any, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "checkpointed.dev/v1alpha1",
        "kind": "CheckpointedWrite",
        "metadata": {"name": "own"},
        "spec": {
            "source": {"files": {"format": "parquet", "paths": ("in",)}},
            "steps": [{"call": call, "input": "row"}],
            "sink": {"lance": {"uri": Path("out.lance")}, "create": True},
            "checkpoint": {"uri": Path("checkpoints")},
            **spec,
        },
    }


@pytest.mark.parametrize("name", ["embed", "Model"])
def test_a_function_or_class_of_a_module_stands_for_its_name_and_its_folder_is_the_code(
    steps: ModuleType, tmp_path: Path, name: str
) -> None:
    made = manifest_of(plain_manifest(a_manifest(getattr(steps, name))), tmp_path)

    assert made.spec.steps[0].call == f"own.steps_of_dicts:{name}"
    assert made.spec.code.path == str(tmp_path)
    assert made.spec.checkpoint.uri == str(tmp_path / "checkpoints")


def test_code_that_the_manifest_names_and_what_is_installed_stay(steps: ModuleType, tmp_path: Path) -> None:
    named = plain_manifest(a_manifest(steps.embed, code={"path": tmp_path / "elsewhere"}))
    installed = plain_manifest(a_manifest(pyarrow.compute.call_function))

    assert named["spec"]["code"] == {"path": str(tmp_path / "elsewhere")}
    assert "code" not in installed["spec"]


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        ((1, "a", None), [1, "a", None]),
        ({"deep": {"path": Path("a")}}, {"deep": {"path": "a"}}),
    ],
)
def test_values_that_stand_for_plain_data_are_that(given: Any, plain: Any) -> None:
    made = plain_manifest(a_manifest("m:f", steps=[{"call": "m:f", "arguments": {"value": given}}]))

    assert made["spec"]["steps"][0]["arguments"]["value"] == plain


@pytest.mark.parametrize("given", [{1, 2}, np.zeros(3), object(), b"x"], ids=["a set", "an array", "an object", "bytes"])
def test_other_values_are_refused_with_their_place(given: Any) -> None:
    with pytest.raises(ManifestInvalid, match=r"spec\.steps\.0\.arguments\.value: a \w+ is no plain data; give text, "):
        plain_manifest(a_manifest("m:f", steps=[{"call": "m:f", "arguments": {"value": given}}]))
    assert plain_manifest(a_manifest("m:f", steps=[{"call": "m:f", "arguments": {"value": [1, "x"]}}]))
