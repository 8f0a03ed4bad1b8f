"""What a segment covers of the input: positions, or keys."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from checkpoint_protocol.records.base import Count, Part, later
from checkpoint_protocol.rows.positions import Range


class KeySet(Part):
    """A set of keys, known by its size and an order-free fingerprint: two sums modulo 2^64 of 64-bit hashes, as 32 hex digits."""

    rows: Count
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class PositionsCovered(Part):
    """The segment covers these positions, all of them and nothing else."""

    kind: Literal["positions"] = "positions"
    ranges: tuple[Range, ...]


class KeysObject(Part):
    """A Parquet object with the exact keys of source rows, each once. `path` is relative to the store.

    `quarantined`: all of its rows are; the keys of those that are not lie in other objects. `digest`: of its bytes; None in a
    seal of a release that put none.
    """

    path: str
    rows: Count
    size_bytes: Count
    quarantined: bool = later(False)
    digest: str | None = later(None)


class KeysCovered(Part):
    """The segment covers the source rows with these keys, each of them wholly. `quarantined` are those of them that are."""

    kind: Literal["keys"] = "keys"
    objects: tuple[KeysObject, ...]
    keys: KeySet
    quarantined: KeySet | None = later(None)


Covered = Annotated[PositionsCovered | KeysCovered, Field(discriminator="kind")]
