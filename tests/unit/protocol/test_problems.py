"""What is wrong with a manifest, a settings file or a record is said in words of ours: no library's own text, and no value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.manifest.spec import CheckpointedWrite, ManifestInvalid, parse_manifest, validate_model
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import ClaimRecord, CommitRecord, LaunchRecord, decode, encode
from tests.support.records import launch

RAW = ("Input should", "String should", "Tuple", "validation", "pydantic", "function-", "lax-or-strict", "Value error", "[json")


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "checkpointed.dev/v1alpha1",
        "kind": "CheckpointedWrite",
        "metadata": {"name": "x"},
        "spec": {
            "source": {"files": {"format": "csv", "paths": ["/in"]}},
            "sink": {"none": {}},
            "checkpoint": {"uri": "/cp"},
            **spec,
        },
    }


def problems(model: Any, document: Any) -> tuple[str, ...]:
    with pytest.raises(ManifestInvalid) as refused:
        validate_model(model, document)
    return refused.value.problems


def files(**fields: Any) -> dict[str, Any]:
    return {"source": {"files": {"format": "csv", "paths": ["/in"], **fields}}}


def spark(**fields: Any) -> dict[str, Any]:
    return {"source": {"spark": {"format": "orc", "paths": ["/in"]} | fields}}


def source(**fields: Any) -> dict[str, Any]:
    return {"source": files()["source"] | fields}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"suspend": "yes"}, "spec.suspend: true or false is expected, without quotes"),
        ({"steps": {}}, "spec.steps: a list is expected (a line with - for each item)"),
        ({"steps": [5]}, "spec.steps.0: a mapping is expected (field: value)"),
        ({"steps": [{"call": "x"}]}, "spec.steps.0.call: module:function (or module:Class) is expected"),
        ({"steps": [{"call": "a:b", "arguments": []}]}, "spec.steps.0.arguments: a mapping is expected (name: value)"),
        ({"steps": [{"call": "a:b"}] * 65}, "spec.steps: at most 64 items are allowed"),
        ({"backoffLimit": 1.5}, "spec.backoffLimit: a whole number is expected, without quotes"),
        ({"backoffLimit": "1"}, "spec.backoffLimit: a whole number is expected, without quotes"),
        ({"backoffLimit": -1}, "spec.backoffLimit: it must be 0 or more"),
        ({"backoffLimit": 10_000}, "spec.backoffLimit: it must be 1000 or less"),
        ({"runNonce": 5}, "spec.runNonce: a text is expected (a number or a yes in quotes)"),
        ({"runNonce": "x" * 200}, "spec.runNonce: at most 128 characters are allowed"),
        ({"onRowError": "X"}, "spec.onRowError: 'Fail' or 'Quarantine' is expected, not 'X'"),
        ({"onRowError": True}, "spec.onRowError: 'Fail' or 'Quarantine' is expected, not true"),
        ({"onRowError": []}, "spec.onRowError: 'Fail' or 'Quarantine' is expected"),
        ({"onRowError": "X" * 41}, "spec.onRowError: 'Fail' or 'Quarantine' is expected"),
        ({"onCodeChange": "contine"}, "spec.onCodeChange: 'contine' is not allowed; did you mean 'Continue'?"),
        ({"onCodeChange": "ASK"}, "spec.onCodeChange: 'ASK' is not allowed; did you mean 'Ask'?"),
        ({"sink": {"none": {}, "mode": "Upsrt"}}, "spec.sink.mode: 'Upsrt' is not allowed; did you mean 'Upsert'?"),
        ({"steps": [{"call": "a:b", "input": "panda"}]}, "spec.steps.0.input: 'panda' is not allowed; did you mean 'pandas'?"),
        (
            {"source": {"union": [files(format="parquat")["source"], files()["source"]]}},
            "spec.source.union.0.files.format: 'parquat' is not allowed; did you mean 'parquet'?",
        ),
        (
            {"source": {"union": [files(fromat="csv")["source"], files()["source"]]}},
            "spec.source.union.0.files.fromat: unknown field; did you mean 'format'?",
        ),
        ({"source": {"union": [files()["source"]]}}, "spec.source.union: at least 2 items are expected"),
        ({"source": []}, "spec.source: a mapping is expected (field: value)"),
        (source(where=""), "spec.source.where: it must not be empty"),
        (files(paths=[]), "spec.source.files.paths: at least 1 item is expected"),
        (source(columns=[]), "spec.source.columns: at least 1 item is expected"),
        (files(csv={"delimiter": "||"}), "spec.source.files.csv.delimiter: at most 1 character is allowed"),
        (files(types={"a": None}), "spec.source.files.types.a: a text is expected (a number or a yes in quotes)"),
        ({"sparkConf": []}, "spec.sparkConf: a mapping is expected (name: value)"),
        ({"sink": {"iceberg": {"catalog": "a", "table": "x"}}}, "spec.sink.iceberg.table: namespace.table is expected"),
        ({"code": None}, "spec.code: a mapping is expected (field: value)"),
        ({"suspended": True}, "spec.suspended: unknown field; did you mean 'suspend'?"),
        (source(columns=["n", "n"]), "spec: source.columns: the column 'n' is named twice; name it once"),
        (spark(keyColumns=["a", "b", "a"]), "spec: source.spark.keyColumns: the column 'a' is named twice; name it once"),
    ],
)
def test_a_manifest_is_told_what_is_expected_where(spec: dict[str, Any], said: str) -> None:
    assert problems(CheckpointedWrite, manifest(**spec)) == (said,)


def test_what_cannot_be_a_member_of_a_union_has_a_write_of_its_own() -> None:
    kafka = {"kafka": {"bootstrapServers": ["a:1"], "topics": ["t"], "format": "json"}}
    said = "it cannot be a member of a union (files, iceberg and lance can); give it a write of its own into the table"

    found = problems(CheckpointedWrite, manifest(source={"union": [files()["source"], kafka]}))

    assert found == (f"spec.source.union.1.kafka: {said}",)
    for source in (files()["source"], kafka):
        assert parse_manifest(manifest(source=source)).spec.sink.none is not None


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"catalogs": {"a": {"type": "hive", "uri": "x"}}}, "catalogs.a.type: 'sql', 'rest' or 'glue' is expected, not 'hive'"),
        ({"catalogs": {"a": {"type": "Rest", "uri": "x"}}}, "catalogs.a.type: 'Rest' is not allowed; did you mean 'rest'?"),
        (
            {"catalogs": {"a": {"type": "rest", "uri": "x", "tokn": "s"}}},
            "catalogs.a.tokn: unknown field; did you mean 'token'?",
        ),
        (
            {"catalogs": {"a": {"type": "rest", "uri": "x", "password": "s"}}},
            (
                "catalogs.a.password: unknown field; known here: audience, credential, credentials, grants, "
                "oauth2_server_uri, resource, "
                "scope, signing, token, type, uri, warehouse"
            ),
        ),
        (
            {"catalogs": {"a": {"type": "rest", "uri": "x", "grants": [{"namespaces": ["a"], "tabels": ["b"]}]}}},
            "catalogs.a.grants.0.tabels: unknown field; did you mean 'tables'?",
        ),
        ({"storage": [{"prefix": "s3://b/", "endpiont": "x"}]}, "storage.0.endpiont: unknown field; did you mean 'endpoint'?"),
        ({"lake": {}}, "lake: unknown field; known here: catalogs, kafka, namespaces, storage"),
    ],
)
def test_a_settings_file_is_told_what_was_meant_or_what_there_is(document: Any, said: str) -> None:
    assert problems(Settings, document) == (said,)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"format": "hive"}, "is expected, not 'hive'"),
        ({"format": "iceberk"}, "target: 'iceberk' is not allowed; did you mean 'iceberg'?"),
    ],
)
def test_a_union_that_a_word_tells_apart_says_which_word_was_meant(target: Any, said: str) -> None:
    data = json.loads(encode(launch(1))) | {"target": target}

    with pytest.raises(Corrupt) as refused:
        decode(LaunchRecord, json.dumps(data).encode(), "s3://b/record.json")

    assert said in refused.value.message


SECRET = "a text, {env: NAME} or {file: PATH} is expected"


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        (5, SECRET),
        ([], SECRET),
        ({}, "exactly one of env and file is expected"),
        ({"env": 5}, "a text is expected (a number or a yes in quotes)"),
        ({"envv": "X"}, "unknown field; did you mean 'env'?"),
    ],
)
def test_a_secret_that_is_none_is_one_problem_with_its_field(secret: Any, said: str) -> None:
    (line,) = problems(Settings, {"storage": [{"prefix": "s3://b/", "access_key_id": secret}]})

    place, _, text = line.partition(": ")
    assert place in ("storage.0.access_key_id", "storage.0.access_key_id.env", "storage.0.access_key_id.envv")
    assert text == said


@pytest.mark.parametrize(
    "document",
    [
        [],
        "x",
        None,
        {"storage": {"prefix": "s3://b"}},
        {"storage": ["s3://b"]},
        {"storage": [{"prefix": ""}]},
        {"catalogs": []},
        {"catalogs": {"a": 5}},
        {"catalogs": {"a": {"type": "hive", "uri": "x"}}},
        {"catalogs": {"a": {"type": "rest", "uri": "x", "token": 7}}},
        {"catalogs": {5: {"type": "sql", "uri": "x", "warehouse": 7}}},
    ],
)
def test_no_problem_of_a_settings_file_is_a_librarys_own_text(document: Any) -> None:
    for line in problems(Settings, document):
        assert not any(word in line for word in RAW), line
        assert ": " in line


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        (LaunchRecord, {"attempt": "1"}),
        (LaunchRecord, {"attempt": 0}),
        (LaunchRecord, {"steps": [{"call": 1}]}),
        (LaunchRecord, {"token": ""}),
        (LaunchRecord, {"interval_s": "x"}),
        (LaunchRecord, {"source": {"format": "parquet"}}),
        (LaunchRecord, {"target": {"format": "hive"}}),
        (LaunchRecord, {"surplus": 1}),
    ],
)
def test_a_record_that_is_none_names_its_field_in_words(model: Any, changes: dict[str, Any]) -> None:
    data = json.loads(encode(launch(1))) | changes

    with pytest.raises(Corrupt) as refused:
        decode(model, json.dumps(data).encode(), "s3://b/record.json")

    assert not any(word in refused.value.message for word in RAW), refused.value.message
    assert f"record: {next(iter(changes))}" in refused.value.message


@pytest.mark.parametrize("model", [ClaimRecord, CommitRecord])
def test_a_record_without_a_field_says_so(model: Any) -> None:
    data = json.dumps({"kind": model.model_fields["kind"].default, "version": 1}).encode()

    with pytest.raises(Corrupt, match="token: this field is required"):
        decode(model, data, "s3://b/record.json")
