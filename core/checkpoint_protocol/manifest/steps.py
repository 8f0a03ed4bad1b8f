"""The steps of a manifest: which callables take part, and how they are called."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, JsonValue

from checkpoint_protocol.manifest.quantities import Duration
from checkpoint_protocol.manifest.rules import Rule, is_given
from checkpoint_protocol.manifest.sections import Section, is_absent

#: Fields of a step that only say how it is called. Results do not depend on them, so that they may change while a write runs.
_WAYS_OF_CALLING: Final = frozenset({"concurrency", "batch_size", "timeout", "retry", "rate_limit", "memo"})
MOST_CONCURRENT_CALLS: Final = 4096
#: A module, and what of it is called.
CALL_PATTERN: Final = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
MOST_ROWS_OF_A_BATCH: Final = 65_536


class Retry(Section):
    """How calls are retried that fail for an external reason, such as a timeout."""

    attempts: int = Field(
        default=5,
        ge=1,
        le=100,
        description="How often a row or a batch is tried, including the first call. When the last try fails, onRowError applies.",
    )
    first_delay: Duration = Field(
        default=1.0,
        gt=0,
        description="The average delay before the second try. The delay doubles with each further try, and is randomized. If "
        "the service says how long to wait (Retry-After), that delay is used instead.",
    )
    most_delay: Duration = Field(default=60.0, gt=0, description="The longest delay, even if the service asks for a longer one.")
    on: tuple[Annotated[str, Field(pattern=r"^([0-9]{3}|[A-Za-z_][\w.]*)$", max_length=200)], ...] = Field(
        default=(),
        max_length=32,
        description="Further errors to retry: names of exceptions (openai.APIError, or only APIError; subclasses count too) "
        "or HTTP status codes. Timeouts, lost connections and the status codes 408, 429 and 5xx are always retried. kubectl "
        'reads an unquoted on as true, so write "on".',
    )


class RateLimit(Section):
    """How many calls of a step may start in a period, over all tasks of the write."""

    calls: int = Field(ge=1, le=1_000_000_000, description="The most calls that may start in one period, including retries.")
    per: Duration = Field(
        gt=0,
        description="The length of the period (e.g. 1s, 1m or 1h). All tasks that may run at the same time share the limit "
        "equally.",
    )


class Step(Section):
    """One Python callable. Steps run in the order of the list."""

    call: str = Field(
        pattern=CALL_PATTERN,
        max_length=512,
        description="module:function or module:Class. A class is instantiated once per process, and its setup(), if it has "
        "one, is called once. The callable may be plain or async.",
    )
    input: Literal["arrow", "pandas", "row"] = Field(
        default="arrow",
        description="What the callable receives and returns. arrow: a pyarrow.RecordBatch. pandas: a pandas.DataFrame. row: "
        "one row as a dict; the callable may return None to drop the row, one dict, or an iterable of dicts.",
    )
    name: str | None = Field(
        default=None, max_length=128, description="The name of the step in messages. Default: the value of call."
    )
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Keyword arguments. A function receives them in each call, a class when it is instantiated. Kubernetes "
        "stores numbers as JSON does: 1.0 becomes 1, and digits beyond 64 bits are lost. Quote values that must stay as they "
        "are.",
    )
    output: Annotated[dict[str, Annotated[str, Field(max_length=1024)]], Field(min_length=1, max_length=2048)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="The columns that the step returns, with types as in source.files.types. A column that a row lacks is "
        "NULL. A column that is not listed here is refused. sink.create makes the table from these columns. Default: "
        "what the return annotation of a row step declares. Without both, each row of a row step must have all columns.",
    )
    concurrency: Annotated[int, Field(ge=1, le=MOST_CONCURRENT_CALLS)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="How many calls a task makes at the same time, each with a row or a batch. Plain functions are called in "
        "threads. Default: 1.",
    )
    batch_size: Annotated[int, Field(ge=1, le=MOST_ROWS_OF_A_BATCH)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="The number of rows in each batch of an arrow or pandas step. The last batch of a task has fewer. A batch "
        "also has fewer rows if it would otherwise divide the rows that earlier row steps have made from one source row. By "
        "default the fastest size is chosen.",
    )
    timeout: Annotated[Duration, Field(gt=0)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="How long one call may take. A plain function cannot be interrupted: it continues in its thread, and its "
        "result is dropped.",
    )
    retry: Retry | None = Field(
        default=None,
        exclude_if=is_absent,
        description="How calls are retried that fail for an external reason, such as a timeout.",
    )
    rate_limit: RateLimit | None = Field(
        default=None,
        exclude_if=is_absent,
        description="How many calls of the step may start in a period, over all tasks. When the service answers 429 (too many "
        "requests), the rate is lowered, and is raised again as the service allows.",
    )

    memo: bool = Field(
        default=False,
        exclude_if=lambda memo: not memo,
        description="For row steps: the result of each call is kept in the checkpoint store until its row is sealed, so that "
        "hardly any call is repeated after a crash. This is for expensive calls. All steps before it must be row steps.",
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

    rules: ClassVar = (
        Rule(
            f"!{is_given('batchSize')} || self.input != 'row'",
            "a row step receives one row at a time; leave it out, and see concurrency",
            "batchSize",
        ),
        Rule(
            f"!{is_given('memo')} || !self.memo || self.input == 'row'",
            "batches may differ in the next try, so their results cannot be kept; only row steps can have it",
            "memo",
        ),
    )
