"""The CRD on a real API server: its verdicts and defaults are those of the models, and what a write is cannot be changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kubernetes import client, config

from checkpoint_operator.crd.definition import GROUP, PLURAL, VERSION
from checkpoint_operator.crd.status_model import (
    UNOBSERVED_STATUS,
    AttemptStatus,
    CommitStatus,
    Condition,
    EpochStatus,
    StageStatus,
    Status,
)
from checkpoint_protocol.manifest.spec import ManifestInvalid, parse_manifest
from devtools.kubernetes.api_server_only import ApiServer
from devtools.kubernetes.kube_client import CommandFailed
from tests.support.corrected_manifests import CORRECTIONS, Correction
from tests.support.manifests import ALLOWED_EDITS, BAD, FORBIDDEN_EDITS, GOOD, manifest
from tests.support.waiting import patience, until

ROOT: Final = Path(__file__).resolve().parents[3]
CRDS: Final = ROOT / "crds"
EXAMPLES: Final = sorted(
    path for path in (ROOT / "examples").rglob("*.yaml") if "kind: CheckpointedWrite" in path.read_text(encoding="utf-8")
)
NAMESPACE: Final = "default"
MOMENT: Final = "2026-01-02T03:04:05Z"

#: A client.CustomObjectsApi, whose annotations promise less than it gives.
Api = Any


@pytest.fixture(scope="module")
def server(api_server: ApiServer) -> ApiServer:
    api_server.kubectl("apply", "--server-side", "-f", str(CRDS))
    api_server.wait_for_kinds()
    return api_server


@pytest.fixture(scope="module")
def api(server: ApiServer) -> Api:
    return client.CustomObjectsApi(config.new_client_from_config(str(server.kubeconfig)))  # type: ignore[no-untyped-call]


def create(api: Api, document: dict[str, Any], *, dry_run: bool = True) -> dict[str, Any]:
    """Create as kubectl does, where unknown fields are errors. Refused is what the server said, if it refused."""
    extra = {"dry_run": "All"} if dry_run else {}
    try:
        created: dict[str, Any] = api.create_namespaced_custom_object(
            GROUP, VERSION, NAMESPACE, PLURAL, document, field_validation="Strict", **extra
        )
    except client.ApiException as error:
        raise Refused(error) from error
    assert created.pop("status") == UNOBSERVED_STATUS, "no operator has seen it"
    return created


def replace(api: Api, document: dict[str, Any], *, dry_run: bool = True) -> dict[str, Any]:
    name = document["metadata"]["name"]
    current = api.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, name)
    version = {"resourceVersion": current["metadata"]["resourceVersion"]}
    body = {**document, "metadata": {**document["metadata"], **version}}
    extra = {"dry_run": "All"} if dry_run else {}
    try:
        replaced: dict[str, Any] = api.replace_namespaced_custom_object(
            GROUP, VERSION, NAMESPACE, PLURAL, name, body, field_validation="Strict", **extra
        )
    except client.ApiException as error:
        raise Refused(error) from error
    return replaced


class Refused(Exception):
    def __init__(self, error: client.ApiException) -> None:
        self.status = error.status
        super().__init__(json.loads(error.body or "{}").get("message", "nothing"))


@pytest.fixture
def write(api: Api, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The smallest write, or the one that the test is parametrized with; there for good."""
    document = getattr(request, "param", manifest())
    create(api, document, dry_run=False)
    yield document
    api.delete_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, document["metadata"]["name"])


# --- verdicts and defaults ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", GOOD.values(), ids=GOOD)
def test_a_manifest_that_the_models_take_is_taken_and_means_the_same(api: Api, changes: dict[str, Any]) -> None:
    document = manifest(**changes)

    assert parse_manifest(create(api, document)) == parse_manifest(document)


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD)
def test_a_manifest_that_the_models_refuse_is_refused(api: Api, changes: dict[str, Any]) -> None:
    document = manifest(**changes)
    with pytest.raises(ManifestInvalid):
        parse_manifest(document)

    with pytest.raises(Refused) as refused:
        create(api, document)
    assert refused.value.status in (400, 422)


