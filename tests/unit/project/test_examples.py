"""The manifests that people begin with."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow.csv as pc
import pytest

from checkpoint_operator.yaml_documents import parse_document
from checkpoint_protocol.manifest.spec import parse_manifest
from examples.prepare_data import packaged

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("**/flights-*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: "/".join(path.parts[-2:]))
def test_an_example_that_is_applied_again_is_the_same_write(path: Path) -> None:
    """An object that was deleted after its time to live is another write when it is applied again, and doubles its rows."""
    assert parse_manifest(parse_document(path.read_text())).spec.ttl_seconds_after_finished is None


#: What is delivered to a pod, by example: the words of its command, or of the documents.
DELIVERED = {path.name: re.findall(r"examples/code/\S+", path.read_text()) for path in EXAMPLES if path.parent.name == "cluster"}


@pytest.mark.parametrize("name", DELIVERED)
def test_the_code_of_an_example_for_clusters_runs_from_what_is_delivered_alone(name: str, tmp_path: Path) -> None:
    """A pod has none of the other files of this repository."""
    for path in DELIVERED[name]:
        source = packaged("airports.csv") if path.endswith("airports.csv") else ROOT / path
        (tmp_path / Path(path).name).write_bytes(source.read_bytes())
    (step,) = parse_manifest(parse_document((ROOT / "examples" / "cluster" / name).read_text())).spec.steps
    module, made = step.call.split(":")
    with zipfile.ZipFile(packaged("flights.csv.zip")) as archive, archive.open("flights.csv") as packed:
        row = pc.read_csv(io.BytesIO(packed.readline() + packed.readline())).drop_columns("time_hour").to_pylist()[0]
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
