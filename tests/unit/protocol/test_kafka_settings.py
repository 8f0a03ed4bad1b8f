"""Who reaches which Kafka cluster, as whom; and that credentials go to no servers that their entry does not name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from checkpoint_formats.kafka.cluster import client_properties
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.places.kafka_settings import KafkaEntry
from checkpoint_protocol.places.patterns import Tenant
from checkpoint_protocol.places.secrets import secrets_of
from checkpoint_protocol.places.settings import Settings

SIGNED_IN: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "username": "lake",
    "password": SecretStr("geheim-7"),
}


def settings(**more: Any) -> Settings:
    return Settings(kafka=(KafkaEntry(bootstrap_servers=("a:9093", "b:9093"), **{**SIGNED_IN, **more}),))


def test_a_cluster_without_an_entry_is_reached_in_plain_text() -> None:
    assert client_properties(("c:9092",), settings()) == {"bootstrap.servers": "c:9092"}


def test_credentials_are_those_of_the_entry_that_names_the_servers() -> None:
    assert client_properties(("b:9093",), settings(ca_file="/ca.crt")) == {
        "bootstrap.servers": "b:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "lake",
        "sasl.password": "geheim-7",
        "ssl.ca.location": "/ca.crt",
    }


def test_a_server_beside_those_of_an_entry_gets_no_credentials() -> None:
    with pytest.raises(NeedsChange, match="evil:9093 is not among"):
        client_properties(("a:9093", "evil:9093"), settings())


def test_a_namespace_to_which_a_cluster_is_not_granted_does_not_reach_it() -> None:
    granted = settings(namespaces=("team-a",))
    assert client_properties(("a:9093",), granted.used_by(Tenant("team-a")))["sasl.username"] == "lake"
    with pytest.raises(NeedsChange) as raised:
        client_properties(("a:9093",), granted.used_by(Tenant("team-b")))
    assert raised.value.reason == reasons.ACCESS_NOT_GRANTED


def test_a_password_shows_nowhere_but_in_what_drivers_are_handed() -> None:
    handed = settings().for_drivers()
    assert "geheim-7" not in repr(settings())
    assert "geheim-7" in json.loads(handed.model_dump_json())["kafka"][0]["password"]
    assert secrets_of(handed, {}).mask("it is geheim-7") == "it is ***"


@pytest.mark.parametrize(
    "wrong",
    [
        {"security_protocol": "PLAINTEXT"},
        {"password": None},
        {"security_protocol": "SASL_PLAINTEXT", "ca_file": "/ca.crt"},
        {"certificate_file": "/c.pem"},
        {"bootstrap_servers": ("a",)},
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        KafkaEntry(**{"bootstrap_servers": ("a:9093",), **SIGNED_IN, **wrong})


@pytest.mark.parametrize("pattern", ["(", "a{4294967296}", "a**"])
def test_a_pattern_that_is_no_regular_expression_is_refused_as_such(pattern: str) -> None:
    with pytest.raises(ValidationError, match="pattern: it is no regular expression"):
        KafkaSource(bootstrap_servers=("a:9092",), pattern=pattern, format="raw")
