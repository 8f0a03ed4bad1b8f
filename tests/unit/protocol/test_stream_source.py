"""What goes with a stream in a manifest: all else is refused, with the field and the way out."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint_protocol.manifest.spec import ManifestInvalid, parse_manifest


def document(stream: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    given = {
        "source": {"program": {"call": "jobs:main", "stream": stream or {}}},
        "sink": {"lance": {"uri": "/t.lance"}},
        "checkpoint": {"uri": "/ck"},
        **spec,
    }
    return {"apiVersion": "checkpointed.dev/v1alpha1", "kind": "CheckpointedWrite", "metadata": {"name": "s"}, "spec": given}


LANCE: dict[str, Any] = {"lance": {"uri": "/t.lance"}}
ICEBERG: dict[str, Any] = {"iceberg": {"catalog": "c", "table": "a.b"}}
UPSERT: dict[str, Any] = {"mode": "Upsert", "upsertKeys": ["id"]}


@pytest.mark.parametrize(
    ("stream", "sink"),
    [
        ({}, LANCE),
        ({"outputMode": "Append"}, ICEBERG),
        ({"outputMode": "Complete"}, {**LANCE, "mode": "OverwriteAll"}),
        ({"outputMode": "Update", "updateAs": "Append"}, LANCE),
        ({"outputMode": "Update"}, {**LANCE, **UPSERT}),
        ({"outputMode": "Update"}, {**ICEBERG, **UPSERT, "onDuplicate": "Last", "orderBy": "at"}),
        ({}, {**ICEBERG, **UPSERT}),
    ],
)
def test_an_output_mode_goes_with_what_a_commit_does(stream: dict[str, Any], sink: dict[str, Any]) -> None:
    spec = parse_manifest(document(stream, sink=sink)).spec
    assert spec.source.stream is not None
    assert spec.source.keyed is None
    assert spec.source.key_columns == ()


STEP: dict[str, Any] = {"call": "a:b", "input": "row"}
PLACE = "spark.sql.streaming.checkpointLocation"
IN_S3: dict[str, Any] = {"checkpoint": {"uri": "s3://b/ck"}}
COMPLETE: dict[str, Any] = {"sink": {**LANCE, "mode": "OverwriteAll"}}
INTO_KEYS: dict[str, Any] = {"sink": {**LANCE, **UPSERT}}


@pytest.mark.parametrize(
    ("wrong", "problem", "corrected"),
    [
        ((({}), COMPLETE), "sink.mode: OverwriteAll does not go with", [({"outputMode": "Complete"}, COMPLETE), ({}, {})]),
        (({"outputMode": "Complete"}, {}), "sink.mode: Append does not go with", [({"outputMode": "Complete"}, COMPLETE)]),
        (
            ({"outputMode": "Update"}, {}),
            "sink.mode: Append does not go with source.program.stream.outputMode: Update, which needs Upsert; change one of them",
            [({"outputMode": "Update", "updateAs": "Append"}, {}), ({"outputMode": "Update"}, INTO_KEYS)],
        ),
        (
            ({"outputMode": "Update", "updateAs": "Append"}, INTO_KEYS),
            "sink.mode: Upsert does not go with source.program.stream.outputMode: Update, updateAs: Append, which needs Append",
            [({"outputMode": "Update", "updateAs": "Append"}, {}), ({"outputMode": "Update"}, INTO_KEYS)],
        ),
        (
            ({"outputMode": "Complete"}, INTO_KEYS),
            "sink.mode: Upsert does not go with source.program.stream.outputMode: Complete, which needs OverwriteAll",
            [({"outputMode": "Complete"}, COMPLETE), ({"outputMode": "Update"}, INTO_KEYS)],
        ),
        (({"updateAs": "Append"}, {}), "source.program.stream.updateAs: it is for outputMode: Update", [({}, {})]),
        (({}, {"onRowError": "Quarantine"}), "onRowError: rows of a stream have no name", [({}, {"onRowError": "Fail"})]),
        (({}, {"steps": [{**STEP, "memo": True}]}), "steps.0.memo: results are kept under the name", [({}, {"steps": [STEP]})]),
        (({}, {"trigger": {"every": "1m"}}), "trigger: a stream begins its epochs itself", [({}, {})]),
        (({}, {"runNonce": "2"}), "runNonce: a stream begins its epochs itself", [({}, {})]),
        (
            ({}, {"sink": {**ICEBERG, "audit": "a:b"}}),
            "sink.audit: epochs of a stream are not audited yet",
            [({}, {"sink": ICEBERG, "steps": [STEP]})],
        ),
        (
            ({}, IN_S3),
            "source.program.stream.checkpointVolume: Spark cannot keep its own checkpoint of a stream in an object store",
            [({"checkpointVolume": {"claimName": "spark-state"}}, IN_S3), ({}, {"checkpoint": {"uri": "/ck"}})],
        ),
        (
            ({"checkpointVolume": {"claimName": "Spark_State"}}, IN_S3),
            "source.program.stream.checkpointVolume.claimName:",
            [({"checkpointVolume": {"claimName": "spark-state"}}, IN_S3)],
        ),
        (({}, {"sparkConf": {PLACE: "/x"}}), f"sparkConf.{PLACE}: where a stream keeps its place", [({}, {"sparkConf": {}})]),
        (({}, {"stages": [{"name": "one", "steps": [STEP]}]}), "stages: the micro-batches", [({}, {"steps": [STEP]})]),
        (({"uncommittedEpochs": 2}, {}), "source.program.stream.uncommittedEpochs: unknown field", [({}, {})]),
    ],
)
def test_what_does_not_go_with_a_stream_is_refused_and_taken_when_it_is_corrected(
    wrong: tuple[dict[str, Any], dict[str, Any]], problem: str, corrected: list[tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    with pytest.raises(ManifestInvalid) as refused:
        parse_manifest(document(wrong[0], **wrong[1]))
    assert f"spec.{problem}" in refused.value.message
    for stream, spec in corrected:
        parse_manifest(document(stream, **spec))


@pytest.mark.parametrize("program", [{"call": "a:b"}, {"call": "a:b", "keyColumns": ["id"], "stream": {}}])
def test_rows_of_a_program_are_known_by_key_or_are_of_a_stream(program: dict[str, Any]) -> None:
    with pytest.raises(ManifestInvalid, match="exactly one of keyColumns and stream is expected"):
        parse_manifest(document(source={"program": program}))
