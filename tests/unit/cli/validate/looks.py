"""Looks of `checkpointed-write validate` at one kind of thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from checkpoint_local.cli.files import load_manifest
from tests.support.grounds import Ground, Look
from tests.support.stored_writes import StoredWrite

NO_TABLE = "sink: {none: {}}"
NEW_ICEBERG = "sink: {iceberg: {catalog: lake, table: db.new}, create: true"
NEW_LANCE = "sink: {lance: {uri: new.lance}, create: true}"
UNREADABLE_SETTINGS = {"settings.yaml": "catalog: {}\n"}
BY_SPARK = "note: what Spark makes of the source is seen when a driver reads it; columns and types were not checked"
CSV = "id,text\n1,a\n"
MORE_CSV = {"more.csv": "id,day\n1,2024-01-05\n"}
OF_A_STEP = "steps.0.input: row, steps.0.output:"
SAME: dict[str, Any] = {"call": "steps:same", "code": "def same(row): ..."}
DURATIONS = pa.table({"id": [1], "took": pa.array([1], pa.duration("us")), "at": pa.array([1], pa.timestamp("ns"))})


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
