"""The chart where no Helm is needed: versions, its values against its schema, and its schema against what reads them.

tests/contract/kubernetes/test_chart.py renders it and installs it on an API server.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final, get_args

import pytest
import yaml

from checkpoint_operator.config import OperatorConfig, WorkloadDefaults, load_config
from checkpoint_protocol.manifest.quantities import parse_size_bytes
from checkpoint_protocol.manifest.spec import ManifestInvalid, validate_model
from checkpoint_protocol.places.settings import CatalogSettings
from checkpoint_protocol.places.storage import StorageEntry

ROOT: Final = Path(__file__).resolve().parents[3]
CHART: Final = ROOT / "charts" / "checkpointed-write-operator"
VALUES: Final[dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA: Final[dict[str, Any]] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert str(chart["version"]) == str(chart["appVersion"]) == project["version"]


def sections(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return each mapping of the default values that the schema knows field by field."""
    found = [(path or ".", values, schema)]
    for name, value in values.items():
        inner = schema["properties"][name]
        if isinstance(value, dict) and "properties" in inner:
            found += sections(value, inner, f"{path}.{name}")
    return found


@pytest.mark.parametrize(
    ("values", "schema"), [(v, s) for _, v, s in sections(VALUES, SCHEMA)], ids=[path for path, *_ in sections(VALUES, SCHEMA)]
)
def test_every_value_has_a_default_and_a_comment_and_no_other_is_allowed(values: dict[str, Any], schema: dict[str, Any]) -> None:
    optional = {"global", "claims"}

    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) - optional == set(values) - optional


def test_the_values_file_explains_itself() -> None:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")

    assert text.count("#") > len(VALUES)


def test_settings_in_the_values_have_the_fields_of_the_settings_file() -> None:
    definitions = SCHEMA["definitions"]

    assert set(definitions["storage"]["items"]["properties"]) == set(StorageEntry.model_fields)
    assert set(definitions["catalog"]["properties"]) == {name for one in get_args(CatalogSettings) for name in one.model_fields}


def test_no_image_is_named_by_default_as_anybody_could_own_its_name() -> None:
    images = [VALUES["image"], VALUES["workloads"]["image"]]

    assert [image["repository"] for image in images] == ["", ""]


def test_the_roles_have_no_wildcards() -> None:
    for path in (CHART / "templates").rglob("*rbac*.yaml"):
        assert '"*"' not in path.read_text(encoding="utf-8"), path
        assert "[*]" not in path.read_text(encoding="utf-8"), path


# --- the configuration file that the chart writes -------------------------------------------------------------------------

SMALLEST: Final[dict[str, Any]] = {"namespaces": ["team"], "workloads": {"image": "spark:1"}}


def test_the_smallest_configuration_gets_every_default(tmp_path: Path) -> None:
    (tmp_path / "operator.yaml").write_text(yaml.safe_dump(SMALLEST))
    config = load_config(tmp_path / "operator.yaml")

    assert config.namespaces == ("team",)
    assert config.all_namespaces is False
    assert config.workloads == WorkloadDefaults(image="spark:1")
    assert config.workloads.service_account_name == VALUES["workloads"]["serviceAccount"]["name"]
    assert config.workloads.storage_secret_name is None
    assert config.commit_workers == VALUES["commitWorkers"] == 2
    assert config.record_memory == parse_size_bytes(VALUES["recordMemory"]) == 320 << 20
    assert config.writes_memory_per_namespace == parse_size_bytes(VALUES["writesMemoryPerNamespace"]) == 32 << 20
    assert (config.cluster_name or "") == VALUES["clusterName"] == ""
    assert config.retention_days == VALUES["retentionDays"] == 0
    assert config.resync_seconds == VALUES["resyncSeconds"] == 300
    assert (config.health_port, config.metrics_port) == (8080, 9090)
    assert config.log_level == VALUES["logLevel"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"namespaces": []}, "exactly one is expected: namespaces, or allNamespaces: true"),
        ({"allNamespaces": True}, "exactly one is expected: namespaces, or allNamespaces: true"),
        ({"namespaces": ["a", "a"]}, "a name stands twice"),
        ({"namespaces": ["A"]}, "namespaces.0"),
        ({"namespaces": "team"}, "namespaces: "),
        ({"workloads": {}}, "workloads.image: this field is required"),
        ({"workloads": {"image": "a", "imagePullPolicy": "Sometimes"}}, "workloads.imagePullPolicy"),
        ({"workloads": {"image": "a", "imagee": "b"}}, "workloads.imagee: unknown field; did you mean 'image'?"),
        ({"commitWorkers": 0}, "commitWorkers"),
        ({"commitWorkers": "2"}, "commitWorkers"),
        ({"resyncSeconds": 1}, "resyncSeconds"),
        ({"retentionDays": -1}, "retentionDays"),
        ({"healthPort": 9090}, "healthPort and metricsPort are the same"),
        ({"logLevel": "loud"}, "logLevel"),
        ({"namespace": ["a"]}, "namespace: unknown field; did you mean 'namespaces'?"),
    ],
)
def test_a_wrong_configuration_is_refused_with_the_path_of_the_field(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ManifestInvalid) as refused:
        validate_model(OperatorConfig, SMALLEST | changes)

    assert any(says in problem for problem in refused.value.problems), refused.value.problems


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        (b"a: [", "is not YAML"),
        (b"- a", "a mapping is expected, not list"),
        (b"", "a mapping is expected"),
        (b"\xff\xfe\x00", "is not"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "operator.yaml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ManifestInvalid, match=says) as refused:
        load_config(path)
    assert str(path) in refused.value.problems[0]


def test_the_bounds_of_values_are_those_of_the_configuration() -> None:
    for name, bad in (("commitWorkers", (0, 65)), ("resyncSeconds", (9, 86_401))):
        entry = SCHEMA["properties"][name]
        assert (entry["minimum"] - 1, entry["maximum"] + 1) == bad
        for value in bad:
            with pytest.raises(ManifestInvalid):
                validate_model(OperatorConfig, SMALLEST | {name: value})
