"""Print the CustomResourceDefinition, which is made from the models: `python -m checkpoint_operator.crd`.

crds/ and the chart hold its output; tests/unit/cluster/test_crd.py says when they lag behind, and how to mend that.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from checkpoint_operator.crd.rules import rules_of
from checkpoint_operator.crd.schema import Schema, schema_of
from checkpoint_operator.crd.status_model import UNOBSERVED_STATUS, Status
from checkpoint_protocol.manifest.spec import API_VERSION, KIND, CheckpointedWrite, Spec

GROUP: Final = API_VERSION.partition("/")[0]
VERSION: Final = API_VERSION.partition("/")[2]
PLURAL: Final = "checkpointedwrites"
SHORT_NAME: Final = "cw"
CRD_NAME: Final = f"{PLURAL}.{GROUP}"

#: Title, type, path and priority; priority 1 is shown by `kubectl get -o wide` only.
COLUMNS: Final = (
    ("Phase", "string", ".status.phase", 0),
    ("Progress", "string", ".status.progress", 0),
    ("Rows", "integer", ".status.rowsCommitted", 0),
    ("Attempt", "integer", ".status.attempt", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Sealed", "integer", ".status.rowsSealed", 1),
    ("Quarantined", "integer", ".status.rowsQuarantined", 1),
    ("Format", "string", ".status.commit.format", 1),
    ("Table", "string", ".status.commit.target", 1),
    ("Version", "string", ".status.commit.id", 1),
    ("Driver", "string", ".status.driverPod", 1),
    ("Reason", "string", ".status.reason", 1),
)

_HEADER: Final = "# Made by `python -m checkpoint_operator.crd` from the models in core/ and operator/. Do not edit.\n"


def custom_resource_definition() -> dict[str, Any]:
    """Return the CRD as plain data."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": [SHORT_NAME],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*column) for column in COLUMNS],
                    "schema": {"openAPIV3Schema": _root()},
                }
            ],
        },
    }


def _root() -> Schema:
    return {
        "type": "object",
        "description": "A Spark job whose results are sealed as it runs, and are committed to a table exactly once.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION},
            "kind": {"type": "string", "description": KIND},
            "metadata": {"type": "object"},
            "spec": schema_of(Spec),
            "status": {**schema_of(Status), "default": UNOBSERVED_STATUS},
        },
        "x-kubernetes-validations": [rule.as_schema() for rule in rules_of(CheckpointedWrite)],
    }


def _column(title: str, kind: str, path: str, priority: int) -> dict[str, Any]:
    column: dict[str, Any] = {"name": title, "type": kind, "jsonPath": path}
    return column | ({"priority": priority} if priority else {})


def as_yaml() -> str:
    """Return the CRD as the text of its file."""
    return _HEADER + yaml.safe_dump(custom_resource_definition(), sort_keys=False, width=128, allow_unicode=True)
