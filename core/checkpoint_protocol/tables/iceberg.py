"""What a manifest says of an Iceberg table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Final, Self

from pydantic import Field

from checkpoint_protocol.manifest.rules import Rule, is_given, none_is, text
from checkpoint_protocol.manifest.sections import Section, is_absent
from checkpoint_protocol.tables import Mode

#: The branch that each table has.
MAIN_BRANCH: Final = "main"
#: What the names of the branches begin with that hold what is audited; the uid of a write follows.
AUDIT_BRANCH_PREFIX: Final = "cw-audit-"
#: In a tag: the number of the epoch.
EPOCH_VARIABLE: Final = "{epoch}"
#: What the summary of a snapshot says by itself: the key of the commit, Iceberg's counts, what Iceberg goes by.
RESERVED_SUMMARY: Final = (
    r"^(checkpointed-write\..*|operation|(added|deleted|removed|total)-.*|changed-partition-count|partition-summaries-included|"
    r"partitions\..*|manifests-(created|kept|replaced)|entries-processed|replace-partitions|wap\.id|published-wap-id|"
    r"source-snapshot-id)$"
)


class IcebergTableName(Section):
    """A table of a catalog."""

    kind: ClassVar[str] = "iceberg"

    catalog: str = Field(
        min_length=1, max_length=128, description="The name of a catalog in the operator's (or runner's) settings."
    )
    table: str = Field(
        pattern=r"^[^.]+(\.[^.]+)+$", max_length=512, description="The name of the table in the catalog, as namespace.table."
    )

    @property
    def title(self) -> str:
        return f"the Iceberg table {self.catalog}.{self.table}"

    @property
    def uris(self) -> Mapping[str, str]:
        return {}

    def with_uris(self, change: Callable[[str], str]) -> Self:
        return self


class IcebergSink(IcebergTableName):
    """An Iceberg table."""

    committed_by: ClassVar[str] = "checkpoint_commit.iceberg.sink"
    modes: ClassVar[tuple[Mode, ...]] = ("Append", "OverwriteAll", "OverwriteWhere", "OverwritePartitions", "Upsert")
    has_audit: ClassVar[bool] = True
    editable: ClassVar[frozenset[str]] = frozenset({"tag", "snapshot_properties"})

    branch: str = Field(
        default=MAIN_BRANCH,
        min_length=1,
        max_length=256,
        description="The branch of the table that the rows go to. If it does not exist, the commit creates it from the head "
        "of main.",
    )
    tag: Annotated[str, Field(pattern=r"^([^{}]|\{epoch\})+$", max_length=256)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="The commit puts this tag on its snapshot. {epoch} is replaced by the number of the epoch, which is 1 for "
        "the first run. If the tag exists already, the write stops.",
    )
    snapshot_properties: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict,
        max_length=64,
        description="Properties that the commit adds to the summary of its snapshot, besides the key of the commit and "
        "Iceberg's counts.",
    )

    rules: ClassVar = (
        Rule(f"!{is_given('tag')} || self.tag != self.branch", "tag and branch are one name; give the tag another", "tag"),
        *(
            Rule(
                f"!{is_given(field)} || !self.{field}.startsWith({text(AUDIT_BRANCH_PREFIX)})",
                f"names that begin with {AUDIT_BRANCH_PREFIX} are those of audits; take another",
                field,
            )
            for field in ("branch", "tag")
        ),
        Rule(
            f"!{is_given('tag')} || self.tag != '{MAIN_BRANCH}'",
            "main is a branch of each table; give the tag another name",
            "tag",
        ),
        none_is(
            f"one == '' || one.matches({text(RESERVED_SUMMARY)})",
            "self.snapshotProperties",
            "'{}' is what Iceberg or the commit says by itself; take another name",
            "snapshotProperties",
        ),
    )


def title_of(catalog: str, table: str, branch: str) -> str:
    """Name what a write goes to, for people: the table, with the branch where it is not main."""
    return f"{catalog}.{table}" if branch == MAIN_BRANCH else f"{catalog}.{table}@{branch}"
