"""The CEL rules of the CRD: what the models' validators say, and what may not change. The API server enforces them.

A table by model. Paths in the rules are relative to the model's section; `message` is what kubectl prints. Rules that look at
`oldSelf` are checked at updates only. tests/contract/kubernetes/test_crd_on_a_real_api_server.py holds them against the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from checkpoint_operator import status_model
from checkpoint_protocol import manifest, sink, source, spark_properties, steps, workloads


@dataclass(frozen=True, slots=True)
class Rule:
    """One x-kubernetes-validations entry. `field` is the path that the message is shown with, from the rule's section."""

    rule: str
    message: str
    field: str | None = None

    def as_schema(self) -> dict[str, str]:
        schema = {"rule": self.rule, "message": self.message}
        if self.field is not None:
            schema["fieldPath"] = f".{self.field}"
        return schema


def _text(expression: str) -> str:
    """Return an expression as a text of CEL."""
    escaped = expression.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _is_given(field: str, owner: str = "self") -> str:
    # A manifest may say null where a field is optional; that means absent. dyn, as only objects can be compared with null.
    return f"(has({owner}.{field}) && dyn({owner}.{field}) != null)"


def _count_of_given(*fields: str) -> str:
    return f"[{', '.join(_is_given(field) for field in fields)}].filter(given, given).size()"


def _exactly_one_of(*fields: str) -> Rule:
    return Rule(f"{_count_of_given(*fields)} == 1", f"exactly one of {', '.join(fields[:-1])} and {fields[-1]} is expected")


def _never_changes(field: str, what: str, *, optional: bool = False) -> Rule:
    """Return the rule that a field of a write is not changed, added or removed.

    On the parent, as a rule on the field itself is passed over where the field is added or removed.
    """
    message = f"{what} cannot be changed: it is what this write is; give a new write a new name"
    if not optional:  # required, or with a default: always there
        return Rule(f"self.{field} == oldSelf.{field}", message, field)
    before, now = _is_given(field, "oldSelf"), _is_given(field)
    return Rule(f"{now} == {before} && (!{now} || self.{field} == oldSelf.{field})", message, field)


#: What the status says of a write whose source is fixed: rows of it are sealed. The status may lag; the operator looks itself.
_IS_SEALED: Final = (
    "has(self.status) && ((has(self.status.rowsSealed) && self.status.rowsSealed > 0) || "
    "(has(self.status.epoch) && self.status.epoch > 1) || has(self.status.commit))"
)
_SOURCES: Final = ("files", "iceberg", "lance", "spark", "program", "union")
#: What may be edited while a write runs: how text is read, and into splits of which size rows are cut.
_FIXED_FIELDS: Final = {
    "files": (("format", "paths", "compression"), ()),
    "iceberg": (("catalog", "table"), ("snapshotId", "branch")),
    "lance": (("uri",), ("version",)),
}
_FIXED_CSV_FIELDS: Final = ("header", "multiLine", "escape")


def _unless_sealed(rule: str, what: str, field: str) -> Rule:
    """Return the rule on the whole object, whose status says whether rows of the source are sealed."""
    message = f"{what} cannot be changed: it is what this write is; give a new write a new name (rows of it are sealed)"
    return Rule(f"!({_IS_SEALED}) || ({rule})", message, field)


def _source_is_fixed(name: str) -> Rule:
    """Return the rule that a source is neither added nor removed nor, but for what may be edited, changed."""
    return _unless_sealed(_is_as_before(name, "self.spec.source", "oldSelf.spec.source"), f"source.{name}", f"spec.source.{name}")


def _is_as_before(name: str, owner: str, old_owner: str) -> str:
    now, before = f"{owner}.{name}", f"{old_owner}.{name}"
    is_now, was_before = _is_given(name, owner), _is_given(name, old_owner)
    fields = _FIXED_FIELDS.get(name)
    if name == "union":
        same = f"{now}.size() == {before}.size() && {list(range(source.MOST_MEMBERS))}.all(i, i >= {now}.size() || ("
        same += " && ".join(_is_as_before(kind, f"{now}[i]", f"{before}[i]") for kind in _FIXED_FIELDS) + "))"
    else:
        same = f"{now} == {before}" if fields is None else _has_same(now, before, *fields)
    if name == "files":
        same += f" && {_has_same_csv(now, before)}"
    return f"{is_now} == {was_before} && (!{is_now} || ({same}))"


