"""What a manifest says of a Lance dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import Field, PrivateAttr

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.rules import Rule, exactly_one_of, is_given, text
from checkpoint_protocol.manifest.sections import Section, Uri, is_absent
from checkpoint_protocol.tables import Mode

#: In a tag: the number of the epoch.
EPOCH_VARIABLE: Final = "{epoch}"
#: What Lance takes as the name of a tag, with the variable, but for one ending (below).
_TAG: Final = r"^([0-9A-Za-z_-]|\{epoch\})+(\.([0-9A-Za-z_-]|\{epoch\})+)*$"
#: The names of child namespaces, and that of the table.
_TABLE: Final = r"^[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*$"
#: The storage versions that keep blobs in the data files themselves.
BLOB_VERSIONS: Final = ("2.0", "2.1")


class TableName(NamedTuple):
    """A table of a namespace that the settings name."""

    namespace: str
    table: str

    def __str__(self) -> str:
        return f"{self.table} of the namespace {self.namespace!r}"


class LanceDatasetPlace(Section):
    """A dataset at a URI, or the table of a namespace that leads to one."""

    kind: ClassVar[str] = "lance"
    #: The reason that is said of a table that a namespace does not know.
    missing: ClassVar[str] = reasons.TABLE_MISSING

    uri: Uri | None = Field(default=None, exclude_if=is_absent, description="The URI of the dataset, e.g. s3://bucket/name.lance")
    namespace: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None, exclude_if=is_absent, description="Instead of uri: the name of a Lance namespace in the settings."
    )
    table: Annotated[str, Field(pattern=_TABLE, max_length=512)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="With namespace: the table in it. Dots separate the names of child namespaces, e.g. raw.events",
    )
    #: Of a place that a namespace was asked for: the name that led to its URI. Records have the URI only.
    _led_by: TableName | None = PrivateAttr(default=None)

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one_of("uri", "namespace"),
        Rule(
            f"{is_given('namespace')} == {is_given('table')}",
            "namespace and table are given together; name both, or a uri instead",
            "table",
        ),
        Rule(
            f"!{is_given('uri')} || !self.uri.contains('://') || !self.uri.contains('%')",
            "Lance takes %20 and the like in a URI for other characters; use a name without %",
            "uri",
        ),
    )

    @property
    def name(self) -> TableName | None:
        """The table that is named, or that has led to the URI; None where the manifest has the URI."""
        if self.namespace is None or self.table is None:
            return self._led_by
        return TableName(self.namespace, self.table)

    @property
    def location(self) -> str:
        """The URI. NeedsChange if a namespace has not been asked for it, or has said that the table is missing."""
        if self.uri is None:
            raise NeedsChange(*self.why_missing)
        return self.uri

    @property
    def why_missing(self) -> tuple[str, str]:
        """Why a table that its namespace does not know cannot be used: the reason, and the message."""
        way_out = "make it (sink.create makes that of a sink), or correct its name"
        return self.missing, f"there is no Lance table {self.name}; {way_out}"

    def led_to(self, uri: str) -> Self:
        """Return the same place, known by the URI that a namespace has given for it."""
        led = self.model_copy(update={"uri": uri, "namespace": None, "table": None})
        led._led_by = self.name
        return led

    @property
    def title(self) -> str:
        return f"the Lance dataset {self.uri or self.name}"

    @property
    def uris(self) -> Mapping[str, str]:
        return {"uri": self.uri} if self.uri is not None else {}

    def with_uris(self, change: Callable[[str], str]) -> Self:
        return self if self.uri is None else self.model_copy(update={"uri": change(self.uri)})


class VectorColumn(Section):
    """A column of vectors."""

    dimension: int = Field(
        ge=1, le=1 << 20, description="How many numbers each vector has. A row whose list has another length fails."
    )
    type: Literal["float16", "float32", "float64", "int8", "uint8"] = Field(
        default="float32", description="The type of the numbers."
    )


class LanceLayout(Section):
    """How a dataset stores its columns, where it, or they, are made by the write."""

    data_storage_version: Annotated[str, Field(pattern=r"^2\.[012]$", max_length=8)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="The storage version of the data files: 2.0, 2.1 or 2.2. Default: the one that the installed Lance uses "
        "for new datasets.",
    )
    enable_stable_row_ids: bool = Field(
        default=False, description="Rows keep their ids (_rowid) when the dataset is compacted. This cannot be set later."
    )
    blob_columns: tuple[Annotated[str, Field(min_length=1, max_length=512)], ...] = Field(
        default=(),
        max_length=64,
        description="Columns of bytes that are stored as blobs, which readers take one by one (take_blobs). Needs "
        f"dataStorageVersion {' or '.join(BLOB_VERSIONS)}.",
    )
    vector_columns: dict[str, VectorColumn] = Field(
        default_factory=dict,
        max_length=64,
        description="Columns of lists of numbers that are stored as vectors, which are lists of a fixed size.",
    )

    rules: ClassVar = (
        Rule(
            f"self.blobColumns.size() == 0 || ({is_given('dataStorageVersion')} && self.dataStorageVersion in "
            f"[{', '.join(text(version) for version in BLOB_VERSIONS)}])",
            f"blobColumns needs dataStorageVersion {' or '.join(BLOB_VERSIONS)}: later ones put large values into objects "
            "of their own, which seals do not name",
            "blobColumns",
        ),
    )


class LanceSink(LanceDatasetPlace):
    """A Lance dataset."""

    committed_by: ClassVar[str] = "checkpoint_commit.lance.sink"
    modes: ClassVar[tuple[Mode, ...]] = ("Append", "OverwriteAll", "OverwriteWhere", "Upsert", "AddColumns")
    has_audit: ClassVar[bool] = False
    editable: ClassVar[frozenset[str]] = frozenset({"tag", "layout"})

    tag: Annotated[str, Field(pattern=_TAG, max_length=256)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="The version that the commit creates gets this tag, right after the commit. {epoch} is replaced by the "
        "number of the epoch, which is 1 for the first run. If the tag exists already, the write stops.",
    )
    layout: LanceLayout | None = Field(
        default=None,
        exclude_if=is_absent,
        description="With sink.create: how the new dataset stores its columns, e.g. which are vectors. The fields are named as "
        "in pylance.",
    )

    rules: ClassVar = (
        *LanceDatasetPlace.rules,
        Rule(
            f"!{is_given('tag')} || !self.tag.endsWith('.lock')",
            "Lance takes no tag that ends with .lock; take another name",
            "tag",
        ),
    )
