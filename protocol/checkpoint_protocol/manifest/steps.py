"""The steps of a manifest: which callables take part, and how they are called."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from checkpoint_protocol.manifest.problems import AT_FIELD
from checkpoint_protocol.manifest.quantities import Duration
from checkpoint_protocol.manifest.sections import Section, is_absent

#: Fields of a step that only say how it is called. Results do not depend on them, so that they may change while a write runs.
_WAYS_OF_CALLING: Final = frozenset({"concurrency", "batch_size", "timeout", "retry", "rate_limit", "memo"})
MOST_CONCURRENT_CALLS: Final = 4096
#: A module, and what of it is called.
CALL_PATTERN: Final = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
MOST_ROWS_OF_A_BATCH: Final = 65_536


class Retry(Section):
    """How often a call is tried again that failed for a reason outside, and how long is waited before."""

    attempts: int = Field(
        default=5, ge=1, le=100, description="How often a row, or a batch, is tried in all. After the last it fails: onRowError."
    )
    first_delay: Duration = Field(
        default=1.0,
        gt=0,
        description="How long is waited before the second try, on the average. It is doubled from try to try, "
        "and spread at random; a service that says how long to wait (Retry-After) is believed.",
    )
    most_delay: Duration = Field(default=60.0, gt=0, description="At most so long, whatever the service says.")
    on: tuple[Annotated[str, Field(pattern=r"^([0-9]{3}|[A-Za-z_][\w.]*)$", max_length=256)], ...] = Field(
        default=(),
        max_length=32,
        description="What else is tried again: names of exceptions (openai.APIError, or APIError alone; those derived from it, "
        "too), or status codes of HTTP. Always are timeouts, lost connections, and the status codes 408, 429 and 5xx. kubectl "
        'takes on for true: write "on".',
    )


class RateLimit(Section):
    """How many calls of a step may begin in a time, over all tasks of the write."""

    calls: int = Field(ge=1, le=1_000_000_000, description="So many calls, tries again among them,")
    per: Duration = Field(gt=0, description="in so much time (1s, 1m, 1h). Each task that may run at once has the same share.")


class Step(Section):
    """One Python callable, applied in the order of the list."""

    call: str = Field(
        pattern=CALL_PATTERN,
        max_length=512,
        description="module:function, or module:Class: an instance per process, with setup() once where it has one. Plain or "
        "async.",
    )
    input: Literal["arrow", "pandas", "row"] = Field(
        default="arrow",
        description="What the callable takes and gives: a pyarrow.RecordBatch, a pandas.DataFrame, or one row as a dict "
        "(which may give None to drop the row, one dict, or an iterable of dicts).",
    )
    name: str | None = Field(default=None, max_length=128, description="Used in messages; the callable by default.")
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Keyword arguments: of the function at each call, of the class when it is made. Kubernetes keeps numbers as "
        "JSON does: 1.0 arrives as 1, and digits beyond 64 bits are lost; quote what must stay as it is.",
    )
    output: Annotated[dict[str, Annotated[str, Field(max_length=1024)]], Field(min_length=1, max_length=2048)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="The columns that the step gives, with types as in source.files.types: a column that is left out is NULL, "
        "another one is refused, and sink.create makes the table of these. Without it each row of a row step gives all columns.",
    )
    concurrency: Annotated[int, Field(ge=1, le=MOST_CONCURRENT_CALLS)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="So many calls at once in a task, each of a row or of a batch; plain functions are called in threads. One by "
        "default.",
    )
    batch_size: Annotated[int, Field(ge=1, le=MOST_ROWS_OF_A_BATCH)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="So many rows in each batch of an arrow or pandas step; the last one of a task has fewer, and one where the "
        "rows that row steps before have made of one source row would be divided. By default as many as are fastest.",
    )
    timeout: Annotated[Duration, Field(gt=0)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="How long one call may take. A plain function runs on in its thread, as nobody can end that; what it "
        "gives then is dropped.",
    )
    retry: Retry | None = Field(
        default=None, exclude_if=is_absent, description="How calls are tried again that fail for a reason outside."
    )
    rate_limit: RateLimit | None = Field(
        default=None,
        exclude_if=is_absent,
        description="So many calls in a time, over all tasks. When a service says that these are too many (429), they become "
        "fewer, and more again as it allows.",
    )

    memo: bool = Field(
        default=False,
        exclude_if=lambda memo: not memo,
        description="Of a row step: what a call gives is kept in the checkpoint store until its row is sealed, so that after a "
        "crash hardly any call is made again. For calls that are dear; rows come from the source or from row steps.",
    )

    @property
    def label(self) -> str:
        return self.name or self.call

    @property
    def result_json(self) -> str:
        """The step as far as its results depend on it, as JSON: what the digest of the code covers.

        A field that a later version adds is not in it unless it is given, so that the digest of a running write stays.
        """
        return self.model_dump_json(exclude=set(_WAYS_OF_CALLING))

    @model_validator(mode="after")
    def _keeps_rows_only(self) -> Step:
        if self.memo and self.input != "row":
            error = "batches are not the same in the next try, so that their results cannot be kept; a row step can have it"
            raise PydanticCustomError(AT_FIELD, "{error}", {"field": "memo", "error": error})
        return self

    @model_validator(mode="after")
    def _sizes_batches_only(self) -> Step:
        if self.batch_size is not None and self.input == "row":
            raise PydanticCustomError(
                AT_FIELD, "{error}", {"field": "batchSize", "error": "a row step is given one row at a time; see concurrency"}
            )
        return self
