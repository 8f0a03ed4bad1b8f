"""How many executors, how large, and what each task is given: properties of Spark and resources of pods."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from checkpoint_operator.pods.capacity import executor_conf, gpu_environment, resources_of_executor
from checkpoint_operator.pods.driver_pod import executor_pod
from checkpoint_protocol.manifest.workloads import ExecutorSpec
from tests.unit.cluster.test_pods import (
    DEFAULTS,
    OWNER,
    arguments_of,
    conf_of,
    environment_of,
    executor_template_of,
    pod_of,
    spec_of,
)


def conf(**executor: Any) -> dict[str, str]:
    return executor_conf(ExecutorSpec.model_validate(executor))


def places(found: dict[str, str]) -> tuple[int, int]:
    """Return how many tasks Spark runs at once in such an executor, and how many cores each of them is given."""
    cpus = int(found.get("spark.task.cpus", "1"))
    return int(found["spark.executor.cores"]) // cpus, cpus


def test_where_there_are_no_executors_spark_is_told_no_number_of_them_as_its_submit_refuses_none() -> None:
    assert "spark.executor.instances" not in conf(instances=0)


def test_without_more_words_an_executor_runs_as_many_tasks_as_it_has_cores() -> None:
    assert conf(cores=3, memory="1Gi") == {
        "spark.executor.memory": "1024m",
        "spark.executor.memoryOverhead": "409m",
        "spark.executor.cores": "3",
        "spark.executor.instances": "1",
    }


@pytest.mark.parametrize(
    ("executor", "tasks", "cores_of_task"),
    [
        ({"cores": 4, "gpus": 1}, 1, 4),
        ({"cores": 4, "gpus": 2}, 2, 2),
        ({"cores": 4, "gpus": 1, "tasksPerExecutor": 4}, 4, 1),
        ({"cores": 4, "tasksPerExecutor": 3}, 3, 1),
        ({"cores": 7, "tasksPerExecutor": 2}, 2, 3),
        ({"cores": 2, "tasksPerExecutor": 16}, 16, 1),
        ({"cores": 8, "gpus": 4, "tasksPerExecutor": 1}, 1, 8),
    ],
)
def test_as_many_tasks_run_at_once_as_are_wanted_and_the_pod_has_the_cores_that_are_said(
    executor: dict[str, Any], tasks: int, cores_of_task: int
) -> None:
    found = conf(**executor)

    assert places(found) == (tasks, cores_of_task)
    assert found.get("spark.kubernetes.executor.request.cores", found["spark.executor.cores"]) == str(executor["cores"])
    pod = pod_of(executor={"instances": 5, **executor})
    assert arguments_of(pod)["--parallelism"] == str(5 * tasks)


def test_gpus_are_asked_of_kubernetes_and_of_spark() -> None:
    found = conf(gpus=2, gpuResource="amd.com/gpu")

    assert found["spark.executor.resource.gpu.amount"] == "2"
    assert found["spark.executor.resource.gpu.vendor"] == "amd.com"
    assert found["spark.task.resource.gpu.amount"] == "1"
    assert resources_of_executor(ExecutorSpec(gpus=2))["limits"]["nvidia.com/gpu"] == "2"
    asked = executor_pod(OWNER, spec_of(executor={"gpus": 2}), DEFAULTS)
    assert asked["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert "nvidia.com/gpu" not in resources_of_executor(ExecutorSpec())["limits"]


def test_the_pod_by_which_is_asked_whether_executors_are_admitted_has_what_the_template_asks_for() -> None:
    """Spark keeps a template's resources, and sets its own beside them; a LimitRange looks at all."""
    resources = {"requests": {"ephemeral-storage": "1Gi"}, "limits": {"ephemeral-storage": "2Gi", "cpu": "4"}}
    template = {"spec": {"containers": [{"name": "executor", "resources": resources}]}}

    (container,) = executor_pod(OWNER, spec_of(executor={"template": template}), DEFAULTS)["spec"]["containers"]

    sized = resources_of_executor(ExecutorSpec())
    assert container["resources"]["requests"] == {"ephemeral-storage": "1Gi", **sized["requests"]}
    assert container["resources"]["limits"] == {"ephemeral-storage": "2Gi", "cpu": "4", **sized["limits"]}


