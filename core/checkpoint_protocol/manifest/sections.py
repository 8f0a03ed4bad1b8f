"""What every section of a manifest has in common; and the section about rows that fail."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from checkpoint_protocol.manifest.problems import at_fields
from checkpoint_protocol.manifest.quantities import Share
from checkpoint_protocol.manifest.rules import Rule, broken
from checkpoint_protocol.places.uris import UriPattern

_DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LABEL_PATTERN: Final = f"^{_DNS_LABEL}$"
OBJECT_NAME_PATTERN: Final = rf"^{_DNS_LABEL}(\.{_DNS_LABEL})*$"
MAX_OBJECT_NAME_LENGTH: Final = 253

#: The name of a write or of a namespace: an RFC 1123 label.
Label = Annotated[str, Field(pattern=LABEL_PATTERN, max_length=MAX_OBJECT_NAME_LENGTH)]
#: The name of another object in the write's namespace: an RFC 1123 subdomain.
ObjectName = Annotated[str, Field(pattern=OBJECT_NAME_PATTERN, max_length=MAX_OBJECT_NAME_LENGTH)]
#: What Spark opens itself, by whatever file systems it has.
SparkPath = Annotated[str, Field(min_length=1, max_length=1024)]
#: What we open; the manifest refuses what `uris.py` does not know.
Uri = Annotated[str, Field(min_length=1, max_length=1024), UriPattern()]
#: Whole seconds, as Kubernetes' own Job has them. The upper bound is 68 years.
Seconds = Annotated[int, Field(le=(1 << 31) - 1)]


class Section(BaseModel):
    """A part of a manifest: frozen, without unknown fields, without conversions."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    #: What goes together in it, for the models and for the API server.
    rules: ClassVar[tuple[Rule, ...]] = ()
    #: Why it does not have some fields that people would look for in it.
    not_here: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @model_validator(mode="after")
    def _keeps_its_rules(self) -> Self:
        if self.rules and (problems := list(broken(self.rules, self.model_dump_json(by_alias=True)))):
            raise at_fields(*problems)
        return self


def is_absent(value: object) -> bool:
    """Say that a field is not written where it is None."""
    return value is None


class Quarantine(Section):
    """For onRowError: Quarantine: how many rows may fail, and whether a later epoch takes them again."""

    max_rows: int = Field(
        default=1000, ge=0, le=1_000_000, description="An epoch with more failed rows than this stops before its commit."
    )
    max_share: Share = Field(
        default=100_000,
        description="The same limit as a share of the epoch's rows, rounded down. For text, whose number of rows is not known "
        "in advance, it is checked when all rows are read. Rows that a later epoch takes again count toward neither limit.",
    )
    retry: Literal["Never", "Also", "Only"] = Field(
        default="Never",
        description="Whether a later epoch (runNonce) takes the rows that earlier epochs have quarantined. Never: it does "
        "not. Also: it takes them along with new files or rows. Only: it takes nothing else.",
    )
