"""The operator's configuration file: what it watches, and what it gives to pods whose manifest does not say.

Catalogs and storage, with their credentials, are not in it: they are the settings file's (checkpoint_protocol/settings.py),
which comes from a Secret, and this one from a ConfigMap. The chart's templates/configuration.yaml writes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import Field, model_validator

from checkpoint_protocol.manifest import ManifestInvalid, validate_model
from checkpoint_protocol.sections import Label, ObjectName, Section

DEFAULT_PATH: Final = Path("/etc/checkpointed-writes/operator.yaml")

_Port = Annotated[int, Field(ge=1, le=65_535)]


class WorkloadDefaults(Section):
    """What drivers and executors get where their manifest does not say."""

    image: Annotated[str, Field(pattern=r"^\S+$", max_length=512)] = Field(description="The image of driver and executors.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    service_account_name: ObjectName = Field(
        default="checkpointed-write-driver", description="The driver's ServiceAccount, in each workload namespace."
    )
    storage_secret_name: ObjectName | None = Field(
        default=None, description="A Secret in each workload namespace, with the key storage.json."
    )


class OperatorConfig(Section):
    """The whole file."""

    namespaces: tuple[Annotated[Label, Field(max_length=63)], ...] = Field(default=(), max_length=1000)
    all_namespaces: bool = False
    workloads: WorkloadDefaults
    commit_workers: int = Field(default=2, ge=1, le=64, description="Commits that are prepared at once; each takes memory.")
    drivers_per_namespace: int = Field(
        default=20,
        ge=0,
        le=10_000,
        description="Drivers at once in a namespace, so that their executors find room; the others wait. 0: no bound.",
    )
    resync_seconds: int = Field(
        default=300, ge=10, le=86_400, description="Each write is looked at this often, whatever the watch says."
    )
    allow_local_paths: bool = Field(
        default=False, description="Checkpoint and Lance URIs may be paths: of a volume that operator and pods have in one place."
    )
    health_port: _Port = 8080
    metrics_port: _Port = 9090
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _watches_something(self) -> OperatorConfig:
        if self.all_namespaces == bool(self.namespaces):
            raise ValueError("exactly one is expected: namespaces, or allNamespaces: true")
        if len(set(self.namespaces)) < len(self.namespaces):
            raise ValueError("namespaces: a name stands twice")
        if self.health_port == self.metrics_port:
            raise ValueError("healthPort and metricsPort are the same")
        return self


def load_config(path: Path) -> OperatorConfig:
    """Read the configuration file. ManifestInvalid lists all that is wrong with it, each with its path."""
    return validate_model(OperatorConfig, _load_yaml(path))


def _load_yaml(path: Path) -> Any:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ManifestInvalid((f"{path}: cannot be read: {error.strerror}",)) from error
    except UnicodeDecodeError as error:
        raise ManifestInvalid((f"{path}: is not UTF-8 text: {error}",)) from error
    except yaml.YAMLError as error:
        raise ManifestInvalid((f"{path}: is not YAML: {' '.join(str(error).split())}",)) from error
    if not isinstance(document, dict):
        raise ManifestInvalid((f"{path}: a mapping is expected, not {type(document).__name__}",))
    return document
