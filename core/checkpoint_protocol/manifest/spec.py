"""The CheckpointedWrite manifest: what a user applies, field for field the CRD's spec (which is generated from these models).

Strict: an unknown field or a wrong type is an error that names the field's path and, where one is close, the field that was
meant. Identity (source, sink, checkpoint) is immutable for the life of a write; code, arguments, sizes and how text is read are
not, and the source itself is only once rows of it are sealed. What only a cluster can do (images, pod templates, Secrets) is
accepted and passed over on one machine. `description` and the first line of a docstring are what `kubectl explain` shows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from checkpoint_protocol import reasons
from checkpoint_protocol.deadlines import MOST_INTERVALS, derived_progress_deadline_s
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import row_keys_of
from checkpoint_protocol.manifest.pipelines import (
    MOST_STAGES,
    SHUFFLE,
    ResetSpec,
    StagePart,
    StageSpec,
    done_together,
    parts_of,
)
from checkpoint_protocol.manifest.problems import at_fields, explain, true_of
from checkpoint_protocol.manifest.quantities import Duration, Size
from checkpoint_protocol.manifest.rules import Rule, is_given, is_same_table, named_once, none_is
from checkpoint_protocol.manifest.sections import Label, ObjectName, Seconds, Section, Uri
from checkpoint_protocol.manifest.sections import Quarantine as Quarantine
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.manifest.sources.stream_source import CheckpointVolume, why_no_stream
from checkpoint_protocol.manifest.spark_properties import RULES as SPARK_RULES
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.manifest.trigger import Trigger
from checkpoint_protocol.manifest.workloads import Code as Code
from checkpoint_protocol.manifest.workloads import DriverSpec as DriverSpec
from checkpoint_protocol.manifest.workloads import ExecutorSpec as ExecutorSpec
from checkpoint_protocol.places.uris import why_not_expanded, why_not_opened
from checkpoint_protocol.tables import OVERWRITING

API_VERSION: Final = "checkpointed.dev/v1alpha1"
KIND: Final = "CheckpointedWrite"
#: The name of a driver's pod is <write>-<8 hex digits>-<epoch>-<attempt>, and a pod's host name has 63 characters at most.
MAX_NAME_LENGTH: Final = 45
#: How deep lists and mappings may stand in one another. What reads them is recursive, and must not be what decides.
MOST_DEPTH: Final = 32
#: With what anchors and aliases of YAML stand for: a few lines may mean billions of values.
MOST_VALUES: Final = 1_000_000
_BATCHES_BEFORE: Final = "a batch step before this one hides which source row a result comes from; move this step before it"
#: Of a step's arguments, and of a pod template, as JSON. Kubernetes refuses a whole object above about 1.5 million bytes.
MAX_FREE_FORM_LENGTH: Final = 256 << 10
#: Of the path to a value that is too deep.
_NAMES_SHOWN: Final = 5

_Model = TypeVar("_Model", bound=BaseModel)


class CheckpointSpec(Section):
    """Where finished work is sealed, and how often. The uri is immutable."""

    uri: Uri = Field(description="A folder in an object store (s3://, gs://, az://) or on disk.")
    interval: Duration = Field(
        default=60.0,
        gt=0,
        description="A task seals its finished rows after this much time (e.g. 90s or 5m). If they make less output than "
        "minimumBytes, it seals them after a twentieth of the time that it has been at work, if that is longer, and after ten "
        "intervals at most. A crash costs no more work than that.",
    )
    minimum_bytes: Size = Field(
        default=8 << 20,
        description="A task seals its finished rows after interval if they make this much output, measured in memory. If they "
        "make less, see interval. 0: always after interval.",
    )
    maximum_rows: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="The most source rows in one seal, whatever their size. This limits the work that a crash can cost. A "
        "batch of batchSize rows is never divided. By default only interval and minimumBytes count.",
    )
    retention: Duration | None = Field(
        default=None,
        gt=0,
        description="What an epoch has staged is removed this long after its commit (e.g. 168h), unless a later epoch needs "
        "it. Default: the operator's retentionDays. On one machine, the command checkpointed-write clean removes it.",
    )


_LANCE: Final = ("uri", "namespace", "table")


def _is_read_and_written(fmt: str, *fields: str) -> str:
    """Say in CEL that a table is the source, or a member of the union, and the sink."""
    in_union = f"self.source.union.exists(member, {is_same_table(fmt, 'member', 'self.sink', *fields)})"
    of_union = f"{is_given('union', 'self.source')} && {in_union}"
    return f"({is_same_table(fmt, 'self.source', 'self.sink', *fields)}) || ({of_union})"


def _is_read_once(fmt: str, *fields: str) -> str:
    """Say in CEL that no table is there twice in a union."""
    same = is_same_table(fmt, "one", "other", *fields)
    return f"self.source.union.all(one, self.source.union.filter(other, {same}).size() <= 1)"


class Spec(Section):
    """The desired state of a CheckpointedWrite."""

    source: Source
    steps: tuple[Step, ...] = Field(
        default=(),
        max_length=64,
        description="The steps that each row goes through, in this order. Without steps, rows are copied.",
    )
    stages: tuple[StageSpec, ...] = Field(
        default=(),
        max_length=MOST_STAGES,
        description="Groups of steps, in place of spec.steps. Each stage keeps its result until the commit. When a stage is "
        "edited, that stage and the stages after it are computed again; the stages before it keep their results.",
    )
    reset: ResetSpec | None = Field(
        default=None, description="Rows, or stages, to compute again although nothing in the manifest or the code has changed."
    )
    inherit: ObjectName | None = Field(
        default=None,
        exclude_if=lambda name: name is None,
        description="The name of another write of the namespace, with the same checkpoint.uri. Results of its stages are taken "
        "over, if they agree with this manifest in source, steps and code, and are not computed again.",
    )
    code: Code = Field(default_factory=Code)
    sink: Sink
    checkpoint: CheckpointSpec
    on_code_change: Literal["Continue", "Restart", "Ask"] = Field(
        default="Continue",
        description="What happens to sealed results when the code changes. Continue: they stay. Restart: they are dropped. "
        "Ask: nothing starts until a person has chosen one of the two, with the annotation checkpointed.dev/approve or with "
        "run --approve. Ask also waits before an edit causes a stage to be computed again.",
    )
    on_replaced: Literal["Fail", "Process", "Skip"] = Field(
        default="Fail",
        description="What an epoch does when a file that an earlier epoch has taken has new content or a new name. Fail: the "
        "write stops. Process: the file is read as a new file. Skip: the file is ignored.",
    )
    on_row_error: Literal["Fail", "Quarantine"] = Field(
        default="Fail",
        description="What happens when a row fails: a line of text cannot be read, a step raises an exception, or the table "
        "cannot hold the result. Fail: the attempt fails. Quarantine: the row is set aside, and the other rows continue. "
        "`checkpointed-write inspect` lists the quarantined rows.",
    )
    quarantine: Quarantine = Field(default_factory=Quarantine)
    run_nonce: str = Field(
        default="",
        max_length=128,
        description="Change this value to start another epoch, which takes the files that arrived since the last one.",
    )
    trigger: Trigger | None = Field(
        default=None,
        description="Starts the next epoch automatically, with the input that no epoch has taken yet. Without a trigger, the "
        "write has one epoch, and another one for each new runNonce.",
    )
    suspend: bool = Field(
        default=False,
        description="Cluster: stop the driver and do not start another one. Sealed work stays. Set this to false to continue "
        "from there.",
    )
    backoff_limit: int = Field(
        default=3,
        ge=0,
        le=1000,
        description="How many attempts in a row may fail without sealing anything, not counting the first one.",
    )
    active_deadline_seconds: Annotated[Seconds, Field(ge=1)] | None = Field(
        default=None,
        description="Cluster: when an epoch has taken longer than this, it gets no more drivers and waits for a person.",
    )
    progress_deadline_seconds: Annotated[Seconds, Field(ge=10)] | None = Field(
        default=None,
        description="An attempt is given up, and the next attempt starts, if for this long it makes no new seal and its "
        "tasks report no new rows or calls. Default: 20 times checkpoint.interval, because one segment may take ten intervals, "
        "and at least 600. A value below 20 times checkpoint.interval is refused (below 2 times if minimumBytes is 0).",
    )
    ttl_seconds_after_finished: Annotated[Seconds, Field(ge=0)] | None = Field(
        default=None, description="Cluster: the object is deleted this long after its commit. The table keeps the rows."
    )
    on_recreate: Literal["Attach", "New"] = Field(
        default="Attach",
        description="Cluster: what a new object means when an earlier object had the same name. Attach: it continues the "
        "earlier write, and does not repeat what was committed. New: it is a new write, which starts from the beginning and "
        "appends all rows again.",
    )
    deletion_policy: Literal["Retain", "Forget"] = Field(
        default="Retain",
        description="Cluster: what happens to the records of a write when its object is deleted after a commit. Retain: they "
        "stay, and a new object of the same name continues from them. Forget: they are removed, and a new object of the same "
        "name is a new write. What is not committed is removed in either case.",
    )
    image: Annotated[str, Field(pattern=r"^\S+$", max_length=512)] | None = Field(
        default=None, description="Cluster: the image of the driver and executor pods. If absent, the operator's default applies."
    )
    service_account_name: ObjectName | None = Field(
        default=None, description="Cluster: the ServiceAccount of the driver pod. If absent, the operator's default applies."
    )
    storage_secret_name: ObjectName | None = Field(
        default=None,
        description="Cluster: a Secret in this namespace. Its key storage.json holds the storage settings of the driver and "
        "the executors. If absent, the operator's default applies.",
    )
    driver: DriverSpec = Field(default_factory=DriverSpec)
    executor: ExecutorSpec = Field(default_factory=ExecutorSpec)
    spark_conf: dict[str, Annotated[str, Field(max_length=8192)]] = Field(
        default_factory=dict,
        max_length=256,
        description="Spark properties. Their names start with 'spark.'. Write ${env:NAME} to insert an environment variable "
        "of the driver; secrets can be passed in no other way.",
    )

    rules: ClassVar = (
        Rule(
            f"!{is_given('trigger')} || !{is_given('ttlSecondsAfterFinished')}",
            "a write with a trigger never finishes; leave one of them out",
            "ttlSecondsAfterFinished",
        ),
        Rule(
            f"!{is_given('trigger')} || !({sorted(OVERWRITING)}.exists(mode, self.sink.mode == mode))",
            "each epoch of a write that overwrites reads the whole source, so that none of it is new; leave it out, "
            "and set another runNonce for another epoch",
            "trigger",
        ),
        Rule(
            f"!{is_given('trigger')} || !({is_given('atMost', 'self.trigger')} || {is_given('atLeast', 'self.trigger')}) || "
            f"!({' || '.join(is_given(name, 'self.source') for name in ('spark', 'program', 'kafka'))})",
            "atMost and atLeast count files, and this source has none that can be counted; leave them out",
            "trigger",
        ),
        Rule(
            f"!{is_given('trigger')} || !{is_given('atMost', 'self.trigger')} || {is_given('files', 'self.source')} || "
            f"({is_given('union', 'self.source')} && self.source.union.all(one, {is_given('files', 'one')}))",
            "atMost applies only to files; from a table, an epoch takes all new rows: leave it out",
            "trigger",
        ),
        Rule(
            "self.sink.mode != 'AddColumns' || self.stages.size() == 0",
            "AddColumns adds columns to the rows of the source, but stages replace these rows; use steps",
            "sink.mode",
        ),
        Rule(
            "self.stages.size() == 0 || self.steps.size() == 0",
            "stages replace steps: put the steps into a stage, or leave the stages out",
            "steps",
        ),
        named_once("self.stages.map(stage, stage.name)", "two stages are called '{}'; give each a name of its own", "stages"),
        none_is(
            f"self.stages.exists(other, other.kind == 'Aggregate' && other.name + '{SHUFFLE}' == one)",
            "self.stages.map(stage, stage.name)",
            "'{}' is the name of the pass before the Aggregate; give the stage another name",
            "stages",
        ),
        Rule(
            "self.stages.size() == 0 || self.stages[self.stages.size() - 1].checkpoint",
            "checkpoint: false does not apply to the last stage: its result is in the table",
            "stages",
        ),
        Rule(
            "self.stages.size() == 0 || self.quarantine.retry == 'Never'",
            "with stages, rows that failed are known by the results of stages, which end with their epoch; leave it out, and "
            "reset the stage instead",
            "quarantine.retry",
        ),
        none_is(
            "!self.stages.exists(stage, stage.name == one)",
            "self.reset.stages",
            "there is no stage '{}'",
            "reset.stages",
            unless=f"!{is_given('reset')}",
        ),
        Rule(
            f"!{is_given('reset')} || self.stages.size() == 0 || self.reset.stages.size() > 0",
            "say which stages are computed again: reset.stages names them",
            "reset.stages",
        ),
        Rule(
            "self.source.changes == 'Fail' || self.sink.mode == 'Upsert'",
            "changes: Upserts takes rows once more that have changed, so that the table would have them twice; set "
            "sink.mode: Upsert",
            "source.changes",
        ),
        Rule(
            "self.source.changes == 'Fail' || self.quarantine.retry == 'Never'",
            "with source.changes: Upserts, a row that failed is taken again when it changes; leave it out",
            "quarantine.retry",
        ),
        Rule(
            f"!{is_given('inherit')} || self.stages.size() > 1",
            "only results of stages are taken over, and that of the last one is in the table of the other write; divide the "
            "steps into stages",
            "inherit",
        ),
        Rule(
            f"!{is_given('inherit')} || {is_given('files', 'self.source')} || {is_given('lance', 'self.source')}",
            "inherit applies to source.files and source.lance; leave it out",
            "inherit",
        ),
        *SPARK_RULES,
        Rule(
            f"!{is_given('union', 'self.source')} || "
            f"({_is_read_once('iceberg', 'catalog', 'table')} && {_is_read_once('lance', *_LANCE)})",
            "a table is named twice, so that its rows would come twice; name it once",
            "source.union",
        ),
        Rule(
            "self.sink.mode == 'AddColumns' || "
            f"(!({_is_read_and_written('iceberg', 'catalog', 'table')}) && !({_is_read_and_written('lance', *_LANCE)}))",
            "source and sink are one table: what a run appends would be the next one's input; use another table, or add columns "
            "to its rows (sink.mode: AddColumns)",
        ),
        Rule(
            # Whether there is a slash at the end does not matter.
            f"self.sink.mode != 'AddColumns' || ({is_same_table('lance', 'self.source', 'self.sink', 'namespace', 'table')} && "
            f"(!{is_given('uri', 'self.sink.lance')} || ((self.source.lance.uri + '/').startsWith(self.sink.lance.uri) && "
            "(self.sink.lance.uri + '/').startsWith(self.source.lance.uri))) && "
            f"!{is_given('version', 'self.source.lance')})",
            "sink.mode: AddColumns adds columns to the rows that are read: name the dataset of the sink as the source, too "
            "(source.lance), without a version",
        ),
        Rule(
            "self.sink.mode != 'AddColumns' || self.steps.size() > 0",
            "nothing makes the columns of sink.columns; add a step",
            "steps",
        ),
        Rule(
            "self.sink.mode in ['Append', 'Upsert'] || self.quarantine.retry == 'Never'",
            "with an overwriting sink.mode each epoch reads the whole source, quarantined rows too, and with AddColumns they are "
            "NULL, so that a write of another name takes them; leave it out",
            "quarantine.retry",
        ),
        Rule(
            f"!{is_given('kafka', 'self.source')} || self.source.kafka.onLost == 'Stall' || self.onRowError == 'Quarantine'",
            "source.kafka.onLost: Skip needs onRowError: Quarantine, because lost offsets are quarantined",
        ),
        Rule(
            # In whole seconds, rounded up. Durations can be added in CEL, but not multiplied.
            f"!{is_given('progressDeadlineSeconds')} || [duration(self.checkpoint.interval)].map(one, one + one).all(two, "
            f"self.progressDeadlineSeconds >= ((quantity(string(self.checkpoint.minimumBytes)) == quantity('0') ? two : "
            f"{' + '.join(['two'] * MOST_INTERVALS)}) + duration('999999999ns')).getSeconds())",
            "less than 20 times checkpoint.interval (2 times where minimumBytes is 0), twice what a seal may take: attempts at "
            "work would be given up; leave it out, or raise it, or lower the interval",
            "progressDeadlineSeconds",
        ),
    )

    @model_validator(mode="after")
    def _keeps_results_of_rows_that_have_a_name(self) -> Spec:
        for together in done_together(self.placed_steps(), self.stages):
            after_batches = False
            for place, step in together:
                if step.memo and after_batches:
                    raise at_fields((f"{place}.memo", _BATCHES_BEFORE))
                after_batches = after_batches or step.input != "row"
        return self

    def placed_steps(self) -> Iterator[tuple[str, Step]]:
        """Give all steps, those of stages too, with their fields' paths."""
        yield from ((f"steps.{number}", step) for number, step in enumerate(self.steps))
        for at, stage in enumerate(self.stages):
            yield from ((f"stages.{at}.steps.{number}", step) for number, step in enumerate(stage.steps))

    @property
    def last_part(self) -> StagePart:
        """What is done last, whose result is committed: all of the steps, or the last stage and what is done together with it."""
        return parts_of(self.stages, self.reset)[-1] if self.stages else StagePart("", self.steps)

    @property
    def last_step(self) -> tuple[str, Step] | None:
        """The step that gives the table its rows, with its field's path; None where rows are copied."""
        steps = list(self.placed_steps())
        return steps[-1] if steps else None

    @model_validator(mode="after")
    def _opens_no_foreign_scheme(self) -> Spec:
        # Here and not in the sections, so that a record that has one stays readable.
        for place, uri in self.named_uris():
            if (why := why_not_opened(uri)) is not None:
                raise at_fields((place, why))
            # The paths of files are patterns: one that means nothing is refused when they are looked for.
            if ".files.paths" not in place and (why := why_not_expanded(uri)) is not None:
                raise at_fields((place, why))
        return self

    def named_uris(self) -> Iterator[tuple[str, str]]:
        """Give all that we open ourselves, with the field's path; paths of Spark's own formats are Spark's."""
        yield "checkpoint.uri", self.checkpoint.uri
        if self.code.path is not None:
            yield "code.path", self.code.path
        yield from ((f"sink.{self.sink.format}.{field}", uri) for field, uri in self.sink.named.uris.items())
        of_union = self.source.union is not None
        for number, member in enumerate(self.source.members):
            place = f"source.union.{number}" if of_union else "source"
            yield from ((f"{place}.{member.kind}.{field}", uri) for field, uri in member.uris.items())

    @model_validator(mode="after")
    def _bounds_what_has_no_form(self) -> Spec:
        # Here and not in the sections, so that a record that has more stays readable.
        for place, value in self._free_forms():
            if (length := len(json.dumps(value))) > MAX_FREE_FORM_LENGTH:
                why = f"it has {length:,} characters as JSON, and {MAX_FREE_FORM_LENGTH:,} at most; put more into a file"
                raise at_fields((place, why))
        return self

    def _free_forms(self) -> Iterator[tuple[str, dict[str, JsonValue]]]:
        yield from ((f"{place}.arguments", step.arguments) for place, step in self.placed_steps())
        yield "driver.template", self.driver.template
        yield "executor.template", self.executor.template

    @model_validator(mode="after")
    def _names_each_column_once(self) -> Spec:
        # Here and not in Source, so that a record that has one stays readable.
        keyed = "spark" if self.source.spark is not None else "program"
        for field, names in (("columns", self.source.columns or ()), (f"{keyed}.keyColumns", self.source.key_columns)):
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise ValueError(f"source.{field}: the column {twice!r} is named twice; name it once")
        return self

    @model_validator(mode="after")
    def _streams_what_can_be_streamed(self) -> Spec:
        if problems := list(why_no_stream(self)):
            raise at_fields(*problems)
        return self

    @property
    def checkpoint_volume(self) -> CheckpointVolume | None:
        """Where Spark keeps its own checkpoint of a stream, in a cluster."""
        return self.source.stream.checkpoint_volume if self.source.stream is not None else None

    @property
    def progress_deadline_s(self) -> float:
        """After how long without a new seal an attempt is given up."""
        if self.progress_deadline_seconds is not None:
            return float(self.progress_deadline_seconds)
        return derived_progress_deadline_s(self.checkpoint.interval, self.checkpoint.minimum_bytes)

    @property
    def reset_nonce(self) -> str:
        """Of a write without stages: sealed rows that another one asked for do not count any more."""
        return self.reset.nonce if self.reset is not None and not self.stages else ""

    @property
    def identity(self) -> dict[str, JsonValue]:
        """What may not change under one name: source (but for how text is read), sink and checkpoint as plain data.

        The source may, while no row of it is sealed.

        Defaults are left out, so that a field that a later version adds does not change the identity of an older write.
        """
        return {
            "source": self.source.identity,
            "sink": self.sink.identity,
            "checkpoint": {"uri": self.checkpoint.uri},
            **({"inherit": self.inherit} if self.inherit is not None else {}),
        }

    @property
    def identity_digest(self) -> str:
        text = json.dumps(self.identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class Metadata(Section):
    """The part of Kubernetes' object metadata that we read; the rest is passed over, as kubectl does."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[Label, Field(max_length=MAX_NAME_LENGTH)]
    namespace: Label = "default"


class CheckpointedWrite(Section):
    """A whole manifest."""

    api_version: Literal["checkpointed.dev/v1alpha1"]
    kind: Literal["CheckpointedWrite"]
    metadata: Metadata
    spec: Spec

    @property
    def row_keys(self) -> str:
        """What the keys of its rows are made of, on one machine."""
        return row_keys_of(self.spec.checkpoint.uri, self.metadata.namespace, self.metadata.name)


class ManifestInvalid(NeedsChange):
    """The manifest is wrong; `problems` has one line a problem, each starting with the field's path.

    `said`: the same ones as a person is told them, with the file and the line where they are known.
    """

    def __init__(self, problems: tuple[str, ...], said: tuple[str, ...] = ()) -> None:
        self.problems = problems
        self.said = said or problems
        super().__init__(reasons.MANIFEST_INVALID, "; ".join(self.said))


def parse_manifest(document: Any) -> CheckpointedWrite:
    """Return the manifest in a parsed YAML or JSON document; ManifestInvalid lists all that is wrong with it."""
    if not isinstance(document, dict):
        raise ManifestInvalid((f"a {KIND} manifest is expected (a mapping), not {type(document).__name__}",))
    if document.get("kind") != KIND or document.get("apiVersion") != API_VERSION:
        found = f"{document.get('apiVersion')!r} {document.get('kind')!r}"
        raise ManifestInvalid((f"apiVersion: {API_VERSION} and kind: {KIND} are expected, not {found}",))
    return validate_model(CheckpointedWrite, document)


def validate_model(model: type[_Model], document: Any) -> _Model:
    """Validate plain data from YAML against a strict model; ManifestInvalid lists each problem with its field path."""
    _refuse_what_is_too_deep(document)
    try:
        # Through JSON, so that lists serve as tuples while numbers in quotes stay errors.
        text = json.dumps(document, default=_refuse_yaml_type, allow_nan=False)
    except (TypeError, ValueError) as error:  # .nan and .inf, a list as a key, an anchor inside itself
        raise ManifestInvalid((f"(top level): a value cannot be written as JSON: {error}",)) from None
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise ManifestInvalid(tuple(explain(model, problem) for problem in true_of(error.errors(include_url=False)))) from None


def _refuse_what_is_too_deep(document: Any) -> None:
    """Check before anything recursive does: each value, once for each place where it stands."""
    level, depth, values = [("", document)], 0, 0
    while level:
        below: list[tuple[str, Any]] = []
        for place, value in level:
            items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            if items and depth == MOST_DEPTH:
                raise ManifestInvalid((f"{place}: it is nested more than {MOST_DEPTH} deep",))
            # A few names tell the place; the whole path would be most of the message.
            below += [(place if depth >= _NAMES_SHOWN else f"{place}.{str(name)[:64]}".lstrip("."), one) for name, one in items]
            if values + len(below) > MOST_VALUES:
                raise ManifestInvalid((f"(top level): it has more than {MOST_VALUES:,} values, with what aliases stand for",))
        level, depth, values = below, depth + 1, values + len(below)


def _refuse_yaml_type(value: object) -> str:
    # YAML turns 2024-01-01 into a date; the user meant text, and JSON has no dates.
    return str(value)
