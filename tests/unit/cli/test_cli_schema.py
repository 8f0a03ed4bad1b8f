"""`checkpointed-write schema`: what validates is valid by it, and what an editor can know to be wrong is not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from checkpoint_local.cli.main import main

EXAMPLES: Final = Path(__file__).parents[3] / "examples"
SETTINGS: Final = EXAMPLES / "checkpointed-write.settings.yaml"
FLIGHTS: Final = EXAMPLES / "flights-lance.yaml"


def validator(what: str) -> Draft202012Validator:
    printed = CliRunner().invoke(main, ["schema", what], catch_exceptions=False)
    schema = json.loads(printed.stdout)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    return Draft202012Validator(schema)


@pytest.mark.parametrize("file", [pytest.param(file, id=file.name) for file in sorted(EXAMPLES.rglob("*.yaml"))])
def test_an_example_is_valid(file: Path) -> None:
    by_kind = {what: validator(what) for what in ("manifest", "settings")}
    for document in yaml.safe_load_all(file.read_text()):
        if file == SETTINGS or document.get("kind") == "CheckpointedWrite":
            by_kind["settings" if file == SETTINGS else "manifest"].validate(document)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("kind", "CheckpointedRead"),
        ("metadata", {}),
        ("metadata.name", "With Capitals"),
        ("spec.sourse", {}),
        ("spec.source.files.format", "avro"),
        ("spec.source.files.paths", "data"),
        ("spec.steps.0.call", "no colon"),
        ("spec.steps.0.concurrency", 0),
        ("spec.sink.mode", "append"),
        ("spec.sink.lance.url", "out.lance"),
        ("spec.onRowError", "Ignore"),
        ("spec.quarantine", {"maxrows": 3}),
    ],
)
def test_a_spoilt_manifest_is_not_valid(place: str, value: Any) -> None:
    document = copy.deepcopy(yaml.safe_load(FLIGHTS.read_text()))
    at: Any = document
    *before, last = place.split(".")
    for name in before:
        at = at[int(name)] if name.isdigit() else at[name]
    at[last] = value

    assert not validator("manifest").is_valid(document)


def test_fields_have_descriptions_and_no_titles_of_their_own() -> None:
    fields = validator("manifest").schema["$defs"]["Spec"]["properties"]

    assert fields["onRowError"]["description"].startswith("What happens when a row fails")
    assert not any("title" in field for field in fields.values())


@pytest.mark.parametrize("spoilt", [{"catalog": {}}, {"catalogs": {"local": {"type": "hive", "uri": "x"}}}])
def test_spoilt_settings_are_not_valid(spoilt: Any) -> None:
    assert not validator("settings").is_valid(spoilt)
