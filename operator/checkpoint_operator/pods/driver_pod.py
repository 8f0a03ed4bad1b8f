"""The driver's pod, as plain data: what we make, merged with what the manifest's template says. Pure.

The driver runs Spark in client mode inside its own pod, so its executors end with it. It gets no catalog, and storage settings
from a Secret of its own namespace, which the operator does not read.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from checkpoint_control.loop.drivers import digest_for_attempts, keep_arguments
from checkpoint_operator.config import WorkloadDefaults
from checkpoint_operator.pods.capacity import (
    cores_for_spark,
    executor_conf,
    gpu_environment,
    mebibytes,
    resources_of,
    resources_of_executor,
)
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.spec import API_VERSION, KIND, Spec
from checkpoint_protocol.manifest.workloads import MERGED_LISTS
from checkpoint_protocol.store.macs import WriteKeys

DRIVER_CONTAINER: Final = "driver"
EXECUTOR_CONTAINER: Final = "executor"
UID_LABEL: Final = "checkpointed.dev/uid"
WRITE_LABEL: Final = "checkpointed.dev/write"
EPOCH_LABEL: Final = "checkpointed.dev/epoch"
#: Of a pod of a stage only.
STAGE_LABEL: Final = "checkpointed.dev/stage"
ATTEMPT_LABEL: Final = "checkpointed.dev/attempt"
ROLE_LABEL: Final = "checkpointed.dev/role"
#: The manifest's generation that a pod was made of: a pod that cannot start is replaced when the manifest has changed.
GENERATION_ANNOTATION: Final = "checkpointed.dev/generation"
#: The digest of what of the manifest counts from the next attempt only.
EDIT_ANNOTATION: Final = "checkpointed.dev/spec-digest"
STORAGE_KEY: Final = "storage.json"
_STORAGE_VARIABLE: Final = "CHECKPOINTED_WRITE_STORAGE"
RECORD_KEYS_ENTRY: Final = "record-keys.json"
_RECORD_KEYS_VARIABLE: Final = "CHECKPOINTED_WRITE_RECORD_KEYS"
_CODE_FOLDER_VARIABLE: Final = "CHECKPOINTED_WRITE_CODE_FOLDER"
_TEMPLATE_VARIABLE: Final = "CHECKPOINTED_WRITE_EXECUTOR_TEMPLATE"
_SCRATCH: Final = "/tmp"  # an emptyDir of the pod's own # noqa: S108
#: Where driver and executors have the volume for Spark's own checkpoint of a stream: at one path, as Spark names files by it.
CHECKPOINT_MOUNT: Final = "/var/lib/checkpointed-write"
_CHECKPOINT_VOLUME: Final = "spark-checkpoint"
#: The Secret of a namespace with the keys that catalogs hand out: an entry for each write, named by its uid. One name for all, so
#: that the operator needs the right to change one Secret, and no others.
HANDED_KEYS_SECRET: Final = "checkpointed-write-handed-keys"  # noqa: S105 its name
_HANDED_KEYS_MOUNT: Final = "/var/run/checkpointed-write"
_HANDED_KEYS_VOLUME: Final = "handed-keys"
_HANDED_KEYS_NAME: Final = "keys.json"
_HANDED_KEYS_VARIABLE: Final = "CHECKPOINTED_WRITE_KEYS_FILE"
#: The group of our images. A volume that is new belongs to root.
_GROUP: Final = 10001

#: Less input than this is not worth the seconds in which an executor starts, unless the manifest asks for executors.
_SMALL_INPUT_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Owner:
    """The CheckpointedWrite that a pod is made for. `retry`: what a person has asked for new tries with, last; `approval`: what
    a person has decided of changed code, last.

    `uid` is the object's; the write's is that of the first object of its name (`writes/registration.py`).
    """

    namespace: str
    name: str
    uid: str
    generation: int
    retry: str = ""
    approval: str = ""


def pod_name(name: str, key: EpochKey, attempt: int) -> str:
    """Return the name of an attempt's driver pod: the same whoever makes it, for whichever object of the write's name.

    `key.uid` is the write's: another write under the same name has other pods.
    """
    whose = f"{key.uid}/{key.stage}" if key.stage else key.uid
    digest = hashlib.sha256(whose.encode()).hexdigest()[:8]
    return f"{name[:45].rstrip('-.')}-{digest}-{key.epoch}-{attempt}"


def keys_secret(owner: Owner, uid: str, keys: WriteKeys) -> dict[str, Any]:
    """Return the Secret from which the pods of a write's object get the write's keys; `uid`: the write's.

    Its name follows from whose it is and from the ids of its keys, and it is never changed: whoever makes it makes the same one,
    and finds it made. Kubernetes removes it with the object, so that nobody needs the right to read, list or delete Secrets.
    """
    told = {"object": owner.uid, "write": uid, "current": keys.current, "keys": sorted(keys.keys), "all": keys.accepts_unsigned}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"{owner.name[:45].rstrip('-.')}-{digest}-keys",
            "namespace": owner.namespace,
            "labels": _labels_of_write(owner, uid),
            "ownerReferences": [_owner_reference(owner)],
        },
        "immutable": True,
        "data": {RECORD_KEYS_ENTRY: base64.b64encode(keys.model_dump_json().encode()).decode()},
    }


def handed_keys_secret(data: Mapping[str, str]) -> dict[str, Any]:
    """Return the Secret with the keys that catalogs hand out to the writes of a namespace, where there is none yet."""
    labels = {"app.kubernetes.io/managed-by": "checkpointed-write-operator"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": HANDED_KEYS_SECRET, "labels": labels}, "data": data}


def driver_pod(
    owner: Owner,
    spec: Spec,
    key: EpochKey,
    attempt: int,
    store_uri: str,
    workloads: WorkloadDefaults,
    keys_secret_name: str | None = None,
    *,
    has_handed_keys: bool = False,
) -> dict[str, Any]:
    """Return the manifest of an attempt's driver pod. `keys_secret_name`: of the Secret with the keys that its records are signed
    with, which whoever may read pods need not be able to read; None: they are not signed. `has_handed_keys`: it mounts those
    that catalogs hand out to its write, and so do its executors.
    """
    name = pod_name(owner.name, key, attempt)
    labels = {
        **_labels_of_write(owner, key.uid),
        EPOCH_LABEL: str(key.epoch),
        **({STAGE_LABEL: key.stage} if key.stage else {}),
        ATTEMPT_LABEL: str(attempt),
        ROLE_LABEL: DRIVER_CONTAINER,
    }
    handed_to = key.uid if has_handed_keys else None
    executor_template = _executor_template(spec, workloads, keys_secret_name, handed_to)
    environment = [
        *_common_environment(spec, workloads),
        # The driver looks at the folder before it imports from it; its executors start afterwards.
        *_code_folder(spec, _CODE_FOLDER_VARIABLE),
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    ours: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "serviceAccountName": spec.service_account_name or workloads.service_account_name,
            "securityContext": _pod_security(),
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "containers": [
                {
                    "name": DRIVER_CONTAINER,
                    "image": image_of(spec, workloads),
                    "imagePullPolicy": workloads.image_pull_policy,
                    "env": environment,
                    "resources": resources_of(spec.driver),
                    "securityContext": _container_security(),
                    "volumeMounts": [{"name": "scratch", "mountPath": _SCRATCH}],
                }
            ],
        },
    }
    # A copy: the pod gets more fields, and the manifest has none of them.
    pod: dict[str, Any] = merge(ours, copy.deepcopy(spec.driver.template))
    # What the protocol rests on is not for a template to change.
    metadata = pod.setdefault("metadata", {})
    metadata |= {"name": name, "namespace": owner.namespace, "ownerReferences": [_owner_reference(owner)]}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    told = {GENERATION_ANNOTATION: str(owner.generation), EDIT_ANNOTATION: digest_for_attempts(spec)}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **told}
    pod["spec"]["restartPolicy"] = "Never"
    container = next(item for item in pod["spec"]["containers"] if item["name"] == DRIVER_CONTAINER)
    container.pop("command", None)
    _set_variable(container, _TEMPLATE_VARIABLE, {"value": json.dumps(executor_template, sort_keys=True)})
    _set_variable(container, _RECORD_KEYS_VARIABLE, _keys_in(keys_secret_name))
    _mount_checkpoint(pod, container, spec)
    _mount_handed_keys(pod, container, handed_to)
    container["args"] = _driver_arguments(spec, key, attempt, store_uri, name, labels, workloads)
    return pod


def executor_pod(owner: Owner, spec: Spec, workloads: WorkloadDefaults) -> dict[str, Any]:
    """Return a pod like those that Spark makes for executors, to ask whether such a one is admitted. None is made of it."""
    size = spec.executor
    pod = _executor_template(spec, workloads)
    container = next(item for item in pod["spec"]["containers"] if item["name"] == EXECUTOR_CONTAINER)
    resources = merge(container.get("resources") or {}, resources_of_executor(size))
    container |= {"image": image_of(spec, workloads), "resources": resources}
    pod["metadata"] = {**pod.get("metadata", {}), "namespace": owner.namespace, "generateName": f"{owner.name[:45]}-exec-"}
    pod["spec"]["restartPolicy"] = "Never"
    pod["spec"]["serviceAccountName"] = spec.service_account_name or workloads.service_account_name
    return pod


def image_of(spec: Spec, workloads: WorkloadDefaults) -> str:
    return spec.image or workloads.image


def _driver_arguments(
    spec: Spec, key: EpochKey, attempt: int, store_uri: str, name: str, labels: Mapping[str, str], workloads: WorkloadDefaults
) -> list[str]:
    executor = spec.executor
    instances = 1 if executor.instances is None else executor.instances
    account = spec.service_account_name or workloads.service_account_name
    conf = {
        "spark.driver.memory": mebibytes(spec.driver.memory),
        **executor_conf(executor),
        "spark.kubernetes.container.image": image_of(spec, workloads),
        "spark.kubernetes.container.image.pullPolicy": workloads.image_pull_policy,
        "spark.kubernetes.executor.podNamePrefix": name,
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR_CONTAINER,
        # Executors get their settings in their environment: no ConfigMap is made, and no right to make one is needed.
        "spark.kubernetes.executor.disableConfigMap": "true",
        # Nor are there services and claims for Spark to look after: it would ask for rights that the driver does not have.
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        # The same account for its pull secrets only: no token of it is mounted.
        "spark.kubernetes.authenticate.executor.serviceAccountName": account,
        # With a secret that Spark makes for each driver, and its executors get in their environment.
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **spec.spark_conf,
    }
    # Spark sets its own labels on executors; ours let `kubectl get pods -l` find all pods of a write.
    conf |= {f"spark.kubernetes.executor.label.{label}": value for label, value in labels.items() if label != ROLE_LABEL}
    conf[f"spark.kubernetes.executor.label.{ROLE_LABEL}"] = EXECUTOR_CONTAINER
    arguments = ["driver", "--uri", store_uri, "--uid", key.uid, "--epoch", str(key.epoch)]
    arguments += [*(["--stage", key.stage] if key.stage else []), "--attempt", str(attempt)]
    arguments += keep_arguments(spec, key.stage, workloads.model_dump_json())
    if spec.checkpoint_volume is not None:
        arguments += ["--checkpoint-volume", CHECKPOINT_MOUNT]
    arguments += ["--parallelism", str(instances * executor.tasks_at_once or spec.driver.cores)]
    if instances == 0:
        arguments += ["--in-driver", str(spec.driver.cores)]
    elif executor.instances is None and not executor.gpus:
        # No limit of CPU is set for the driver's pod: it may take for a while what the executor would have taken.
        arguments += ["--small-input", str(_SMALL_INPUT_BYTES), "--small-input-cores", str(cores_for_spark(executor))]
    for setting, value in conf.items():
        arguments += ["--conf", f"{setting}={value}"]
    return arguments


def _executor_template(
    spec: Spec, workloads: WorkloadDefaults, keys_secret_name: str | None = None, handed_to: str | None = None
) -> dict[str, Any]:
    """Return the pod template from which Spark makes executors; it adds name, command, resources and its own environment."""
    ours = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            # Executors have no business with the API server.
            "automountServiceAccountToken": False,
            "securityContext": _pod_security(),
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "containers": [
                {
                    "name": EXECUTOR_CONTAINER,
                    "env": [
                        *_common_environment(spec, workloads),
                        *_code_folder(spec, "PYTHONPATH"),
                        *gpu_environment(spec),
                    ],
                    "securityContext": _container_security(),
                    "volumeMounts": [{"name": "scratch", "mountPath": _SCRATCH}],
                }
            ],
        },
    }
    template: dict[str, Any] = merge(ours, copy.deepcopy(spec.executor.template))
    container = next(item for item in template["spec"]["containers"] if item["name"] == EXECUTOR_CONTAINER)
    _set_variable(container, _RECORD_KEYS_VARIABLE, _keys_in(keys_secret_name))
    _mount_checkpoint(template, container, spec)
    _mount_handed_keys(template, container, handed_to)
    return template


def _mount_checkpoint(pod: dict[str, Any], container: dict[str, Any], spec: Spec) -> None:
    """Give a container the volume for Spark's own checkpoint, if the write is a stream, whatever a template says of its place."""
    if spec.checkpoint_volume is None:
        return
    claim = {"persistentVolumeClaim": {"claimName": spec.checkpoint_volume.claim_name}}
    _mount(pod, container, _CHECKPOINT_VOLUME, claim, {"mountPath": CHECKPOINT_MOUNT})
    pod["spec"]["securityContext"].setdefault("fsGroup", _GROUP)


