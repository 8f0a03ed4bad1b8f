"""The stages of a manifest: steps whose result is kept on the way, so that what comes after them goes on from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from checkpoint_protocol.manifest.problems import AT_FIELD
from checkpoint_protocol.manifest.sections import LABEL_PATTERN, Section, is_absent
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.records.formats.stage_results import MOST_BUCKETS, Grouping

MOST_STAGES: Final = 16
MOST_STEPS_OF_A_STAGE: Final = 16
#: The name of a stage's folder is <name>-<16 hex digits>-<number>, and the value of a label has 63 characters at most.
MAX_STAGE_NAME_LENGTH: Final = 32
#: As many as Spark's shuffles have (spark.sql.shuffle.partitions).
DEFAULT_BUCKETS: Final = 200
#: What is done before an Aggregate, that rows of one key meet, is called as that, and this.
SHUFFLE: Final = "-shuffle"

StageName = Annotated[str, Field(pattern=LABEL_PATTERN, max_length=MAX_STAGE_NAME_LENGTH)]
ModuleName = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*$", max_length=256)]


class StageSpec(Section):
    """Steps whose result is kept in the checkpoint store. When all rows have passed through a stage, no failure causes them to
    be computed again.
    """

    name: StageName = Field(
        description="Lower case letters, digits and '-'. The name appears in the status, in messages and in the checkpoint store."
    )
    kind: Literal["Map", "Aggregate"] = Field(
        default="Map",
        description="Map: the steps receive rows as they come. Aggregate: the first step is called once for each key (keyBy), "
        "with all rows of that key as one pyarrow.RecordBatch or pandas.DataFrame.",
    )
    key_by: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=256)], ...], Field(max_length=32)] = Field(
        default=(),
        description="For an Aggregate: the columns whose values are the key. NULL is a value like any other. Without keyBy, "
        "the first step is called once, with all rows.",
    )
    buckets: Annotated[int, Field(ge=1, le=MOST_BUCKETS)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="For an Aggregate with keyBy: the number of buckets into which the keys are divided. Tasks, seals and "
        f"retries after a failure cover whole buckets. Default: {DEFAULT_BUCKETS}.",
    )
    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=MOST_STEPS_OF_A_STAGE)] = Field(
        description="The steps that each row goes through, in this order."
    )
    checkpoint: bool = Field(
        default=True,
        description="Whether the result of the stage is kept. If false, its steps run together with those of the next stage; "
        "this is right for steps that are cheaper to compute than to store. The last stage must not be false: its result is "
        "in the table.",
    )
    code: Annotated[tuple[ModuleName, ...], Field(max_length=64)] = Field(
        default=(),
        description="The modules and packages of spec.code that the result depends on, e.g. docs, with what they import. An "
        "edit of other modules does not affect the result. Default: the modules that the steps are called from.",
    )

    @property
    def grouping(self) -> Grouping | None:
        """How an Aggregate's rows come together; None of another stage."""
        if self.kind != "Aggregate":
            return None
        return Grouping(by=self.key_by, buckets=(self.buckets or DEFAULT_BUCKETS) if self.key_by else 1)

    @model_validator(mode="after")
    def _has_keys_of_an_aggregate_only(self) -> StageSpec:
        field, error = "", ""
        if self.kind != "Aggregate" and (self.key_by or self.buckets):
            field, error = "keyBy" if self.key_by else "buckets", "rows come together in an Aggregate only; add kind: Aggregate"
        elif self.buckets and not self.key_by:
            field, error = "buckets", "without keyBy all rows are in one; leave it out, or add keyBy"
        elif twice := next((name for name in self.key_by if self.key_by.count(name) > 1), None):
            field, error = "keyBy", f"the column {twice!r} is named twice; name it once"
        if error:
            raise PydanticCustomError(AT_FIELD, "{error}", {"field": field, "error": error})
        return self

    @model_validator(mode="after")
    def _gives_an_aggregate_whole_groups(self) -> StageSpec:
        if self.kind != "Aggregate":
            return self
        if not self.checkpoint:
            error = "the result of an Aggregate is kept, as rows came together for it; leave it out"
            raise PydanticCustomError(AT_FIELD, "{error}", {"field": "checkpoint", "error": error})
        for number, step in enumerate(self.steps):
            field, error = (
                "input",
                "an Aggregate's steps get all rows of a key at once: arrow or pandas; what is done row by row ",
            )
            error += "belongs to a stage before or after it"
            if step.input != "row":
                field, error = "batchSize", "a batch is all rows of a key, however many these are; leave it out"
            if step.input == "row" or step.batch_size is not None:
                raise PydanticCustomError(AT_FIELD, "{error}", {"field": f"steps.{number}.{field}", "error": error})
        return self


class ShuffleStage(StageSpec):
    """What is done before an Aggregate, that rows of one key meet: they are put into buckets.

    In no manifest: `parts_of` puts it there. It has no steps of its own; those of stages without a checkpoint are done with it.
    """

    name: str
    steps: tuple[Step, ...] = ()
    shuffles: Grouping


