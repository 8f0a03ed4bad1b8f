"""The stages of a manifest: steps whose result is kept on the way, so that what comes after them goes on from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from checkpoint_protocol.manifest.rules import Rule, is_given, named_once
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

    rules: ClassVar = (
        Rule(
            f"self.kind == 'Aggregate' || (self.keyBy.size() == 0 && !{is_given('buckets')})",
            "rows come together in an Aggregate only; add kind: Aggregate",
            "kind",
        ),
        Rule(
            f"self.kind != 'Aggregate' || !{is_given('buckets')} || self.keyBy.size() > 0",
            "without keyBy all rows are in one; leave it out, or add keyBy",
            "buckets",
        ),
        named_once("self.keyBy", "the column '{}' is named twice; name it once", "keyBy"),
        Rule(
            "self.kind != 'Aggregate' || self.checkpoint",
            "the result of an Aggregate is kept, as rows came together for it; leave it out",
            "checkpoint",
        ),
        Rule(
            f"self.kind != 'Aggregate' || self.steps.all(step, step.input != 'row' && !{is_given('batchSize', 'step')})",
            "an Aggregate's steps get all rows of a key at once: arrow or pandas, without batchSize; what is done row by row "
            "belongs to a stage before or after it",
            "steps",
        ),
    )


class ShuffleStage(StageSpec):
    """What is done before an Aggregate, that rows of one key meet: they are put into buckets.

    In no manifest: `parts_of` puts it there. It has no steps of its own; those of stages without a checkpoint are done with it.
    """

    name: str
    steps: tuple[Step, ...] = ()
    shuffles: Grouping


class ResetSpec(Section):
    """Have rows computed again although nothing in the manifest or the code has changed."""

    stages: Annotated[tuple[StageName, ...], Field(max_length=MOST_STAGES)] = Field(
        default=(),
        description="With spec.stages: names of stages. The stages after them are computed again too. Without: leave it out.",
    )
    nonce: Annotated[str, Field(min_length=1, max_length=128)] = Field(
        description="Change this value to compute the stages once more. An earlier value finds its earlier results again. With "
        "spec.steps: the sealed rows of an epoch that is not committed are dropped, and computed again by the next attempt."
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
