"""Records of former versions in the form of today."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, JsonValue

from checkpoint_protocol.former_source import in_form_of_today, is_former
from checkpoint_protocol.records.attempts import LaunchRecord
from checkpoint_protocol.records.base import Record
from checkpoint_protocol.records.inputs import InputIndexRecord, InputRecord


def _launch_of_version_1(plain: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """It had its source in another form, and one source table."""
    source, table = plain.get("source"), plain.pop("source_table", None)
    if not isinstance(source, dict) or not is_former(source):
        raise ValueError("a launch record of version 1 has another source")
    return {**plain, "source": in_form_of_today(source), "source_tables": [] if table is None else [table]}


def _input_of_version_1(plain: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """It had one source table."""
    if "tables" in plain:
        raise ValueError("an input record of version 1 has one table")
    table = plain.pop("table", None)
    return {**plain, "tables": [] if table is None else [table]}


#: What makes records of version 1 those of version 2. ValueError for what is no record of version 1.
_UPGRADES: Final[Mapping[type[Record], Callable[[dict[str, JsonValue]], dict[str, JsonValue]]]] = {
    LaunchRecord: _launch_of_version_1,
    InputRecord: _input_of_version_1,
    InputIndexRecord: _input_of_version_1,
}


class _Version(BaseModel):
    model_config = ConfigDict(strict=True)

    version: int


def in_todays_form(model: type[Record], data: bytes) -> bytes:
    """Return a record in the form of today. What is wrong with one that is none the model shall say."""
    upgrade = _UPGRADES.get(model)
    if upgrade is None:
        return data
    try:
        if _Version.model_validate_json(data).version != 1:
            return data
        return json.dumps({**upgrade(json.loads(data)), "version": 2}).encode()
    except (ValueError, RecursionError):  # pydantic's are ValueErrors too
        return data