def _mount_handed_keys(pod: dict[str, Any], container: dict[str, Any], uid: str | None) -> None:
    """Give a container the keys that catalogs hand out to a write. Not in its environment: they are renewed while it runs."""
    said = None
    if uid is not None:
        items = [{"key": uid, "path": _HANDED_KEYS_NAME}]
        volume = {"secret": {"secretName": HANDED_KEYS_SECRET, "items": items}}
        _mount(pod, container, _HANDED_KEYS_VOLUME, volume, {"mountPath": _HANDED_KEYS_MOUNT, "readOnly": True})
        said = {"value": f"{_HANDED_KEYS_MOUNT}/{_HANDED_KEYS_NAME}"}
    _set_variable(container, _HANDED_KEYS_VARIABLE, said)


def _mount(
    pod: dict[str, Any], container: dict[str, Any], name: str, volume: Mapping[str, Any], mount: Mapping[str, Any]
) -> None:
    """Mount a volume of ours, whatever a template says of its name and place."""
    path = mount["mountPath"]
    pod["spec"]["volumes"] = [*(one for one in pod["spec"]["volumes"] if one["name"] != name), {"name": name, **volume}]
    others = (one for one in container["volumeMounts"] if path not in (one["mountPath"], one["mountPath"].rstrip("/")))
    container["volumeMounts"] = [*(one for one in others if one["name"] != name), {"name": name, **mount}]


