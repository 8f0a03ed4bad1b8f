"""Leave out 10 million sealed keys from 20 million rows: the anti-join of the DataFrame way against Spark's own.

Both read the same rows and the same Parquet objects of keys, and add up hashes of the rows that are left. Ours reads the objects
in tasks of its own, as it does from any checkpoint store, and chooses its strategy; Spark reads them itself and is told each of
its three strategies by a hint: the best of the warm-up is the one that is measured. The count and fingerprint that come before
the anti-join have no counterpart; their time is told beside it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import plain_spark
from benchmarks.bench import Bench
from benchmarks.pairs import OutputsDiffer, Ran, interleave
from benchmarks.results import Result, result_of
from checkpoint_formats import keys_objects
from checkpoint_protocol.records import KeySet, KeysObject
from checkpoint_protocol.rows.keys import add_key_sets, key_set
from checkpoint_spark.dataframes import anti_join
from checkpoint_spark.dataframes.anti_join import Skipped
from checkpoint_spark.driver.session import properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS: Final = 20_000_000
_OBJECT_ROWS: Final = 1 << 20
_FILES: Final = 16
_MEMORY: Final = "8g"
_STRATEGIES: Final[tuple[anti_join.Strategy, ...]] = ("broadcast", "shuffle_hash", "merge")


def measure(bench: Bench) -> Iterator[Result]:
    from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

    count = 100_000 if bench.small else _ROWS
    for name, title, kind in (("int64", "int64", LongType()), ("text", "strings of 36 characters", StringType())):
        folder = bench.folder / name
        sealed = _write(folder, count, is_text=name == "text")
        schema = StructType([StructField("source", IntegerType(), False), StructField("k0", kind, False)])
        with plain_spark.session(bench.folder / "plain", bench.cores, _MEMORY) as spark:
            sides = _Sides(spark, folder, sealed, schema, bench.cores)
            expected = sides.spark("merge").output
            for _ in range(2):  # the second time counts: whoever comes first pays for what Java has not compiled yet
                warm = {strategy: sides.spark(strategy) for strategy in _STRATEGIES}
            if any(ran.output != expected for ran in warm.values()):
                raise OutputsDiffer(f"Spark's strategies leave {[ran.output for ran in warm.values()]}")
            told = ", ".join(f"{strategy} {ran.seconds:.2f} s" for strategy, ran in warm.items())
            best = min(_STRATEGIES, key=lambda strategy: warm[strategy].seconds)
            bench.say(f"{title}: Spark by {told}; ours goes by {sides.strategy}")
            pair = {"Spark": lambda: sides.spark(best), "ours": sides.ours}  # noqa: B023 - called within this round
            times = interleave(pair, expected, bench.rounds, bench.warm_ups, bench.say)
            count_s = sides.count()
        yield result_of(
            f"anti-join-{name}",
            f"{count:,} rows without {sealed.keys.rows:,} sealed keys ({title}): ours ({sides.strategy}) / Spark's best ({best})",
            times,
            "ours",
            "Spark",
            target=1.1,
            seen=[f"Spark in the warm-up: {told}", f"the count and fingerprint before it take {count_s:.2f} s more (one run)"],
        )


def _write(folder: Path, count: int, is_text: bool) -> anti_join.Sealed:
    """Write rows in 16 files, and every second one's key into objects as seals name them."""
    (folder / "rows").mkdir(parents=True)
    (folder / "store" / "keys").mkdir(parents=True)
    objects = []
    part = count // _FILES
    for number in range(_FILES):
        # Times an odd number: each once, in no order.
        values = np.arange(number * part, (number + 1) * part, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        column: Any = pa.array(values.view(np.int64))
        if is_text:
            column = pc.binary_join_element_wise(*(_hex(values, salt) for salt in (1, 2)), "-")
            column = pc.binary_join_element_wise(column, "row", "")
        pq.write_table(
            pa.table({"k": column, "value": pa.array(values.astype(np.float64))}), folder / "rows" / f"{number}.parquet"
        )
        half = column.take(pa.array(np.arange(0, part, 2)))
        for start in range(0, len(half), _OBJECT_ROWS):
            some = half.slice(start, _OBJECT_ROWS)
            path = f"keys/{number}-{start}.parquet"
            data = keys_objects.write_object(pa.table({"source": pa.array(np.zeros(len(some), np.int32)), "k0": some}))
            (folder / "store" / path).write_bytes(data)
            objects.append(KeysObject(path=path, rows=len(some), size_bytes=len(data), values_bytes=some.nbytes))
    return anti_join.Sealed(tuple(objects), key_set(sum(item.rows for item in objects), 0, 0))


def _hex(values: Any, salt: int) -> pa.Array:
    """Return 16 hex digits for each value."""
    return pa.array([f"{value:016x}" for value in (values * np.uint64(2 * salt + 1)).tolist()])


class _Sides:
    """Both sides over one Spark: each in a session of its own, with the properties that it would have."""

    def __init__(self, spark: SparkSession, folder: Path, sealed: anti_join.Sealed, schema: Any, cores: int) -> None:
        self._plain = spark
        self._folder = folder
        self._session = spark.newSession()
        for name, value in properties({}, cores).items():
            self._session.conf.set(name, value)
        partitions = int(str(self._session.conf.get("spark.sql.shuffle.partitions")))
        self.strategy = anti_join.choose_strategy(
            sealed.hashed_bytes(schema), int(_MEMORY.removesuffix("g")) << 30, partitions, cores
        )
        frame = anti_join.as_dataframe(self._session, f"file://{folder}/store", sealed, schema)
        self._skipped = Skipped(sealed, frame, self.strategy)

    def spark(self, strategy: anti_join.Strategy) -> Ran:
        sealed = self._plain.read.parquet(str(self._folder / "store" / "keys")).select("k0")
        rows = self._rows(self._plain)
        return self._ran(rows.join(sealed.hint(strategy), rows["k"] == sealed["k0"], "left_anti"))

    def ours(self) -> Ran:
        return self._ran(self._skipped.remove_from(self._rows(self._session), 0, ("k",)))

    def count(self) -> float:
        """Count the rows that would be skipped, as an attempt does before its anti-join; return the seconds."""
        started = time.perf_counter()
        frame = self._rows(self._session).selectExpr("k AS k0")
        found: KeySet = anti_join.count_matching([frame], self._skipped.frame, self.strategy)
        assert found.rows == self._skipped.sealed.keys.rows != add_key_sets(()).rows, found
        return time.perf_counter() - started

    def _rows(self, session: SparkSession) -> DataFrame:
        return session.read.parquet(str(self._folder / "rows"))

    def _ran(self, left: DataFrame) -> Ran:
        from pyspark.sql import functions as sql

        cast(Any, self._plain)._jvm.System.gc()  # Spark lets go of the broadcasts of earlier runs when they are collected
        started = time.perf_counter()
        hashed = left.select(sql.xxhash64("k", "value").alias("hash"))
        found = hashed.agg(sql.count(sql.lit(1)), sql.sum(sql.col("hash").cast("decimal(38,0)"))).collect()[0]
        return Ran(time.perf_counter() - started, cast(tuple[int, int], (found[0], int(found[1]))))
