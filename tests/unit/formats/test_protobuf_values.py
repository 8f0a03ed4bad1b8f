"""Values in Protobuf: each as the newest schema has it, or refused where it would be another value without a word."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from checkpoint_formats.files.parsing import BadLine
from checkpoint_formats.kafka.decoded import DecodedValues
from checkpoint_formats.kafka.protobuf_values import Protobuf
from checkpoint_formats.kafka.registry import Kind, SchemaRegistry, UnknownSchema
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.kafka_settings import SchemaRegistryEntry
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import PinnedSchema
from tests.support.protobuf_files import encoded, file_of, in_base64, value_of
from tests.support.schema_registry import Registry, serving

PLACE: Final = {"x": (1, "sint32"), "y": (2, "optional double")}
COLORS: Final = {"Color": ["RED", "BLUE"]}
MOMENT: Final = datetime.datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)


@pytest.fixture
def served() -> Iterator[Registry]:
    with serving(Registry()) as registry:
        yield registry


def client(served: Registry) -> SchemaRegistry:
    return SchemaRegistry(SchemaRegistryEntry(url=served.url), StorageSettings())


class Topic:
    """A topic whose newest schema is this file."""

    def __init__(self, served: Registry, file: FileDescriptorProto, references: Sequence[Mapping[str, Any]] = ()) -> None:
        self.served = served
        self.newest = self.register(file, references)

    def register(self, file: FileDescriptorProto, references: Sequence[Mapping[str, Any]] = ()) -> int:
        return self.served.register("orders-value", in_base64(file), references, kind="PROTOBUF")

    @property
    def pinned(self) -> PinnedSchema:
        return PinnedSchema(topic="orders", schema_id=self.newest)

    def columns(self, chosen: Sequence[str] | None = None) -> pa.Schema:
        return Protobuf(client(self.served)).columns(self.pinned, chosen)[0]

    def rows(self, values: Sequence[bytes | None], chosen: Sequence[str] | None = None) -> list[Any]:
        """Return the rows, and of a value that cannot be read what is wrong with it."""
        registry = client(self.served)
        decoded = DecodedValues(Protobuf(registry), registry, [self.pinned], chosen)
        found: list[Any] = []
        for _, _, part in decoded.parse("orders", values, self.columns(chosen)):
            found += [part.message] if isinstance(part, BadLine) else part.to_pylist()
        return found


@pytest.mark.parametrize(
    ("kind", "column", "given", "read"),
    [
        ("double", pa.float64(), 0.1, 0.1),
        ("float", pa.float32(), 0.5, 0.5),
        ("int64", pa.int64(), -(1 << 63), -(1 << 63)),
        ("sint64", pa.int64(), (1 << 63) - 1, (1 << 63) - 1),
        ("sfixed64", pa.int64(), -1, -1),
        ("uint64", pa.decimal128(20, 0), (1 << 64) - 1, Decimal((1 << 64) - 1)),
        ("fixed64", pa.decimal128(20, 0), 7, Decimal(7)),
        ("int32", pa.int32(), -(1 << 31), -(1 << 31)),
        ("sint32", pa.int32(), -5, -5),
        ("sfixed32", pa.int32(), 5, 5),
        ("uint32", pa.int64(), (1 << 32) - 1, (1 << 32) - 1),
        ("fixed32", pa.int64(), (1 << 32) - 1, (1 << 32) - 1),
        ("bool", pa.bool_(), True, True),
        ("string", pa.string(), "größe", "größe"),
        ("bytes", pa.binary(), "AP8=", b"\0\xff"),
        ("Color", pa.string(), "BLUE", "BLUE"),
        ("Place", pa.struct([("x", pa.int32()), ("y", pa.float64())]), {"x": 3}, {"x": 3, "y": None}),
        ("repeated int32", pa.list_(pa.int32()), [1, 0, 1], [1, 0, 1]),
        ("repeated Place", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.float64())])), [{"y": 0}], [{"x": 0, "y": 0.0}]),
        ("map uint64", pa.map_(pa.string(), pa.decimal128(20, 0)), {"a": 1}, [("a", Decimal(1))]),
        ("map Color", pa.map_(pa.string(), pa.string()), {"a": "BLUE"}, [("a", "BLUE")]),
        (".google.protobuf.Timestamp", pa.timestamp("us", "UTC"), "2020-01-02T03:04:05.678901Z", MOMENT),
        (".google.protobuf.Timestamp", pa.timestamp("us", "UTC"), "1960-01-01T00:00:00.5Z", None),
        (".google.protobuf.UInt64Value", pa.decimal128(20, 0), "7", Decimal(7)),
        (".google.protobuf.BoolValue", pa.bool_(), False, False),
    ],
)
def test_a_field_of_each_type_is_a_column_with_the_same_values(
    served: Registry, kind: str, column: pa.DataType, given: Any, read: Any
) -> None:
    file = file_of(
        {"Order": {"it": (3, kind), "place": (4, "Place")}, "Place": PLACE},
        enums=COLORS,
        imports=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )
    topic = Topic(served, file)

    assert topic.columns(["it"]) == pa.schema([("it", column)])
    (row,) = topic.rows([value_of(topic.newest, file, {"it": given})], ["it"])
    if read is None:
        read = datetime.datetime(1960, 1, 1, 0, 0, 0, 500_000, tzinfo=datetime.UTC)
    assert row == {"it": read}


def test_a_field_that_is_absent_is_null_if_it_could_be_there_and_otherwise_its_default(served: Registry) -> None:
    fields = {"a": (1, "int32"), "b": (2, "optional int32"), "c": (3, "Place"), "d": (4, "repeated int32"), "e": (5, "Color")}
    file = file_of({"Order": fields, "Place": PLACE}, enums=COLORS)
    topic = Topic(served, file)

    rows = topic.rows([value_of(topic.newest, file, {}), value_of(topic.newest, file, {"b": 0, "c": {}}), None])

    absent: dict[str, Any] = {"a": 0, "b": None, "c": None, "d": [], "e": "RED"}
    assert rows == [absent, {**absent, "b": 0, "c": {"x": 0, "y": None}}, dict.fromkeys("abcde")]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (".google.protobuf.Duration", "it: a google.protobuf.Duration has no column"),
        (".google.protobuf.Struct", "it: a google.protobuf.Struct has no column"),
        ("Order", "levels deep, or contains itself"),
        ("repeated Order", "levels deep, or contains itself"),
        ("Empty", "it: the message shop.Empty has no fields"),
    ],
)
def test_a_field_that_no_column_can_have_is_named_and_others_can_be_chosen(served: Registry, kind: str, said: str) -> None:
    imports = ["google/protobuf/duration.proto", "google/protobuf/struct.proto"]
    file = file_of({"Order": {"id": (1, "int64"), "it": (2, kind)}, "Empty": {}}, imports=imports)
    file.message_type[0].field.add(name="no", number=15, label=1, type=11, type_name=".shop.Empty")
    topic = Topic(served, file)

    with pytest.raises(NeedsChange, match=r"source\.columns") as refused:
        topic.columns()
    assert said in refused.value.message
    assert topic.rows([value_of(topic.newest, file, {"id": 7})], ["id"]) == [{"id": 7}]


def test_a_message_whose_few_lines_stand_for_too_many_types_is_refused(served: Registry) -> None:
    messages = {f"M{n}": {each: (number, f"M{n + 1}") for number, each in enumerate("ab", 1)} for n in range(25)}
    topic = Topic(served, file_of({**messages, "M25": PLACE}))

    with pytest.raises(NeedsChange, match="of more than 10,000 types"):
        topic.columns()


def test_the_message_is_the_only_one_that_no_other_contains_wherever_it_stands(served: Registry) -> None:
    file = file_of({"Place": PLACE, "Line": {"at": (1, "Place")}, "Order": {"lines": (1, "repeated Line")}})
    topic = Topic(served, file)

    assert topic.columns().names == ["lines"]
    good = value_of(topic.newest, file, {"lines": [{"at": {"x": 1}}]})
    other = value_of(topic.newest, file, {"x": 1}, message="Place")
    rows = topic.rows([good, other])
    assert rows[0] == {"lines": [{"at": {"x": 1, "y": None}}]}
    assert "it is another message of its schema than shop.Order" in rows[1]


def test_a_message_that_only_a_nested_one_contains_is_not_the_main_one(served: Registry) -> None:
    file = file_of({"Place": PLACE, "Order": {"id": (1, "int32")}})
    nested = file.message_type[1].nested_type.add(name="Line")
    nested.field.add(name="at", number=1, label=1, type=11, type_name=".shop.Place")

    assert Topic(served, file).columns().names == ["id"]


@pytest.mark.parametrize("messages", [{"Order": {"a": (1, "int32")}, "Other": {"a": (1, "int32")}}, {}])
def test_a_file_of_several_messages_or_of_none_is_refused(served: Registry, messages: Any) -> None:
    with pytest.raises(NeedsChange, match=r"one message that no other one contains, and has (shop\.Order, shop\.Other|none)"):
        Topic(served, file_of(messages)).columns()


def test_messages_of_files_that_are_imported_come_from_the_references(served: Registry) -> None:
    deepest = file_of({"Deep": {"n": (1, "int32")}}, name="deep.proto")
    places = file_of({"Place": {"deep": (1, "Deep")}}, imports=["deep.proto"], name="places.proto")
    served.register("deep", in_base64(deepest), kind="PROTOBUF")
    served.register("places", in_base64(places), [{"name": "deep.proto", "subject": "deep", "version": 1}], kind="PROTOBUF")
    file = file_of({"Order": {"at": (1, "Place")}}, imports=["places.proto"])
    topic = Topic(served, file, [{"name": "places.proto", "subject": "places", "version": 1}])

    value = value_of(topic.newest, file, {"at": {"deep": {"n": 7}}}, others=(deepest, places))
    assert topic.rows([value]) == [{"at": {"deep": {"n": 7}}}]
    with pytest.raises(NeedsChange, match=r"it imports places\.proto, which is not among its references"):
        Topic(served, file).columns()


def test_older_values_are_read_by_the_newest_schema_and_a_field_that_it_lacks_is_refused_or_left_out(served: Registry) -> None:
    old = file_of({"Order": {"id": (1, "int32"), "gone": (2, "string")}})
    new = file_of({"Order": {"key": (1, "int64"), "more": (3, "optional string")}})
    topic = Topic(served, old)
    first = topic.newest
    topic.newest = topic.register(new)
    values = [value_of(first, old, {"id": -7}), value_of(first, old, {"id": 8, "gone": "x"})]

    rows = topic.rows(values)

    assert rows[0] == {"key": -7, "more": None}
    assert "it has the field gone, which the columns lack" in rows[1]
    assert topic.rows(values, ["key"]) == [{"key": -7}, {"key": 8}]


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ("int64", "int32", "the field it had another type"),
        ("Color", "string", "the field it had another type"),
        ("Wide", ".google.protobuf.Int64Value", "the field it had another type"),
        (".google.protobuf.Int64Value", "Wide", "the field it had another type"),
        ("sint32", "int32", None),
        ("sfixed32", "sint64", None),
        ("sint32", "uint64", None),
        ("int64", "fixed64", None),
        ("float", "double", None),
        ("string", "int32", "the field it had another type"),
        ("repeated int32", "int32", "the field it had several values"),
        ("Place", "repeated int32", "the field it had another type"),
        ("repeated Pair", "map int32", "the field it had another type"),
        ("Wide", "Place", "the field it.x had another type"),
        ("Old", "Color", "the field it has the value BLACK, which the newest schema lacks"),
        ("map int32", "map int64", None),
        ("uint32", "int64", None),
        ("string", "bytes", None),
        ("int32", "repeated int32", None),
    ],
)
def test_a_field_whose_older_values_would_be_others_is_refused(served: Registry, then: str, now: str, said: str | None) -> None:
    def file(kind: str) -> FileDescriptorProto:
        order = {"it": (1, kind), "w": (2, "Wide"), "p": (3, "Place"), "e": (4, "Pair")}
        pair = {"key": (1, "string"), "value": (2, "int32")}
        messages = {"Order": order, "Place": PLACE, "Wide": {"x": (1, "int64")}, "Pair": pair}
        imports = ["google/protobuf/wrappers.proto"]
        return file_of(messages, imports=imports, enums={**COLORS, "Old": ["AMBER", "BLACK"]})

    given = {
        "Place": {"x": 1},
        "Color": "BLUE",
        "Wide": {"x": 1},
        "Old": "BLACK",
        "map int32": {"a": 1},
        "string": "7",
        "repeated int32": [1, 2],
    }
    given = {**given, "repeated Pair": [{"key": "a", "value": 1}]}
    topic = Topic(served, file(then))
    value = value_of(topic.newest, file(then), {"it": given.get(then, 7)})
    topic.newest = topic.register(file(now))

    (row,) = topic.rows([value])

    if said is not None:
        assert said in row
    else:
        read = {"map int32": [("a", 1)], "string": b"7", "int32": [7]}.get(then, 7)
        assert row == {"it": read, "w": None, "p": None, "e": None}


def test_a_value_of_an_enum_keeps_its_name_where_it_got_another_number_and_is_refused_where_it_is_gone(served: Registry) -> None:
    old, new = (
        file_of({"Order": {"it": (1, "Color")}}, enums={"Color": each}) for each in (["BLUE", "RED", "BLACK"], ["RED", "BLUE"])
    )
    topic = Topic(served, old)
    values = [value_of(topic.newest, old, {"it": name}) for name in ("BLUE", "RED", "BLACK")]
    topic.newest = topic.register(new)

    first, second, third = topic.rows(values)

    assert (first, second) == ({"it": "BLUE"}, {"it": "RED"})
    assert "the field it has the value BLACK, which the newest schema lacks" in third


def test_a_field_that_is_not_asked_for_may_have_become_another(served: Registry) -> None:
    def file(kind: str) -> FileDescriptorProto:
        return file_of({"Order": {"id": (1, "int32"), "it": (2, kind), "at": (3, "Place")}, "Place": {"x": (1, kind)}})

    old, new = file("int64"), file("string")
    topic = Topic(served, old)
    values = [value_of(topic.newest, old, {"id": 7, "it": 8, "at": {"x": 9}})]
    topic.newest = topic.register(new)
    values += [value_of(topic.newest, old, {"id": 7, "it": 8, "at": {"x": 9}})]  # says the new schema and is of the old one

    assert topic.rows(values, ["id"]) == [{"id": 7}, {"id": 7}]
    assert ["the field it " in row for row in topic.rows(values, ["id", "it"])] == [True, True]
    assert ["the field at.x " in row for row in topic.rows(values, ["at"])] == [True, True]


def test_a_message_that_its_file_has_no_more_by_its_name_is_refused(served: Registry) -> None:
    old = file_of({"Purchase": {"id": (1, "int32")}})
    topic = Topic(served, old)
    value = value_of(topic.newest, old, {"id": 7}, message="Purchase")
    topic.newest = topic.register(file_of({"Order": {"id": (1, "int32")}}))

    (row,) = topic.rows([value])

    assert "it has no message shop.Order, which the newest schema has" in row


@pytest.mark.parametrize(
    ("then", "given", "now", "read"),
    [
        ("optional int32", None, "int32", None),
        ("optional int32", 0, "int32", 0),
        ("int32", 0, "optional int32", 0),
        ("string", "", "optional string", ""),
        ("Color", "RED", "optional Color", "RED"),
        ("int32", 0, "repeated int32", [0]),
        ("optional int32", None, "repeated int32", []),
        ("Place", None, "repeated Place", []),
    ],
)
def test_a_field_that_was_absent_stays_so_and_one_that_had_its_default_keeps_it(
    served: Registry, then: str, given: Any, now: str, read: Any
) -> None:
    def file(kind: str) -> FileDescriptorProto:
        return file_of(
            {"Order": {"in": (2, "Line")}, "Line": {"it": (1, kind), "at": (2, "Place")}, "Place": PLACE}, enums=COLORS
        )

    topic = Topic(served, file(then))
    value = value_of(topic.newest, file(then), {"in": {} if given is None else {"it": given}})
    topic.newest = topic.register(file(now))

    assert topic.rows([value]) == [{"in": {"it": read, "at": None}}]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (b"\x08", "it is no message of this schema"),
        (b"\x0a\x01x", "the field id is not of its schema's type"),
        (b"\x12\x02\xff\xfe", "it is no message of this schema"),
        (b"\x18\x07", "the field color has the number 7, which its enum lacks"),
        (b"\x22\x03\x10\xe8\x07", None),
        (b"\x22\x02\x10\x01", "has 1 nanoseconds"),
        (b"\x2a\x02\x78\x01", "it has the field number 15 in place., which its schema lacks"),
    ],
)
def test_a_value_that_is_broken_or_says_more_than_its_columns_is_refused(
    served: Registry, broken: bytes, said: str | None
) -> None:
    fields = {"id": (1, "int32"), "name": (2, "string"), "color": (3, "Color"), "at": (4, ".google.protobuf.Timestamp")}
    file = file_of(
        {"Order": {**fields, "place": (5, "Place")}, "Place": PLACE}, enums=COLORS, imports=["google/protobuf/timestamp.proto"]
    )
    topic = Topic(served, file)

    good = value_of(topic.newest, file, {"id": 1})
    first, second, last = topic.rows([good, good[:6] + broken, good])

    assert first == last == {"id": 1, "name": "", "color": "RED", "at": None, "place": None}
    if said is None:
        assert second["at"] == datetime.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=datetime.UTC)
    else:
        assert said in second


def test_a_required_field_that_is_not_there_is_named(served: Registry) -> None:
    file = file_of({"Order": {"id": (1, "required int32")}}, syntax="proto2")
    topic = Topic(served, file)

    rows = topic.rows([value_of(topic.newest, file, {"id": 1}), value_of(topic.newest, file, {})])

    assert rows[0] == {"id": 1}
    assert "it lacks the required field id" in rows[1]


def test_a_registry_that_gives_texts_only_is_told_from_one_that_gives_files(served: Registry) -> None:
    number = served.register("orders-value", "no base64", kind="PROTOBUF")

    with pytest.raises(NeedsChange, match="does not give schemas of Protobuf as descriptors"):
        Protobuf(client(served)).columns(PinnedSchema(topic="orders", schema_id=number), None)


def test_a_schema_that_was_asked_for_as_one_of_another_kind_is_there_as_one_of_its_own_later(served: Registry) -> None:
    file = file_of({"Order": {"id": (1, "int32")}})
    topic, registry = Topic(served, file), client(served)

    others: tuple[Kind, ...] = ("AVRO", "JSON")
    for kind in others:
        with pytest.raises(UnknownSchema, match=f"of type PROTOBUF, and {kind} is expected"):
            registry.by_id(topic.newest, kind)
    assert registry.by_id(topic.newest, "PROTOBUF").text == in_base64(file)


def test_a_file_that_imports_itself_or_names_what_is_not_there_is_no_valid_one(served: Registry) -> None:
    file = file_of({"Order": {"it": (1, "Nowhere")}})
    with pytest.raises(NeedsChange, match="it is no valid file of Protobuf"):
        Topic(served, file).columns()
    assert encoded(file_of({"Order": {"id": (1, "int32")}}), {"id": 1}) == b"\x08\x01"