def _has_same(now: str, before: str, required: tuple[str, ...], optional: tuple[str, ...]) -> str:
    parts = [f"{now}.{field} == {before}.{field}" for field in required]
    for field in optional:
        is_now, was_before = _is_given(field, now), _is_given(field, before)
        parts.append(f"{is_now} == {was_before} && (!{is_now} || {now}.{field} == {before}.{field})")
    return " && ".join(parts)


def _has_same_csv(now: str, before: str) -> str:
    """Absent means the defaults, which the API server fills in where there is a section."""
    is_now, was_before = _is_given("csv", now), _is_given("csv", before)
    defaults = {"header": "true", "multiLine": "false", "escape": "''"}
    return " && ".join(
        f"({is_now} ? {now}.csv.{field} : {defaults[field]}) == ({was_before} ? {before}.csv.{field} : {defaults[field]})"
        for field in _FIXED_CSV_FIELDS
    )


def _optional_is_fixed(field: str) -> Rule:
    is_now, was_before = _is_given(field, "self.spec.source"), _is_given(field, "oldSelf.spec.source")
    same = f"{is_now} == {was_before} && (!{is_now} || self.spec.source.{field} == oldSelf.spec.source.{field})"
    return _unless_sealed(same, f"source.{field}", f"spec.source.{field}")


_CEL_VARIABLE: Final = source.VARIABLE_PATTERN.replace("\\", "\\\\")


def _is_read_and_written(fmt: str, *fields: str) -> str:
    """Say in CEL that a table is the source, or a member of the union, and the sink."""
    in_union = f"self.source.union.exists(member, {_is_same_table(fmt, 'member', 'self.sink', *fields)})"
    of_union = f"{_is_given('union', 'self.source')} && {in_union}"
    return f"({_is_same_table(fmt, 'self.source', 'self.sink', *fields)}) || ({of_union})"


def _is_same_table(fmt: str, one: str, other: str, *fields: str) -> str:
    same = (f"{one}.{fmt}.{field} == {other}.{fmt}.{field}" for field in fields)
    return " && ".join([_is_given(fmt, one), _is_given(fmt, other), *same])


def _is_named_once(fmt: str, *fields: str) -> str:
    """Say in CEL that no table is there twice in a union."""
    same = _is_same_table(fmt, "one", "other", *fields)
    return f"self.union.all(one, self.union.filter(other, {same}).size() <= 1)"


_NO_ESCAPES: Final = Rule(
    "!self.uri.contains('://') || !self.uri.contains('%')",
    "Lance takes %20 and the like in a URI for other characters; use a name without %",
    "uri",
)