def _keys_in(secret_name: str | None) -> dict[str, Any] | None:
    if secret_name is None:
        return None
    return {"valueFrom": {"secretKeyRef": {"name": secret_name, "key": RECORD_KEYS_ENTRY}}}


def _set_variable(container: dict[str, Any], name: str, said: Mapping[str, Any] | None) -> None:
    """Give a container a variable of ours, with a value or where that is from, or take it out, whatever a template says of it."""
    container["env"] = [item for item in container["env"] if item["name"] != name]
    if said is not None:
        container["env"].append({"name": name, **said})


def _common_environment(spec: Spec, workloads: WorkloadDefaults) -> list[dict[str, Any]]:
    environment: list[dict[str, Any]] = [{"name": "PYTHONUNBUFFERED", "value": "1"}, {"name": "HOME", "value": _SCRATCH}]
    secret = spec.storage_secret_name or workloads.storage_secret_name
    if secret is not None:
        # By reference in the environment, not as a volume: a Secret that is missing then shows in the pod's status by its name.
        reference = {"secretKeyRef": {"name": secret, "key": STORAGE_KEY}}
        environment.append({"name": _STORAGE_VARIABLE, "valueFrom": reference})
    return environment


def _code_folder(spec: Spec, variable: str) -> list[dict[str, Any]]:
    return [{"name": variable, "value": spec.code.path}] if spec.code.path is not None else []


