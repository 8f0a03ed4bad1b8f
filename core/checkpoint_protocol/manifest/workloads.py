"""The manifest's sections about what runs: the steps' code, and the driver and executors that run it.

One machine uses `code.path`, `code.uri` and the driver's memory; the rest is for pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, Field, JsonValue

from checkpoint_protocol.manifest.quantities import Size
from checkpoint_protocol.manifest.rules import Rule, count_of_given, is_given
from checkpoint_protocol.manifest.sections import ObjectName, Section, Uri

_CODE_URI_PATTERN: Final = r"^([^:]+|(s3|s3a|gs|gcs|az|abfs|abfss)://[^/]+/.*)\.(py|zip|whl)$"

#: <domain>/<name>. The name is also that of Spark's resource, which is part of names of properties.
_GPU_RESOURCE_PATTERN: Final = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[a-z0-9]([a-z0-9-]*[a-z0-9])?$"

#: What a pod template has. Kubernetes checks what is inside when the pod is made.
POD_TEMPLATE_KEYS: Final = ("metadata", "spec")
#: Lists in a pod whose items are merged with ours one by one, and the field that tells items apart.
MERGED_LISTS: Final = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "ports": "name",
}
#: Those whose items may lack it.
_MAY_LACK_IT: Final = frozenset({"ports"})
_MAPPINGS: Final = frozenset({"labels", "annotations", "resources", "limits", "requests", "securityContext", "nodeSelector"})


def check_pod_template(template: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse what cannot be merged with the pods that we make. ValueError names the field."""
    for key, value in template.items():
        if key not in POD_TEMPLATE_KEYS:
            raise ValueError(f"unknown field {key!r}; known here: {', '.join(POD_TEMPLATE_KEYS)}")
        if not isinstance(value, dict):
            raise ValueError(f"{key}: a mapping is expected")
        _check_fields(value, key)
    return template


def _check_fields(fields: Mapping[str, JsonValue], where: str) -> None:
    for name, value in fields.items():
        place = f"{where}.{name}"
        if name in _MAPPINGS and not isinstance(value, dict | None):
            raise ValueError(f"{place}: a mapping is expected")
        if name in MERGED_LISTS and value is not None:
            _check_items(value, place, MERGED_LISTS[name], must_have_it=name not in _MAY_LACK_IT)
        elif isinstance(value, dict):
            _check_fields(value, place)


def _check_items(value: JsonValue, place: str, key: str, *, must_have_it: bool) -> None:
    if not isinstance(value, list):
        raise ValueError(f"{place}: a list is expected")
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            raise ValueError(f"{place}.{number}: a mapping is expected")
        if not isinstance(item.get(key), str) and (must_have_it or key in item):
            raise ValueError(f"{place}.{number}: the field {key} is missing, or no text")
        _check_fields(item, f"{place}.{number}")


PodTemplate = Annotated[dict[str, JsonValue], AfterValidator(check_pod_template)]


class ConfigMapRef(Section):
    """A ConfigMap in the write's namespace."""

    name: ObjectName = Field(description="The name of the ConfigMap.")


class Code(Section):
    """Where the code of the steps is: at most one of path, configMap and uri. Without any of them, installed packages are
    used.
    """

    path: Uri | None = Field(
        default=None,
        description="A folder that is put on the import path. It is on this machine, or in the image of the pods.",
    )
    config_map: ConfigMapRef | None = Field(
        default=None,
        description="Cluster: a ConfigMap whose keys are Python files, e.g. flights.py. A ConfigMap holds at most 1 MiB.",
    )
    uri: Annotated[str, Field(pattern=_CODE_URI_PATTERN, max_length=1024)] | None = Field(
        default=None,
        description="A .py, .zip or .whl file in an object store (s3://, gs://, az://). On one machine it may also be on disk.",
    )

    rules: ClassVar = (
        Rule(f"{count_of_given('path', 'configMap', 'uri')} <= 1", "at most one of path, configMap and uri is expected"),
    )


