"""Topics of JSON values with a schema registry, on a real broker: columns by the newest schema, no value that does not fit."""

from __future__ import annotations

import json
from typing import Any, Final

from checkpoint_protocol import reasons
from tests.end_to_end.test_kafka import QUARANTINE, assert_stalled, finished, offsets_of, quarantined, run
from tests.end_to_end.test_kafka_avro import place, registry, rows_of, topic
from tests.support.kafka import Topic
from tests.support.places import Place
from tests.support.schema_registry import Registry

__all__ = ["place", "registry", "topic"]

POINT: Final = {"type": "object", "properties": {"x": {"type": "number"}}}


def schema(**properties: Any) -> dict[str, Any]:
    return {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": properties}


def value(schema_id: int, row: dict[str, Any]) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + json.dumps(row, indent=1).encode()


def test_records_of_several_versions_are_in_the_table_by_the_newest_one_and_a_bad_one_is_set_apart(
    place: Place, topic: Topic, registry: Registry
) -> None:
    subject = f"{topic.name}-value"
    old = registry.register(subject, schema(id={"type": "integer"}), kind="JSON")
    topic.send_values([value(old, {"id": number}) for number in range(300)])
    new = registry.register(subject, schema(id={"type": "integer"}, at={"oneOf": [{"type": "null"}, POINT]}), kind="JSON")
    topic.send_values([value(new, {"id": number, "at": {"x": number / 4}}) for number in range(300, 600)])
    topic.send_values(
        [b'{"id": 600}', value(new, {"id": "601"}), value(new, {"id": 602, "color": "red"}), value(new, {"id": 1 << 60})]
    )
    section = topic.section(format="jsonSchema", metadata=["offset"])

    stopped = run(place, section, sink={"create": True})
    assert_stalled(stopped, reasons.SOURCE_UNREADABLE, f"{topic.name} partition 0", "at offset 600", "zero byte")
    ended = finished(place, section, sink={"create": True}, name="all", **QUARANTINE)

    good = [{"id": number, "at": None if number < 300 else {"x": number / 4}, "kafka_offset": number} for number in range(600)]
    assert rows_of(place) == [*good, {"id": 1 << 60, "at": None, "kafka_offset": 603}]
    assert [offsets_of(row) for row in quarantined(place, ended)] == [(offset, offset + 1) for offset in range(600, 603)]
    assert "unexpected field 'color'" in quarantined(place, ended)[2].message


def test_a_property_of_several_types_needs_a_name_of_its_type(place: Place, topic: Topic, registry: Registry) -> None:
    number = registry.register(f"{topic.name}-value", schema(id={"type": "integer"}, any={}), kind="JSON")
    topic.send_values([value(number, {"id": n, "any": given}) for n, given in enumerate(["text", 7, {"a": [1]}, None])])

    stopped = run(place, topic.section(format="jsonSchema"), sink={"create": True})
    assert_stalled(stopped, reasons.SOURCE_UNREADABLE, "any: its values may have several types", "source.kafka.types")
    finished(place, topic.section(format="jsonSchema", types={"any": "string"}), sink={"create": True}, name="named")

    first, second, third, last = (row["any"] for row in rows_of(place))
    assert (first, second, json.loads(third), last) == ("text", "7", {"a": [1]}, None)


def test_a_schema_of_another_kind_is_refused(place: Place, topic: Topic, registry: Registry) -> None:
    registry.register(f"{topic.name}-value", 'syntax = "proto3";', kind="PROTOBUF")
    topic.send_values([b"\0\0\0\0\1"])

    stopped = run(place, topic.section(format="jsonSchema"), sink={"create": True})

    assert_stalled(stopped, reasons.SOURCE_UNREADABLE, "it is a schema of type PROTOBUF, and JSON is expected")
