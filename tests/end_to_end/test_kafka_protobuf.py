"""Topics of Protobuf with a schema registry, on a real broker: columns by the newest schema, and no value that does not fit."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from checkpoint_protocol import reasons
from tests.end_to_end.test_kafka import QUARANTINE, assert_stalled, finished, offsets_of, quarantined, run
from tests.end_to_end.test_kafka_avro import place, registry, rows_of, topic
from tests.support.kafka import Topic
from tests.support.places import Place
from tests.support.protobuf_files import file_of, in_base64, value_of
from tests.support.schema_registry import Registry

__all__ = ["place", "registry", "topic"]

OLD: Final = file_of({"Order": {"id": (1, "int32"), "gone": (2, "string")}})
NEW: Final = file_of(
    {"Place": {"x": (1, "double")}, "Order": {"id": (1, "int64"), "at": (3, "Place"), "size": (4, "optional uint64")}}
)


def test_records_of_several_versions_are_in_the_table_by_the_newest_one_and_a_bad_one_is_set_apart(
    place: Place, topic: Topic, registry: Registry
) -> None:
    old = registry.register(f"{topic.name}-value", in_base64(OLD), kind="PROTOBUF")
    topic.send_values([value_of(old, OLD, {"id": number}) for number in range(300)])
    new = registry.register(f"{topic.name}-value", in_base64(NEW), kind="PROTOBUF")
    topic.send_values([value_of(new, NEW, {"id": n, "at": {"x": n / 4}, "size": 1 << 63}) for n in range(300, 600)])
    topic.send_values([b"\x08\x01", value_of(old, OLD, {"id": 601, "gone": "x"}), value_of(new, NEW, {"id": 1 << 60})])
    section = topic.section(format="protobuf", metadata=["offset"])

    stopped = run(place, section, sink={"create": True})
    assert_stalled(stopped, reasons.SOURCE_UNREADABLE, f"{topic.name} partition 0", "at offset 600", "zero byte")
    ended = finished(place, section, sink={"create": True}, name="all", **QUARANTINE)

    assert rows_of(place) == [*map(_row, range(600)), {"id": 1 << 60, "at": None, "size": None, "kafka_offset": 602}]
    assert [offsets_of(row) for row in quarantined(place, ended)] == [(600, 601), (601, 602)]
    assert "it has the field gone, which the columns lack" in quarantined(place, ended)[1].message


def _row(number: int) -> dict[str, Any]:
    is_old = number < 300
    at, size = (None, None) if is_old else ({"x": number / 4}, Decimal(1 << 63))
    return {"id": number, "at": at, "size": size, "kafka_offset": number}


def test_a_schema_of_another_kind_is_refused(place: Place, topic: Topic, registry: Registry) -> None:
    registry.register(f"{topic.name}-value", {"type": "object"}, kind="JSON")
    topic.send_values([b"\0\0\0\0\1\0"])

    stopped = run(place, topic.section(format="protobuf"), sink={"create": True})

    assert_stalled(stopped, reasons.SOURCE_UNREADABLE, "it is a schema of type JSON, and PROTOBUF is expected")
