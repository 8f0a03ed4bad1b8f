"""`checkpointed-write plan` of a write that a cluster has begun: an image that only its operator knows is part of the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from checkpoint_local.cli.main import main
from tests.support.stored_writes import StoredWrite


def plan(file: Path) -> Result:
    return CliRunner(env={"XDG_CONFIG_HOME": "/nonexistent"}).invoke(
        main, ["plan", str(file), "-o", "json"], catch_exceptions=False
    )


def begun(folder: Path, **spec: Any) -> Path:
    """Have a cluster begin a write of two stages, and return its manifest."""
    write = StoredWrite(folder)
    manifest = yaml.safe_load(write.file.read_text())
    stages = [{"name": name, "steps": [{"call": "docs:parse", "input": "row"}]} for name in ("parse", "embed")]
    manifest["spec"] = {**manifest["spec"], "steps": [], "stages": stages, **spec}
    file = folder / "staged.yaml"
    file.write_text(yaml.safe_dump(manifest))
    write.begin()
    write.launch()
    return file


@pytest.mark.parametrize(
    ("spec", "unknown"),
    [
        ({"code": {"path": "/opt/code"}}, "the image of its drivers"),
        ({"image": "spark:1", "code": {"configMap": {"name": "code"}}}, "the ConfigMap of its code"),
    ],
)
def test_what_only_the_cluster_knows_is_not_compared_and_the_place_of_its_plan_is_named(
    spec: dict[str, Any], unknown: str, tmp_path: Path
) -> None:
    file = begun(tmp_path, **spec)
    name = yaml.safe_load(file.read_text())["metadata"]["name"]

    said = plan(file)

    assert said.exit_code == 2
    assert unknown in said.stderr
    assert f"kubectl get checkpointedwrite {name} -n default -o jsonpath='{{.status.stages}}'" in said.stderr


def test_with_the_image_in_the_manifest_the_plan_goes_by_the_digests_of_the_cluster(tmp_path: Path) -> None:
    file = begun(tmp_path, image="spark:1", code={"path": "/opt/code"})

    said = plan(file)

    assert said.exit_code == 0, said.stderr
    assert [stage["name"] for stage in json.loads(said.stdout)["stages"]] == ["parse", "embed"]


def test_a_write_without_stages_is_shown_with_its_code(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    for name, text in {"own.py": "import helper\nimport_module(name)", "helper.py": "", "beside.py": ""}.items():
        (tmp_path / "code").mkdir(exist_ok=True)
        (tmp_path / "code" / name).write_text(text)
    manifest = yaml.safe_load(write.file.read_text())
    manifest["spec"] |= {"steps": [{"call": "own:f"}], "code": {"path": str(tmp_path / "code")}}
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(manifest))

    said = plan(file)

    shown = json.loads(said.stdout)
    assert said.exit_code == 0, said.stderr
    assert [(stage["name"], stage["what"]) for stage in shown["stages"]] == [(manifest["metadata"]["name"], "begin")]
    assert shown["code"] == [
        {
            "stage": "",
            "files": ["beside.py", "helper.py", "own.py"],
            "bySize": [],
            "notFollowed": ["own.py, line 2: import_module(...)"],
        }
    ]
    table = CliRunner(env={"XDG_CONFIG_HOME": "/nonexistent"}).invoke(main, ["plan", str(file)], catch_exceptions=False)
    assert "code: beside.py, helper.py, own.py" in table.stdout
    assert "own.py, line 2: import_module(...): which modules it loads is not known before it runs" in table.stdout


@pytest.mark.parametrize(("policy", "what", "left"), [("Continue", "continue", 10), ("Restart", "redo", 20)])
def test_a_write_without_stages_that_was_cut_off_is_shown_as_one_stage(tmp_path: Path, policy: str, what: str, left: int) -> None:
    write = StoredWrite(tmp_path)
    manifest = yaml.safe_load(write.file.read_text())
    manifest["spec"] |= {"image": "spark:1", "onCodeChange": policy}
    file = tmp_path / "cut-off.yaml"
    file.write_text(yaml.safe_dump(manifest))
    write.begin()
    write.launch()
    assert json.loads(plan(file).stdout)["stages"][0]["what"] == what, "nothing of it is planned yet"
    write.plan()
    write.seal(0)

    (shown,) = json.loads(plan(file).stdout)["stages"]

    assert (shown["name"], shown["what"], shown["rowsLeft"]) == (write.name, what, left)
    assert shown["because"] == ["code"]