class _PodSpec(Section):
    memory: Size

    memory_overhead: Size | None = Field(
        default=None,
        description="Cluster: memory in addition to the JVM heap, mainly for Python. Default: 40 % of memory, at least 384Mi.",
    )
    template: PodTemplate = Field(
        default_factory=dict,
        description="Cluster: the metadata and spec of a pod, as in a PodTemplateSpec. They are merged into the generated "
        "pod, e.g. for volumes, node selectors, tolerations and annotations.",
    )


class DriverSpec(_PodSpec):
    """The process that plans the work. It reads rows only if there are no executors."""

    cores: int = Field(default=1, ge=1, le=1024, description="Cluster: the CPUs of the driver pod.")
    memory: Size = Field(default=1 << 30, gt=0, description="The JVM heap of the driver.")


class ExecutorSpec(_PodSpec):
    """The processes that read the source, run the steps, and stage the results. On one machine there are none: the driver does
    this work.
    """

    instances: int | None = Field(
        default=None,
        ge=0,
        le=10_000,
        description="Cluster: the number of executor pods, or the maximum if minInstances is set. With 0, the driver pod runs "
        "the tasks, driver.cores at a time. Default: 1, but none for the first attempt at small input (below 64 MiB, read in "
        "splits, without gpus).",
    )
    min_instances: Annotated[int, Field(ge=0, le=10_000)] | None = Field(
        default=None,
        description="Cluster: the minimum number of executor pods. Spark's dynamic allocation then starts only as many pods "
        "as there are tasks for, between minInstances and instances. By default there are always as many pods as instances "
        "says.",
    )
    cores: int = Field(
        default=2,
        ge=1,
        le=1024,
        description="Cluster: the CPUs of each executor pod. It is also the number of tasks that the pod runs at a time, "
        "unless gpus or tasksPerExecutor is set.",
    )
    gpus: int = Field(
        default=0,
        ge=0,
        le=64,
        description="Cluster: the GPUs of each executor pod. A task finds the GPUs that are assigned to it in "
        "CUDA_VISIBLE_DEVICES, which is set before setup() of its steps is called.",
    )
    gpu_resource: str = Field(
        default="nvidia.com/gpu",
        pattern=_GPU_RESOURCE_PATTERN,
        max_length=128,
        description="Cluster: the node resource that gpus counts, as the device plugin names it, e.g. amd.com/gpu. There must "
        "be no dot after the slash, because Spark's resource names have none.",
    )
    tasks_per_executor: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="Cluster: the number of tasks that each executor pod runs at a time. Each task has a process with its own "
        "copy of the steps. Default: one task for each GPU, or one for each of cores if there are no GPUs.",
    )
    memory: Size = Field(default=2 << 30, gt=0, description="The JVM heap of each executor.")

    @property
    def tasks_at_once(self) -> int:
        """How many tasks a pod runs at once."""
        return self.tasks_per_executor or self.gpus or self.cores

    rules: ClassVar = (
        Rule(
            f"!{is_given('minInstances')} || ({is_given('instances')} && self.minInstances <= self.instances)",
            "minInstances is the minimum number of pods; also set instances, the maximum, which must not be less",
            "minInstances",
        ),
        Rule(
            f"self.gpus == 0 || !{is_given('instances')} || self.instances > 0",
            "gpus are for executors, and with instances: 0 there are none (the driver pod has no GPU); leave one of them out",
            "gpus",
        ),
        Rule(
            f"self.gpus == 0 || !{is_given('tasksPerExecutor')} || self.tasksPerExecutor % self.gpus == 0 || "
            "self.gpus % self.tasksPerExecutor == 0",
            "tasks do not share gpus evenly: each task must have whole GPUs, or each GPU must have the same number of tasks; let "
            "one of tasksPerExecutor and gpus be a multiple of the other",
            "tasksPerExecutor",
        ),
    )
