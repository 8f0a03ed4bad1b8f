"""Skips what is sealed: keys of closed attempts and earlier epochs, as a DataFrame that no process holds whole.

The driver knows the names and sizes of the keys objects, from the seals; tasks read them, with the storage settings that they
read and write everything else with, so that Spark needs no connector for the checkpoint store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final, Literal

import pyarrow as pa
from pydantic import TypeAdapter
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegralType, StructType

from checkpoint_formats.keys_objects import read_sealed
from checkpoint_formats.rows.plain_types import decode_schema, encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.quantities import parse_size_bytes
from checkpoint_protocol.records import KeySet, KeysObject, TakenKeys
from checkpoint_protocol.rows.keys import add_key_sets, key_set
from checkpoint_protocol.store.object_store import open_store
from checkpoint_spark.dataframes import anti_join, keys
from checkpoint_spark.dataframes.reading import column
from checkpoint_spark.dataframes.rows_by_key import keys_of
from checkpoint_work.tasks.executor import storage_settings
from checkpoint_work.tasks.failures import end_task

Strategy = Literal["broadcast", "shuffle_hash", "merge"]

#: Keys that one task reads, in bytes of their objects.
_GROUP_BYTES: Final = 16 << 20
#: What Spark's hash tables take at most: for each of their slots, of which there are a power of two and at least two for a key;
#: for a key that is a single integer (LongToUnsafeRowMap: its row and a pointer, in an array that doubles); for any other key
#: (BytesToBytesMap: lengths and a pointer), which is there as key and as value, each with what a row (UnsafeRow: which values
#: are NULL) and a value (a word, and padding) take beside the bytes of the values.
_SLOT_BYTES: Final = 16
_INTEGER_BYTES: Final = 2 * (16 + 8)
_ENTRY_BYTES: Final = 16
_ROW_BYTES: Final = 8
_VALUE_BYTES: Final = 8 + 7
#: The hash tables that are in use at once may take an eighth of the heap. There may be three for one read (of this epoch, of
#: earlier ones, of rows taken again), and Spark lets go of those of the count before it at the next collection at the soonest.
_OF_HEAP: Final = 8
_EXAMPLES: Final = 3
_LANE_MASK: Final = 0xFFFF_FFFF
_OBJECTS: Final = TypeAdapter(list[KeysObject])


@dataclass(frozen=True, slots=True)
class Sealed:
    """Keys that are sealed: where they lie, and what they add up to."""

    objects: tuple[KeysObject, ...]
    keys: KeySet

    def hashed_bytes(self, schema: StructType) -> int:
        """What a hash table of Spark takes for them, at most. `schema`: the source's number, and the key columns."""
        rows = sum(item.rows for item in self.objects)
        slots_bytes = _SLOT_BYTES << (2 * rows).bit_length()
        types = [field.dataType for field in schema.fields[1:]]
        if len(types) == 1 and isinstance(types[0], IntegralType):
            return slots_bytes + rows * _INTEGER_BYTES
        values_bytes = sum(item.values_bytes for item in self.objects)
        return slots_bytes + rows * (_ENTRY_BYTES + 2 * (_ROW_BYTES + _VALUE_BYTES * len(types))) + 2 * values_bytes


def sealed_by(ledger: Ledger, attempts: Iterable[int]) -> Sealed:
    """Return what the counted seals of these attempts cover."""
    covered = [keys_of(seal) for seal in ledger.chains.counted_seals(attempts)]
    return Sealed(tuple(item for each in covered for item in each.objects), add_key_sets(each.keys for each in covered))


def with_result(taken: TakenKeys) -> Sealed:
    """Return what earlier epochs have committed with a result."""
    return Sealed(tuple(item for item in taken.objects if not item.quarantined), taken.with_result)


def quarantined(taken: TakenKeys) -> Sealed:
    """Return what earlier epochs have quarantined."""
    return Sealed(tuple(item for item in taken.objects if item.quarantined), taken.quarantined)


def choose_strategy(hashed_bytes: int, memory_bytes: int, partitions: int, tasks_at_once: int) -> Strategy:
    """Choose how the keys meet the rows, by what they take hashed. `memory_bytes`: the heap of the smallest process that joins.

    Broadcast, where every process can hold all of them beside what it does otherwise; hash tables of shuffled parts, where
    those that are built at once fit; else sorted, which spills.
    """
    if hashed_bytes <= memory_bytes // _OF_HEAP:
        return "broadcast"
    if hashed_bytes // partitions * tasks_at_once <= memory_bytes // _OF_HEAP:
        return "shuffle_hash"
    return "merge"


def as_dataframe(session: SparkSession, uri: str, sealed: Sealed, schema: StructType) -> DataFrame:
    """Return the sealed keys: the source's number and k0, k1, ..., of the types of the source's key columns."""
    groups: list[str] = []
    group: list[KeysObject] = []
    group_bytes = 0
    for item in sealed.objects:
        if group and group_bytes + item.size_bytes > _GROUP_BYTES:
            groups.append(_OBJECTS.dump_json(group).decode())
            group, group_bytes = [], 0
        group.append(item)
        group_bytes += item.size_bytes
    groups.append(_OBJECTS.dump_json(group).decode())
    rows = session.sparkContext.parallelize([(text,) for text in groups], len(groups))
    listed = session.createDataFrame(rows, "objects string")
    return listed.mapInArrow(partial(_read_objects, uri, encode_schema(to_arrow_schema(schema))), schema)


