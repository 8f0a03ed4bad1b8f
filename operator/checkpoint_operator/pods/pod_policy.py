"""Which fields of pods, Secrets and service accounts a manifest may choose. Pure.

Without it, whoever may make a CheckpointedWrite could make any pod that its namespace admits, through the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sections import ObjectName, Section
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.places.patterns import is_named

#: Where a pod runs, what it is given of its own namespace, and how large it is. Not all annotations: by some of them a webhook or
#: an agent gives a pod a role of the cloud (kube2iam) or secrets (Vault).
DEFAULT_FIELDS: Final = (
    "metadata.annotations.cluster-autoscaler.kubernetes.io/safe-to-evict",
    "metadata.annotations.karpenter.sh/do-not-disrupt",
    "metadata.annotations.linkerd.io/inject",
    "metadata.annotations.sidecar.istio.io/inject",
    "metadata.labels",
    "spec.activeDeadlineSeconds",
    "spec.affinity",
    "spec.containers[].envFrom[].configMapRef",
    "spec.containers[].envFrom[].prefix",
    "spec.containers[].env[].name",
    "spec.containers[].env[].value",
    "spec.containers[].env[].valueFrom.configMapKeyRef",
    "spec.containers[].env[].valueFrom.fieldRef",
    "spec.containers[].env[].valueFrom.resourceFieldRef",
    "spec.containers[].name",
    "spec.containers[].resources",
    "spec.containers[].volumeMounts",
    "spec.nodeSelector",
    "spec.terminationGracePeriodSeconds",
    "spec.tolerations",
    "spec.topologySpreadConstraints",
    "spec.volumes[].configMap",
    "spec.volumes[].downwardAPI",
    "spec.volumes[].emptyDir",
    "spec.volumes[].ephemeral",
    "spec.volumes[].name",
    "spec.volumes[].persistentVolumeClaim",
)
#: Where a pod names a Secret, and the field that has its name.
_SECRETS: Final = {
    "spec.containers[].env[].valueFrom.secretKeyRef": "name",
    "spec.containers[].envFrom[].secretRef": "name",
    "spec.volumes[].secret": "secretName",
    "spec.volumes[].projected.sources[].secret": "name",
    "spec.imagePullSecrets[]": "name",
}
#: What a template names a claim by. Who may not name one there may not name one elsewhere.
_CLAIM: Final = "spec.volumes[].persistentVolumeClaim"
#: How the names of variables begin by which the operator tells its pods what to do.
_OWN_VARIABLES: Final = "CHECKPOINTED_WRITE_"
_MOST_TOLD: Final = 5


class PodPolicy(Section):
    """What manifests may choose of pods, beside images and sizes."""

    template_fields: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=DEFAULT_FIELDS,
        description="Fields of driver.template and executor.template, with all below them: spec.nodeSelector, "
        "spec.containers[].resources. One *: all fields.",
    )
    secrets: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="Secrets of the workload namespace that templates may name; a * stands for any characters."
    )
    service_accounts: tuple[ObjectName, ...] = Field(
        default=(), description="What spec.serviceAccountName may be, beside the drivers' own account."
    )


def check_pods(spec: Spec, policy: PodPolicy, own_account: str) -> None:
    """Refuse a manifest that chooses what it may not: NeedsChange, with each such field and who can allow it."""
    refused = [
        f"spec.{role}.template: {field}"
        for role, template in (("driver", spec.driver.template), ("executor", spec.executor.template))
        for field in (*_refused(template, policy), *_own_variables(template))
    ]
    may_name_claims = "*" in policy.template_fields or _is_allowed(_CLAIM, None, policy)
    if spec.checkpoint_volume is not None and not may_name_claims:
        refused.append(f"spec.source.program.stream.checkpointVolume (a volume as in {_CLAIM})")
    account = spec.service_account_name
    if account is not None and account not in (own_account, *policy.service_accounts):
        refused.append(f"spec.serviceAccountName: {account}")
    if refused:
        told = ", ".join(refused[:_MOST_TOLD])
        more = f" and {len(refused) - _MOST_TOLD} more" if len(refused) > _MOST_TOLD else ""
        raise NeedsChange(
            reasons.ACCESS_NOT_GRANTED,
            f"not allowed here, or misspelt: {told}{more}; leave it out, or ask the administrator of the operator to allow it: "
            "workloads.allowed in the chart's values (templateFields, secrets, serviceAccounts)",
        )


def _refused(template: Mapping[str, Any], policy: PodPolicy) -> Iterator[str]:
    """Give the fields of a template that are not allowed, with the places of list items: spec.volumes[0].hostPath."""
    if "*" in policy.template_fields:
        return
    yield from _below(template, "", "", policy)


def _own_variables(template: Mapping[str, Any]) -> Iterator[str]:
    """Give the variables of a template that are not for people to set: what they say was checked elsewhere."""
    for kind in ("containers", "initContainers"):
        for number, container in enumerate(_list_in(template.get("spec"), kind)):
            for place, item in enumerate(_list_in(container, "env")):
                name = item.get("name") if isinstance(item, Mapping) else None
                if isinstance(name, str) and name.startswith(_OWN_VARIABLES):
                    yield f"spec.{kind}[{number}].env[{place}] ({name} is the operator's)"


def _list_in(section: Any, name: str) -> list[Any]:
    found = section.get(name) if isinstance(section, Mapping) else None
    return found if isinstance(found, list) else []


def _below(value: Any, kind: str, place: str, policy: PodPolicy) -> Iterator[str]:
    """`kind`: the path with [] for any item; `place`: with the items' numbers."""
    if value is None or _is_allowed(kind, value, policy):
        return
    if (secret := _secret_name(kind, value)) is not None:
        yield f"{place} (the Secret {secret})"
    elif isinstance(value, Mapping) and _leads_on(f"{kind}." if kind else "", policy):
        for name, inner in value.items():
            yield from _below(inner, f"{kind}.{name}" if kind else name, f"{place}.{name}" if place else name, policy)
    elif isinstance(value, list) and _leads_on(f"{kind}[]", policy):
        for number, inner in enumerate(value):
            yield from _below(inner, f"{kind}[]", f"{place}[{number}]", policy)
    elif value not in ({}, []):
        yield place


def _is_allowed(kind: str, value: Any, policy: PodPolicy) -> bool:
    name = _secret_name(kind, value)
    if name is not None and is_named(name, policy.secrets):
        return True
    return any(kind == field or kind.startswith((f"{field}.", f"{field}[")) for field in policy.template_fields)


def _secret_name(kind: str, value: Any) -> str | None:
    if kind not in _SECRETS or not isinstance(value, Mapping):
        return None
    return str(value.get(_SECRETS[kind]))


def _leads_on(beginning: str, policy: PodPolicy) -> bool:
    """Whether a field that begins so may be allowed."""
    return any(field.startswith(beginning) for field in (*policy.template_fields, *_SECRETS))
