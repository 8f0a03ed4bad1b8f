"""What reads the source and hands its rows over: the manifest's own options, or a program that has a job.

Errors of Spark are translated here, and no secret of the source gets into a message.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable
from checkpoint_protocol.manifest.sources.source import ProgramSource, SparkSource
from checkpoint_protocol.records import LaunchRecord
from checkpoint_spark.dataframes.reading import Secrets, first_line, read_source
from checkpoint_work.tasks.failures import of_spark

_INPUT_VIEW: Final = "input"


class Work(Protocol):
    """What becomes of the rows that Spark reads."""

    @property
    def session(self) -> SparkSession: ...

    @property
    def launch(self) -> LaunchRecord: ...

    @property
    def is_written(self) -> bool:
        """Whether `write` was called."""

    def read(self, frame: DataFrame, key_names: tuple[str, ...], is_numbered: bool = False) -> DataFrame:
        """Return the rows of a source that are to be done. `is_numbered`: with the number of the source, if there are several."""

    def write(self, frame: DataFrame) -> None:
        """Take what was made of them."""


def write_source(work: Work) -> None:
    """Read the source as the manifest or the program says, and hand it over. Raises CheckpointError, without secrets."""
    launch, secrets = work.launch, Secrets()
    with errors_of_spark(secrets):
        match launch.source.keyed:
            case ProgramSource(call=call):
                run_program(call, Job(work))
            case SparkSource() as source:
                work.write(_of_the_manifest(work, source, secrets))
            case None:
                raise Corrupt(reasons.RECORD_UNREADABLE, f"the launch record of attempt {launch.attempt} has no source for Spark")
            case other:
                assert_never(other)
    if not work.is_written:
        program = launch.source.program.call if launch.source.program is not None else "of the source"
        raise NeedsChange(reasons.CODE_FAILED, f"the program {program} returned without having called job.write(dataframe)")


@contextmanager
def errors_of_spark(secrets: Secrets) -> Iterator[None]:
    """Translate what Spark raises, and let no secret out in a message."""
    try:
        yield
    except CheckpointError as error:
        raise type(error)(error.reason, secrets.hide(error.message)) from None
    except (AnalysisException, ParseException) as error:
        raise NeedsChange(reasons.MANIFEST_INVALID, secrets.hide(f"Spark refuses the query: {first_line(error)}")) from None
    except (Py4JError, PySparkException) as error:
        found = of_spark(error)
        raise type(found)(found.reason, secrets.hide(found.message)) from None
    except Exception as error:
        gist = f"{type(error).__name__}: {error}"
        if secrets.hide(gist) == gist:
            raise
        raise Retryable(reasons.DRIVER_FAILED, f"the driver ended unexpectedly: {secrets.hide(gist)}") from None


def _of_the_manifest(work: Work, source: SparkSource, secrets: Secrets) -> DataFrame:
    frame = work.read(read_source(work.session, source, work.launch.source.columns, secrets), source.key_columns)
    if source.sql is None:
        return frame
    frame.createOrReplaceTempView(_INPUT_VIEW)
    return work.session.sql(source.sql)


def run_program(call: str, job: object) -> None:
    """Call the program with its job. Raises CheckpointError, or what Spark raises."""
    module_name, name = call.split(":")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"there is no {call} ({error}); put its module where spec.code says, or install its package",
        ) from error
    try:
        found(job)
    except (CheckpointError, Py4JError, PySparkException):
        raise
    except BaseException as error:  # sys.exit, too, and what native libraries raise
        raise NeedsChange(reasons.CODE_FAILED, f"the program {call} raised {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Job:
    """All that an own program has to know of checkpointing."""

    _work: Work

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._work.session

    def read(self, dataframe: DataFrame, keys: tuple[str, ...] | list[str] | None = None) -> DataFrame:
        """Return the rows of a source that are not sealed yet; `keys` are the manifest's keyColumns unless they are named.

        Sources are told apart by the order in which they are read, which must be the same in every attempt.
        """
        return self._work.read(dataframe, tuple(keys or self._work.launch.source.key_columns), is_numbered=True)

    def write(self, dataframe: DataFrame) -> None:
        """Run the steps on these rows, stage and seal them. To be called once, with rows made of what `read` gave."""
        self._work.write(dataframe)

    def stream(self, dataframe: DataFrame, outputMode: str | None = None, **_options: object) -> None:  # noqa: N803 Spark's name
        """Refused: the manifest says that rows are known by their keys."""
        raise NeedsChange(
            reasons.STREAM_REFUSED,
            "job.stream was called, and the manifest has keyColumns: say source.program.stream in their place, or call job.write",
        )