def _pod_security() -> dict[str, Any]:
    return {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, "fsGroupChangePolicy": "OnRootMismatch"}


def _container_security() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
    }


def _labels_of_write(owner: Owner, uid: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/managed-by": "checkpointed-write-operator",
        WRITE_LABEL: owner.name[:63].rstrip("-."),
        UID_LABEL: uid,
    }


def _owner_reference(owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def merge(ours: Any, theirs: Any) -> Any:
    """Return ours with theirs laid over: mappings by key, MERGED_LISTS by item, tolerations added, the rest replaced."""
    if not isinstance(ours, dict) or not isinstance(theirs, Mapping):
        return theirs
    merged = dict(ours)
    for name, value in theirs.items():
        if value is None:  # an empty `labels:` does not mean that none of ours are wanted
            continue
        current = merged.get(name)
        if name in MERGED_LISTS and isinstance(current, list) and isinstance(value, list):
            merged[name] = _merge_items(current, value, MERGED_LISTS[name])
        elif name == "tolerations" and isinstance(current, list) and isinstance(value, list):
            merged[name] = [*current, *value]
        else:
            merged[name] = merge(current, value) if isinstance(current, dict) else value
    return merged


def _merge_items(ours: list[Any], theirs: list[Any], key: str) -> list[Any]:
    merged = {item.get(key): item for item in ours}
    for item in theirs:
        name = item.get(key) if isinstance(item, Mapping) else None
        merged[name] = merge(merged.get(name), item)
    return list(merged.values())