RULES: Final[Mapping[type[BaseModel], tuple[Rule, ...]]] = {
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
    source.Source: (
        _exactly_one_of(*_SOURCES),
        Rule(
            f"!{_is_given('where')} || !({_is_given('spark')} || {_is_given('program')})",
            "where does not go with spark and program; say it in sql, or in the program",
            "where",
        ),
        Rule(
            f"!{_is_given('columns')} || !{_is_given('program')}",
            "columns do not go with program: it selects by itself",
            "columns",
        ),
        Rule(
            f"!{_is_given('union')} || ({_is_named_once('iceberg', 'catalog', 'table')} && {_is_named_once('lance', 'uri')})",
            "a table is named twice, so that its rows would come twice; name it once",
            "union",
        ),
    ),
    source.UnionMember: (_exactly_one_of("files", "iceberg", "lance"),),
    source.FilesSource: (
        Rule(f"!{_is_given('csv')} || self.format == 'csv'", "csv belongs to format: csv; leave it out", "csv"),
        Rule(
            "self.format != 'parquet' || self.types.size() == 0",
            "types belong to CSV and JSON: Parquet files have types of their own; leave them out, or cast in a step",
            "types",
        ),
        Rule(
            "self.format != 'parquet' || self.compression == 'Auto'",
            "compression belongs to CSV and JSON: a Parquet file says how it is compressed; leave it out",
            "compression",
        ),
    ),
    source.SparkSource: (
        _exactly_one_of("format", "table"),
        Rule(
            f"!{_is_given('table')} || self.paths.size() == 0",
            "a table has no paths; leave them out, or name a format instead of the table",
            "paths",
        ),
        Rule(
            f"self.options.all(name, !{list(source.SECRET_WORDS)}.exists(word, name.lowerAscii().contains(word)) || "
            f"self.options[name].matches('^{_CEL_VARIABLE}$'))",
            "this option is a secret; say ${env:NAME}, a variable of the driver's environment",
            "options",
        ),
        Rule(
            "self.options.all(name, (!self.options[name].lowerAscii().contains('password=') || "
            "self.options[name].lowerAscii().contains('password=${env:')) && "
            "!self.options[name].matches('://[^/@:$]*:[^/@$]+@'))",
            "there is a password in an option; say ${env:NAME} in its place, a variable of the driver's environment",
            "options",
        ),
    ),
    source.IcebergSource: (
        Rule(f"{_count_of_given('snapshotId', 'branch')} <= 1", "at most one of snapshotId and branch is expected"),
    ),
    source.LanceSource: (_NO_ESCAPES,),
    workloads.Code: (
        Rule(f"{_count_of_given('path', 'configMap', 'uri')} <= 1", "at most one of path, configMap and uri is expected"),
    ),
    sink.Sink: (
        Rule(
            f"{_count_of_given(*sink.SINKS)} == 1",
            f"exactly one of {', '.join(sink.SINKS[:-1])} and {sink.SINKS[-1]} is expected",
        ),
        Rule(f"self.partitionBy.size() == 0 || {_is_given('iceberg')}", "partitionBy applies to iceberg only", "partitionBy"),
        Rule(
            "self.partitionBy.size() == 0 || self.create",
            "partitionBy needs create: true (an existing table keeps its own partitioning)",
            "partitionBy",
        ),
        Rule(f"!self.create || !{_is_given('none')}", "create does not apply to none", "create"),
        *(_never_changes(kind, f"sink.{kind}", optional=True) for kind in sink.SINKS),
        _never_changes("mode", "sink.mode"),
    ),
    sink.LanceSink: (_NO_ESCAPES,),
    steps.Step: (
        Rule(
            f"!{_is_given('batchSize')} || self.input != 'row'",
            "a row step is given one row at a time; see concurrency",
            "batchSize",
        ),
        Rule(
            f"!{_is_given('memo')} || !self.memo || self.input == 'row'",
            "batches are not the same in the next try, so that their results cannot be kept; a row step can have it",
            "memo",
        ),
    ),
    manifest.CheckpointSpec: (_never_changes("uri", "checkpoint.uri"),),
    manifest.Spec: (
        Rule(
            "self.sparkConf.all(name, name.startsWith('spark.'))",
            "properties of Spark start with 'spark.'",
            "sparkConf",
        ),
        Rule(
            f"self.sparkConf.all(name, !name.matches({_text(spark_properties.SECRET_NAME)}) || "
            f"name.matches({_text(spark_properties.NO_SECRET_NAME)}) || "
            f"self.sparkConf[name].matches({_text(spark_properties.SECRET_VALUE)}))",
            "this property is a secret; say ${env:NAME}, a variable of the driver's environment",
            "sparkConf",
        ),
        Rule(
            f"self.sparkConf.all(name, !self.sparkConf[name].matches({_text(spark_properties.HIDDEN_SECRET)}))",
            "there is a password in a property; say ${env:NAME} in its place, a variable of the driver's environment",
            "sparkConf",
        ),
        *(
            Rule(
                f"self.sparkConf.all(name, !name.matches({_text(refused.pattern)}))",
                f"this property reaches beyond what a manifest says of its pods: {refused.way_out}",
                "sparkConf",
            )
            for refused in spark_properties.REFUSED
        ),
        Rule(
            f"!({_is_read_and_written('iceberg', 'catalog', 'table')}) && !({_is_read_and_written('lance', 'uri')})",
            "source and sink are one table: what a run appends would be the next one's input; use another table",
        ),
        Rule(
            # Whole milliseconds: of less than one, the model is the stricter.
            f"!{_is_given('progressDeadlineSeconds')} || self.progressDeadlineSeconds * 1000 >= "
            "duration(self.checkpoint.interval).getMilliseconds() * "
            "(quantity(string(self.checkpoint.minimumBytes)).compareTo(quantity('0')) == 0 ? 2 : 20)",
            "20 times checkpoint.interval is the least (2 times where minimumBytes is 0): a seal may take ten intervals, and "
            "attempts at work would be given up; leave progressDeadlineSeconds out, or raise it, or lower the interval",
            "progressDeadlineSeconds",
        ),
    ),
}

#: Lists whose items are told apart by a field, so that server-side apply merges them.
LIST_KEYS: Final[Mapping[type[BaseModel], str]] = {status_model.Condition: "type"}