def test_as_many_tasks_share_a_gpu_as_are_wanted() -> None:
    amounts = {tasks: float(conf(gpus=1, tasksPerExecutor=tasks)["spark.task.resource.gpu.amount"]) for tasks in range(2, 1025)}

    # Spark's rule: ResourceUtils.calculateAmountAndPartsForFraction.
    assert all(amount <= 0.5 for amount in amounts.values())
    assert all(math.floor(1.0 / amount) == tasks for tasks, amount in amounts.items())


def test_tasks_have_several_gpus_where_there_are_more_of_these() -> None:
    assert conf(gpus=8, tasksPerExecutor=2)["spark.task.resource.gpu.amount"] == "4"


@pytest.mark.parametrize(
    ("executor", "is_reused"),
    [({"gpus": 1, "tasksPerExecutor": 4}, True), ({"gpus": 4, "tasksPerExecutor": 1}, True), ({"gpus": 2}, False), ({}, True)],
)
def test_a_python_process_has_one_task_only_where_the_next_could_be_assigned_another_gpu(
    executor: dict[str, Any], is_reused: bool
) -> None:
    assert (conf(**executor).get("spark.python.worker.reuse") != "false") is is_reused


def test_the_entry_point_is_told_of_gpus_unless_the_manifest_has_a_discovery_script() -> None:
    container = executor_template_of(pod_of(executor={"gpus": 2}))["spec"]["containers"][0]
    assert json.loads(environment_of(container)["CHECKPOINTED_WRITE_GPUS"]) == {"resource": "gpu", "count": 2}

    script = {"spark.executor.resource.gpu.discoveryScript": "/opt/find"}
    assert gpu_environment(spec_of(executor={"gpus": 2}, sparkConf=script)) == []
    assert gpu_environment(spec_of()) == []


def test_small_input_does_not_run_in_the_driver_where_the_steps_need_gpus() -> None:
    assert "--small-input" in arguments_of(pod_of())
    assert "--small-input" not in arguments_of(pod_of(executor={"gpus": 1}))


def test_small_input_runs_as_many_tasks_in_the_driver_as_the_executor_would() -> None:
    pod = pod_of(executor={"cores": 4, "tasksPerExecutor": 2})

    assert int(arguments_of(pod)["--small-input-cores"]) // int(conf_of(pod)["spark.task.cpus"]) == 2


def test_with_a_least_number_executors_come_and_go() -> None:
    pod = pod_of(executor={"minInstances": 0, "instances": 8, "cores": 2})

    found = conf_of(pod)
    assert found["spark.dynamicAllocation.enabled"] == "true"
    assert found["spark.dynamicAllocation.minExecutors"] == "0"
    assert found["spark.dynamicAllocation.maxExecutors"] == "8"
    assert found["spark.dynamicAllocation.shuffleTracking.enabled"] == "true"
    # Spark begins with so many if they are said.
    assert "spark.executor.instances" not in found
    assert arguments_of(pod)["--parallelism"] == "16"


def test_without_a_least_number_there_are_always_as_many() -> None:
    found = conf(instances=8)

    assert found["spark.executor.instances"] == "8"
    assert not [name for name in found if "dynamicAllocation" in name]


def test_tasks_in_the_driver_are_as_many_as_its_cores_whatever_is_said_of_executors() -> None:
    pod = pod_of(driver={"cores": 2}, executor={"instances": 0, "cores": 4, "tasksPerExecutor": 1})

    assert arguments_of(pod)["--in-driver"] == "2"
    assert "spark.task.cpus" not in conf_of(pod)


def test_what_spark_conf_says_wins() -> None:
    pod = pod_of(executor={"minInstances": 1, "instances": 4}, sparkConf={"spark.dynamicAllocation.executorIdleTimeout": "5m"})

    assert conf_of(pod)["spark.dynamicAllocation.executorIdleTimeout"] == "5m"