@pytest.mark.parametrize(
    "correction", [each for each in CORRECTIONS if each.cluster_says != ""], ids=lambda correction: correction.says[:60]
)
def test_a_manifest_that_is_corrected_as_the_refusal_says_is_taken(api: Api, correction: Correction) -> None:
    with pytest.raises(Refused, match=re.escape(correction.cluster_says or correction.says)):
        create(api, manifest(**correction.refused))

    for corrected in correction.corrected():
        create(api, corrected)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_are_taken(api: Api, path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))

    assert parse_manifest(create(api, document)) == parse_manifest(document)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"metadata__name": "a" * 46}, "the name may have 45 characters at most"),
        (
            {"spec__source__files": ...},
            "spec.source: Invalid value: exactly one of files, iceberg, lance, kafka, spark, program and union is expected",
        ),
        ({"spec__sink": {}}, "spec.sink: Invalid value: exactly one of iceberg, lance and none is expected"),
        ({"spec__sink__mode": "Merge"}, 'spec.sink.mode: Unsupported value: "Merge": supported values: "Append"'),
        ({"spec__code": {"path": "/a", "uri": "s3://b/c.py"}}, "at most one of path, configMap and uri is expected"),
        ({"spec__sparkConf": {"x": ""}}, "spec.sparkConf: Invalid value: 'x' is no property of Spark"),
        ({"spec__source__files__splitSize": "0"}, "spec.source.files.splitSize: Invalid value: a size of more than 0"),
        ({"spec__checkpoint__interval": "0s"}, "a duration of more than 0s is expected, e.g. 90s, 500ms or 5m"),
        (
            {"spec__source": {"program": {"call": "jobs:main", "stream": {}}}},
            "spec.source.program.stream.checkpointVolume: Invalid value: in a cluster Spark needs a volume",
        ),
        (
            {"spec__steps": [{"call": "steps.embed", "input": "row"}]},
            "spec.steps[0].call: Invalid value: module:function (or module:Class) is expected",
        ),
        ({"spec__checkpoint__uri": "s3://"}, "spec.checkpoint.uri: Invalid value: a path, or a URI without the names . and ..,"),
        ({"spec__checkpoint__interval": "1 minute"}, "a duration of more than 0s is expected, e.g. 90s, 500ms or 5m"),
        (
            {"spec__driver": {"memory": "a lot"}},
            "spec.driver.memory: Invalid value: a size of more than 0 ",
        ),
        ({"spec__quarantine": {"maxShare": "10"}}, "a share from 0% to 100% is expected, e.g. 10% or 0.5%"),
        ({"spec__backoffLimt": 3}, 'unknown field "spec.backoffLimt"'),
    ],
)
def test_a_refusal_says_where_and_what_is_expected(api: Api, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(Refused) as refused:
        create(api, manifest(**changes))

    assert says in plain(refused.value)


def plain(refused: Refused) -> str:
    """The message without the values that Kubernetes quotes in it."""
    return re.sub(r'Invalid value: (".*?"|\{.*?\}|\w+): ', "Invalid value: ", str(refused))


@pytest.mark.parametrize("changes", [{"spec__steps": None}, {"spec__backoffLimit": None}, {"spec__driver": None}])
def test_the_api_server_takes_null_for_the_default_where_the_models_do_not(api: Api, changes: dict[str, Any]) -> None:
    """The one known difference: it drops a null before anybody sees it, so that the controller is never given one."""
    with pytest.raises(ManifestInvalid):
        parse_manifest(manifest(**changes))
    assert parse_manifest(create(api, manifest(**changes))) == parse_manifest(manifest())


# --- what may change ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", FORBIDDEN_EDITS.values(), ids=FORBIDDEN_EDITS)
def test_what_a_write_is_cannot_be_changed(api: Api, write: dict[str, Any], changes: dict[str, Any]) -> None:
    put_status(api, Status(rows_sealed=1))

    with pytest.raises(Refused, match="cannot be changed, because it identifies the write; create a new write under a new name"):
        replace(api, manifest(**changes))

    create(api, manifest(**changes, metadata__name="another"))


@pytest.mark.parametrize("status", [Status(), Status(rows_sealed=0, epoch=1)], ids=["no status", "nothing sealed"])
@pytest.mark.parametrize("name", [name for name, changes in FORBIDDEN_EDITS.items() if any("source" in key for key in changes)])
def test_the_source_can_be_changed_while_nothing_is_sealed(api: Api, write: dict[str, Any], name: str, status: Status) -> None:
    put_status(api, status)
    edited = manifest(**FORBIDDEN_EDITS[name])

    assert parse_manifest(without_status(replace(api, edited))) == parse_manifest(edited)


@pytest.mark.parametrize("changes", ALLOWED_EDITS.values(), ids=ALLOWED_EDITS)
def test_all_else_can_be_changed(api: Api, write: dict[str, Any], changes: dict[str, Any]) -> None:
    edited = manifest(**changes)

    assert parse_manifest(without_status(replace(api, edited))) == parse_manifest(edited)


FULL: Final = manifest(
    spec__source__columns=["a", "b"],
    spec__source__where="a > 1",
    spec__source__files__types={"a": "int64"},
    spec__source__files__csv={"header": False},
    spec__sink__create=True,
    spec__sink__partitionBy=[{"column": "a"}],
)


@pytest.mark.parametrize("write", [FULL], indirect=True, ids=["full"])
@pytest.mark.parametrize(
    ("section", "field"),
    [
        ("source", "columns"),
        ("source", "where"),
        ("source", "files"),
    ],
)
def test_a_part_of_the_identity_cannot_be_removed(api: Api, write: dict[str, Any], section: str, field: str) -> None:
    edited = json.loads(json.dumps(write))
    del edited["spec"][section][field]
    put_status(api, Status(epoch=2))

    with pytest.raises(Refused, match="cannot be changed"):
        replace(api, edited)


NAMED: Final = {"namespace": "lake", "table": "raw.events"}


def by_place(place: dict[str, str]) -> dict[str, Any]:
    last = "uri" if "uri" in place else "table"
    return manifest(spec__sink={"lance": place}, spec__source={"lance": {**place, last: place[last] + "2"}})


@pytest.mark.parametrize("write", [by_place({"uri": "/y"}), by_place(NAMED)], indirect=True, ids=["uri", "name"])
def test_a_dataset_that_is_known_by_uri_or_name_stays_the_same_one(api: Api, write: dict[str, Any]) -> None:
    put_status(api, Status(rows_sealed=1))
    changed = json.loads(json.dumps(write))

    replace(api, {**changed, "spec": {**changed["spec"], "runNonce": "2"}})
    for section in ("sink", "source"):
        edited = {**changed, "spec": {**changed["spec"], section: {"lance": {**NAMED, "table": "other"}}}}
        with pytest.raises(Refused, match="cannot be changed, because it identifies the write"):
            replace(api, edited)


CSV: Final = {"format": "csv", "paths": ["/in"]}
TABLE: Final = {"iceberg": {"catalog": "c", "table": "a.b"}}


@pytest.mark.parametrize("write", [manifest(spec__source={"union": [{"files": CSV}, TABLE]})], indirect=True, ids=["union"])
def test_of_a_union_how_text_is_read_can_be_changed_and_nothing_else(api: Api, write: dict[str, Any]) -> None:
    put_status(api, Status(rows_sealed=1))

    def union(*members: dict[str, Any]) -> dict[str, Any]:
        return manifest(spec__source={"union": list(members)})

    for other in (
        union({"files": {**CSV, "paths": ["/other"]}}, TABLE),
        union({"files": {**CSV, "csv": {"header": False}}}, TABLE),
        union(TABLE, {"files": CSV}),
        union({"files": CSV}, TABLE, {"lance": {"uri": "/a.lance"}}),
        union({"files": CSV}, {"lance": {"uri": "/a.lance"}}),
    ):
        with pytest.raises(Refused, match=r"source\.union cannot be changed"):
            replace(api, other)
    edited = union({"files": {**CSV, "types": {"a": "int64"}, "csv": {"nullValues": ["-"]}}}, TABLE)
    assert parse_manifest(without_status(replace(api, edited))) == parse_manifest(edited)


def without_status(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != "status"}


# --- what people see ------------------------------------------------------------------------------------------------------


def full_status() -> Status:
    """A status with every field said."""
    conditions = tuple(
        Condition(type=kind, status="True", reason="Tried", message="m", last_transition_time=MOMENT, observed_generation=1)
        for kind in ("Accepted", "Running", "Sealed", "Committed", "Stalled")
    )
    attempts = tuple(
        AttemptStatus(
            number=number,
            pod="flights-0123abcd-1-1",
            code_digest="c0de" * 16,
            recorded_at=MOMENT,
            closed_at=MOMENT,
            cause="OOMKilled",
            message="m" * 1024,
        )
        for number in range(1, 6)
    )
    commit = CommitStatus(format="iceberg", target="local.db.flights", id="9223372036854775807", key="u/1", committed_at=MOMENT)
    status = Status(
        observed_generation=1,
        observed_uid="0b8c3f6e-8d0a-4c55-9f3e-0a4a7e1d2c3b",
        write_uid="0b8c3f6e-8d0a-4c55-9f3e-0a4a7e1d2c3b",
        phase="Committed",
        epoch=1,
        stage="merge-9223372036854775807",
        stages=(StageStatus(name="parse", what="redo", because="its code has changed"),),
        started_at=MOMENT,
        attempt=5,
        operator="checkpointed-operator/operator-checkpointed-write-operator-record-keys",
        progress="336k/336k",
        progressed_at=MOMENT,
        progress_mark="5-12-1-0123456789abcdef",
        starved_since=MOMENT,
        activity="tasks running: 336,776 of 336,776 rows (100%)",
        tasks=10,
        tasks_sealed=10,
        rows_sealed=336_776,
        input_files_done=1,
        rows_quarantined=3,
        rows_committed=336_776,
        run_nonce="2026",
        driver_pod="flights-0123abcd-1-5",
        queue_position=4,
        retried="again",
        reason="Committed",
        message="the commit was seen in the table",
        attempts=attempts,
        commit=commit,
        epochs=(EpochStatus(number=1, committed_at=MOMENT, id="9223372036854775807", rows=336_776),),
        failed_before=2,
        failed_before_generation=3,
        conditions=conditions,
    )
    assert all(value is not None for value in status.model_dump().values())
    return status


def put_status(api: Api, status: Status) -> dict[str, Any]:
    body = {"status": status.model_dump(mode="json", by_alias=True, exclude_none=True)}
    patched: dict[str, Any] = api.patch_namespaced_custom_object_status(
        GROUP, VERSION, NAMESPACE, PLURAL, "flights", body, field_validation="Strict"
    )
    return patched


def test_a_status_is_kept_as_it_was_written(api: Api, write: dict[str, Any]) -> None:
    patched = put_status(api, full_status())

    assert Status.model_validate_json(json.dumps(patched["status"])) == full_status()
    assert patched["metadata"]["generation"] == 1, "a status is no edit of the spec"


def test_a_status_can_be_written_bit_by_bit(api: Api, write: dict[str, Any]) -> None:
    put_status(api, Status(phase="Running"))

    assert put_status(api, Status(rows_sealed=5))["status"] == {**UNOBSERVED_STATUS, "phase": "Running", "rowsSealed": 5}


def test_the_columns_tell_how_far_a_write_is(server: ApiServer, api: Api, write: dict[str, Any]) -> None:
    put_status(api, full_status())

    header, row = server.kubectl("get", "cw", "flights", "-o", "wide").splitlines()
    assert header.split() == [
        "NAME",
        "PHASE",
        "PROGRESS",
        "ROWS",
        "ATTEMPT",
        "AGE",
        "SEALED",
        "QUARANTINED",
        "FORMAT",
        "TABLE",
        "VERSION",
        "DRIVER",
        "REASON",
    ]
    cells = row.split()
    assert cells[:5] == ["flights", "Committed", "336k/336k", "336776", "5"]
    assert cells[6:] == ["336776", "3", "iceberg", "local.db.flights", "9223372036854775807", "flights-0123abcd-1-5", "Committed"]
    assert server.kubectl("get", "cw", "flights").splitlines()[0].split()[-1] == "AGE"


def test_people_can_wait_for_a_condition(server: ApiServer, api: Api, write: dict[str, Any]) -> None:
    with pytest.raises(CommandFailed):
        server.kubectl("wait", "cw/flights", "--for=condition=Committed", "--timeout=1s")

    put_status(api, full_status())
    server.kubectl("wait", "cw/flights", "--for=condition=Committed", f"--timeout={patience(10):.0f}s")


def description_of(path: str) -> str:
    schema: dict[str, Any] = yaml.safe_load(next(CRDS.glob("*.yaml")).read_text())["spec"]["versions"][0]["schema"][
        "openAPIV3Schema"
    ]
    for name in path.split("."):
        schema = schema["properties"][name]
    return " ".join(schema["description"].split())


def test_kubectl_explains_the_fields(server: ApiServer) -> None:
    def explain(path: str) -> str:
        # The server publishes a new kind's fields some time after it serves the kind.
        def told() -> str:
            try:
                return server.kubectl("explain", f"cw.{path}")
            except CommandFailed:
                return ""

        return until(told, f"the server to publish {path}")

    for path in ("spec.sink", "spec.backoffLimit", "status.phase"):
        assert description_of(path) in " ".join(explain(path).split())
