"""`checkpointed-write schema`: the JSON Schema of a manifest or of a settings file, by which editors complete and check."""

from __future__ import annotations

import json
from typing import Any, Final

import click
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.settings import Settings

_MODELS: Final[dict[str, type[BaseModel]]] = {"manifest": CheckpointedWrite, "settings": Settings}


class _WithoutTitles(GenerateJsonSchema):
    """Editors show a title before the description, and ours would be the name of the field once more."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_command(what: str) -> int:
    click.echo(json.dumps(schema_of(what), indent=2))
    return 0


def schema_of(what: str) -> dict[str, Any]:
    """Return the schema of a manifest, or of settings, in draft 2020-12."""
    schema = _MODELS[what].model_json_schema(by_alias=True, schema_generator=_WithoutTitles)
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}
