"""The rules that the CRD has beside those of the models: what may not change, and what holds in a cluster only.

A table by model. Paths in the rules are relative to the model's section; `message` is what kubectl prints. Rules that look at
`oldSelf` are checked at updates only. tests/contract/kubernetes/test_crd_on_a_real_api_server.py tries all on an API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from checkpoint_operator.crd import status_model
from checkpoint_protocol.manifest import sink
from checkpoint_protocol.manifest import spec as manifest
from checkpoint_protocol.manifest.rules import Rule, is_given
from checkpoint_protocol.manifest.sections import Section
from checkpoint_protocol.manifest.sources import source
from checkpoint_protocol.records.formats import union as formats

#: What the status says of a write whose source is fixed: rows of it are sealed. The status may lag; the operator looks itself.
_IS_SEALED: Final = (
    "has(self.status) && ((has(self.status.rowsSealed) && self.status.rowsSealed > 0) || "
    "(has(self.status.epoch) && self.status.epoch > 1) || has(self.status.commit))"
)
_SOURCES: Final = ("files", "iceberg", "lance", "kafka", "spark", "program", "union")
_IN_UNIONS: Final = ("files", "iceberg", "lance")
#: What may be edited while a write runs: how text is read, and into splits of which size rows are cut.
_FIXED_FIELDS: Final = {
    "files": (("format", "paths", "compression", "partitions"), ()),
    "iceberg": (("catalog", "table"), ("snapshotId", "branch")),
    "lance": ((), ("uri", "namespace", "table", "version")),
    "kafka": (("startingOffsets", "format", "metadata"), ("topics", "pattern")),
}
_FIXED_CSV_FIELDS: Final = ("header", "multiLine", "escape")


def _never_changes(field: str, what: str, *, optional: bool = False) -> Rule:
    """Return the rule that a field of a write is not changed, added or removed.

    On the parent, as a rule on the field itself is passed over where the field is added or removed.
    """
    message = f"{what} cannot be changed, because it identifies the write; create a new write under a new name"
    if not optional:  # required, or with a default: always there
        return Rule(f"self.{field} == oldSelf.{field}", message, field)
    before, now = is_given(field, "oldSelf"), is_given(field)
    return Rule(f"{now} == {before} && (!{now} || self.{field} == oldSelf.{field})", message, field)


def _has_same(now: str, before: str, required: tuple[str, ...], optional: tuple[str, ...]) -> str:
    parts = [f"{now}.{field} == {before}.{field}" for field in required]
    for field in optional:
        is_now, was_before = is_given(field, now), is_given(field, before)
        parts.append(f"{is_now} == {was_before} && (!{is_now} || {now}.{field} == {before}.{field})")
    return " && ".join(parts)


def _unless_sealed(rule: str, what: str, field: str) -> Rule:
    """Return the rule on the whole object, whose status says whether rows of the source are sealed."""
    message = (
        f"{what} cannot be changed, because it identifies the write; create a new write under a new name (rows of this one are "
        "sealed)"
    )
    return Rule(f"!({_IS_SEALED}) || ({rule})", message, field)


def _source_is_fixed(name: str) -> Rule:
    """Return the rule that a source is neither added nor removed nor, but for what may be edited, changed."""
    return _unless_sealed(_is_as_before(name, "self.spec.source", "oldSelf.spec.source"), f"source.{name}", f"spec.source.{name}")


def _is_as_before(name: str, owner: str, old_owner: str) -> str:
    now, before = f"{owner}.{name}", f"{old_owner}.{name}"
    is_now, was_before = is_given(name, owner), is_given(name, old_owner)
    fields = _FIXED_FIELDS.get(name)
    if name == "union":
        same = f"{now}.size() == {before}.size() && {list(range(source.MOST_MEMBERS))}.all(i, i >= {now}.size() || ("
        same += " && ".join(_is_as_before(kind, f"{now}[i]", f"{before}[i]") for kind in _IN_UNIONS) + "))"
    else:
        same = f"{now} == {before}" if fields is None else _has_same(now, before, *fields)
    if name == "files":
        same += f" && {_has_same_csv(now, before)}"
    return f"{is_now} == {was_before} && (!{is_now} || ({same}))"


def _has_same_csv(now: str, before: str) -> str:
    """Absent means the defaults, which the API server fills in where there is a section."""
    is_now, was_before = is_given("csv", now), is_given("csv", before)
    defaults = {"header": "true", "multiLine": "false", "escape": "''"}
    return " && ".join(
        f"({is_now} ? {now}.csv.{field} : {defaults[field]}) == ({was_before} ? {before}.csv.{field} : {defaults[field]})"
        for field in _FIXED_CSV_FIELDS
    )


def _optional_is_fixed(field: str) -> Rule:
    is_now, was_before = is_given(field, "self.spec.source"), is_given(field, "oldSelf.spec.source")
    same = f"{is_now} == {was_before} && (!{is_now} || self.spec.source.{field} == oldSelf.spec.source.{field})"
    return _unless_sealed(same, f"source.{field}", f"spec.source.{field}")


def _sink_is_fixed(kind: type[formats.SinkKind]) -> Rule:
    """Return the rule that a sink is neither added nor removed nor, but for what may be edited, changed."""
    name = kind.kind
    if not kind.editable:
        return _never_changes(name, f"sink.{name}", optional=True)
    fields = {to_camel(name): field for name, field in kind.model_fields.items() if name not in kind.editable}
    fixed = tuple(fields)
    optional = tuple(name for name, field in fields.items() if field.default is None)
    message = (
        f"{', '.join(fixed)} of sink.{name} cannot be changed, because it identifies the write; create a new write under a new "
        "name"
    )
    before, now = is_given(name, "oldSelf"), is_given(name)
    required = tuple(name for name in fixed if name not in optional)
    same = _has_same(f"self.{name}", f"oldSelf.{name}", required, optional)
    return Rule(f"{now} == {before} && (!{now} || ({same}))", message, name)


_ADDED: Final[Mapping[type[BaseModel], tuple[Rule, ...]]] = {
    manifest.CheckpointedWrite: (
        Rule(
            f"self.metadata.name.size() <= {manifest.MAX_NAME_LENGTH}",
            f"the name may have {manifest.MAX_NAME_LENGTH} characters at most: the names of its pods begin with it",
        ),
        Rule(
            "!self.metadata.name.contains('.')",
            "the name may have lower case letters, digits and '-' only: the names of its pods begin with it",
        ),
        *(_source_is_fixed(name) for name in _SOURCES),
        *(_optional_is_fixed(field) for field in ("columns", "where")),
    ),
    manifest.CheckpointSpec: (_never_changes("uri", "checkpoint.uri"),),
    source.Source: (
        Rule(
            f"!{is_given('program')} || !{is_given('stream', 'self.program')} || "
            f"{is_given('checkpointVolume', 'self.program.stream')}",
            "in a cluster Spark needs a volume for its own checkpoint of a stream; add source.program.stream.checkpointVolume, "
            "with the claimName of a PersistentVolumeClaim",
            "program.stream.checkpointVolume",
        ),
    ),
    sink.Sink: (
        *(_sink_is_fixed(kind) for kind in get_args(formats.SinkKind)),
        _never_changes("mode", "sink.mode"),
        _never_changes("where", "sink.where", optional=True),
        _never_changes("upsertKeys", "sink.upsertKeys", optional=True),
        _never_changes("whenMatched", "sink.whenMatched"),
        _never_changes("columns", "sink.columns"),
        _never_changes("only", "sink.only"),
    ),
}


def rules_of(model: type[BaseModel]) -> tuple[Rule, ...]:
    """Return the rules of the CRD for a section."""
    return (*(model.rules if issubclass(model, Section) else ()), *_ADDED.get(model, ()))


#: Lists whose items are told apart by a field, so that server-side apply merges them.
LIST_KEYS: Final[Mapping[type[BaseModel], str]] = {status_model.Condition: "type"}
