"""Schemas of a registry: fetched once, by the credentials of its own entry; and who is at fault where one cannot be had."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pytest
from pydantic import SecretStr, ValidationError

from checkpoint_formats.files.parsing import BadLine
from checkpoint_formats.kafka.avro_values import Avro
from checkpoint_formats.kafka.decoded import DecodedValues
from checkpoint_formats.kafka.registered import columns_of_schemas, pin_schemas
from checkpoint_formats.kafka.registry import SchemaRegistry, UnknownSchema, registry_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.places.kafka_settings import KafkaEntry, SchemaRegistryEntry
from checkpoint_protocol.places.patterns import Tenant
from checkpoint_protocol.places.secrets import secrets_of
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import PinnedSchema
from devtools.ports import LOOPBACK, free_port
from tests.support.schema_registry import Registry, avro_value, serving

SERVERS: Final = ("a:9093",)


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": name, **of} for name, of in fields.items()]}


ORDER: Final = record(id={"type": "long"})
WIDER: Final = record(id={"type": "long"}, color={"type": "string", "default": "red"})


@pytest.fixture
def served() -> Iterator[Registry]:
    with serving(Registry()) as registry:
        yield registry


def settings_of(url: str, **more: Any) -> Settings:
    entry = SchemaRegistryEntry(url=url, **more)
    return Settings(kafka=(KafkaEntry(bootstrap_servers=SERVERS, schema_registry=entry),))


def client(registry: Registry, **more: Any) -> SchemaRegistry:
    return registry_of(SERVERS, settings_of(registry.url, **more))


def columns_of(registry: SchemaRegistry, pinned: Any, chosen: Any) -> tuple[pa.Schema, tuple[str, ...]]:
    return columns_of_schemas(pinned, lambda one: Avro(registry).columns(one, chosen))


def avro_values(registry: SchemaRegistry, pinned: Sequence[PinnedSchema], chosen: Sequence[str] | None) -> DecodedValues:
    return DecodedValues(Avro(registry), registry, pinned, chosen)


def rows(values: DecodedValues, given: list[bytes | None], fields: pa.Schema, topic: str = "orders") -> list[Any]:
    """One row for each value, or what is wrong with it."""
    found: list[Any] = []
    for start, end, one in values.parse(topic, given, fields):
        assert start == len(found)
        found += [one.message] if isinstance(one, BadLine) else one.to_pylist()
        assert end == len(found)
    return found


# --- the client -----------------------------------------------------------------------------------------------------------


def test_a_schema_is_fetched_once_by_a_process(served: Registry) -> None:
    number = served.register("orders-value", ORDER)

    assert client(served).newest_id("orders-value") == number
    assert {client(served).by_id(number, "AVRO").text for _ in range(3)} == {json.dumps(ORDER)}
    assert [path for path in served.asked if "ids" in path] == [f"/schemas/ids/{number}"]


def test_what_the_registry_does_not_have_is_told_from_one_that_does_not_answer(served: Registry) -> None:
    assert client(served).newest_id("none-value") is None
    with pytest.raises(UnknownSchema, match="has no schema with the id 7"):
        client(served).by_id(7, "AVRO")
    for status in (500, 502, 503, 429):
        served.status = status
        for ask in (lambda: client(served).newest_id("none-value"), lambda: client(served).by_id(7, "AVRO")):
            with pytest.raises(Retryable, match=f"does not answer: HTTP {status}") as raised:
                ask()
            assert raised.value.reason == reasons.SOURCE_UNAVAILABLE
    served.status, served.body = 200, b"not JSON"
    with pytest.raises(NeedsChange, match="does not answer as a schema registry does"):
        client(served).newest_id("none-value")
    # A proxy's page says nothing of subjects.
    served.status, served.body = 404, b"<html>"
    with pytest.raises(NeedsChange, match="does not answer as a schema registry does: HTTP 404"):
        client(served).newest_id("none-value")


def test_a_registry_that_nobody_serves_is_unavailable() -> None:
    with pytest.raises(Retryable, match=r"does not answer: .*; check its url in schema_registry"):
        client(Registry(url=f"http://{LOOPBACK}:{free_port()}")).by_id(1, "AVRO")


def test_credentials_go_to_the_registry_alone_and_refused_ones_are_said_with_the_way_out(served: Registry) -> None:
    served.password = "geheim-7"
    number = served.register("orders-value", ORDER)
    given = {"username": "lake", "password": SecretStr("geheim-7")}

    with pytest.raises(NeedsChange, match=r"put username and password in schema_registry of the cluster's entry") as raised:
        client(served).newest_id("orders-value")
    assert raised.value.reason == reasons.CREDENTIALS_REFUSED
    assert client(served, **given).newest_id("orders-value") == number

    with serving(Registry(status=302, body=f"{served.url}/schemas/ids/{number}".encode())) as other:
        before = len(served.asked)
        with pytest.raises(NeedsChange, match="HTTP 302"):
            client(other, **given).by_id(number, "AVRO")
    assert len(served.asked) == before


def test_an_answer_that_is_too_large_is_no_schema(served: Registry) -> None:
    number = served.register("orders-value", "x" * (1 << 20))

    with pytest.raises(UnknownSchema, match="more than 1 MiB"):
        client(served).by_id(number, "AVRO")


def test_a_schema_that_refers_to_others_is_fetched_with_them_each_once(served: Registry) -> None:
    money = {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}
    tax = {"type": "record", "name": "Tax", "namespace": "shop", "fields": [{"name": "amount", "type": "shop.Money"}]}
    order = record(price={"type": "shop.Money"}, tax={"type": "shop.Tax"})
    served.register("money", money)
    to_money = {"name": "shop.Money", "subject": "money", "version": 1}
    served.register("tax", tax, [to_money])
    to_tax = {"name": "shop.Tax", "subject": "tax", "version": 1}
    number = served.register("orders-value", order, [to_tax, to_money])
    fields, _ = columns_of(client(served), [PinnedSchema(topic="orders", schema_id=number)], None)

    value = avro_value(number, order, {"price": {"cents": 1}, "tax": {"amount": {"cents": 2}}}, [money, tax])
    values = avro_values(client(served), [PinnedSchema(topic="orders", schema_id=number)], None)

    assert rows(values, [value], fields) == [{"price": {"cents": 1}, "tax": {"amount": {"cents": 2}}}]


def test_schemas_that_refer_to_each_other_end(served: Registry) -> None:
    number = served.register("a", ORDER, [{"name": "b", "subject": "b", "version": 1}])
    served.register("b", ORDER, [{"name": "a", "subject": "a", "version": 1}])

    with pytest.raises(UnknownSchema, match="or to itself"):
        client(served).by_id(number, "AVRO")


# --- settings -------------------------------------------------------------------------------------------------------------


def test_a_cluster_without_a_registry_is_refused_until_one_is_declared(served: Registry) -> None:
    for settings in (Settings(), Settings(kafka=(KafkaEntry(bootstrap_servers=SERVERS),))):
        with pytest.raises(NeedsChange, match="add schema_registry with its url to the entry of the cluster"):
            registry_of(SERVERS, settings)
    assert client(served).newest_id("orders-value") is None


def test_a_namespace_to_which_the_cluster_is_not_granted_does_not_reach_its_registry(served: Registry) -> None:
    with pytest.raises(NeedsChange) as raised:
        registry_of(SERVERS, settings_of(served.url).used_by(Tenant("team-b")))
    assert raised.value.reason == reasons.ACCESS_NOT_GRANTED


def test_certificates_that_cannot_be_read_are_said_and_those_of_the_system_are_taken_without_them(served: Registry) -> None:
    url = "https" + served.url.removeprefix("http")
    with pytest.raises(NeedsChange, match="correct ca_file in schema_registry"):
        registry_of(SERVERS, settings_of(url, ca_file="/no/such/file")).by_id(1, "AVRO")
    with pytest.raises(Retryable):
        registry_of(SERVERS, settings_of(url)).by_id(1, "AVRO")


def test_the_password_of_a_registry_shows_nowhere_but_in_what_drivers_are_handed() -> None:
    settings = settings_of("https://r", username="lake", password=SecretStr("geheim-7"))
    handed = settings.for_drivers()

    assert "geheim-7" not in repr(settings)
    assert "geheim-7" in json.loads(handed.model_dump_json())["kafka"][0]["schema_registry"]["password"]
    assert secrets_of(handed, {}).mask("it is geheim-7") == "it is ***"


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "registry:8081"},
        {"url": "http://lake:geheim@registry"},
        {"url": "http://registry?a=b"},
        {"username": "lake"},
        {"url": "http://registry", "ca_file": "/ca.crt"},
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SchemaRegistryEntry(**{"url": "https://registry", **wrong})


# --- values ---------------------------------------------------------------------------------------------------------------


def test_each_value_is_read_by_its_own_schema_into_the_columns_that_are_pinned(served: Registry) -> None:
    old, new = served.register("orders-value", ORDER), served.register("orders-value", WIDER)
    pinned = pin_schemas(client(served), ["orders"], {"orders"})
    fields, known = columns_of(client(served), pinned, None)
    served.register("orders-value", record(id={"type": "long"}, late={"type": "int"}))

    given = [avro_value(old, ORDER, {"id": 1}), None, avro_value(new, WIDER, {"id": 2, "color": "blue"})]

    assert known == ("id", "color")
    assert rows(avro_values(client(served), pinned, None), given, fields) == [
        {"id": 1, "color": "red"},
        {"id": None, "color": None},
        {"id": 2, "color": "blue"},
    ]


def test_a_value_that_cannot_be_read_is_told_from_the_others(served: Registry) -> None:
    number = served.register("orders-value", ORDER)
    late = record(id={"type": "long"}, late={"type": "int"})
    other, broken = served.register("other", late), served.register("other", {"type": "nothing"})
    protobuf = served.register("other", 'syntax = "proto3";', kind="PROTOBUF")
    pinned = [PinnedSchema(topic="orders", schema_id=number)]
    fields, _ = columns_of(client(served), pinned, None)
    good = avro_value(number, ORDER, {"id": 1})
    bad = {
        b'{"id": 1}': "does not begin with a zero byte",
        b"": "does not begin with a zero byte",
        b"\0\0\0": "does not begin with a zero byte",
        b"\0\0\0\0\7\2": "of the schema 7: .* has no schema with the id 7",
        avro_value(other, late, {"id": 1, "late": 2}): f"of the schema {other}: late: the schema of the value has this field",
        b"\0" + broken.to_bytes(4, "big"): "is no Avro schema",
        b"\0" + protobuf.to_bytes(4, "big"): "it is a schema of type PROTOBUF",
        good[:5]: "the value does not have the form of its schema",
        good + b"\0": "1 bytes are left over",
    }
    values = avro_values(client(served), pinned, None)

    found = rows(values, [good, *bad, good], fields)

    assert (found[0], found[-1]) == ({"id": 1}, {"id": 1})
    for message, expected in zip(found[1:-1], bad.values(), strict=True):
        with pytest.raises(ValueError, match=expected):
            raise ValueError(message)
    rows(values, [b"\0\0\0\0\7\2"], fields)
    assert served.asked.count("/schemas/ids/7") == 1


def test_a_registry_that_is_down_is_the_fault_of_no_value(served: Registry) -> None:
    old, new = served.register("orders-value", ORDER), served.register("orders-value", WIDER)
    pinned = [PinnedSchema(topic="orders", schema_id=new)]
    fields, _ = columns_of(client(served), pinned, None)
    values = avro_values(client(served), pinned, None)
    given: list[bytes | None] = [avro_value(new, WIDER, {"id": 2, "color": "x"}), avro_value(old, ORDER, {"id": 1}), b"bad"]

    served.status = 503
    with pytest.raises(Retryable):
        rows(values, given, fields)
    served.status = None
    assert rows(values, given[:2], fields) == [{"id": 2, "color": "x"}, {"id": 1, "color": "red"}]


def test_topics_have_their_columns_together_each_value_as_it_is(served: Registry) -> None:
    stamp = {"type": "long", "logicalType": "timestamp-millis"}
    one, two = record(id={"type": "int"}, at={"type": stamp}), record(id={"type": "long"}, color={"type": "string"})
    served.register("orders-value", one)
    number = served.register("returns-value", two)
    pinned = pin_schemas(client(served), ["orders", "returns", "empty"], {"orders", "returns"})
    fields, _ = columns_of(client(served), pinned, None)
    values = avro_values(client(served), pinned, None)

    assert fields == pa.schema([("id", pa.int64()), ("at", pa.timestamp("ms", "UTC")), ("color", pa.string())])
    first = avro_value(pinned[0].schema_id, one, {"id": 7, "at": 1_700_000_000_123})
    (row,) = rows(values, [first], fields)
    assert (row["id"], row["at"].isoformat(), row["color"]) == (7, "2023-11-14T22:13:20.123000+00:00", None)
    assert rows(values, [avro_value(number, two, {"id": 2**60, "color": "x"})], fields, "returns") == [
        {"id": 2**60, "at": None, "color": "x"}
    ]

    served.register("other-value", record(id={"type": "string"}, color={"type": "string"}))
    unlike = pin_schemas(client(served), ["orders", "other"], ())
    with pytest.raises(NeedsChange, match=r"the field id is string .*; choose other fields by source\.columns"):
        columns_of(client(served), unlike, None)
    assert columns_of(client(served), unlike, ["color"])[0].names == ["color"]


def test_a_topic_without_a_schema_is_refused_until_one_is_registered(served: Registry) -> None:
    with pytest.raises(NeedsChange, match=r"has no subject orders-value, .*; register their schema there"):
        pin_schemas(client(served), ["orders"], {"orders"})
    number = served.register("orders-value", ORDER)
    assert pin_schemas(client(served), ["orders"], {"orders"}) == (PinnedSchema(topic="orders", schema_id=number),)


def test_a_field_that_no_column_has_is_refused_until_others_are_chosen(served: Registry) -> None:
    served.register("orders-value", record(id={"type": "long"}, any={"type": ["int", "string"]}))
    pinned = pin_schemas(client(served), ["orders"], ())

    with pytest.raises(NeedsChange, match=r"any: a union of several types.*; choose other fields by source\.columns"):
        columns_of(client(served), pinned, None)
    fields, known = columns_of(client(served), pinned, ["id"])
    assert (fields.names, known) == (["id"], ("id", "any"))


def test_another_registry_under_another_url_is_seen_until_the_former_one_is_back(served: Registry) -> None:
    number = served.register("orders-value", ORDER)
    pinned = [PinnedSchema(topic="orders", schema_id=number)]
    fields, _ = columns_of(client(served), pinned, None)

    with serving(Registry(first_id=number)) as other:
        assert other.register("orders-value", record(id={"type": "string"})) == number
        with pytest.raises(NeedsChange, match=r"is another schema registry than then; put the former url back") as raised:
            rows(avro_values(client(other), pinned, None), [b"x"], fields)
    assert raised.value.reason == reasons.SOURCE_CHANGED
    assert rows(avro_values(client(served), pinned, None), [avro_value(number, ORDER, {"id": 1})], fields) == [{"id": 1}]
    with pytest.raises(Corrupt):
        rows(avro_values(client(served), [], None), [b"x"], fields)
