"""How many executors there are, how large pods are, and what each task is given, for Spark and for Kubernetes. Pure."""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal

from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.manifest.workloads import DriverSpec, ExecutorSpec

_GPUS_VARIABLE: Final = "CHECKPOINTED_WRITE_GPUS"
#: What a quota wants to be said of each pod: "failed quota: q: must specify limits.cpu for: driver; requests.cpu for: driver".
_MUST_SPECIFY: Final = re.compile(r"must specify (.*)", re.DOTALL)
_RESOURCE: Final = re.compile(r"\b(limits|requests)\.([a-z0-9./-]*[a-z0-9])")
_LEAST_OVERHEAD: Final = 384 << 20
_OVERHEAD_SHARE_PERCENT: Final = 40


def executor_conf(executor: ExecutorSpec) -> dict[str, str]:
    """Return Spark's properties of how many executors there are, how large, and what each of their tasks is given."""
    conf = {
        "spark.executor.memory": mebibytes(executor.memory),
        "spark.executor.memoryOverhead": mebibytes(memory_overhead(executor)),
        "spark.executor.cores": str(executor.cores),
    }
    if executor.instances == 0:
        return conf  # spark-submit refuses a number of executors that is not positive, also where none are asked for
    return {**conf, **_places(executor), **_instances(executor), **_gpus(executor)}


def with_way_out(refusal: str, part: Literal["driver", "executor"]) -> str:
    """Return what the API server says against a pod, and where the manifest gives what a quota wants to be said of each pod."""
    wanted = _MUST_SPECIFY.search(refusal)
    if wanted is None or not (found := sorted(set(_RESOURCE.findall(wanted[1])))):
        return refusal
    kinds = {kind: ", ".join(f"{name}: ..." for of, name in found if of == kind) for kind, _ in found}
    resources = ", ".join(f"{kind}: {{{names}}}" for kind, names in kinds.items())
    return f"{refusal}; give it in spec.{part}.template: {{spec: {{containers: [{{name: {part}, resources: {{{resources}}}}}]}}}}"


def cores_for_spark(executor: ExecutorSpec) -> int:
    """Return the cores that Spark counts for a pod: enough for all its tasks, and no more."""
    return executor.tasks_at_once * _cores_of_task(executor)


def _cores_of_task(executor: ExecutorSpec) -> int:
    return max(1, executor.cores // executor.tasks_at_once)


def _places(executor: ExecutorSpec) -> dict[str, str]:
    if executor.tasks_at_once == executor.cores:
        return {}
    return {
        "spark.executor.cores": str(cores_for_spark(executor)),
        # By this one libraries in Python know how many cores are theirs, too: Spark sets OMP_NUM_THREADS to it.
        "spark.task.cpus": str(_cores_of_task(executor)),
        "spark.kubernetes.executor.request.cores": str(executor.cores),
    }


def _instances(executor: ExecutorSpec) -> dict[str, str]:
    if executor.min_instances is None:
        return {"spark.executor.instances": str(executor.instances or 1)}
    return {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.minExecutors": str(executor.min_instances),
        "spark.dynamicAllocation.maxExecutors": str(executor.instances),
        # Kubernetes has no shuffle service. Executors that hold what a shuffle has made stay for as long as that is needed.
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    }


def _gpus(executor: ExecutorSpec) -> dict[str, str]:
    if not executor.gpus:
        return {}
    vendor, _, name = executor.gpu_resource.partition("/")
    conf = {
        f"spark.executor.resource.{name}.amount": str(executor.gpus),
        f"spark.executor.resource.{name}.vendor": vendor,
        f"spark.task.resource.{name}.amount": _share(executor.gpus, executor.tasks_at_once),
    }
    if executor.gpus > 1 and executor.tasks_at_once > 1:
        # A process that has begun with one GPU stays with it, and the next task may be assigned another.
        conf["spark.python.worker.reuse"] = "false"
    return conf


def _share(gpus: int, tasks: int) -> str:
    if gpus >= tasks:
        return str(gpus // tasks)
    # Spark takes the whole part of 1 / amount for the tasks of a GPU: what is rounded must be rounded down.
    return f"0.{10**12 * gpus // tasks:012d}"


def gpu_environment(spec: Spec) -> list[dict[str, Any]]:
    """Have the entry point tell Spark the addresses of the GPUs, unless the manifest has a script for that."""
    name = spec.executor.gpu_resource.partition("/")[2]
    if not spec.executor.gpus or f"spark.executor.resource.{name}.discoveryScript" in spec.spark_conf:
        return []
    return [{"name": _GPUS_VARIABLE, "value": json.dumps({"resource": name, "count": spec.executor.gpus})}]


def memory_overhead(size: DriverSpec | ExecutorSpec) -> int:
    """Return the bytes of a container beside the JVM's heap. Python lives there, for which Spark's own 10 % are too little."""
    if size.memory_overhead is not None:
        return size.memory_overhead
    return max(_LEAST_OVERHEAD, size.memory * _OVERHEAD_SHARE_PERCENT // 100)


def resources_of(size: DriverSpec | ExecutorSpec) -> dict[str, Any]:
    memory = f"{(size.memory + memory_overhead(size)) >> 20}Mi"
    return {"requests": {"cpu": str(size.cores), "memory": memory}, "limits": {"memory": memory}}


def resources_of_executor(size: ExecutorSpec) -> dict[str, Any]:
    resources = resources_of(size)
    if size.gpus:
        resources["limits"][size.gpu_resource] = str(size.gpus)
    return resources


def mebibytes(size_bytes: int) -> str:
    return f"{max(size_bytes >> 20, 1)}m"
