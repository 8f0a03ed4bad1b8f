"""What `validate` finds, as it is shown: field names in camelCase that do not change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import Field

from checkpoint_control.views.inspected import Shown
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.spec import ManifestInvalid

_MOST_SAID: Final = 10


class Problem(Shown):
    """Something that would stop a run, or make it do what is not meant."""

    path: str = Field(description="The field, e.g. spec.sink.iceberg.catalog; empty if it is no single one.")
    message: str
    place: str | None = Field(default=None, description="The file and line of the field, e.g. write.yaml:12; null if not known.")


class Bounds(Shown):
    """A number that is known from its limits only."""

    at_least: int
    at_most: int | None = Field(description="Null: it depends on what the steps give and how long they take.")
    why: str


class ColumnType(Shown):
    """A column of a CSV or JSON source, as a run would read it now. The first attempt of an epoch fixes that."""

    column: str
    type: str = Field(description="By the names that source.files.types has; of JSON fields with fields in them, by Arrow's.")
    inferred: bool = Field(description="False: source.files.types gives it.")
    why: str = Field(
        description="The text that decided, where it stands, and what is the matter with it; of JSON, a value that has the type."
    )


class Prediction(Shown):
    """What a run would do now."""

    source_files: int | None = Field(description="Null: only Spark can tell.")
    source_bytes: int | None
    source_rows: int | None = Field(description="Where every file tells it without being read.")
    columns: tuple[ColumnType, ...] = Field(
        description="Of CSV and JSON, whose types are told by their first rows; empty otherwise."
    )
    row_identity: str = Field(description="By what a row is known from one attempt to the next.")
    cores: int = Field(description="How many tasks `run` has at once by default on this machine.")
    tasks: Bounds
    data_files: Bounds
    target: str
    target_exists: bool | None = Field(description="Null: it could not be told.")
    target_would_be_created: bool
    what_a_commit_does: str = Field(description="What becomes of the rows that the table has, by sink.mode.")
    checkpoint_uri: str
    checkpoint_exists: bool | None
    a_crash_costs: str = Field(description="How much work is computed again at most, by checkpoint.")
    write: str = Field(description="What the store says of this write already, in a sentence.")
    not_tried: str = Field(description="What only a run would find out.")


class Report(Shown):
    """The whole answer."""

    name: str | None = Field(description="Of the write; null where the manifest cannot be read.")
    valid: bool
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    prediction: Prediction | None = Field(description="Null where the manifest or the source cannot be read.")


@dataclass(slots=True)
class Findings:
    """Problems and notes, as they are found."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def problem(self, path: str, message: str) -> None:
        self.problems.append(Problem(path=path, message=message))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def error(self, path: str, error: CheckpointError) -> None:
        """Take an error over: each problem of a manifest with its own path, anything else under the given one.

        Under its own, too, where the message begins with a field of the manifest.
        """
        if not isinstance(error, ManifestInvalid):
            field, _, message = error.message.partition(": ")
            if field.startswith("spec.") and " " not in field:
                self.problem(field, message)
            else:
                self.problem(path, error.message.removeprefix(f"{path}: ").removeprefix("source: "))
            return
        for problem in error.problems:
            head, separator, message = problem.partition(": ")
            if separator and (" " not in head or head == "(top level)"):
                self.problem(f"{path}.{head}" if path else head, message)
            else:
                self.problem(path, problem)


def say_of_files(messages: Sequence[str], findings: Findings) -> None:
    """Say what is wrong with files: each of the first ones, and how many more there are."""
    for message in messages[:_MOST_SAID]:
        findings.problem("spec.source", message)
    if len(messages) > _MOST_SAID:
        findings.problem("spec.source", f"{len(messages) - _MOST_SAID} more files are wrong like these")
