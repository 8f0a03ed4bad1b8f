"""What a program of `source.program` is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Job(Protocol):
    """All that a program has to know of checkpointing.

    def main(job: Job) -> None:
        orders = job.read(job.spark.read.orc("/data/orders"))
        job.write(orders.selectExpr("id", "upper(country) AS country"))
    """

    @property
    def spark(self) -> SparkSession:
        """The session."""

    def read(self, dataframe: DataFrame, keys: Sequence[str] | None = None) -> DataFrame:
        """Return the rows of a source that are not sealed yet; `keys` are the manifest's keyColumns unless they are named.

        Sources are told apart by the order in which they are read, which must be the same in every attempt.
        """

    def write(self, dataframe: DataFrame) -> None:
        """Run the steps on these rows, stage and seal them. To be called once, with rows made of what `read` gave."""

    def stream(
        self,
        dataframe: DataFrame,
        outputMode: str | None = None,  # noqa: N803 Spark's name
        *,
        availableNow: bool = False,  # noqa: N803
        processingTime: str | None = None,  # noqa: N803
    ) -> None:
        """Run a streaming query: each micro-batch goes through the steps, and is committed by itself, exactly once.

        With source.program.stream in the manifest, in the place of `read` and `write`; to be called once. Returns when the query
        has ended: with availableNow when all that was there is committed, else when the run ends. `outputMode`: that of the
        manifest. `processingTime`: begin a micro-batch so often ("10 seconds"); by default when the last one is committed.
        """
