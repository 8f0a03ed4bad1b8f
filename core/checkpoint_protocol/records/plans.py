"""The plan of an attempt, its tasks before any of them runs; and what a segment covers of the input: positions, or keys."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PrivateAttr, model_validator

from checkpoint_protocol.records.base import MAX_TASKS, Count, Digest, Number, Part, Record, later
from checkpoint_protocol.records.inputs import PART_BYTES, StoredPart
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

    `values_bytes`: what the keys take in memory, as Arrow has them: a few bytes of Parquet may be many of a hash table.
    `quarantined`: all of its rows are; the keys of those that are not lie in other objects. `digest`: of its bytes; None in a
    seal of a release that put none.
    """

    path: str
    rows: Count
    size_bytes: Count
    values_bytes: Count
    quarantined: bool = later(False)
    digest: str | None = later(None)


class KeysCovered(Part):
    """The segment covers the source rows with these keys, each of them wholly. `quarantined` are those of them that are."""

    kind: Literal["keys"] = "keys"
    objects: tuple[KeysObject, ...]
    keys: KeySet
    quarantined: KeySet | None = later(None)


Covered = Annotated[PositionsCovered | KeysCovered, Field(discriminator="kind")]


class PlanRecord(Record):
    """The full plan of an attempt, task by task, before any task runs. The token is the driver's.

    `done_files` and `done_rows` tell what earlier attempts have sealed and this one does not read.

    Where rows are known by keys, `tasks` is empty and `partitions` is the number of tasks: the partitions of Spark's plan.
    `skipped` are then the source rows that were found, before any work, to have keys that the counted attempts have sealed.

    Of a stream, `tasks` is empty, too, and `offsets` is the SHA-256 of what Spark has logged as the micro-batch's offsets: one of
    the same number with other offsets is another micro-batch.

    `in_driver`: the tasks run in the driver's own process, which has no executors.

    With too many ranges for one object, `tasks` is empty in the store, and they are in `parts`, in this order.
    """

    #: Its tasks are in parts of half this size where they are many.
    most_bytes: ClassVar[int] = 2 * PART_BYTES

    kind: Literal["plan"] = "plan"
    version: Literal[1] = 1
    attempt: Number
    tasks: tuple[tuple[Range, ...], ...]
    done_files: Count
    done_rows: Count
    partitions: Count | None = None
    skipped: KeySet | None = None
    in_driver: bool = later(False)
    offsets: Digest | None = later(None)
    parts: tuple[StoredPart, ...] = later(())
    _left_out: int = PrivateAttr(default=0)

    @property
    def task_count(self) -> int:
        if self.parts:
            return sum(part.count for part in self.parts)
        return self._left_out + len(self.tasks) if self.partitions is None else self.partitions

    def without_tasks(self) -> PlanRecord:
        """Return what a plan says besides its tasks, with their number. It is not to be put: `is_whole` says which is which."""
        if self.partitions is not None or self.parts:
            return self
        header = self.model_copy(update={"tasks": ()})
        header._left_out = self.task_count
        return header

    @property
    def is_whole(self) -> bool:
        return not self._left_out

    @model_validator(mode="after")
    def _has_not_too_many_tasks(self) -> PlanRecord:
        if self.task_count > MAX_TASKS:
            raise ValueError(f"it has {self.task_count:,} tasks, and no attempt has more than {MAX_TASKS:,}")
        return self


class PlanPartRecord(Record):
    """Tasks of a plan that names this part."""

    #: A task has ten thousand ranges at the most, so that a part is hardly larger than what it is cut at.
    most_bytes: ClassVar[int] = 2 * PART_BYTES

    kind: Literal["plan-part"] = "plan-part"
    version: Literal[1] = 1
    tasks: Annotated[tuple[tuple[Range, ...], ...], Field(min_length=1)]
