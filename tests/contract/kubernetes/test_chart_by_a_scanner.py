"""What kube-score says of the rendered chart: nothing, but for what is waived here, each with its reason."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
import yaml

from devtools.kubernetes import binaries
from tests.contract.kubernetes.test_chart import VARIANTS, Object, of_kind, render
from tests.support.waiting import patience

WAIVED: Final = {
    "container-resources": "no limit of CPU: it would slow commits down while the node has nothing else to do",
    "container-image-pull-policy": "images are pinned by version or digest, so that a pull for each start gives nothing new",
    "container-ephemeral-storage-request-and-limit": "the only writable folder is an emptyDir with a sizeLimit",
    "pod-networkpolicy": "where the operator connects to (catalogs, stores) is the user's; the pod of helm test serves nothing",
    "deployment-replicas": "one is enough for safety; who wants the next at once when it dies sets two",
    "networkpolicy-targets-pod": "it is for the pods of writes, which the operator makes later",
}
#: Only with these values.
WAIVED_AT: Final = {
    "everything": {"deployment-has-host-podantiaffinity": "the affinity that a user gives is taken as it is"},
    "nothing made": {"deployment-has-poddisruptionbudget": "the user has said that none is to be made"},
}
_PASSED: Final = 10


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("helm_home")


def findings(objects: Sequence[Object]) -> set[str]:
    """Return the ids of the checks that are not passed in full."""
    scored = subprocess.run(
        [str(binaries.kube_score()), "score", "--output-format", "json", "-"],
        input=yaml.safe_dump_all(objects),
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    found = json.loads(scored.stdout)
    assert found, scored.stderr
    return {check["check"]["id"] for one in found for check in one["checks"] if not check["skipped"] and check["grade"] < _PASSED}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_scanner_finds_nothing_but_what_is_waived(home: Path, variant: str) -> None:
    objects = [item for item in render(home, VARIANTS[variant]) if item["kind"] != "CustomResourceDefinition"]

    assert findings(objects) - WAIVED_AT.get(variant, {}).keys() <= WAIVED.keys()


def test_nothing_is_waived_that_is_not_found(home: Path) -> None:
    assert findings(render(home, {})) == WAIVED.keys()


def test_the_scanner_sees_what_is_wrong(home: Path) -> None:
    objects = copy.deepcopy(render(home, {}))
    (deployment,) = of_kind(objects, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["securityContext"] = {"privileged": True, "runAsUser": 0}

    assert {"container-security-context-privileged", "container-security-context-user-group-id"} <= findings(objects)
