"""What records say of the result of a stage: files in the checkpoint store, which the next stage reads by position."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from checkpoint_protocol.records.base import Base64, Count, Digest, Output, Part, later

#: The algorithm that makes the hashes of stages today. An older one stays known, so that what it named is found again.
HASH_ALGORITHM = 1


#: A stage can be divided into so many buckets: each of them is a record batch in each part of a file.
MOST_BUCKETS: Final = 2_000


class Grouping(Part):
    """How rows come together: those of equal values in the columns `by` lie in one of so many buckets. No columns: all in one."""

    by: tuple[str, ...]
    buckets: Annotated[int, Field(ge=1, le=MOST_BUCKETS)]


class StageIdentity(Part):
    """Which stage of a pipeline an attempt does, as it was when the attempt was recorded.

    `reads`: the folder of the stage of the same epoch whose result it reads; empty for the first stage, which reads the source.
    `hash_in`: of all that its result depends on, but for the code. `algorithm` made it. `run_nonce`: that of the manifest.
    `takes_all`: the epoch takes all of the source, also what earlier ones had.
    `shuffles`: it puts its rows into buckets. `groups`: it reads such, and its steps get the rows of one key at a time.
    """

    name: str
    reads: str
    hash_in: Digest
    algorithm: Annotated[int, Field(ge=1)]
    run_nonce: str = later("")
    takes_all: bool = later(False)
    shuffles: Grouping | None = later(None)
    groups: Grouping | None = later(None)


class StageTarget(Part):
    """The result of a stage: a folder in the checkpoint store, and the columns that the stage's steps give.

    `shuffles`: by what its rows are put into buckets.
    """

    staged_by: ClassVar[str] = "checkpoint_formats.stage_results"

    format: Literal["stage"] = "stage"
    folder: str
    arrow_schema: Base64
    shuffles: Grouping | None = later(None)

    @property
    def title(self) -> str:
        return f"the stage result {self.folder}"

    @property
    def identity(self) -> str:
        return self.folder

    @property
    def base(self) -> None:
        return None

    @property
    def outputs(self) -> tuple[Output, ...]:
        """None of its own: it lies in the checkpoint store."""
        return ()

    @property
    def target_file_size_bytes(self) -> int | None:
        """What the table says of the size of data files: nothing."""
        return None


class StageFile(Part):
    """A file of a stage's result, named within its folder. `batches`: how many rows each of its record batches has.

    `buckets`: where the result has buckets, of which bucket each of the batches is.
    """

    format: Literal["stage"] = "stage"
    name: Annotated[str, Field(pattern=r"^[0-9a-z-]+\.arrow$", max_length=128)]
    size_bytes: Count
    rows: Count
    batches: tuple[Count, ...]
    buckets: tuple[Count, ...] = later(())

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Of each of its paths."""
        return (self.size_bytes,)
