"""Rules of sources: what goes together, and which fields are fixed once rows are sealed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from checkpoint_operator.crd.rules.cel import NO_ESCAPES, Rule, count_of_given, exactly_one_of, has_same, is_given, is_same_table
from checkpoint_protocol.manifest.sources import kafka_source, source

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
    "lance": (("uri",), ("version",)),
    "kafka": (("startingOffsets", "format", "metadata"), ("topics", "pattern")),
}
_FIXED_CSV_FIELDS: Final = ("header", "multiLine", "escape")


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
        same = f"{now} == {before}" if fields is None else has_same(now, before, *fields)
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


def _is_named_once(fmt: str, *fields: str) -> str:
    """Say in CEL that no table is there twice in a union."""
    same = is_same_table(fmt, "one", "other", *fields)
    return f"self.union.all(one, self.union.filter(other, {same}).size() <= 1)"


_CEL_VARIABLE: Final = source.VARIABLE_PATTERN.replace("\\", "\\\\")

#: Of the whole object.
FIXED_SOURCE: Final = (
    *(_source_is_fixed(name) for name in _SOURCES),
    *(_optional_is_fixed(field) for field in ("columns", "where")),
)

SOURCE_RULES: Final[Mapping[type[BaseModel], tuple[Rule, ...]]] = {
    source.Source: (
        exactly_one_of(*_SOURCES),
        Rule(
            f"!{is_given('where')} || !({is_given('spark')} || {is_given('program')})",
            "where does not go with spark and program; say it in sql, or in the program",
            "where",
        ),
        Rule(
            f"!{is_given('columns')} || !{is_given('program')}",
            "columns do not go with program: it selects by itself",
            "columns",
        ),
        Rule(
            f"!{is_given('program')} || !{is_given('stream', 'self.program')} || "
            f"{is_given('checkpointVolume', 'self.program.stream')}",
            "in a cluster Spark needs a volume for its own checkpoint of a stream; add source.program.stream.checkpointVolume, "
            "with the claimName of a PersistentVolumeClaim",
            "program.stream.checkpointVolume",
        ),
        Rule(
            f"!{is_given('union')} || ({_is_named_once('iceberg', 'catalog', 'table')} && {_is_named_once('lance', 'uri')})",
            "a table is named twice, so that its rows would come twice; name it once",
            "union",
        ),
    ),
    source.UnionMember: (exactly_one_of(*_IN_UNIONS),),
    source.FilesSource: (
        Rule(f"!{is_given('csv')} || self.format == 'csv'", "csv belongs to format: csv; leave it out", "csv"),
        Rule(
            "self.format in ['csv', 'json'] || self.partitions == 'Auto' || self.types.size() == 0",
            "types belong to CSV and JSON: Parquet files have types of their own, and so have the columns of binary files; "
            "leave them out, or cast in a step",
            "types",
        ),
        Rule(
            "self.format in ['csv', 'json'] || self.compression == 'Auto'",
            "compression belongs to CSV and JSON: a Parquet file says how it is compressed, and the content of binary files "
            "is taken as it is; leave it out",
            "compression",
        ),
    ),
    source.ProgramSource: (exactly_one_of("keyColumns", "stream"),),
    source.SparkSource: (
        exactly_one_of("format", "table"),
        Rule(
            f"!{is_given('table')} || self.paths.size() == 0",
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
        Rule(f"{count_of_given('snapshotId', 'branch')} <= 1", "at most one of snapshotId and branch is expected"),
    ),
    source.LanceSource: (NO_ESCAPES,),
    kafka_source.KafkaSource: (
        exactly_one_of("topics", "pattern"),
        Rule(
            f"!{is_given('topics')} || self.topics.all(one, self.topics.filter(other, one == other).size() <= 1)",
            "a topic is named twice, so that its rows would come twice; name it once",
            "topics",
        ),
        Rule(
            "self.format == 'json' || self.types.size() == 0",
            "types belong to format: json; leave them out, or cast in a step",
            "types",
        ),
        Rule(
            "self.format == 'json' || self.metadata.size() == 0",
            "metadata belongs to format: json: raw has these columns; leave it out",
            "metadata",
        ),
    ),
}
