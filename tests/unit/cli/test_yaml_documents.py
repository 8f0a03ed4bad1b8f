"""YAML as people write it: values by YAML 1.2's core schema, keys as texts, and each problem with its place."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from checkpoint_control.yaml_documents import line_of, parse_documents, parse_nodes
from checkpoint_local.cli.files import load_manifest, parse_settings
from checkpoint_operator.config import load_config
from checkpoint_operator.main import load_settings
from checkpoint_protocol.manifest.spec import ManifestInvalid
from tests.support.manifests import manifest

VALUES: dict[str, Any] = {
    "12:30:45": "12:30:45",
    "1:30": "1:30",
    "2026-01-05": "2026-01-05",
    "2026-13-45": "2026-13-45",
    "2026-01-05T10:00:00Z": "2026-01-05T10:00:00Z",
    "yes": "yes",
    "No": "No",
    "on": "on",
    "OFF": "OFF",
    "y": "y",
    "1_000": "1_000",
    "0b11": "0b11",
    "=": "=",
    "017": 17,
    "0o17": 15,
    "0x1F": 31,
    "+12": 12,
    "-7": -7,
    "1e3": 1000.0,
    "1.5E-2": 0.015,
    ".5": 0.5,
    "1.": 1.0,
    "-.inf": -math.inf,
    "true": True,
    "False": False,
    "tRUE": "tRUE",
    "~": None,
    "Null": None,
    "": None,
    "'7'": "7",
    "!!str 7": "7",
    "!!int '7'": 7,
    "!!float 7": 7.0,
    "!!float 7.5": 7.5,
}


@pytest.mark.parametrize("text", VALUES)
def test_a_value_is_what_the_core_schema_says(text: str) -> None:
    ((value,),) = parse_documents(f"- {text}\n")

    assert value == VALUES[text]
    assert type(value) is type(VALUES[text])


def test_no_number_is_no_number() -> None:
    assert math.isnan(parse_documents("- .NaN")[0][0])


@pytest.mark.parametrize("key", ["on", "yes", "true", "null", "~", "2024", "1.50", "017", "0x1F", "12:30:45", "2026-01-05", "="])
def test_a_key_is_the_text_that_is_written(key: str) -> None:
    assert parse_documents(f"{key}: 1") == [{key: 1}]


def test_a_value_under_an_anchor_that_is_a_key_too_stays_a_number() -> None:
    assert parse_documents("{a: &n 5, *n : b}") == [{"a": 5, "5": "b"}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", "the key 'a' stands twice in one mapping, first in line 1; remove one"),
        ("a: 1\n'a': 3\n", "the key 'a' stands twice"),
        ('on: 1\n"on": 3\n', "the key 'on' stands twice"),
        ("x: [{deep: {b: 1, b: 1}}]", "the key 'b' stands twice"),
        ("a: &a {x: 1}\nb: {<<: *a, <<: *a}\n", "the key '<<' stands twice"),
        ("? [a, b]\n: 1\n", "a key is no text"),
        ("? {a: b}\n: 1\n", "a key is no text"),
        ("a: !!int ''\n", "'' is no int"),
        ("a: !!int seven\n", "'seven' is no int"),
        ("a: !!bool maybe\n", "'maybe' is no bool"),
        ("a: !!float x\n", "'x' is no float"),
        ("a: !!null x\n", "'x' is no null"),
        ("a: !!int [1]\n", "is no int"),
        ("a: !!timestamp 2026-13-45\n", "tag:yaml.org,2002:timestamp"),
        ("a: !!timestamp soon\n", "tag:yaml.org,2002:timestamp"),
        ("a: !!binary '*'\n", "tag:yaml.org,2002:binary"),
        ("a: !!set {b}\n", "tag:yaml.org,2002:set"),
        ("a: !!python/name:os.system\n", "python/name:os.system"),
        ("a: !!str [b]\n", "expected a scalar node"),
        ("a: !!map b\n", "expected a mapping node"),
        ("a: !!seq b\n", "expected a sequence node"),
        (f"a: {'9' * 5000}\n", "is no value here: Exceeds the limit"),
    ],
)
def test_what_cannot_be_read_is_a_problem_with_a_place(text: str, problem: str) -> None:
    with pytest.raises(yaml.MarkedYAMLError) as caught:
        parse_documents(text)

    assert problem in str(caught.value)
    assert caught.value.problem_mark is not None


def test_a_value_beside_a_merge_overrides_it() -> None:
    assert parse_documents("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: {<<: *a}\n")[0]["b"] == {"x": 3, "y": 2}
    # What was merged is merged again.
    assert parse_documents("a: &a {x: 1}\nb: &b {<<: *a, x: 3}\nc: {<<: *b}\n")[0]["c"] == {"x": 3}
    assert parse_documents("'<<': 1") == [{"<<": 1}]
    assert parse_documents("[<<]") == [["<<"]]


def test_paths_that_stand_twice_in_a_manifest_are_refused_with_both_lines(tmp_path: Path) -> None:
    file = tmp_path / "write.yaml"
    head = "apiVersion: checkpointed.dev/v1alpha1\nkind: CheckpointedWrite\nmetadata: {name: x}\nspec:\n"
    tail = "  sink: {none: {}}\n  checkpoint: {uri: c}\n"
    once = f"{head}  source:\n    files:\n      format: csv\n      paths: [b]\n{tail}"
    file.write_text(once.replace("      format", "      paths: [a]\n      format"))

    with pytest.raises(ManifestInvalid) as caught:
        load_manifest(file)

    (problem,) = caught.value.problems
    assert problem.splitlines() == [
        f"{file}: is not YAML: the key 'paths' stands twice in one mapping, first in line 7; remove one",
        f'  in "{file}", line 9, column 7:',
        "          paths: [b]",
        "          ^",
    ]

    file.write_text(once)
    assert load_manifest(file).spec.source.files is not None


_PLACES = """\
# a write
spec:
  source: &source
    files: {format: csv, "a.b": 1}
  steps:
  - call: m:f
  -
    call: m:g
  again: *source
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("spec", 2),
        ("spec.source.files.format", 4),
        ("spec.source.files.a.b", 4),
        ("spec.source.files.csv.delimiter", 4),
        ("spec.steps.1.call", 8),
        ("spec.steps.2.call", 5),
        ("spec.again.files", 4),
        ("spec.sink", 2),
        ("metadata", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("before", ["", "---\n---\n"])
def test_a_field_has_the_line_of_its_name_or_of_what_it_belongs_in(before: str, path: str, line: int | None) -> None:
    found = line_of(parse_nodes(before + _PLACES), path)

    assert found == (None if line is None else line + before.count("\n"))


@pytest.mark.parametrize(
    ("changes", "line", "said"),
    [
        ({"spec__stepz": []}, "stepz:", "spec.stepz: unknown field"),
        ({"spec__source__columns": ["a", "a"]}, "columns:", "spec: source.columns: the column 'a' is named twice"),
        ({"spec__sink__iceberg__table": "x"}, "table:", "spec.sink.iceberg.table: namespace.table is expected"),
        ({"spec__checkpoint__uri": ...}, "checkpoint:", "spec.checkpoint.uri: this field is required"),
    ],
)
def test_each_problem_of_a_manifest_says_the_line_of_its_field(
    tmp_path: Path, changes: dict[str, Any], line: str, said: str
) -> None:
    file = tmp_path / "write.yaml"
    file.write_text(yaml.safe_dump(manifest(**changes), sort_keys=False))
    (number,) = [at for at, text in enumerate(file.read_text().splitlines(), 1) if text.strip().startswith(line)]

    with pytest.raises(ManifestInvalid) as caught:
        load_manifest(file)

    assert caught.value.message.startswith(f"{file}:{number}: {said}")
    assert caught.value.problems[0].startswith(said)


def test_each_problem_of_a_settings_file_says_the_line_of_its_field(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("catalogs:\n  lake.1:\n    type: rest\n    uri: http://lake\n    tokn: x\n")

    with pytest.raises(ManifestInvalid) as caught:
        parse_settings(file, file.read_bytes())

    assert caught.value.said == (f"{file}:5: catalogs.lake.1.tokn: unknown field; did you mean 'token'?",)


def test_a_problem_without_a_field_says_the_file(tmp_path: Path) -> None:
    file = tmp_path / "write.yaml"
    file.write_text("[]")

    with pytest.raises(ManifestInvalid, match=rf"^{re.escape(str(file))}: a CheckpointedWrite manifest is expected"):
        load_manifest(file)


def test_files_of_the_operator_are_read_in_the_same_way(tmp_path: Path) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text("workloads: {image: i}\nnamespaces: [a]\nnamespaces: [b]\n")
    with pytest.raises(ManifestInvalid, match="'namespaces' stands twice"):
        load_config(file)

    file.write_text("catalogs: {}\ncatalogs: {}\n")
    with pytest.raises(ManifestInvalid, match="is not YAML: line 2, column 1"):
        load_settings(file)

    file.write_text("catalogs: {lake: {type: rest, uri: https://lake.example, warehouse: 12:30:45}}\n")
    assert load_settings(file).catalogs["lake"].warehouse == "12:30:45"
