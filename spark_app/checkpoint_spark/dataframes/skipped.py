"""Rows of a source that are sealed already: their keys as a frame, and how it is joined with the source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from checkpoint_protocol.manifest.quantities import parse_size_bytes
from checkpoint_protocol.records import TakenKeys
from checkpoint_protocol.rows.keys import add_key_sets
from checkpoint_spark.dataframes import anti_join, keys
from checkpoint_spark.dataframes.names import column


@dataclass(slots=True)
class Skipped:
    """Sealed keys, and how they meet the rows."""

    sealed: anti_join.Sealed
    frame: DataFrame
    strategy: anti_join.Strategy

    def remove_from(self, frame: DataFrame, number: int, key_names: tuple[str, ...]) -> DataFrame:
        """Return the rows of a source without those that have one of the keys."""
        return self._joined(frame, number, key_names, "left_anti")

    def keep_in(self, frame: DataFrame, number: int, key_names: tuple[str, ...]) -> DataFrame:
        """Return the rows of a source that have one of the keys."""
        return self._joined(frame, number, key_names, "left_semi")

    def _joined(self, frame: DataFrame, number: int, key_names: tuple[str, ...], kind: str) -> DataFrame:
        names = [f"{keys.HIDDEN_PREFIX}{keys.column_of(place)}" for place in range(len(key_names))]
        own = anti_join.of_source(self.frame, number).select(
            *(sql.col(keys.column_of(place)).alias(name) for place, name in enumerate(names))
        )
        equal = [column(key) == sql.col(name) for key, name in zip(key_names, names, strict=True)]
        return frame.join(own.hint(self.strategy), reduce(lambda one, other: one & other, equal), kind)


def of_earlier(session: SparkSession, uri: str, taken: TakenKeys, schema: StructType) -> anti_join.Sealed:
    """Return what earlier epochs have committed, with a result or quarantined; what it adds up to has each key once."""
    with_result, quarantined = anti_join.with_result(taken), anti_join.quarantined(taken)
    outstanding = quarantined.keys
    if taken.was_retried and quarantined.objects:
        failed, done = (
            anti_join.as_dataframe(session, uri, sealed, schema) if sealed.objects else None
            for sealed in (quarantined, with_result)
        )
        assert failed is not None
        outstanding = anti_join.count_outstanding(failed, done)
    return anti_join.Sealed(taken.objects, add_key_sets([with_result.keys, outstanding]))


def join_with_sealed(
    session: SparkSession, uri: str, sealed: anti_join.Sealed, schema: StructType, tasks_at_once: int
) -> Skipped | None:
    """Return sealed keys as a frame, with the join that their number and the memory of the session allow; None for no keys."""
    if not sealed.objects:
        return None
    conf = session.sparkContext.getConf()
    heaps = [conf.get(f"spark.{role}.memory", "1g") or "1g" for role in ("driver", "executor")]
    is_local = (conf.get("spark.master") or "").startswith("local")
    memory_bytes = min(_heap_bytes(heap) for heap in (heaps[:1] if is_local else heaps))
    partitions = int(str(session.conf.get("spark.sql.shuffle.partitions")))
    strategy = anti_join.choose_strategy(sealed, memory_bytes, partitions, tasks_at_once)
    return Skipped(sealed, anti_join.as_dataframe(session, uri, sealed, schema), strategy)


def _heap_bytes(text: str) -> int:
    """Read a size as Spark writes it: 512m, 2g, or bytes."""
    units = {"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti"}
    digits, unit = text.lower().rstrip("b"), ""
    if digits and digits[-1] in units:
        digits, unit = digits[:-1], units[digits[-1]]
    return int(parse_size_bytes(f"{digits}{unit}"))
