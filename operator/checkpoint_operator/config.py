"""The operator's configuration file: what it watches, and what it gives to pods whose manifest does not say.

Catalogs and storage, with their credentials, are not in it: they are in the settings file
(checkpoint_protocol/places/settings.py), which comes from a Secret, and this one from a ConfigMap. The chart's
templates/configuration.yaml writes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import Field, model_validator

from checkpoint_control.yaml_documents import parse_document
from checkpoint_operator.pods.pod_policy import PodPolicy
from checkpoint_operator.watch.work_queue import MOST_OF_A_NAMESPACE
from checkpoint_protocol.manifest.quantities import Size
from checkpoint_protocol.manifest.sections import Label, ObjectName, Section
from checkpoint_protocol.manifest.sink import Verify
from checkpoint_protocol.manifest.spec import ManifestInvalid, validate_model
from checkpoint_protocol.places.patterns import Tenant

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
    allowed: PodPolicy = PodPolicy()


class RecordKeySettings(Section):
    """The keys with which records in checkpoint stores are signed."""

    secret_name: ObjectName = Field(description="A Secret in the operator's namespace, which it fills.")
    accept_unsigned: bool = Field(
        default=False, description="Take records without a MAC too: of writes that a release without record keys began."
    )
    renew_after_days: int = Field(default=90, ge=0, le=3650, description="A newer key is made then. 0: never.")


class OperatorConfig(Section):
    """The whole file."""

    own_namespace: Annotated[Label, Field(max_length=63)] = Field(
        default="checkpointed-operator", description="Where the operator itself runs. No write of it is served."
    )
    cluster_name: Annotated[Label, Field(max_length=63)] | None = Field(
        default=None,
        description="Under which checkpoint stores have the names of this cluster's writes, so that two clusters on one "
        "checkpoint URI do not meet. By default an id that is kept with the record keys. Never change it.",
    )
    record_keys: RecordKeySettings | None = Field(default=None, description="Without it, records are not signed.")
    namespaces: tuple[Annotated[Label, Field(max_length=63)], ...] = Field(default=(), max_length=1000)
    all_namespaces: bool = False
    workloads: WorkloadDefaults
    commit_workers: int = Field(default=2, ge=1, le=64, description="Commits that are prepared at once; each takes memory.")
    record_memory: Size = Field(
        default=320 << 20,
        ge=64 << 20,
        description="Memory for the records that are read at once, of all writes, and as much for the metadata of tables. "
        "Below a quarter of the container's limit.",
    )
    writes_memory_per_namespace: Size = Field(
        default=MOST_OF_A_NAMESPACE,
        ge=1 << 20,
        description="Memory for the objects of a namespace's writes. Where they would take more, the oldest are served.",
    )
    drivers_per_namespace: int = Field(
        default=20,
        ge=0,
        le=10_000,
        description="Drivers at once in a namespace, so that their executors find room; the others wait. 0: no bound.",
    )
    verify: Verify = Field(
        default="Footers",
        description="What commits go by at the least, whatever spec.sink.verify of a manifest says: a table is read by others "
        "than the author of a driver.",
    )
    resync_seconds: int = Field(
        default=300, ge=10, le=86_400, description="Each write is reconciled this often, whatever the watch says."
    )
    retention_days: int = Field(
        default=0,
        ge=0,
        le=3650,
        description="What an epoch has staged, and no later one needs, is removed so long after its commit, unless a manifest's "
        "checkpoint.retention says otherwise. 0: never.",
    )
    allow_local_paths: bool = Field(
        default=False,
        description="URIs of manifests, and tables, may lie on disk: on a volume that operator and pods have in one place.",
    )
    health_port: _Port = 8080
    metrics_port: _Port = 9090
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def tenant(self, namespace: str) -> Tenant:
        """Return whom a write of this namespace is made for."""
        return Tenant(namespace, is_only=self.namespaces == (namespace,))

    @property
    def operator(self) -> str | None:
        """Name the operator by its record keys, which tell its records from those of any other."""
        return f"{self.own_namespace}/{self.record_keys.secret_name}" if self.record_keys is not None else None

    @model_validator(mode="after")
    def _watches_something(self) -> OperatorConfig:
        if self.all_namespaces == bool(self.namespaces):
            raise ValueError("exactly one is expected: namespaces, or allNamespaces: true")
        if len(set(self.namespaces)) < len(self.namespaces):
            raise ValueError("namespaces: a name stands twice")
        if self.own_namespace in self.namespaces:
            raise ValueError(
                "namespaces: the operator's own is one of them, and users who can create pods there could read its Secrets"
            )
        if self.health_port == self.metrics_port:
            raise ValueError("healthPort and metricsPort are the same")
        return self


def load_config(path: Path) -> OperatorConfig:
    """Read the configuration file. ManifestInvalid lists all that is wrong with it, each with its path."""
    try:
        return validate_model(OperatorConfig, _load_yaml(path))
    except ManifestInvalid as error:
        raise ManifestInvalid(tuple(f"{path}, made of the chart's values: {problem}" for problem in error.problems)) from None


def _load_yaml(path: Path) -> Any:
    try:
        document = parse_document(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ManifestInvalid((f"cannot be read: {error.strerror}",)) from error
    except UnicodeDecodeError as error:
        raise ManifestInvalid((f"is not UTF-8 text: {error}",)) from error
    except yaml.YAMLError as error:
        raise ManifestInvalid((f"is not YAML: {' '.join(str(error).split())}",)) from error
    if not isinstance(document, dict):
        raise ManifestInvalid((f"a mapping is expected, not {type(document).__name__}",))
    return document
