"""The manifest: what is taken, what is refused and in which words, and what a write's identity depends on."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Any

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest import rules, sections
from checkpoint_protocol.manifest.sources.source import without_reading
from checkpoint_protocol.manifest.spec import API_VERSION, KIND, ManifestInvalid, Spec, parse_manifest
from checkpoint_protocol.tables.lance import LanceSink
from tests.support.corrected_manifests import CORRECTIONS, Correction
from tests.support.manifests import ALLOWED_EDITS, BAD, FORBIDDEN_EDITS, GOOD, SMALLEST, manifest


def spec(**changes: Any) -> Spec:
    return parse_manifest(manifest(**{f"spec__{path}": value for path, value in changes.items()})).spec


def problems(document: Any) -> tuple[str, ...]:
    with pytest.raises(ManifestInvalid) as caught:
        parse_manifest(document)
    assert caught.value.reason == reasons.MANIFEST_INVALID
    assert isinstance(caught.value, NeedsChange)
    return caught.value.problems


# --- what is taken --------------------------------------------------------------------------------------------------------


def test_the_smallest_manifest_gets_every_default() -> None:
    parsed = parse_manifest(SMALLEST)

    assert parsed.metadata.namespace == "default"
    assert parsed.spec.steps == ()
    assert parsed.spec.checkpoint.interval == 60.0
    assert parsed.spec.checkpoint.minimum_bytes == 8 << 20
    assert parsed.spec.source.split_size == 128 << 20
    assert parsed.spec.sink.mode == "Append"
    assert parsed.spec.sink.create is False
    assert parsed.spec.on_code_change == "Continue"
    assert parsed.spec.on_replaced == "Fail"
    assert parsed.spec.backoff_limit == 3
    assert parsed.spec.suspend is False
    assert parsed.spec.progress_deadline_seconds is None
    assert parsed.spec.progress_deadline_s == 1200
    assert parsed.spec.active_deadline_seconds is None
    assert parsed.spec.ttl_seconds_after_finished is None
    assert parsed.spec.image is None
    assert parsed.spec.driver.memory_overhead is None
    assert parsed.spec.executor.template == {}


@pytest.mark.parametrize("changes", GOOD.values(), ids=GOOD)
def test_a_right_manifest_is_taken(changes: dict[str, Any]) -> None:
    parsed = parse_manifest(manifest(**changes))

    assert parse_manifest(parsed.model_dump(mode="json", by_alias=True)) == parsed


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD)
def test_a_wrong_manifest_is_refused(changes: dict[str, Any]) -> None:
    assert problems(manifest(**changes))


def test_each_rule_is_broken_by_a_wrong_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    all_rules, seen = set[rules.Rule](), set[rules.Rule]()

    def noted(of_section: tuple[rules.Rule, ...], section: str) -> Iterator[tuple[str, str]]:
        all_rules.update(of_section)
        for rule in of_section:
            if problems := list(rules.broken((rule,), section)):
                seen.add(rule)
                yield from problems

    monkeypatch.setattr(sections, "broken", noted)
    for wrong in [*GOOD.values(), *BAD.values(), *(correction.refused for correction in CORRECTIONS)]:
        with contextlib.suppress(ManifestInvalid):
            parse_manifest(manifest(**wrong))

    assert len(all_rules) > 90
    assert all_rules == seen


@pytest.mark.parametrize("correction", CORRECTIONS, ids=lambda correction: correction.says[:60])
def test_a_manifest_that_is_corrected_as_the_message_says_is_taken(correction: Correction) -> None:
    said = problems(manifest(**correction.refused))
    assert any(correction.says in problem for problem in said), said

    for corrected in correction.corrected():
        parse_manifest(corrected)


def test_results_are_not_kept_behind_a_batch_step() -> None:
    rows, batches, kept = ({"call": "m:f", "input": kind} for kind in ("row", "arrow", "row"))
    kept["memo"] = True  # type: ignore[assignment]

    assert spec(steps=[rows, kept, batches]).steps[1].memo
    (line,) = problems(manifest(spec__steps=[rows, batches, kept]))
    assert line.startswith("spec.steps.2.memo: a batch step before this one")


def test_a_manifest_survives_its_own_printing() -> None:
    full = manifest(
        spec__steps=[
            {"call": "code.flights:Model", "input": "row", "name": "predict", "arguments": {"size": 3, "on": ["a", None]}}
        ],
        spec__source__files__csv={"delimiter": ";", "nullValues": ["-"]},
        spec__source__files__types={"delay": "int64"},
        spec__sink__create=True,
        spec__sink__partitionBy=[{"column": "day", "transform": "month"}],
        spec__checkpoint__interval="1h30m",
        spec__sparkConf={"spark.executor.memoryOverhead": "1g"},
        spec__onCodeChange="Restart",
        spec__runNonce="2",
        spec__code={"configMap": {"name": "code"}},
        spec__image="spark:1",
        spec__activeDeadlineSeconds=60,
        spec__driver={"memoryOverhead": "1Gi", "template": {"spec": {"nodeSelector": {"disk": "ssd"}}}},
    )
    parsed = parse_manifest(full)

    assert parse_manifest(parsed.model_dump(mode="json", by_alias=True)) == parsed


def test_kubernetes_metadata_that_we_do_not_read_is_passed_over() -> None:
    document = manifest(metadata__labels={"team": "x"}, metadata__uid="1", metadata__managedFields=[])

    assert parse_manifest(document).metadata.name == "flights"


def test_a_date_without_quotes_is_the_text_that_the_user_typed() -> None:
    """YAML makes dates of runNonce: 2024-01-01; nobody means that."""
    assert spec(runNonce=datetime.date(2024, 1, 1)).run_nonce == "2024-01-01"
    files = spec(source__files__csv={"nullValues": [datetime.date(2024, 1, 1)]}).source.files
    assert files is not None
    assert files.csv_options.null_values == ("2024-01-01",)
    step = {"call": "m:f", "arguments": {"since": datetime.date(2024, 1, 1)}}
    assert spec(steps=[step]).steps[0].arguments == {"since": "2024-01-01"}


@pytest.mark.parametrize(
    ("sink", "format"),
    [
        ({"iceberg": {"catalog": "c", "table": "a.b.c"}}, "iceberg"),
        ({"lance": {"uri": "/x.lance"}}, "lance"),
        ({"none": {}}, "none"),
    ],
)
def test_each_sink_knows_its_format(sink: dict[str, Any], format: str) -> None:
    assert spec(sink=sink).sink.format == format


# --- typos and wrong types: the field's path, and what was meant ----------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"spec__source__flies": {}}, "spec.source.flies: unknown field; did you mean 'files'?"),
        ({"spec__source__paths": ["/a"]}, "spec.source.paths: unknown field; it is a field of files and of spark"),
        (
            {"spec__source__files__csv": {"delimeter": ";"}},
            "spec.source.files.csv.delimeter: unknown field; did you mean 'delimiter'?",
        ),
        (
            {"spec__steps": [{"call": "m:f"}, {"call": "m:f", "argument": {}}]},
            "spec.steps.1.argument: unknown field; did you mean 'arguments'?",
        ),
        ({"spec__chekpoint": {}}, "spec.chekpoint: unknown field; did you mean 'checkpoint'?"),
        ({"spec__sink__icebrg": {}}, "spec.sink.icebrg: unknown field; did you mean 'iceberg'?"),
        ({"spec__sink__iceberg__tabel": "x"}, "spec.sink.iceberg.tabel: unknown field; did you mean 'table'?"),
        (
            {"spec__sink__create": True, "spec__sink__partitionBy": [{"column": "a", "transfrm": "day"}]},
            "spec.sink.partitionBy.0.transfrm: unknown field; did you mean 'transform'?",
        ),
        ({"spec__backoffLimt": 3}, "spec.backoffLimt: unknown field; did you mean 'backoffLimit'?"),
        ({"spce": {}}, "spce: unknown field; did you mean 'spec'?"),
        ({"spec__driver": {"xyzzy": 1}}, "spec.driver.xyzzy: unknown field; known here: cores, memory, memoryOverhead, template"),
        ({"spec__sink": {"none": {"table": "x"}}}, "spec.sink.none.table: unknown field; known here: "),
    ],
)
def test_an_unknown_field_is_named_by_its_path_with_the_one_that_was_meant(changes: dict[str, Any], says: str) -> None:
    assert says in problems(manifest(**changes))


def test_every_problem_is_told_at_once() -> None:
    found = problems(
        manifest(spec__source__files__format="xlsx", spec__backoffLimit="3", spec__checkpoint__uri=..., metadata__name="Flights")
    )

    assert len(found) == 4
    assert {line.split(":")[0] for line in found} == {
        "spec.source.files.format",
        "spec.backoffLimit",
        "spec.checkpoint.uri",
        "metadata.name",
    }


@pytest.mark.parametrize(
    ("changes", "path", "says"),
    [
        ({"spec__checkpoint__uri": ...}, "spec.checkpoint.uri", "this field is required"),
        ({"spec__checkpoint__uri": ""}, "spec.checkpoint.uri", "must not be empty"),
        ({"spec__backoffLimit": "3"}, "spec.backoffLimit", "whole number"),
        ({"spec__backoffLimit": -1}, "spec.backoffLimit", "0 or more"),
        ({"spec__backoffLimit": True}, "spec.backoffLimit", "whole number"),
        ({"spec__runNonce": 2}, "spec.runNonce", "a text is expected"),
        ({"spec__sink__create": "yes"}, "spec.sink.create", "true or false"),
        ({"spec__checkpoint__interval": 60}, "spec.checkpoint.interval", '"90s"'),
        ({"spec__checkpoint__interval": "0s"}, "spec.checkpoint.interval", "greater than 0"),
        ({"spec__checkpoint__minimumBytes": "8MB"}, "spec.checkpoint.minimumBytes", '"64Mi"'),
        ({"spec__sink__targetFileSize": "9999999999Ti"}, "spec.sink.targetFileSize", "less than"),
        ({"spec__checkpoint__interval": "9" * 400 + "s"}, "spec.checkpoint.interval", '"90s"'),
        ({"spec__source__files__splitSize": "0"}, "spec.source.files.splitSize", "greater than 0"),
        (
            {"spec__source": {"spark": {"format": "x ml", "keyColumns": ["a"]}}},
            "spec.source.spark.format",
            "the name of a format of Spark, e.g. orc or jdbc,",
        ),
        ({"spec__source": {"spark": {"format": "xml"}}}, "spec.source.spark.keyColumns", "this field is required"),
        ({"spec__source__files__format": "avro"}, "spec.source.files.format", "'csv', 'json' or 'binary' is expected"),
        ({"spec__source__files__csv": {"delimiter": "||"}}, "spec.source.files.csv.delimiter", "at most 1 character"),
        ({"spec__source__columns": []}, "spec.source.columns", "at least 1 item"),
        ({"spec__steps": [{"call": "module.function"}]}, "spec.steps.0.call", "module:function"),
        (
            {"spec__steps": [{"call": "m:f"}, {"call": "m:f", "input": "polars"}]},
            "spec.steps.1.input",
            "'arrow', 'pandas' or 'row'",
        ),
        ({"spec__steps": {"call": "m:f"}}, "spec.steps", "a list is expected"),
        ({"spec__sink__iceberg__table": "flights"}, "spec.sink.iceberg.table", "namespace.table"),
        ({"spec__onCodeChange": "Reuse"}, "spec.onCodeChange", "'Continue', 'Restart' or 'Ask'"),
        ({"spec__onReplaced": "Ignore"}, "spec.onReplaced", "'Fail', 'Process' or 'Skip'"),
        ({"spec__sparkConf": {"spark.x": True}}, "spec.sparkConf.spark.x", "a text is expected"),
        ({"spec__executor": {"instances": -1}}, "spec.executor.instances", "0 or more"),
        ({"metadata__name": "a_b"}, "metadata.name", "lower case letters"),
        ({"metadata__name": "../b"}, "metadata.name", "lower case letters"),
        ({"metadata__namespace": "a/b"}, "metadata.namespace", "lower case letters"),
    ],
)
def test_a_wrong_value_is_told_with_the_path_of_its_field(changes: dict[str, Any], path: str, says: str) -> None:
    (line,) = problems(manifest(**changes))

    assert line.startswith(f"{path}: ")
    assert says in line


# --- the validators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [{}, {"iceberg": {"catalog": "c", "table": "a.b"}, "lance": {"uri": "/x"}}])
def test_not_exactly_one_source_is_refused(source: dict[str, Any]) -> None:
    assert problems(manifest(spec__source=source)) == (
        "spec.source: exactly one of files, iceberg, lance, kafka, spark, program and union is expected",
    )


@pytest.mark.parametrize(
    "sink", [{}, {"iceberg": {"catalog": "c", "table": "a.b"}, "none": {}}, {"lance": {"uri": "/x"}, "none": {}}]
)
def test_not_exactly_one_sink_is_refused(sink: dict[str, Any]) -> None:
    assert problems(manifest(spec__sink=sink)) == ("spec.sink: exactly one of iceberg, lance and none is expected",)


@pytest.mark.parametrize("mode", ["overwrite", "merge", "delete", ""])
def test_an_unsupported_mode_is_refused_and_the_supported_ones_are_listed(mode: str) -> None:
    (line,) = problems(manifest(spec__sink__mode=mode))
    assert line == (
        "spec.sink.mode: 'Append', 'OverwriteAll', 'OverwriteWhere', 'OverwritePartitions', 'Upsert' or 'AddColumns' is "
        f"expected, not {mode!r}"
    )


def test_a_partitioning_without_create_is_refused() -> None:
    (line,) = problems(manifest(spec__sink__partitionBy=[{"column": "day"}]))
    assert line == "spec.sink.partitionBy: partitionBy needs create: true (an existing table keeps its own partitioning)"


def test_a_partitioning_of_a_lance_dataset_is_refused() -> None:
    sink = {"lance": {"uri": "/x.lance"}, "create": True, "partitionBy": [{"column": "day"}]}
    assert problems(manifest(spec__sink=sink)) == ("spec.sink.partitionBy: partitionBy applies to iceberg only",)


def test_creating_no_table_is_refused() -> None:
    assert problems(manifest(spec__sink={"none": {}, "create": True})) == ("spec.sink.create: create does not apply to none",)


def test_a_partition_transform_that_is_not_supported_is_refused_and_the_supported_ones_are_listed() -> None:
    sink = {**SMALLEST["spec"]["sink"], "create": True, "partitionBy": [{"column": "a", "transform": "bucket"}]}
    (line,) = problems(manifest(spec__sink=sink))
    assert line == (
        "spec.sink.partitionBy.0.transform: identity, year, month, day, hour, bucket[16] or truncate[4], each with a number of "
        "its own, is expected"
    )


@pytest.mark.parametrize(
    "transform", ["bucket[0]", "bucket[-1]", "bucket[]", "bucket(16)", "truncate[1.5]", "bucket[01]", "void"]
)
def test_a_transform_that_is_not_spelled_as_iceberg_does_is_refused(transform: str) -> None:
    sink = {**SMALLEST["spec"]["sink"], "create": True, "partitionBy": [{"column": "a", "transform": transform}]}
    assert len(problems(manifest(spec__sink=sink))) == 1


def test_a_property_that_is_not_sparks_is_refused_and_named() -> None:
    (line,) = problems(manifest(spec__sparkConf={"executor.memory": "1g"}))
    assert line == ("spec.sparkConf: 'executor.memory' is no property of Spark (they begin with 'spark.', without = or spaces)")


def test_two_places_of_code_are_refused() -> None:
    code = {"path": "/code", "configMap": {"name": "code"}}
    assert problems(manifest(spec__code=code)) == ("spec.code: at most one of path, configMap and uri is expected",)


def test_a_pod_template_has_metadata_and_spec_and_says_so() -> None:
    (line,) = problems(manifest(spec__executor={"template": {"sepc": {}}}))
    assert line == "spec.executor.template: unknown field 'sepc'; known here: metadata, spec"
    (line,) = problems(manifest(spec__executor={"template": {"spec": []}}))
    assert line == "spec.executor.template: spec: a mapping is expected"


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ({"metadata": {"labels": 5}}, "metadata.labels: a mapping is expected"),
        ({"spec": {"containers": 7}}, "spec.containers: a list is expected"),
        ({"spec": {"containers": [5]}}, "spec.containers.0: a mapping is expected"),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers.0: the field name is missing, or no text"),
        ({"spec": {"containers": [{"name": "a", "env": {"A": "b"}}]}}, "spec.containers.0.env: a list is expected"),
        ({"spec": {"containers": [{"name": "a", "resources": 1}]}}, "spec.containers.0.resources: a mapping is expected"),
        (
            {"spec": {"containers": [{"name": "a", "ports": [{"name": 1}]}]}},
            "spec.containers.0.ports.0: the field name is missing, or no text",
        ),
        ({"spec": {"securityContext": []}}, "spec.securityContext: a mapping is expected"),
        ({"spec": {"volumes": [{"emptyDir": {}}]}}, "spec.volumes.0: the field name is missing, or no text"),
    ],
)
def test_what_cannot_be_merged_with_a_pod_is_refused_with_its_place(template: dict[str, Any], line: str) -> None:
    assert problems(manifest(spec__driver={"template": template})) == (f"spec.driver.template: {line}",)


def test_ports_without_names_and_empty_fields_are_taken() -> None:
    template = {
        "metadata": {"labels": None},
        "spec": {"containers": [{"name": "driver", "ports": [{"containerPort": 1}], "env": None}]},
    }
    assert parse_manifest(manifest(spec__driver={"template": template})).spec.driver.template == template


def test_a_name_leaves_room_for_what_the_names_of_its_pods_add() -> None:
    assert parse_manifest(manifest(metadata__name="a" * 45)).metadata.name == "a" * 45
    (line,) = problems(manifest(metadata__name="a" * 46))
    assert line == "metadata.name: at most 45 characters are allowed"


# --- documents that are no manifest ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", [None, [], "text", 5])
def test_what_is_no_mapping_is_refused_by_its_type(document: object) -> None:
    assert problems(document) == (f"a {KIND} manifest is expected (a mapping), not {type(document).__name__}",)


@pytest.mark.parametrize(
    "changes",
    [{"kind": "Deployment"}, {"apiVersion": "apps/v1"}, {"apiVersion": ...}, {"kind": 5}, {"apiVersion": "checkpointed.dev/v2"}],
)
def test_another_kind_or_version_is_refused_with_what_is_expected(changes: dict[str, Any]) -> None:
    (line,) = problems(manifest(**changes))
    assert API_VERSION in line
    assert KIND in line


def a_list_inside_itself() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {(1, 2): 3}], ids=["nan", "inf", "key"])
def test_a_yaml_value_that_json_does_not_have_is_refused(value: object) -> None:
    """It could not be recorded: NaN in a step's arguments would reach the driver as None."""
    (line,) = problems(manifest(spec__steps=[{"call": "m:f", "arguments": {"x": value}}]))
    assert "cannot be written as JSON" in line


