"""The page about Python: each call of `checkpointed_writes` with its keywords, and the field of the manifest that each sets.

Which field that is, is not written down: the call is made with the keyword and without, and the manifests are compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import checkpointed_writes as cw
from checkpointed_writes.rows import Rows

_FILES: Final = cw.read_parquet("in")
_STEPS: Final = _FILES.step("m:f")
#: The calls, with what they need.
CALLS: Final[Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]]] = {
    "read_parquet": (cw.read_parquet, {"paths": "in"}),
    "read_csv": (cw.read_csv, {"paths": "in"}),
    "read_json": (cw.read_json, {"paths": "in"}),
    "read_files": (cw.read_files, {"paths": "in"}),
    "read_iceberg": (cw.read_iceberg, {"table": "n.t", "catalog": "c"}),
    "read_lance": (cw.read_lance, {"uri": "in.lance"}),
    "read_kafka": (cw.read_kafka, {"bootstrap_servers": "b:1", "topics": "t"}),
    "read_spark": (cw.read_spark, {"format": "orc", "keys": "id"}),
    "read_program": (cw.read_program, {"call": "m:f", "keys": "id"}),
    "union": (lambda: cw.union(_FILES, cw.read_lance("in.lance")), {}),
    "Rows.select": (lambda columns="a": _FILES.select(columns), {}),
    "Rows.where": (_FILES.where, {"condition": "a = 1"}),
    "Rows.step": (_FILES.step, {"call": "m:f"}),
    "Rows.batch_step": (_FILES.batch_step, {"call": "m:f"}),
    "Rows.stage": (lambda **more: _FILES.stage(**more).step("m:f"), {"name": "s"}),
    "Rows.aggregate": (_FILES.aggregate, {"call": "m:f", "by": "a"}),
    "Rows.write_lance": (_STEPS.write_lance, {"uri": "out.lance"}),
    "Rows.write_iceberg": (_STEPS.write_iceberg, {"table": "n.t", "catalog": "c"}),
    "Rows.write_nothing": (_STEPS.write_nothing, {"name": "n"}),
    "Write.options": (_STEPS.write_lance("out.lance").options, {}),
}
#: A value of each keyword that no other has; the rest are given a text.
_VALUES: Final[Mapping[str, Any]] = {
    "arguments": {"a": 1},
    "batch_format": "pandas",
    "checkpoint": {"interval": "7s"},
    "code": ("m",),
    "driver": {"cores": 7},
    "executor": {"cores": 7},
    "memo": True,
    "mode": "upsert",
    "options": {"a": "b"},
    "partition_by": [("a", "day")],
    "quarantine": {"max_rows": 7},
    "rate_limit": {"calls": 7, "per": "1s"},
    "reset": {"stages": ("s",), "nonce": "n"},
    "retry": 7,
    "snapshot_properties": {"a": "b"},
    "spark_conf": {"a": "b"},
    "stream": {"output_mode": "update"},
    "trigger": {"every": "7s"},
    "types": {"a": "int64"},
    "vectors": {"v": 7},
}
#: Where a file is looked for, and no field.
_NO_FIELDS: Final = {"settings"}


def calls() -> list[tuple[str, str]]:
    """Return each call with each of its keywords."""
    parameters = [(call, one) for call in CALLS for one in inspect.signature(_function(call)).parameters]
    return [(call, one) for call, one in parameters if one not in {"self", "rows", *_NO_FIELDS}]


def document(call: str, /, **more: Any) -> dict[str, Any]:
    function, needed = CALLS[call]
    made = function(**{**needed, **more})
    write: cw.Write = made.write_lance("out.lance") if isinstance(made, Rows) else made
    assert isinstance(write.manifest, Mapping)
    return dict(write.manifest)


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Give the place and the text of each value; items of lists, and of mappings of the user's, are one place."""
    if isinstance(value, Mapping) and value:
        for name, one in value.items():
            yield from leaves(one, f"{place}.{name}".lstrip("."))
    elif isinstance(value, list | tuple) and value:
        for one in value:
            yield from leaves(one, f"{place}[]")
    else:
        yield place, repr(value)


def set_by(call: str, keyword: str) -> set[str]:
    """Return the fields that a keyword changes."""
    value = _VALUES.get(keyword, "a7")
    if keyword == "checkpoint" and call.startswith("Rows.write"):
        value = "elsewhere"
    elif keyword == "checkpoint" and call == "Rows.stage":
        value = False
    elif keyword == "code" and call == "Write.options":
        value = {"path": "a7"}
    elif keyword == "stream":
        return {place for place, _ in set(leaves(document(call, keys=None, stream=value))) - set(leaves(document(call)))}
    return {place for place, _ in set(leaves(document(call, **{keyword: value}))) - set(leaves(document(call)))}


def python_page() -> str:
    """Return the page: what the package says of itself, and a table for each call."""
    lines = ["# Python", "", "```text", inspect.cleandoc(cw.__doc__ or ""), "```"]
    for call in CALLS:
        lines += ["", f"## {call}", "", inspect.getdoc(_function(call)) or "", "", "| keyword | sets |", "|---|---|"]
        for keyword in (keyword for one, keyword in calls() if one == call):
            places = ", ".join(f"`{place.removeprefix('spec.')}`" for place in sorted(set_by(call, keyword)))
            lines.append(f"| `{keyword}` | {places} |")
    return "\n".join([*lines, ""])


def _function(call: str) -> Callable[..., Any]:
    owner, _, name = call.rpartition(".")
    function: Callable[..., Any] = getattr(getattr(cw, owner) if owner else cw, name)
    return function
