"""What a driver that goes from stage to stage is told of the code: all of it, as it is when each stage is recorded."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from checkpoint_control.loop.drivers import code_of_session, keep_arguments
from checkpoint_control.ports import Write
from checkpoint_protocol.manifest.spec import Spec, parse_manifest
from tests.support.manifests import manifest

STAGES = [{"name": name, "steps": [{"call": f"docs:{name}"}]} for name in ("parse", "embed")]
UPSERT = {"iceberg": {"catalog": "c", "table": "a.b"}, "mode": "Upsert", "upsertKeys": ["id"]}
APPEND = {"iceberg": {"catalog": "c", "table": "a.b"}}


def spec_of(**sections: Any) -> Spec:
    return parse_manifest(manifest(**{f"spec__{name}": value for name, value in sections.items()})).spec


def session_code(spec: Spec, versions: dict[str, int] | None = None, archive: str | None = None) -> str | None:
    """Return the digest where the code that each call names has this version; 1 where none is said."""

    def renew(write: Write) -> Write:
        calls = [step.call for step in write.spec.last_part.steps]
        text = " ".join(f"{call} {(versions or {}).get(call, 1)}" for call in calls)
        return replace(write, code_digest=hashlib.sha256(text.encode()).hexdigest(), code=archive)

    return code_of_session(Write(uid="a", spec=spec, code_digest="", row_keys=""), renew)


def test_the_code_of_every_stage_counts_and_so_does_the_archive_that_a_driver_imports_it_from() -> None:
    spec = spec_of(stages=STAGES, sink=APPEND)

    now = session_code(spec)

    assert now is not None
    assert session_code(spec) == now
    others = [
        session_code(spec, {"docs:parse": 2}),
        session_code(spec, {"docs:embed": 2}),
        session_code(spec, archive="e" * 64),
    ]
    assert len({now, *others}) == 4


@pytest.mark.parametrize(
    ("sections", "arguments"),
    [
        ({"sink": APPEND}, {}),
        ({"sink": UPSERT}, {"--keep-stages": "60"}),
        ({"sink": {**APPEND, "audit": "checks:all"}}, {"--keep-stages": "60"}),
        ({"sink": APPEND, "stages": STAGES}, {"--keep-stages": "60"}),
        ({"sink": UPSERT, "trigger": {"every": "1m", "keepDriver": "10m"}}, {"--keep": "600", "--keep-stages": "60"}),
        ({"sink": APPEND, "trigger": {"every": "1m", "keepDriver": "10m"}}, {"--keep": "600"}),
        (
            {"sink": APPEND, "stages": STAGES, "trigger": {"every": "1m", "keepDriver": "10m"}},
            {"--keep": "600", "--keep-stages": "60"},
        ),
    ],
    ids=["append", "upsert", "audit", "pipeline", "upsert by a trigger", "append by a trigger", "pipeline by a trigger"],
)
def test_a_driver_waits_for_stages_where_its_epoch_has_more_than_one(sections: dict[str, Any], arguments: dict[str, str]) -> None:
    spec = spec_of(**sections)

    told = keep_arguments(spec, "")

    assert dict(zip(told[::2], told[1::2], strict=True)).items() >= arguments.items()
    assert bool(told) == bool(arguments)
    assert (session_code(spec) is not None) == ("--keep-stages" in arguments)
    assert "--keep" not in keep_arguments(spec, "merge-7"), "a driver that was started for a merge ends with the epoch"
    assert keep_arguments(spec, "parse-0011223344556677-1") == told, "the first stage of a pipeline begins the epoch"
