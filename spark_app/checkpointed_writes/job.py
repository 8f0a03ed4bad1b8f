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