class ResetSpec(Section):
    """Have stages computed again although nothing in them has changed."""

    stages: Annotated[tuple[StageName, ...], Field(min_length=1, max_length=MOST_STAGES)] = Field(
        description="Names of stages. The stages after them are computed again too."
    )
    nonce: Annotated[str, Field(min_length=1, max_length=128)] = Field(
        description="Change this value to compute the stages once more. An earlier value finds its earlier results again."
    )


@dataclass(frozen=True, slots=True)
class StagePart:
    """Stages that are done together, up to one whose result is kept (or the last one, whose result the table is).

    `name` is that of the last of them. `modules`: see `StageSpec.code`; empty: those of the steps. `nonce`: of the reset that
    names one of them. `shuffles`: its rows are put into buckets, for the Aggregate that follows. `groups`: it is that Aggregate.
    """

    name: str
    steps: tuple[Step, ...]
    modules: tuple[str, ...] = ()
    nonce: str = ""
    shuffles: Grouping | None = None
    groups: Grouping | None = None


def parts_of(stages: Sequence[StageSpec], reset: ResetSpec | None = None) -> tuple[StagePart, ...]:
    """Return what is done together, in order."""
    return tuple(_part(together, reset) for together in _together(stages))


def stages_up_to(stages: Sequence[StageSpec], number: int) -> tuple[StageSpec, ...]:
    """Return the stages whose last part is the one of this number among the parts of `stages`."""
    return tuple(chain.from_iterable(islice(_together(stages), number + 1)))


def steps_up_to(stages: Sequence[StageSpec], name: str) -> tuple[int, tuple[Step, ...]]:
    """Return the number of the part that this stage is of, and the steps of that part up to the end of the stage."""
    for number, together in enumerate(_together(stages)):
        names = [stage.name for stage in together]
        if name in names:
            return number, tuple(step for stage in together[: names.index(name) + 1] for step in stage.steps)
    raise KeyError(name)


def done_together(placed: Iterable[tuple[str, Step]], stages: Sequence[StageSpec]) -> Iterator[list[tuple[str, Step]]]:
    """Give the steps of a manifest, with the paths of their fields, in the groups in which they are done."""
    steps = iter(placed)
    if not stages:
        yield list(steps)
    for together in _together(stages):
        yield list(islice(steps, sum(len(stage.steps) for stage in together)))


def why_no_stages(stages: Sequence[StageSpec], reset: ResetSpec | None, *, has_steps: bool, retry: str) -> str | None:
    """Return why a manifest cannot have these stages, with the way out. `retry`: what its `quarantine.retry` says."""
    if stages and has_steps:
        return "stages replace steps: put the steps into a stage, or leave the stages out"
    names = [stage.name for stage in stages]
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"stages: two are called {twice!r}; give each a name of its own"
    shuffles = {f"{stage.name}{SHUFFLE}" for stage in stages if stage.kind == "Aggregate"}
    if taken := next((name for name in names if name in shuffles), None):
        return f"stages: {taken!r} is the name of the pass before the Aggregate; give the stage another name"
    if stages and not stages[-1].checkpoint:
        return "stages: checkpoint: false does not apply to the last stage: its result is in the table"
    if stages and retry != "Never":
        return (
            "quarantine.retry: with stages, rows that failed are known by the results of stages, which end with their epoch; "
            "leave it out, and reset the stage instead"
        )
    if reset is not None and (unknown := next((name for name in reset.stages if name not in names), None)):
        return f"reset.stages: there is no stage {unknown!r}{' (there are ' + ', '.join(names) + ')' if names else ''}"
    return None


def _together(stages: Sequence[StageSpec]) -> Iterator[Sequence[StageSpec]]:
    begin, stages = 0, list(_with_shuffles(stages))
    for number, stage in enumerate(stages):
        if stage.checkpoint or number == len(stages) - 1:
            yield stages[begin : number + 1]
            begin = number + 1


def _with_shuffles(stages: Sequence[StageSpec]) -> Iterator[StageSpec]:
    before: StageSpec | None = None
    for stage in stages:
        if stage.grouping is not None and not isinstance(before, ShuffleStage):
            yield ShuffleStage(name=f"{stage.name}{SHUFFLE}", shuffles=stage.grouping)
        yield stage
        before = stage


def _part(stages: Sequence[StageSpec], reset: ResetSpec | None) -> StagePart:
    last = stages[-1]
    with_code = [stage for stage in stages if stage.steps]
    is_narrowed = all(stage.code for stage in with_code)
    modules = sorted({module for stage in with_code for module in stage.code}) if is_narrowed else ()
    is_reset = reset is not None and any(stage.name in reset.stages for stage in stages)
    return StagePart(
        name=last.name,
        steps=tuple(step for stage in stages for step in stage.steps),
        modules=tuple(modules),
        nonce=reset.nonce if reset is not None and is_reset else "",
        shuffles=last.shuffles if isinstance(last, ShuffleStage) else None,
        groups=last.grouping,
    )