def _read_objects(uri: str, schema_text: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = decode_schema(schema_text)
    try:
        store = open_store(uri, storage_settings())
        for batch in batches:
            for text in batch.column(0).to_pylist():
                for item in _OBJECTS.validate_json(text):
                    table = read_sealed(item, store.get(item.path, item.size_bytes), f"{uri}/{item.path}")
                    yield from table.rename_columns(schema.names).cast(schema).to_batches()
    except CheckpointError as error:
        end_task(error)


def hashes(columns: list[Column]) -> list[Column]:
    """Return the two hashes of a key (source number first), under the names that tasks know them by."""
    return [sql.xxhash64(sql.lit(seed), *columns).alias(name) for seed, name in ((1, keys.FIRST), (2, keys.SECOND))]


def of_source(sealed: DataFrame, number: int) -> DataFrame:
    """Return the sealed keys of one source. Without its number, a single integer column stays what Spark joins fastest."""
    return sealed.where(sql.col("source") == number).drop("source")


def count_matching(sources: Sequence[DataFrame], sealed: DataFrame, strategy: Strategy) -> KeySet:
    """Count the rows of the sources that have a sealed key, and add up their hashes.

    The sources come in the order of their numbers, each with the columns k0, k1, ...
    """
    matching = [
        keys_of_source.join(of_source(sealed, number).hint(strategy), keys_of_source.columns, "left_semi").select(
            *hashes([sql.lit(number), *(sql.col(name) for name in keys_of_source.columns)])
        )
        for number, keys_of_source in enumerate(sources)
    ]
    return _added_up(reduce(DataFrame.unionAll, matching))


def count_outstanding(quarantined: DataFrame, with_result: DataFrame | None) -> KeySet:
    """Count the quarantined keys of which no epoch has made a result since, each once, and add up their hashes."""
    left = quarantined.distinct()
    if with_result is not None:
        left = left.join(with_result, left.columns, "left_anti")
    return _added_up(left.select(*hashes([sql.col(name) for name in left.columns])))


def _added_up(hashed: DataFrame) -> KeySet:
    """Return what keys add up to, of which these are the hashes."""
    # In halves of 32 bits, so that no sum leaves 64 bits before there are 2^31 rows; beyond that Spark says so.
    lanes = [
        sql.sum(part).alias(f"{name}{place}")
        for name in (keys.FIRST, keys.SECOND)
        for place, part in enumerate((sql.col(name).bitwiseAND(sql.lit(_LANE_MASK)), sql.shiftrightunsigned(name, 32)))
    ]
    counted = hashed.agg(sql.count(sql.lit(1)).alias("rows"), *lanes).collect()[0]
    sums = [int(counted[place] or 0) for place in range(1, 5)]
    return key_set(int(counted["rows"]), sums[0] + (sums[1] << 32), sums[2] + (sums[3] << 32))


def _numbered(sources: Sequence[DataFrame]) -> DataFrame:
    """Return the keys of all sources with their numbers, for examples."""
    return reduce(
        DataFrame.unionAll, [frame.select(sql.lit(number).alias("source"), "*") for number, frame in enumerate(sources)]
    )


def refuse_mismatch(
    found: KeySet, sealed: KeySet, sources: Sequence[DataFrame], sealed_keys: DataFrame, names: tuple[str, ...]
) -> None:
    """Refuse to skip anything unless the rows that would be skipped are exactly those that are sealed; name examples."""
    if found == sealed:
        return
    source_keys = _numbered(sources)
    _refuse_duplicates(source_keys, sealed_keys, names)
    gone = sealed_keys.join(source_keys, source_keys.columns, "left_anti").limit(_EXAMPLES).collect()
    said = f"{found.rows} rows of the source have a sealed key, and {sealed.rows} rows are sealed"
    if gone:
        examples = "; ".join(keys.text_of(names, list(row)[1:]) for row in gone)
        raise NeedsChange(
            reasons.SOURCE_CHANGED,
            f"rows that are sealed (done, or quarantined) are no longer in the source: {examples} ({said}); what was sealed "
            "would be committed without a source: put them back, or start a new write",
        )
    raise Corrupt(
        reasons.SOURCE_CHANGED,
        f"{said}; the fingerprints are {found.fingerprint} and {sealed.fingerprint}: the keys objects are not what was sealed",
    )


def refuse_taken_twice(
    found: KeySet, committed: KeySet, sources: Sequence[DataFrame], sealed_keys: DataFrame, names: tuple[str, ...]
) -> None:
    """Refuse to skip more rows than earlier epochs have committed: a new row with an old key would be passed over.

    Fewer is right: what was committed may leave the source.
    """
    if found.rows < committed.rows or found == committed:
        return
    _refuse_duplicates(_numbered(sources), sealed_keys, names)
    raise Corrupt(
        reasons.SOURCE_CHANGED,
        f"{found.rows} rows of the source have a key of an earlier epoch, which has committed {committed.rows}; the fingerprints "
        f"are {found.fingerprint} and {committed.fingerprint}: the keys objects are not what was sealed",
    )


def _refuse_duplicates(source_keys: DataFrame, sealed_keys: DataFrame, names: tuple[str, ...]) -> None:
    columns = source_keys.columns
    matching = source_keys.join(sealed_keys, columns, "left_semi")
    twice = matching.groupBy(*columns).count().where("count > 1").limit(_EXAMPLES).collect()
    if twice:
        raise keys.not_unique([keys.text_of(names, list(row)[1:-1]) for row in twice])


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
    strategy = anti_join.choose_strategy(sealed.hashed_bytes(schema), memory_bytes, partitions, tasks_at_once)
    return Skipped(sealed, anti_join.as_dataframe(session, uri, sealed, schema), strategy)


def _heap_bytes(text: str) -> int:
    """Read a size as Spark writes it: 512m, 2g, or bytes."""
    units = {"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti"}
    digits, unit = text.lower().rstrip("b"), ""
    if digits and digits[-1] in units:
        digits, unit = digits[:-1], units[digits[-1]]
    return int(parse_size_bytes(f"{digits}{unit}"))
