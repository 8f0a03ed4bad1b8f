"""Which GPUs an executor has and a task sees; and variables of the environment in Spark's properties.

The executor's environment names Spark's resource and how many there are of it, where Spark itself does not discover them by a
script of the user's. Nothing of a GPU is touched here: libraries look at CUDA_VISIBLE_DEVICES once, when they are initialised.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Final, Protocol

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

VARIABLE: Final = "CHECKPOINTED_WRITE_GPUS"
#: NVIDIA's; AMD's libraries take it, too.
VISIBLE_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
#: In the environment of a process that has begun with these.
_SEEN: Final = "CHECKPOINTED_WRITE_GPUS_SEEN"
_USUAL_NAME: Final = "gpu"
_TOOL: Final = "nvidia-smi"
_TOOL_S: Final = 60.0


class GpusMissing(Exception):
    """The container does not have the GPUs that the manifest asks for."""


class Resource(Protocol):
    """What Spark has assigned to a task of one kind."""

    @property
    def addresses(self) -> Sequence[str]: ...


def resources_file(environment: Mapping[str, str]) -> str | None:
    """Return what Spark reads of an executor's GPUs (--resourcesFile); None: there are none, or Spark discovers them."""
    wanted = json.loads(environment.get(VARIABLE) or "{}")
    if not wanted.get("count"):
        return None
    identity = {"componentName": "spark.executor", "resourceName": wanted["resource"]}
    return json.dumps([{"id": identity, "addresses": _addresses(wanted["count"], environment)}])


def _addresses(count: int, environment: Mapping[str, str]) -> list[str]:
    """Return the numbers by which libraries know the GPUs: a container sees its own only, numbered from 0.

    NVIDIA's tool is asked, where it is there: several shares of one GPU (time slicing) are one for all libraries.
    """
    tool = shutil.which(_TOOL, path=environment.get("PATH"))
    if tool is None:
        return [str(number) for number in range(count)]
    command = [tool, "--query-gpu=index", "--format=csv,noheader"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GpusMissing(f"{_TOOL} does not answer: {error}") from None
    if asked.returncode:
        raise GpusMissing(f"{_TOOL} fails: {(asked.stdout + asked.stderr).strip()[:500]}")
    found = asked.stdout.split()
    if len(found) < count:
        raise GpusMissing(
            f"executor.gpus is {count}, and {_TOOL} sees {len(found)} in this container; several shares of one GPU (time "
            "slicing, MPS) are one: say gpus: 1, and tasksPerExecutor for tasks that share it"
        )
    return found[:count]


def use_assigned_gpus(assigned: Mapping[str, Resource], environment: MutableMapping[str, str]) -> None:
    """Let this process see the GPUs of its task and no others. NeedsChange where it was one of other GPUs before."""
    wanted = json.loads(environment.get(VARIABLE) or "{}")
    found = assigned.get(wanted.get("resource", _USUAL_NAME))
    if found is None:
        return
    visible = ",".join(sorted(found.addresses, key=lambda address: (len(address), address)))
    before = environment.get(_SEEN)
    if before not in (None, visible):
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"this process has begun with the GPUs {before}, and its next task was assigned {visible}; leave "
            "spark.python.worker.reuse out of sparkConf",
        )
    environment[_SEEN] = environment[VISIBLE_VARIABLE] = visible


_VARIABLE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def with_variables(conf: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with each ${env:NAME} put in. NeedsChange(ManifestInvalid) if the environment does not have one."""

    def put_in(name: str, value: str) -> str:
        def of(match: re.Match[str]) -> str:
            found = environment.get(match[1])
            if found is None:
                raise NeedsChange(
                    reasons.MANIFEST_INVALID,
                    f"spec.sparkConf: {name} names the variable {match[1]}, which the driver's environment does not have; set it "
                    "(in a cluster: in spec.driver.template, from a Secret)",
                )
            return found

        return _VARIABLE.sub(of, value)

    return {name: put_in(name, value) for name, value in conf.items()}
