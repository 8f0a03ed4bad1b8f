"""Looks of `checkpointed-write validate` at one kind of thing."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from checkpoint_local.cli.files import load_manifest
from devtools.s3_server import S3Server
from tests.support.archives import HOSTILE, zip_of
from tests.support.grounds import RAISES, Ground, Look, Scenarios, catalog_settings, each_of
from tests.support.places import on_s3
from tests.support.stored_writes import StoredWrite
from tests.support.writes import manifest_for, rows_of

NO_TABLE = "sink: {none: {}}"
NEW_ICEBERG = "sink: {iceberg: {catalog: lake, table: db.new}, create: true"
NEW_LANCE = "sink: {lance: {uri: new.lance}, create: true}"
UNREADABLE_SETTINGS = {"settings.yaml": "catalog: {}\n"}
BY_SPARK = "note: what Spark makes of the source is seen when a driver reads it; columns and types were not checked"
MORE_CSV = {"more.csv": "id,day\n1,2024-01-05\n"}
OF_A_STEP = "steps.0.input: row, steps.0.output:"
SAME: dict[str, Any] = {"call": "steps:same", "code": "def same(row): ..."}


def of_step(says: str, call: str, code: str = "", **arguments: Any) -> Look:
    """`says` is below the step."""
    return Look(f"spec.steps.0.{says}" if says else "", code=code, call=call, arguments=arguments)


def of_audit(says: str, call: str, code: str = "") -> Look:
    return Look(says, f"code: {{path: code}}, sink.audit: '{call}'", code=code)


def of_code(says: str, uri: str, content: str | bytes, call: str = "flights:clean") -> Look:
    return Look(says, f"code: {{uri: {uri}}}", call=call, files={uri: content})


def of_csv(says: str | tuple[str, ...], text: str | bytes, spec: str = "", name: str = "rows.csv", **options: Any) -> Look:
    return Look(says, spec, text=text, name=name, options=options)


def of_json(says: str | tuple[str, ...], text: str, spec: str = "") -> Look:
    return Look(says, spec, text=text, name="rows.json")


def files_in(path: str, more: str = "") -> str:
    """Return the section of these files."""
    return f"{{files: {{format: {'csv' if 'csv' in path else 'parquet'}, paths: [{path}]{more}}}}}"


def of_more(says: str, table: pa.Table | str, spec: str = "") -> Look:
    """Return the look at a source with another Parquet file."""
    return Look(says, spec, files={"in/part-9.parquet": table})


def stored(*does: Callable[[StoredWrite], None]) -> Callable[[Ground], None]:
    """Have the store know of this write, and of what is done to it."""

    def prepare(ground: Ground) -> None:
        write = StoredWrite(ground.folder, given=load_manifest(ground.file))
        for each in (StoredWrite.begin, *does):
            each(write)

    return prepare


def launched(write: StoredWrite) -> None:
    write.launch()
    write.plan()
    write.seal(0)
