"""What kstatus, and the health check for Argo CD of the chart, make of a write in each phase, on the programs that decide it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint_control.decision.actions import Commit, Stall, StartDriver, Wait
from checkpoint_operator.crd.definition import custom_resource_definition
from checkpoint_operator.crd.status_model import Status
from checkpoint_operator.status.round_status import DeletionWaits, Failed, Frame, Outcome, derive
from checkpoint_protocol import reasons
from checkpoint_protocol.manifest.spec import API_VERSION, KIND
from devtools.kubernetes import binaries
from tests.unit.cluster.test_pods import OWNER, spec_of
from tests.unit.cluster.test_status_of_rounds import AT_WORK, COMMITTED, FIRST, RECORDED, SEALED, decided, ended, status_after

LUA = Path(__file__).resolve().parents[3] / "charts" / "checkpointed-write-operator" / "docs" / "argocd-health.lua"
ASKED = ended(StartDriver(1), RECORDED)
RUNS = ended(Wait("the driver"), AT_WORK)
DOWN = Failed(reasons.STORE_UNAVAILABLE, "no answer", may_pass=True)
UNSEEN: dict[str, Any] = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"][
    "default"
]


def body(status: dict[str, Any], generation: int = OWNER.generation, **metadata: Any) -> dict[str, Any]:
    about = {"name": OWNER.name, "namespace": OWNER.namespace, "uid": OWNER.uid, "generation": generation, **metadata}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": about, "spec": {}, "status": status}


def after(*outcomes: Outcome | tuple[Any, Any], generation: int = OWNER.generation, **metadata: Any) -> dict[str, Any]:
    return body(plain(status_after(*outcomes)), generation, **metadata)


def plain(status: Status) -> dict[str, Any]:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def edited_and_down() -> dict[str, Any]:
    edited = replace(OWNER, generation=OWNER.generation + 1)
    return body(plain(derive(Frame(status_after(COMMITTED), edited, FIRST, spec_of()), DOWN)), edited.generation)


GOING, NEXT = ("InProgress", "Progressing"), OWNER.generation + 1
CASES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "no operator has seen it": (body(UNSEEN), GOING),
    "pending": (after(ASKED), GOING),
    "running": (after(ASKED, RUNS), GOING),
    "running while the store does not answer": (after(ASKED, RUNS, DOWN), GOING),
    "the store does not answer from the beginning": (after(DOWN), GOING),
    "committing": (after(ASKED, RUNS, decided(Commit(1), SEALED)), GOING),
    "committed": (after(ASKED, COMMITTED), ("Current", "Healthy")),
    "committed and edited since": (after(ASKED, COMMITTED, generation=NEXT), GOING),
    "committed and edited while the store does not answer": (edited_and_down(), GOING),
    "suspended": (after(ended(Wait("a resume"), AT_WORK, is_suspended=True)), ("InProgress", "Suspended")),
    "stalled": (after(ended(Stall(reasons.SCHEMA_CHANGED, "gone"), SEALED)), ("Failed", "Degraded")),
    "invalid": (after(Failed(reasons.MANIFEST_INVALID, "wrong", may_pass=False)), ("Failed", "Degraded")),
    "deleted": (after(ASKED, RUNS, deletionTimestamp=FIRST), ("Terminating", "Progressing")),
    "deleted, which waits": (
        after(COMMITTED, DeletionWaits(reasons.CATALOG_UNAVAILABLE, "no answer"), deletionTimestamp=FIRST),
        ("Terminating", "Progressing"),
    ),
}


@pytest.fixture(scope="module")
def found() -> dict[str, tuple[str, str]]:
    """What each program says of each case, from one call."""
    asked = json.dumps({"lua": LUA.read_text(), "objects": [case for case, _ in CASES.values()]})
    done = subprocess.run([binaries.health()], input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = ((answer["kstatus"], answer["argocd"]) for answer in json.loads(done.stdout))
    return dict(zip(CASES, answers, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_others_see_a_write_as_it_is(found: dict[str, tuple[str, str]], case: str) -> None:
    assert found[case] == CASES[case][1]
