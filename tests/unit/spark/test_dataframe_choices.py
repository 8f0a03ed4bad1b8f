"""What the DataFrame way decides without Spark at work: strategies, properties, secrets, types of keys, keys objects."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructType

from checkpoint_formats import keys_objects
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.records import KeysObject
from checkpoint_protocol.rows.keys import key_set
from checkpoint_protocol.store.parts import digest_of
from checkpoint_spark.dataframes import keys
from checkpoint_spark.dataframes.anti_join import Sealed, Strategy, choose_strategy
from checkpoint_spark.dataframes.reading import Secrets
from checkpoint_spark.driver.session import properties

GIB = 1 << 30


#: What keys of these types take as Arrow has them, with the four bytes of the source's number.
INTEGERS = (LongType(), 12)
SHORT = (StringType(), 4 + 4 + 16)
LONG = (StringType(), 4 + 4 + 200)


@pytest.mark.parametrize(
    ("rows", "key", "memory_bytes", "partitions", "strategy"),
    [
        (1_000, SHORT, GIB, 6, "broadcast"),
        (1_000_000, INTEGERS, GIB, 6, "broadcast"),
        (3_000_000, INTEGERS, GIB, 6, "shuffle_hash"),
        (10_000_000, INTEGERS, 8 * GIB, 6, "broadcast"),
        (700_000, SHORT, GIB, 6, "broadcast"),
        (700_000, LONG, GIB, 6, "shuffle_hash"),  # however few bytes of Parquet they are
        (50_000_000, SHORT, 2 * GIB, 6, "merge"),
        (50_000_000, SHORT, 2 * GIB, 96, "shuffle_hash"),
    ],
)
def test_the_strategy_follows_what_the_keys_take_in_a_hash_table(
    rows: int, key: tuple[DataType, int], memory_bytes: int, partitions: int, strategy: Strategy
) -> None:
    type_, values_bytes = key
    item = KeysObject(path="keys", rows=rows, size_bytes=rows, values_bytes=rows * values_bytes)
    schema = StructType().add("source", IntegerType()).add("k0", type_)

    hashed_bytes = Sealed((item,), key_set(rows, 1, 2)).hashed_bytes(schema)

    assert choose_strategy(hashed_bytes, memory_bytes, partitions, tasks_at_once=2) == strategy


def test_properties_of_the_user_win_but_for_what_the_plan_rests_on() -> None:
    made = properties({"spark.sql.session.timeZone": "Europe/Berlin", "spark.sql.adaptive.enabled": "true"}, 2)

    assert made["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert made["spark.sql.adaptive.enabled"] == "false"
    assert made["spark.sql.shuffle.partitions"] == "6"


def test_a_secret_goes_to_the_option_and_into_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD_OF_THE_TEST", "sehr-geheim")
    secrets = Secrets()

    assert secrets.resolve("url", "jdbc:x?password=${env:PASSWORD_OF_THE_TEST}&a=b") == "jdbc:x?password=sehr-geheim&a=b"
    assert secrets.hide("refused: password=sehr-geheim") == "refused: password=***"


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PASSWORD_OF_THE_TEST", raising=False)

    with pytest.raises(NeedsChange, match=r"source\.spark\.options\.password names the variable PASSWORD_OF_THE_TEST"):
        Secrets().resolve("password", "${env:PASSWORD_OF_THE_TEST}")

    monkeypatch.setenv("PASSWORD_OF_THE_TEST", "sehr-geheim")
    assert Secrets().resolve("password", "${env:PASSWORD_OF_THE_TEST}") == "sehr-geheim"


@pytest.mark.parametrize(
    "kind", ["tinyint", "bigint", "string", "binary", "decimal(38,10)", "date", "timestamp", "timestamp_ntz"]
)
def test_types_whose_equality_is_exact_can_be_keys(kind: str) -> None:
    keys.check_type("id", kind)


@pytest.mark.parametrize(
    "kind", ["float", "double", "boolean", "array<int>", "struct<a:int>", "map<int,int>", "string collate UNICODE_CI", "variant"]
)
def test_other_types_are_refused(kind: str) -> None:
    with pytest.raises(NeedsChange, match="'id' is") as caught:
        keys.check_type("id", kind)

    assert caught.value.reason == reasons.KEYS_UNSUITABLE

    # Cast in the source, or another column.
    keys.check_type("id", "string")


def test_a_keys_object_gives_back_the_exact_values() -> None:
    table = pa.table(
        {
            "source": pa.array([0, 3], pa.int32()),
            "k0": pa.array(["ä", ""]),
            "k1": pa.array([1, 2], pa.timestamp("us", "UTC")),
        }
    )

    assert keys_objects.read_object(keys_objects.write_object(table)).equals(table)


def test_a_keys_object_that_is_not_what_was_sealed_is_corrupt_and_never_read_as_other_keys() -> None:
    data = keys_objects.write_object(pa.table({"source": pa.array([0, 0], pa.int32()), "k0": pa.array([1, 2])}))
    other = keys_objects.write_object(pa.table({"source": pa.array([0, 0], pa.int32()), "k0": pa.array([1, 3])}))
    sealed = KeysObject(path="keys", rows=2, size_bytes=len(data), values_bytes=24, digest=digest_of(data))

    assert keys_objects.read_sealed(sealed, data, "there").num_rows == 2
    assert len(other) == len(data)  # or the size alone gave it away
    wrong = {
        "is gone": (sealed, None),
        f"has {len(data) - 1} bytes": (sealed, data[:-1]),
        "another digest": (sealed, other),
        "has 2 keys, and was sealed with 3": (KeysObject(path="keys", rows=3, size_bytes=len(data), values_bytes=24), data),
    }
    for said, (item, found) in wrong.items():
        with pytest.raises(Corrupt, match=said):
            keys_objects.read_sealed(item, found, "there")
