"""The CRD: that its files are what the generator says, that it is what Kubernetes calls structural, that nothing was forgotten.

Whether an API server understands it, and judges as the models do, is shown by
tests/contract/kubernetes/test_crd_on_a_real_api_server.py.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from pydantic import BaseModel

from checkpoint_operator.crd import definition as crd
from checkpoint_operator.crd import status_model
from checkpoint_operator.crd.rules import rules_of
from checkpoint_operator.crd.schema import schema_of
from checkpoint_operator.crd.status_model import UNOBSERVED_STATUS, AttemptStatus, Condition, Status
from checkpoint_protocol.manifest.rules import Rule
from checkpoint_protocol.manifest.sections import Section
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.manifest.sources.source import CsvOptions, FilesSource, IcebergSource, LanceSource, Source
from checkpoint_protocol.manifest.spec import MAX_NAME_LENGTH, CheckpointedWrite, CheckpointSpec, parse_manifest
from tests.support.manifests import GOOD, manifest

ROOT: Final = Path(__file__).resolve().parents[3]
FILE_NAME: Final = f"{crd.CRD_NAME}.yaml"
FILES: Final = (ROOT / "crds" / FILE_NAME, ROOT / "charts" / "checkpointed-write-operator" / "crds" / FILE_NAME)
(VERSION,) = crd.custom_resource_definition()["spec"]["versions"]
SCHEMA: Final[dict[str, Any]] = VERSION["schema"]["openAPIV3Schema"]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each schema in this one with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from nodes(schema[word], f"{path}[]")


def at(path: str) -> dict[str, Any]:
    return dict(nodes(SCHEMA))[path]


# --- the files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES, ids=["crds", "chart"])
def test_the_file_is_what_the_models_say(file: Path) -> None:
    place = file.relative_to(ROOT)
    assert file.read_text(encoding="utf-8") == crd.as_yaml(), f"say: python -m checkpoint_operator.crd > {place}"


def test_the_module_prints_the_file() -> None:
    done = subprocess.run([sys.executable, "-m", "checkpoint_operator.crd"], capture_output=True, check=True)

    assert done.stdout == FILES[0].read_bytes()


def test_the_file_is_plain_yaml_and_small_enough_for_kubectl_apply() -> None:
    """Client-side apply keeps the whole object as JSON in an annotation, of which 256 kB fit."""
    text = crd.as_yaml()

    assert yaml.safe_load(text) == crd.custom_resource_definition()
    assert "&id" not in text
    assert len(json.dumps(crd.custom_resource_definition())) < 150_000


# --- the shape ------------------------------------------------------------------------------------------------------------


def test_names_columns_and_subresource_are_those_that_the_documents_promise() -> None:
    spec = crd.custom_resource_definition()["spec"]

    assert crd.CRD_NAME == "checkpointedwrites.checkpointed.dev"
    assert spec["names"]["shortNames"] == ["cw"]
    assert spec["scope"] == "Namespaced"
    assert VERSION["subresources"] == {"status": {}}
    shown = [column["name"] for column in VERSION["additionalPrinterColumns"] if not column.get("priority")]
    wide = [column["name"] for column in VERSION["additionalPrinterColumns"] if column.get("priority")]
    assert shown == ["Phase", "Progress", "Rows", "Attempt", "Age"]
    assert wide == ["Sealed", "Quarantined", "Format", "Table", "Version", "Driver", "Reason"]


def test_every_column_shows_a_field_that_exists() -> None:
    known = dict(nodes(SCHEMA)) | {".metadata.creationTimestamp": {"type": "string"}}
    types = {"string": {"string"}, "integer": {"integer"}, "date": {"string"}}
    for column in VERSION["additionalPrinterColumns"]:
        assert known[column["jsonPath"]]["type"] in types[column["type"]], column


def test_the_schema_is_structural() -> None:
    for path, node in nodes(SCHEMA):
        if node.get("x-kubernetes-int-or-string"):
            assert "type" not in node, path
            continue
        assert node.get("type") in {"object", "array", "string", "integer", "boolean"}, path
        assert not {"$ref", "$defs", "anyOf", "oneOf", "allOf", "const", "title"} & node.keys(), path
        assert node["type"] != "array" or "items" in node, path
        assert set(node.get("required", ())) <= set(node.get("properties", {})), path


def test_everything_that_people_write_is_described() -> None:
    for path, node in nodes(SCHEMA):
        if path and not path.endswith("[]") and not path.startswith(".metadata"):
            assert len(node["description"]) > 8, path
            assert "\n" not in node["description"], path


def test_everything_is_bounded_so_that_rules_are_cheap_and_objects_small() -> None:
    bounds = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}
    for path, node in nodes(SCHEMA):
        if node.get("x-kubernetes-int-or-string"):
            assert "maxLength" in node, path
            continue
        is_free = node["type"] == "object" and "additionalProperties" not in node
        if path in ("", ".apiVersion", ".kind", ".metadata") or is_free or "enum" in node or node.get("format") == "date-time":
            continue
        if node["type"] in bounds:
            assert bounds[node["type"]] in node, path


def test_null_is_allowed_where_the_model_takes_it_and_nowhere_else() -> None:
    nullable = {path for path, node in nodes(SCHEMA) if node.get("nullable")}

    assert ".spec.source.files" in nullable
    assert ".spec.driver.memoryOverhead" in nullable
    assert ".spec.sink.none" in nullable
    assert not {path for path in nullable if path.startswith(".status")}, "the controller leaves out what it does not know"
    assert not {path for path, node in nodes(SCHEMA) if node.get("nullable") and "default" in node}


def with_defaults(value: Any, schema: dict[str, Any]) -> Any:
    """Do as the API server does: fill in defaults from the outside inwards."""
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name not in value and "default" in inner:
                value[name] = copy.deepcopy(inner["default"])
            if name in value:
                value[name] = with_defaults(value[name], inner)
    if isinstance(value, list) and "items" in schema:
        return [with_defaults(item, schema["items"]) for item in value]
    return value


@pytest.mark.parametrize("changes", GOOD.values(), ids=GOOD)
def test_the_defaults_of_the_crd_are_those_of_the_models(changes: dict[str, Any]) -> None:
    document = manifest(**changes)
    filled = with_defaults(copy.deepcopy(document), SCHEMA)

    assert filled.pop("status", {}) in ({}, UNOBSERVED_STATUS)
    assert parse_manifest(filled) == parse_manifest(document)
    assert filled["spec"]["checkpoint"].keys() == {"uri", "interval", "minimumBytes"}
    assert filled["spec"]["executor"]["cores"] >= 1


def test_sizes_and_durations_are_shown_as_people_write_them() -> None:
    assert at(".spec.checkpoint.interval")["default"] == "1m"
    assert at(".spec.source.files.splitSize")["default"] == "128Mi"
    assert at(".spec.driver.memory")["default"] == "1Gi"
    assert "default" not in at(".spec.progressDeadlineSeconds"), "it follows from the interval"


def test_each_default_that_is_not_empty_is_said_for_kubectl_explain() -> None:
    spec = [(path, node) for path, node in nodes(SCHEMA) if path.startswith(".spec")]
    defaults = {path: node for path, node in spec if "default" in node and node["default"] not in ({}, [], "")}

    unsaid = [path for path, node in defaults.items() if "Default: " not in node["description"]]

    assert not unsaid
    assert at(".spec.suspend")["description"].endswith("Default: false.")


def test_the_stricter_of_two_bounds_stands() -> None:
    assert at(".spec.activeDeadlineSeconds")["minimum"] == 1
    assert at(".spec.activeDeadlineSeconds")["maximum"] == (1 << 31) - 1


def test_letters_of_all_scripts_are_letters_for_the_api_server_too() -> None:
    (rule,) = at(".spec.steps[].call")["x-kubernetes-validations"]
    assert r"\w" not in rule["rule"]
    assert r"\p{L}" in rule["rule"]


def test_no_field_of_a_manifest_is_refused_with_a_regular_expression_but_one_of_a_thousand_paths() -> None:
    found = {path for path, node in nodes(SCHEMA) if isinstance(node.get("pattern"), str) and path.startswith(".spec")}
    assert found == {".spec.source.files.paths[]", ".spec.source.union[].files.paths[]"}


def test_pod_templates_and_arguments_are_free_inside() -> None:
    assert at(".spec.steps[].arguments")["x-kubernetes-preserve-unknown-fields"] is True
    template = at(".spec.driver.template")
    assert "x-kubernetes-preserve-unknown-fields" not in template, "a misspelt `spec` would be passed over"
    assert {part for part in template["properties"] if template["properties"][part]["x-kubernetes-preserve-unknown-fields"]} == {
        "metadata",
        "spec",
    }


# --- the rules ------------------------------------------------------------------------------------------------------------


def rules_at(path: str) -> list[dict[str, str]]:
    return list(at(path).get("x-kubernetes-validations", []))


@pytest.mark.parametrize(
    ("model", "changeable"),
    [
        (Sink, {"targetFileSize", "create", "partitionBy", "verify", "onConcurrent", "onDuplicate", "orderBy", "audit"}),
        (CheckpointSpec, {"interval", "minimumBytes", "maximumRows", "retention"}),
    ],
)
def test_every_field_of_the_identity_has_a_rule_that_keeps_it(model: type[BaseModel], changeable: set[str]) -> None:
    """A field that is added to the identity without one would let people change what a write is."""
    kept = {rule.field for rule in rules_of(model) if "oldSelf" in rule.rule}
    fields = {field.alias or name for name, field in model.model_fields.items()}

    assert kept == fields - changeable


def test_every_field_of_the_source_has_a_rule_that_keeps_it_once_rows_are_sealed_but_for_how_text_is_read() -> None:
    rules = {
        rule.field: rule.rule for rule in rules_of(CheckpointedWrite) if "oldSelf" in rule.rule and "rowsSealed" in rule.rule
    }
    may_be_edited = {"splitSize", "types", "schema", "csv"}

    # Of what has changed, an epoch that has begun knows what it takes.
    assert rules.keys() == {f"spec.source.{field}" for field in names_of(Source) if field != "changes"}
    models: dict[str, type[BaseModel]] = {"files": FilesSource, "iceberg": IcebergSource, "lance": LanceSource}
    for kind, model in models.items():
        for owner, rule in ((f"self.spec.source.{kind}", f"spec.source.{kind}"), (f"union[i].{kind}", "spec.source.union")):
            for field in names_of(model) - may_be_edited:
                assert f"{owner}.{field} == " in rules[rule], field
            for option in names_of(CsvOptions) - {"nullValues", "delimiter", "quote"} if kind == "files" else ():
                assert f"{owner}.csv.{option} : " in rules[rule], option


def names_of(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def has_field(node: dict[str, Any], path: str) -> bool:
    for name in path.removeprefix(".").split("."):
        if name not in node.get("properties", {}):
            return False
        node = node["properties"][name]
    return True


def test_a_rule_names_the_field_that_is_wrong() -> None:
    assert Rule("self.a", "no", "a").as_schema() == {"rule": "self.a", "message": "no", "fieldPath": ".a"}
    assert Rule("self.a", "no").as_schema() == {"rule": "self.a", "message": "no"}
    assert Rule("self.a", "self.b", names=True).as_schema() == {"rule": "self.a", "messageExpression": "self.b"}
    for path, node in nodes(SCHEMA):
        for entry in node.get("x-kubernetes-validations", ()):
            assert "fieldPath" not in entry or has_field(node, entry["fieldPath"]), path
            assert "\n" not in entry.get("message", "")


def test_the_name_is_short_enough_for_the_names_of_pods() -> None:
    longest = f"{'a' * MAX_NAME_LENGTH}-{'0' * 8}-9999-999"
    assert len(longest) <= 63
    assert str(MAX_NAME_LENGTH) in rules_at("")[0]["message"]


# --- the generator --------------------------------------------------------------------------------------------------------


def test_a_type_that_the_generator_does_not_know_is_refused() -> None:
    class Odd(Section):
        """A section."""

        when: complex

    with pytest.raises(TypeError, match="no schema is known"):
        schema_of(Odd)


def test_a_field_without_a_description_is_refused_and_named() -> None:
    class Silent(Section):
        """A section."""

        name: str

    with pytest.raises(TypeError, match=r"Silent\.name has no description"):
        schema_of(Silent)


# --- the status -----------------------------------------------------------------------------------------------------------


def test_a_status_is_written_without_what_is_not_known() -> None:
    status = Status(phase="Running", rows_sealed=0, attempts=(AttemptStatus(number=1, cause="OOMKilled"),))

    assert status.model_dump(by_alias=True, exclude_none=True, mode="json") == {
        "phase": "Running",
        "rowsSealed": 0,
        "attempts": [{"number": 1, "cause": "OOMKilled"}],
    }


def test_a_status_of_a_later_release_is_read() -> None:
    assert Status.model_validate_json('{"phase": "Sealed", "mood": "good"}').phase == "Sealed"


def test_a_status_cannot_grow() -> None:
    with pytest.raises(ValueError, match="at most 5"):
        Status(attempts=tuple(AttemptStatus(number=number) for number in range(6)))
    with pytest.raises(ValueError, match="at most 1024"):
        AttemptStatus(number=1, message="a" * 1025)


@pytest.mark.parametrize("time", ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000001Z"])
def test_a_moment_is_written_as_kubernetes_does(time: str) -> None:
    assert AttemptStatus(number=1, recorded_at=time).recorded_at == time


@pytest.mark.parametrize("time", ["2026-01-02 03:04:05", "2026-01-02T03:04:05+01:00", "now", ""])
def test_another_way_to_write_a_moment_is_refused(time: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        AttemptStatus(number=1, recorded_at=time)


def test_conditions_are_told_apart_by_their_type() -> None:
    conditions = at(".status.conditions")

    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert set(conditions["items"]["required"]) == {"type", "status", "reason", "message", "lastTransitionTime"}
    with pytest.raises(ValueError, match="pattern"):
        Condition(type="Sealed", status="True", reason="not one word", message="", last_transition_time="2026-01-02T03:04:05Z")


def test_what_the_status_says_fits_the_fields_that_it_is_copied_from() -> None:
    assert status_model.MAX_ATTEMPTS_SHOWN == 5
    assert at(".status.runNonce")["maxLength"] == at(".spec.runNonce")["maxLength"]
