"""Topics of Avro values with a schema registry, on a real broker: each record is read by its own schema, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pydantic import SecretStr

from checkpoint_protocol import reasons
from checkpoint_protocol.places.kafka_settings import KafkaEntry, SchemaRegistryEntry
from checkpoint_protocol.records import PinnedKafka
from devtools.kafka_broker import KafkaBroker
from tests.end_to_end.test_kafka import (
    QUARANTINE,
    assert_stalled,
    finished,
    interrupt,
    ledger_of,
    offsets_of,
    quarantined,
    run,
    validated,
)
from tests.support.kafka import Topic
from tests.support.places import Place
from tests.support.schema_registry import Registry, avro_value, serving


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": name, **of} for name, of in fields.items()]}


PRICE: Final = {"type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}
FIRST: Final = record(id={"type": "long"}, gone={"type": "int"})
#: A field of before is gone, and another one came.
NEXT: Final = record(id={"type": "long"}, color={"type": "string", "default": "red"})


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry(password="geheim-7")) as served:
        yield served


@pytest.fixture
def topic(kafka_broker: KafkaBroker) -> Topic:
    return Topic(kafka_broker)


@pytest.fixture
def place(iceberg_place: Place, kafka_broker: KafkaBroker, registry: Registry) -> Place:
    entry = KafkaEntry(
        bootstrap_servers=(kafka_broker.servers,),
        schema_registry=SchemaRegistryEntry(url=registry.url, username="lake", password=SecretStr("geheim-7")),
    )
    iceberg_place.settings = iceberg_place.settings.model_copy(update={"kafka": (entry,)})
    return iceberg_place


def rows_of(place: Place) -> list[dict[str, Any]]:
    return sorted(place.rows(), key=lambda row: int(row["id"]))


def test_records_of_all_versions_of_a_schema_are_in_the_table_by_the_newest_one(
    place: Place, topic: Topic, registry: Registry
) -> None:
    old = registry.register(f"{topic.name}-value", FIRST)
    topic.send_values([avro_value(old, FIRST, {"id": number, "gone": 7}) for number in range(300)])
    new = registry.register(f"{topic.name}-value", NEXT)
    topic.send_values([avro_value(new, NEXT, {"id": number, "color": "blue"}) for number in range(300, 600)])
    section = topic.section(format="avro", metadata=["offset"])

    stopped = run(place, section, sink={"create": True})
    assert_stalled(stopped, reasons.SOURCE_UNREADABLE, f"{topic.name} partition 0", "at offset 0", "gone", "source.columns")
    ended = finished(place, topic.section(format="avro", columns=["id", "color"]), sink={"create": True}, name="chosen")

    assert rows_of(place) == [{"id": number, "color": "red" if number < 300 else "blue"} for number in range(600)]
    record = ledger_of(place, ended).inputs.read_committed_input()
    assert record is not None
    (pinned,) = record.tables
    assert isinstance(pinned, PinnedKafka)
    assert [(one.topic, one.schema_id) for one in pinned.schemas] == [(topic.name, new)]
    # Each of the schemas was asked for once, whatever number of tasks there was.
    assert [path for path in registry.asked if path == f"/schemas/ids/{old}"] == [f"/schemas/ids/{old}"]


def test_the_columns_of_an_epoch_stay_when_the_schema_changes_between_two_attempts(
    place: Place, topic: Topic, registry: Registry
) -> None:
    schema = record(id={"type": "long"}, price=PRICE)
    number = registry.register(f"{topic.name}-value", schema)
    topic.send_values([avro_value(number, schema, {"id": n, "price": _cents(n)}) for n in range(600)])
    place.create(pa.schema([("id", pa.int64()), ("price", pa.decimal128(9, 2))]))
    section = topic.section(format="avro")
    interrupt(place, section, after_tasks=2)
    registry.register(f"{topic.name}-value", record(id={"type": "string"}))

    finished(place, section)

    assert rows_of(place) == [{"id": n, "price": _cents(n)} for n in range(600)]


def _cents(number: int) -> Decimal:
    return Decimal(-number).scaleb(-2)


def test_a_bad_value_is_quarantined_by_its_offset_or_stops_the_write_and_later_read_by_a_newer_schema(
    place: Place, topic: Topic, registry: Registry
) -> None:
    first = record(id={"type": "long"})
    number = registry.register(f"{topic.name}-value", first)
    late = registry.register("elsewhere", NEXT)
    unknown = late + 1
    good = [avro_value(number, first, {"id": n}) for n in range(1000)]
    topic.send_values(
        [*good, b'{"id": 1}', avro_value(unknown, first, {"id": 1001}), avro_value(late, NEXT, {"id": 1002, "color": "x"})]
    )
    section = topic.section(format="avro")

    stopped = run(place, section, sink={"create": True})
    assert_stalled(stopped, reasons.SOURCE_UNREADABLE, f"{topic.name} partition 0", "at offset 1000", "onRowError: Quarantine")
    spec = {**QUARANTINE, "quarantine": {"retry": "Also"}, "sink": {"create": True}}
    ended = finished(place, section, **spec)

    assert [row["id"] for row in rows_of(place)] == list(range(1000))
    rows = quarantined(place, ended)
    assert [offsets_of(row) for row in rows] == [(offset, offset + 1) for offset in range(1000, 1003)]
    assert "does not begin with a zero byte" in rows[0].message
    assert f"has no schema with the id {unknown}" in rows[1].message
    assert "color: the schema of the value has this field" in rows[2].message

    assert registry.register(f"{topic.name}-value", first) == unknown
    again = finished(place, section, runNonce="2", **spec)
    assert [row["id"] for row in rows_of(place)] == [*range(1000), 1001]
    assert [offsets_of(row) for row in quarantined(place, again)] == [(1000, 1001), (1002, 1003)]


def test_a_registry_that_is_down_is_waited_for_and_quarantines_nothing(place: Place, topic: Topic, registry: Registry) -> None:
    old = registry.register(f"{topic.name}-value", record(id={"type": "long"}))
    new = registry.register(f"{topic.name}-value", NEXT)
    topic.send_values([avro_value(new, NEXT, {"id": n, "color": "blue"}) for n in range(300)])
    topic.send_values([avro_value(old, record(id={"type": "long"}), {"id": n}) for n in range(300, 600)])
    place.create(pa.schema([("id", pa.int64()), ("color", pa.string())]))
    section = topic.section(format="avro")
    interrupt(place, section, after_tasks=0, **QUARANTINE)

    registry.failing = 2
    ended = finished(place, section, **QUARANTINE)

    assert registry.failing == 0
    commit = ledger_of(place, ended).commits.read_commit()
    assert commit is not None
    assert commit.attempts > 2
    assert quarantined(place, ended) == []
    assert [row["color"] for row in rows_of(place)] == ["blue"] * 300 + ["red"] * 300


@pytest.mark.slow
def test_validate_says_which_columns_there_are_and_what_is_wrong_with_the_registry(
    iceberg_place: Place, topic: Topic, registry: Registry, tmp_path: Path
) -> None:
    def said(**more: Any) -> str:
        entry = {"bootstrap_servers": [topic.broker.servers], **more}
        return validated(iceberg_place, tmp_path, topic, {"kafka": [entry]}, format="avro")

    def at_registry(**more: Any) -> str:
        return said(schema_registry={"url": registry.url, "username": "lake", "password": "geheim-7", **more})

    number = registry.register(f"{topic.name}-value", record(id={"type": "long"}, any={"type": ["int", "string"]}))
    topic.send_values([b"\0" + number.to_bytes(4, "big")])

    assert "add schema_registry with its url to the entry of the cluster" in said()
    assert "refused us: HTTP 401" in at_registry(password="wrong-password")
    assert "any: a union of several types" in at_registry()
    registry.register(f"{topic.name}-value", record(id={"type": "long"}, price=PRICE))
    assert "topic, partition and offset" in at_registry()
    registry.status = 503
    assert "does not answer: HTTP 503" in at_registry()
