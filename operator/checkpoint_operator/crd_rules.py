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
from checkpoint_protocol import manifest, workloads


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


def _is_given(field: str, owner: str = "self") -> str:
    # A manifest may say null where a field is optional; that means absent. dyn, as only objects can be compared with null.
    return f"(has({owner}.{field}) && dyn({owner}.{field}) != null)"


def _count_of_given(*fields: str) -> str:
    return f"[{', '.join(_is_given(field) for field in fields)}].filter(given, given).size()"


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
_SOURCE_FIELDS: Final = ("format", "way", "readerOptions", "paths", "keyColumns")
_OPTIONAL_SOURCE_FIELDS: Final = ("table", "program", "sql", "iceberg", "lance", "where", "path", "columns")
_POSITION_OPTIONS: Final = ("header", "multiLine", "compression", "escape")


def _never_changes_once_sealed(field: str, *, optional: bool = False) -> Rule:
    """The same of a field of the source, once rows of it are sealed. On the whole object, whose status says that."""
    fixed = _never_changes(field, f"source.{field}", optional=optional)
    rule = fixed.rule.replace("oldSelf.", "oldSelf.spec.source.").replace("self.", "self.spec.source.")
    return Rule(f"!({_IS_SEALED}) || ({rule})", f"{fixed.message} (rows of it are sealed)", f"spec.source.{field}")


#: A source that only Spark can read, and one that goes over Spark for whatever reason: see manifest.Source.
_NEEDS_SPARK: Final = f"!(self.format in {list(manifest.SPLITS_FORMATS)}) || {_is_given('sql')} || self.readerOptions.size() > 0"
_OVER_SPARK: Final = f"self.way == 'DataFrame' || {_NEEDS_SPARK}"
_CEL_VARIABLE: Final = manifest.VARIABLE_PATTERN.replace("\\", "\\\\")


def _is_same_table(fmt: str, *fields: str) -> str:
    given = f"{_is_given(fmt, 'self.source')} && {_is_given(fmt, 'self.sink')}"
    return " && ".join([given, *(f"self.source.{fmt}.{field} == self.sink.{fmt}.{field}" for field in fields)])


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
        *(_never_changes_once_sealed(field) for field in _SOURCE_FIELDS),
        *(_never_changes_once_sealed(field, optional=True) for field in _OPTIONAL_SOURCE_FIELDS),
        *(_never_changes_once_sealed(f"options.{option}") for option in _POSITION_OPTIONS),
    ),
    manifest.Source: (
        Rule(
            f"{_OVER_SPARK} || {_count_of_given('path', 'iceberg', 'lance')} + (self.paths.size() > 0 ? 1 : 0) == 1",
            "exactly one of path, paths, iceberg and lance is expected",
        ),
        Rule(f"!({_is_given('path')} && self.paths.size() > 0)", "exactly one of path and paths is expected"),
        Rule(
            f"self.way != 'Splits' || !({_NEEDS_SPARK})", "only Spark reads this source; leave way out, or say DataFrame", "way"
        ),
        Rule(f"!({_OVER_SPARK}) || self.keyColumns.size() > 0", "keyColumns are needed, the columns that identify a row"),
        Rule(f"!({_OVER_SPARK}) || self.types.size() == 0", "types belong to the splits way; cast in sql or in a step", "types"),
        Rule(
            f"(self.format == '{manifest.TABLE_FORMAT}') == {_is_given('table')}",
            "format: table and the table's name in table belong together",
        ),
        Rule(
            f"(self.format == '{manifest.PROGRAM_FORMAT}') == {_is_given('program')}",
            "format: program and module:function in program belong together",
        ),
        Rule(
            f"!({_is_given('table')} || {_is_given('program')}) || !({_is_given('path')} || self.paths.size() > 0)",
            "format: table and format: program have no path",
        ),
        Rule(
            f"!{_is_given('program')} || !({_is_given('sql')} || self.readerOptions.size() > 0 || {_is_given('columns')})",
            "a program reads and selects by itself: sql, readerOptions and columns do not go with it",
        ),
        Rule(
            f"self.readerOptions.all(name, !{list(manifest.SECRET_WORDS)}.exists(word, name.lowerAscii().contains(word)) || "
            f"self.readerOptions[name].matches('^{_CEL_VARIABLE}$'))",
            "this option is a secret; say ${env:NAME}, a variable of the driver's environment",
            "readerOptions",
        ),
        Rule(
            "self.readerOptions.all(name, (!self.readerOptions[name].lowerAscii().contains('password=') || "
            "self.readerOptions[name].lowerAscii().contains('password=${env:')) && "
            "!self.readerOptions[name].matches('://[^/@:$]*:[^/@$]+@'))",
            "there is a password in an option; say ${env:NAME} in its place, a variable of the driver's environment",
            "readerOptions",
        ),
        Rule(
            f"(self.format == 'iceberg') == {_is_given('iceberg')} && (self.format == 'lance') == {_is_given('lance')}",
            "format iceberg goes with iceberg, lance with lance, and the others with path or paths",
            "format",
        ),
        Rule(
            f"!({_OVER_SPARK}) || !(self.format in {list(manifest.SPLITS_TABLES)})",
            "this format is read in splits; a table of one of Spark's catalogs is format: table",
            "format",
        ),
        Rule(f"!({_OVER_SPARK}) || !{_is_given('where')}", "where belongs to the splits way; say it in sql", "where"),
    ),
    manifest.IcebergSource: (
        Rule(f"{_count_of_given('snapshotId', 'branch')} <= 1", "at most one of snapshotId and branch is expected"),
    ),
    manifest.LanceSource: (_NO_ESCAPES,),
    workloads.Code: (
        Rule(f"{_count_of_given('path', 'configMap', 'uri')} <= 1", "at most one of path, configMap and uri is expected"),
    ),
    manifest.Sink: (
        Rule(f"{_count_of_given('iceberg', 'lance', 'none')} == 1", "exactly one of iceberg, lance and none is expected"),
        Rule("self.mode == 'append'", "this mode is not supported; supported: append", "mode"),
        Rule(f"self.partitionBy.size() == 0 || {_is_given('iceberg')}", "partitionBy applies to iceberg only", "partitionBy"),
        Rule(
            "self.partitionBy.size() == 0 || self.create",
            "partitionBy needs create: true (an existing table keeps its own partitioning)",
            "partitionBy",
        ),
        Rule(f"!self.create || !{_is_given('none')}", "create does not apply to none", "create"),
        _never_changes("iceberg", "sink.iceberg", optional=True),
        _never_changes("lance", "sink.lance", optional=True),
        _never_changes("none", "sink.none", optional=True),
        _never_changes("mode", "sink.mode"),
    ),
    manifest.LanceSink: (_NO_ESCAPES,),
    manifest.CheckpointSpec: (_never_changes("uri", "checkpoint.uri"),),
    manifest.Spec: (
        Rule(
            "self.sparkConf.all(name, name.startsWith('spark.'))",
            "properties of Spark start with 'spark.'",
            "sparkConf",
        ),
        Rule(
            f"!({_is_same_table('iceberg', 'catalog', 'table')}) && !({_is_same_table('lance', 'uri')})",
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
