"""What manifests may choose of pods: nothing that whoever installed the operator has not allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from checkpoint_operator.pods.pod_policy import DEFAULT_FIELDS, PodPolicy, check_pods
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.spec import Spec, parse_manifest, validate_model
from tests.support.manifests import manifest

OWN: Final = "checkpointed-write-driver"
VALUES: Final = Path(__file__).resolve().parents[3] / "charts" / "checkpointed-write-operator" / "values.yaml"


def spec_of(**sections: Any) -> Spec:
    return parse_manifest(manifest(**{f"spec__{name}": value for name, value in sections.items()})).spec


def refusal(template: dict[str, Any], role: str = "driver", **policy: Any) -> str:
    with pytest.raises(NeedsChange) as caught:
        check(template, role, **policy)
    assert caught.value.reason == reasons.ACCESS_NOT_GRANTED
    return caught.value.message


def check(template: dict[str, Any], role: str = "driver", **policy: Any) -> None:
    check_pods(spec_of(**{role: {"template": template}}), validate_model(PodPolicy, policy), OWN)


REFUSED: Final[dict[str, dict[str, Any]]] = {
    "spec.volumes[1].hostPath": {
        "spec": {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "disk", "hostPath": {"path": "/"}}]}
    },
    "spec.containers[0].securityContext": {"spec": {"containers": [{"name": "driver", "securityContext": {"privileged": True}}]}},
    "spec.serviceAccountName": {"spec": {"serviceAccountName": "default"}},
    "spec.serviceAccount": {"spec": {"serviceAccount": "default"}},
    "spec.hostNetwork": {"spec": {"hostNetwork": True}},
    "spec.hostPID": {"spec": {"hostPID": True}},
    "spec.priorityClassName": {"spec": {"priorityClassName": "system-node-critical"}},
    "spec.priority": {"spec": {"priority": 2_000_000_000}},
    "spec.nodeName": {"spec": {"nodeName": "control-plane"}},
    "spec.initContainers": {"spec": {"initContainers": [{"name": "a", "image": "x"}]}},
    "spec.containers[0].image": {"spec": {"containers": [{"name": "side", "image": "x"}]}},
    "spec.containers[0].command": {"spec": {"containers": [{"name": "side", "command": ["sh"]}]}},
    "spec.automountServiceAccountToken": {"spec": {"automountServiceAccountToken": True}},
    "spec.containers[0].env[0].valueFrom.secretKeyRef (the Secret theirs)": {
        "spec": {
            "containers": [
                {"name": "driver", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "theirs", "key": "k"}}}]}
            ]
        }
    },
    "spec.containers[0].envFrom[0].secretRef (the Secret theirs)": {
        "spec": {"containers": [{"name": "driver", "envFrom": [{"secretRef": {"name": "theirs"}}]}]}
    },
    "spec.volumes[0].secret (the Secret theirs)": {"spec": {"volumes": [{"name": "a", "secret": {"secretName": "theirs"}}]}},
    "spec.volumes[0].projected.sources[0].secret (the Secret theirs)": {
        "spec": {"volumes": [{"name": "a", "projected": {"sources": [{"secret": {"name": "theirs"}}]}}]}
    },
    "spec.volumes[0].projected.sources[0].serviceAccountToken": {
        "spec": {"volumes": [{"name": "a", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}
    },
    "spec.imagePullSecrets[0] (the Secret theirs)": {"spec": {"imagePullSecrets": [{"name": "theirs"}]}},
    "metadata.annotations.iam.amazonaws.com/role": {"metadata": {"annotations": {"iam.amazonaws.com/role": "admin"}}},
    "metadata.annotations.vault.hashicorp.com/agent-inject": {
        "metadata": {"annotations": {"vault.hashicorp.com/agent-inject": "true"}}
    },
    "metadata.ownerReferences": {"metadata": {"ownerReferences": [{"uid": "1"}]}},
    "metadata.finalizers": {"metadata": {"finalizers": ["keep"]}},
}


@pytest.mark.parametrize("role", ["driver", "executor"])
@pytest.mark.parametrize("field", REFUSED)
def test_what_reaches_beyond_the_pod_is_refused_by_its_field(field: str, role: str) -> None:
    said = refusal(REFUSED[field], role)

    assert f"spec.{role}.template: {field}" in said
    assert "workloads.allowed" in said, "the way out"

    name, _, secret = field.partition(" (the Secret ")
    allowed = (
        {"secrets": [secret.rstrip(")")]} if secret else {"templateFields": [*DEFAULT_FIELDS, re.sub(r"\[\d+\]", "[]", name)]}
    )
    check(REFUSED[field], role, **allowed)
    check({}, role)


def test_where_it_runs_and_what_it_has_of_its_own_may_be_chosen() -> None:
    template = {
        "metadata": {"labels": {"team": "a"}, "annotations": {"sidecar.istio.io/inject": "false"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "volumes": [{"name": "data", "configMap": {"name": "data", "items": []}}, {"name": "big", "emptyDir": {}}],
            "containers": [
                {
                    "name": "driver",
                    "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                    "resources": {"requests": {"cpu": "100m"}},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
        },
    }

    check(template)
    check({"spec": {"containers": [], "volumes": None}})


def test_secrets_may_be_named_that_are_allowed_and_no_others() -> None:
    def of(name: str) -> dict[str, Any]:
        return REFUSED["spec.volumes[0].secret (the Secret theirs)"] | {
            "spec": {"volumes": [{"name": "a", "secret": {"secretName": name, "items": []}}]}
        }

    check(of("steps-llm"), secrets=["steps-*"])
    refusal(of("astray-steps-llm"), secrets=["steps-*"])


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize("role", ["driver", "executor"])
def test_variables_of_the_operators_own_are_refused_also_where_every_field_is_allowed(role: str, kind: str) -> None:
    given = {"name": "CHECKPOINTED_WRITE_EXECUTOR_TEMPLATE", "value": "{}"}
    template = {"spec": {kind: [{"name": role, "env": [{"name": "MINE", "value": "1"}, given]}]}}

    for fields in (list(DEFAULT_FIELDS), ["*"]):
        told = refusal(template, role, templateFields=fields)
        assert f"spec.{kind}[0].env[1] (CHECKPOINTED_WRITE_EXECUTOR_TEMPLATE is the operator's)" in told


def test_one_star_allows_every_field() -> None:
    check(REFUSED["spec.hostNetwork"], templateFields=["*"])


def test_a_field_is_allowed_with_all_below_it_and_not_with_another_that_begins_alike() -> None:
    refusal({"spec": {"host": 1}}, templateFields=["spec.hostNetwork"])
    refusal({"spec": {"hostNetworkPolicy": 1}}, templateFields=["spec.hostNetwork"])


def test_another_service_account_is_refused_unless_it_is_allowed() -> None:
    spec = spec_of(serviceAccountName="admin")

    with pytest.raises(NeedsChange, match=r"spec\.serviceAccountName: admin"):
        check_pods(spec, PodPolicy(), OWN)
    check_pods(spec, PodPolicy(service_accounts=("admin",)), OWN)
    check_pods(spec_of(serviceAccountName=OWN), PodPolicy(), OWN)


def test_the_charts_values_allow_what_the_program_does_by_default() -> None:
    allowed = yaml.safe_load(VALUES.read_text(encoding="utf-8"))["workloads"]["allowed"]

    assert validate_model(PodPolicy, allowed) == PodPolicy()
    assert tuple(sorted(DEFAULT_FIELDS)) == DEFAULT_FIELDS


def test_the_volume_of_a_stream_is_refused_where_templates_may_name_no_claims() -> None:
    stream = {"program": {"call": "jobs:main", "stream": {"checkpointVolume": {"claimName": "spark-state"}}}}
    spec, claim = spec_of(source=stream), "spec.volumes[].persistentVolumeClaim"
    fields = tuple(field for field in DEFAULT_FIELDS if field != claim)

    with pytest.raises(NeedsChange, match=r"spec\.source\.program\.stream\.checkpointVolume") as refused:
        check_pods(spec, PodPolicy(template_fields=fields), OWN)
    assert claim in refused.value.message
    for allowed in ((*fields, claim), ("*",), DEFAULT_FIELDS):
        check_pods(spec, PodPolicy(template_fields=allowed), OWN)