def test_a_yaml_anchor_inside_itself_is_refused() -> None:
    assert problems(manifest(spec__steps=[{"call": "m:f", "arguments": {"x": a_list_inside_itself()}}])) == (
        "spec.steps.0.arguments.x: it is nested more than 32 deep",
    )


def test_numbers_as_keys_are_told_and_do_not_crash() -> None:
    assert any(line.startswith("spec.1: unknown field") for line in problems(manifest() | {"spec": {1: 2}}))


# --- identity -------------------------------------------------------------------------------------------------------------


def test_the_identity_of_a_manifest_is_the_same_in_every_release() -> None:
    """A write's record holds this digest; a release that computes another would refuse to resume."""
    began = spec(source__files__csv={"nullValues": ["", "NA", "null", "NULL"]})
    assert began.identity == {
        "source": {"files": {"format": "csv", "paths": ["/in/*.csv"]}},
        "sink": {"iceberg": {"catalog": "local", "table": "db.flights"}},
        "checkpoint": {"uri": "/checkpoints"},
    }
    assert began.identity_digest == "7d06817e0b26ba16cf722d074d34430cd2921b07bf7c6af5e807f6601510d338"


@pytest.mark.parametrize(
    "changes",
    [
        {"source__files__splitSize": "1Mi"},
        {"sink__targetFileSize": "1Mi"},
        {"checkpoint__interval": "5s"},
        {"checkpoint__minimumBytes": "1"},
        {"steps": [{"call": "m:f"}]},
        {"code": {"path": "/code"}},
        {"code": {"configMap": {"name": "code"}}},
        {"code": {"uri": "s3://bucket/code.zip"}},
        {"image": "spark:1"},
        {"serviceAccountName": "a"},
        {"storageSecretName": "a"},
        {"suspend": True},
        {"activeDeadlineSeconds": 5},
        {"progressDeadlineSeconds": 3600},
        {"ttlSecondsAfterFinished": 5},
        {"executor": {"memoryOverhead": "1Gi", "template": {"spec": {}}}},
        {"onCodeChange": "Restart"},
        {"onReplaced": "Skip"},
        {"runNonce": "2"},
        {"backoffLimit": 9},
        {"driver": {"memory": "3Gi"}},
        {"executor": {"instances": 4}},
        {"sparkConf": {"spark.x": "y"}},
        {"sink__mode": "Append"},
        {"sink__create": False},
        {"source__files__csv": {}},
        {"source__files__csv": {"header": True, "delimiter": ","}},
        {"source__files__types": {}},
        {"source__files__csv": {"nullValues": [], "delimiter": ";", "quote": ""}},
        {"source__files__types": {"a": "int64"}},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_sizes_code_and_spelled_out_defaults_do_not_change_the_identity(changes: dict[str, Any]) -> None:
    assert spec(**changes).identity_digest == spec().identity_digest


@pytest.mark.parametrize(
    "changes",
    [
        {"source__files__paths": ["/in/b.csv"]},
        {"source__files__paths": ["/in/*.csv", "/b"]},
        {"source__files__format": "json"},
        {"source__files__csv": {"header": False}},
        {"source__columns": ["a"]},
        {"source": {"spark": {"format": "csv", "paths": ["/in/*.csv"], "keyColumns": ["a"]}}},
        {"sink": {"iceberg": {"catalog": "other", "table": "db.flights"}}},
        {"sink": {"iceberg": {"catalog": "local", "table": "db.flights2"}}},
        {"sink": {"lance": {"uri": "/x"}}},
        {"sink": {"none": {}}},
        {"sink__mode": "OverwriteAll"},
        {"sink__mode": "OverwriteWhere", "sink__where": "day = '2026-11-24'"},
        {"sink__mode": "Upsert", "sink__upsertKeys": ["id"]},
        {"checkpoint__uri": "/other"},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_another_source_sink_or_checkpoint_is_another_identity(changes: dict[str, Any]) -> None:
    assert spec(**changes).identity_digest != spec().identity_digest


@pytest.mark.parametrize("changes", FORBIDDEN_EDITS.values(), ids=FORBIDDEN_EDITS)
def test_what_the_cluster_does_not_let_change_is_what_makes_the_identity(changes: dict[str, Any]) -> None:
    assert parse_manifest(manifest(**changes)).spec.identity_digest != spec().identity_digest


@pytest.mark.parametrize("changes", ALLOWED_EDITS.values(), ids=ALLOWED_EDITS)
def test_what_the_cluster_lets_change_leaves_the_identity(changes: dict[str, Any]) -> None:
    assert parse_manifest(manifest(**changes)).spec.identity_digest == spec().identity_digest


def test_the_order_of_keys_in_the_manifest_does_not_change_the_identity() -> None:
    def reverse(value: Any) -> Any:
        return {name: reverse(value[name]) for name in reversed(value)} if isinstance(value, dict) else value

    csv, types = {"header": False, "quote": "'"}, {"a": "int64", "b": "string"}
    document = manifest(spec__source__files__csv=csv, spec__source__files__types=types)
    one, other = parse_manifest(document), parse_manifest(reverse(document))

    assert one.spec.identity_digest == other.spec.identity_digest


def test_how_text_is_read_is_no_part_of_the_identity_and_what_older_releases_stored_of_it_is_left_out() -> None:
    stored: dict[str, Any] = {
        "files": {
            "format": "csv",
            "paths": ["/in/*.csv"],
            "csv": {"header": False, "delimiter": ";", "nullValues": []},
            "types": {"a": "int64"},
        }
    }

    now = spec(source__files__csv={"header": False}).source

    assert without_reading(stored) == now.identity
    assert now.read_digest != spec(source__files__csv={"header": False}, source__files__types={"a": "int64"}).source.read_digest
    assert spec(source__files__format="parquet").source.read_digest is None


def test_the_order_of_columns_and_paths_is_part_of_the_identity() -> None:
    assert spec(source__columns=["a", "b"]).identity_digest != spec(source__columns=["b", "a"]).identity_digest


def test_a_lance_uri_with_a_percent_sign_is_refused_as_lance_would_read_another_name() -> None:
    with pytest.raises(ValueError, match="without %"):
        LanceSink.model_validate({"uri": "s3://bucket/a%20b.lance"})
    assert LanceSink.model_validate({"uri": "/data/100%.lance"}).uri == "/data/100%.lance"


# --- the default of nullValues, which was another one ---------------------------------------------------------------------


def test_only_the_empty_field_is_null_by_default() -> None:
    """NA is Namibia."""
    files = spec().source.files
    assert files is not None
    assert files.csv_options.null_values == ("",)


def test_how_text_is_read_is_no_part_of_what_a_write_is() -> None:
    csv = {"nullValues": ["-"], "delimiter": ";", "quote": "'"}
    read_otherwise = spec(source__files__types={"a": "string"}, source__files__csv=csv, source__files__schema="Same")

    assert spec().identity["source"] == read_otherwise.identity["source"] == {"files": {"format": "csv", "paths": ["/in/*.csv"]}}


# --- what has no form of its own ------------------------------------------------------------------------------------------


def in_lists(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [40, 3000, 200_000])
@pytest.mark.parametrize("place", ["arguments", "template"])
def test_what_is_nested_too_deep_is_refused_by_its_depth_and_place(place: str, depth: int) -> None:
    arguments: dict[str, Any] = {}
    template: dict[str, Any] = {}
    document = manifest(spec__steps=[{"call": "m:f"}])
    document["spec"]["steps"][0]["arguments"] = arguments
    document["spec"]["driver"] = {"template": {"spec": template}}
    (arguments if place == "arguments" else template)["it"] = in_lists(depth)
    path = "spec.steps.0.arguments.it" if place == "arguments" else "spec.driver.template.spec.it"

    assert problems(document) == (f"{path}: it is nested more than 32 deep",)


def test_arguments_may_be_nested() -> None:
    taken = spec(steps=[{"call": "m:f", "arguments": {"it": in_lists(20)}}])

    assert taken.steps[0].arguments == {"it": in_lists(20)}


def test_aliases_that_stand_for_billions_of_values_are_refused_before_they_are_written_out() -> None:
    values: Any = ["x"] * 10
    for _ in range(9):
        values = [values] * 10

    assert "more than 1,000,000 values" in problems(manifest(spec__steps=[{"call": "m:f", "arguments": {"it": values}}]))[0]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"spec__steps": [{"call": "m:f", "arguments": {"it": "x" * 300_000}}]}, "spec.steps.0.arguments"),
        ({"spec__executor": {"template": {"metadata": {"annotations": {"a": "x" * 300_000}}}}}, "spec.executor.template"),
    ],
)
def test_what_is_too_long_is_refused_with_its_place(changes: dict[str, Any], place: str) -> None:
    (problem,) = problems(manifest(**changes))

    assert problem.startswith(f"{place}: it has 300,")
    assert problem.endswith("262,144 at most; put more into a file")
