"""GPUs: which addresses an executor tells Spark, and which of them a task sees."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from checkpoint_protocol.errors import NeedsChange
from checkpoint_spark.process.gpus import GpusMissing, resources_file, use_assigned_gpus

TWO = json.dumps({"resource": "gpu", "count": 2})


@dataclass
class Assigned:
    addresses: list[str]


def addresses(environment: dict[str, str]) -> list[str]:
    text = resources_file(environment)
    assert text is not None
    (allocated,) = json.loads(text)
    found: list[str] = allocated["addresses"]
    return found


def tool(folder: Path, script: str) -> str:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(folder)


def test_without_a_tool_the_gpus_of_a_container_are_numbered(tmp_path: Path) -> None:
    assert addresses({"CHECKPOINTED_WRITE_GPUS": TWO, "PATH": str(tmp_path)}) == ["0", "1"]


def test_the_tool_says_the_numbers(tmp_path: Path) -> None:
    path = tool(tmp_path, "[ \"$1 $2\" = '--query-gpu=index --format=csv,noheader' ] && printf '3\\n5\\n7\\n'")

    assert addresses({"CHECKPOINTED_WRITE_GPUS": TWO, "PATH": path}) == ["3", "5"]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 0", "sees 1"),
        ("echo NVIDIA-SMI has failed; exit 9", "nvidia-smi fails: NVIDIA-SMI has failed"),
        ("kill -9 $$", "fails"),
    ],
)
def test_a_container_that_lacks_gpus_is_refused(script: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(GpusMissing, match=says):
        resources_file({"CHECKPOINTED_WRITE_GPUS": TWO, "PATH": tool(tmp_path, script)})

    # As the message says of shares of one GPU.
    one = json.dumps({"resource": "gpu", "count": 1})
    assert addresses({"CHECKPOINTED_WRITE_GPUS": one, "PATH": tool(tmp_path, "echo 0")}) == ["0"]


@pytest.mark.parametrize("environment", [{}, {"CHECKPOINTED_WRITE_GPUS": json.dumps({"resource": "gpu"})}])
def test_spark_is_told_nothing_where_there_are_none_or_it_discovers_them(environment: dict[str, str]) -> None:
    assert resources_file(environment) is None


def test_a_task_sees_its_own_gpus_only() -> None:
    environment = {"CHECKPOINTED_WRITE_GPUS": TWO, "CUDA_VISIBLE_DEVICES": "0,1"}

    use_assigned_gpus({"gpu": Assigned(["1"]), "fpga": Assigned(["7"])}, environment)

    assert environment["CUDA_VISIBLE_DEVICES"] == "1"


def test_several_gpus_are_in_order_whichever_way_they_were_assigned() -> None:
    environment: dict[str, str] = {}

    for given in (["10", "2"], ["2", "10"]):
        use_assigned_gpus({"gpu": Assigned(given)}, environment)
        assert environment["CUDA_VISIBLE_DEVICES"] == "2,10"


def test_the_resource_may_have_another_name() -> None:
    environment = {"CHECKPOINTED_WRITE_GPUS": json.dumps({"resource": "i915", "count": 1})}

    use_assigned_gpus({"i915": Assigned(["4"])}, environment)

    assert environment["CUDA_VISIBLE_DEVICES"] == "4"


def test_a_task_without_gpus_changes_nothing() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "0"}

    use_assigned_gpus({}, environment)

    assert environment == {"CUDA_VISIBLE_DEVICES": "0"}


def test_a_process_that_has_begun_with_one_gpu_is_not_given_another() -> None:
    environment: dict[str, str] = {}
    use_assigned_gpus({"gpu": Assigned(["0"])}, environment)
    use_assigned_gpus({"gpu": Assigned(["0"])}, environment)

    with pytest.raises(
        NeedsChange, match=r"begun with the GPUs 0, and its next task was assigned 1; leave spark\.python\.worker"
    ):
        use_assigned_gpus({"gpu": Assigned(["1"])}, environment)

    # Without it each task has a process of its own.
    use_assigned_gpus({"gpu": Assigned(["1"])}, {})
