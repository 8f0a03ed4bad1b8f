"""Rules of sinks: which settings go with which mode and format, and which fields are fixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from checkpoint_operator.crd.rules.cel import NO_ESCAPES, Rule, count_of_given, has_same, is_given, never_changes, text
from checkpoint_protocol.manifest import sink
from checkpoint_protocol.records.formats import union as formats
from checkpoint_protocol.tables import OVERWRITING, Mode, iceberg, lance


def _sink_is_fixed(kind: type[formats.SinkKind]) -> Rule:
    """Return the rule that a sink is neither added nor removed nor, but for what may be edited, changed."""
    name = kind.kind
    if not kind.editable:
        return never_changes(name, f"sink.{name}", optional=True)
    fixed = tuple(to_camel(field) for field in kind.model_fields if field not in kind.editable)
    message = (
        f"{', '.join(fixed)} of sink.{name} cannot be changed, because it identifies the write; create a new write under a new "
        "name"
    )
    before, now = is_given(name, "oldSelf"), is_given(name)
    same = has_same(f"self.{name}", f"oldSelf.{name}", fixed, ())
    return Rule(f"{now} == {before} && (!{now} || ({same}))", message, name)


SINK_RULES: Final[Mapping[type[BaseModel], tuple[Rule, ...]]] = {
    sink.Sink: (
        Rule(
            f"{count_of_given(*sink.SINKS)} == 1",
            f"exactly one of {', '.join(sink.SINKS[:-1])} and {sink.SINKS[-1]} is expected",
        ),
        Rule(f"self.partitionBy.size() == 0 || {is_given('iceberg')}", "partitionBy applies to iceberg only", "partitionBy"),
        Rule(
            "self.partitionBy.size() == 0 || self.create",
            "partitionBy needs create: true (an existing table keeps its own partitioning)",
            "partitionBy",
        ),
        Rule(
            f"!{is_given('lance')} || !{is_given('layout', 'self.lance')} || self.create || self.mode == 'AddColumns'",
            "lance.layout needs create: true (an existing dataset stays as it was made)",
            "lance",
        ),
        Rule(f"!self.create || !{is_given('none')}", "create does not apply to none", "create"),
        *(
            Rule(
                f"!{is_given(kind)} || self.mode in [{', '.join(text(mode) for mode in modes)}]",
                f"this mode does not apply to {kind}, which has {', '.join(modes)}",
                "mode",
            )
            for kind, modes in sink.MODES.items()
            if len(modes) < len(get_args(Mode))
        ),
        Rule(
            f"{is_given('where')} == (self.mode == 'OverwriteWhere')",
            "where is expected with mode OverwriteWhere, and with no other",
            "where",
        ),
        Rule(
            f"self.onConcurrent == 'Fail' || self.mode in [{', '.join(text(mode) for mode in sorted(OVERWRITING))}]",
            f"onConcurrent applies to the modes {', '.join(sorted(OVERWRITING))}",
            "onConcurrent",
        ),
        Rule(
            f"{is_given('upsertKeys')} == (self.mode == 'Upsert')",
            "upsertKeys are expected with mode Upsert, and with no other",
            "upsertKeys",
        ),
        Rule(
            f"!{is_given('upsertKeys')} || self.upsertKeys.all(one, self.upsertKeys.filter(other, other == one).size() == 1)",
            "upsertKeys names a column twice",
            "upsertKeys",
        ),
        Rule("self.mode == 'Upsert' || self.whenMatched == 'Update'", "whenMatched applies to mode Upsert only", "whenMatched"),
        Rule("self.mode == 'Upsert' || self.onDuplicate == 'Fail'", "onDuplicate applies to mode Upsert only", "onDuplicate"),
        Rule(
            "self.onDuplicate == 'Fail' || self.whenMatched != 'Delete'",
            "onDuplicate does not apply to whenMatched: Delete: a key may be named any number of times",
            "onDuplicate",
        ),
        Rule(
            f"!{is_given('lance')} || (self.whenMatched != 'Ignore' && self.onDuplicate != 'Last')",
            "whenMatched: Ignore and onDuplicate: Last do not apply to lance, whose staged rows are committed as they are; use "
            "Update or Delete, and leave rows of one key out in the source or a step",
        ),
        Rule(
            f"{is_given('orderBy')} == (self.onDuplicate == 'Last')",
            "orderBy is expected with onDuplicate: Last, and with nothing else",
            "orderBy",
        ),
        Rule(
            "(self.columns.size() > 0) == (self.mode == 'AddColumns')",
            "columns are expected with mode AddColumns, and with no other",
            "columns",
        ),
        Rule(
            "self.columns.all(one, self.columns.filter(other, one == other).size() <= 1)",
            "a column is named twice; name it once",
            "columns",
        ),
        Rule("self.only == 'Null' || self.mode == 'AddColumns'", "only applies to mode AddColumns", "only"),
        Rule(
            f"self.mode != 'AddColumns' || !{is_given('lance')} || !{is_given('layout', 'self.lance')} || "
            f"(!{is_given('dataStorageVersion', 'self.lance.layout')} && !self.lance.layout.enableStableRowIds && "
            "self.lance.layout.blobColumns.size() == 0)",
            "of lance.layout, vectorColumns alone applies to mode AddColumns: the dataset is there",
            "lance",
        ),
        Rule(
            "!self.create || self.mode != 'AddColumns'",
            "create does not apply to mode AddColumns: the dataset that gets the columns is the source",
            "create",
        ),
        *(
            Rule(
                f"!{is_given('audit')} || !{is_given(kind)}",
                f"audit applies to {' and '.join(sink.AUDITED)}: {kind} has nothing that holds rows which readers do not see; "
                "check rows in a step",
                "audit",
            )
            for kind in sink.SINKS
            if kind not in sink.AUDITED
        ),
        *(_sink_is_fixed(kind) for kind in get_args(formats.SinkKind)),
        never_changes("mode", "sink.mode"),
        never_changes("where", "sink.where", optional=True),
        never_changes("upsertKeys", "sink.upsertKeys", optional=True),
        never_changes("whenMatched", "sink.whenMatched"),
        never_changes("columns", "sink.columns"),
        never_changes("only", "sink.only"),
    ),
    iceberg.IcebergSink: (
        Rule(f"!{is_given('tag')} || self.tag != self.branch", "tag and branch are one name; give the tag another", "tag"),
        *(
            Rule(
                f"!{is_given(field)} || !self.{field}.startsWith({text(iceberg.AUDIT_BRANCH_PREFIX)})",
                f"names that begin with {iceberg.AUDIT_BRANCH_PREFIX} are those of audits; take another",
                field,
            )
            for field in ("branch", "tag")
        ),
        Rule(f"!{is_given('tag')} || self.tag != 'main'", "main is a branch of each table; give the tag another name", "tag"),
        Rule(
            f"self.snapshotProperties.all(name, name != '' && !name.matches({text(iceberg.RESERVED_SUMMARY)}))",
            "this is what Iceberg or the commit says by itself; take another name",
            "snapshotProperties",
        ),
    ),
    lance.LanceSink: (
        NO_ESCAPES,
        Rule(
            f"!{is_given('tag')} || !self.tag.endsWith('.lock')",
            "Lance takes no tag that ends with .lock; take another name",
            "tag",
        ),
    ),
    lance.LanceLayout: (
        Rule(
            f"self.blobColumns.size() == 0 || ({is_given('dataStorageVersion')} && self.dataStorageVersion in "
            f"[{', '.join(text(version) for version in lance.BLOB_VERSIONS)}])",
            f"blobColumns needs dataStorageVersion {' or '.join(lance.BLOB_VERSIONS)}: later ones put large values into objects "
            "of their own, which seals do not name",
            "blobColumns",
        ),
    ),
}
