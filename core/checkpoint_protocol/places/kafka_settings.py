"""How to reach Kafka clusters that ask for credentials: part of the settings, and of what drivers are handed of them.

Credentials go to no other servers than those that their entry names, whatever a manifest says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SecretStr, field_serializer, model_validator

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.patterns import NamespacePattern
from checkpoint_protocol.places.setting_values import Secret, SecretRef, SettingsSection, in_full, reveal

if TYPE_CHECKING:
    from checkpoint_protocol.places.storage import StorageSettings

#: host:port
BrokerAddress = Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$", max_length=300)]


class KafkaEntry(SettingsSection):
    """One Kafka cluster: the servers at which clients begin, and as whom."""

    bootstrap_servers: tuple[BrokerAddress, ...] = Field(
        min_length=1, description="All brokers of this cluster that manifests may name, as host:port."
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    username: str | None = None
    password: Secret | None = None
    ca_file: str | None = Field(default=None, description="TLS: certificates to trust, in PEM; the system's if absent.")
    certificate_file: str | None = Field(default=None, description="TLS: our own certificate, in PEM.")
    key_file: str | None = Field(default=None, description="TLS: the key of our certificate, in PEM.")
    namespaces: tuple[NamespacePattern, ...] = Field(
        default=(),
        description="Cluster: the namespaces whose writes may use the entry, e.g. [team-a, etl-*]. If absent, only a "
        "namespace that is the only one watched may use it.",
    )

    @model_validator(mode="after")
    def _has_what_its_protocol_needs(self) -> KafkaEntry:
        signs_in = (self.sasl_mechanism, self.username, self.password)
        if self.security_protocol.startswith("SASL"):
            if any(value is None for value in signs_in):
                raise ValueError(f"{self.security_protocol} needs sasl_mechanism, username and password")
        elif any(value is not None for value in signs_in):
            raise ValueError("sasl_mechanism, username and password go with SASL_PLAINTEXT and SASL_SSL; say one of them")
        has_files = any(file is not None for file in (self.ca_file, self.certificate_file, self.key_file))
        if has_files and not self.security_protocol.endswith("SSL"):
            raise ValueError("ca_file, certificate_file and key_file go with SSL and SASL_SSL; say one of them")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together")
        return self

    @field_serializer("password")
    def _serialize_secret(self, secret: SecretRef | SecretStr | None) -> Any:
        return in_full(secret)


def client_properties(servers: Sequence[str], settings: StorageSettings) -> dict[str, str]:
    """Return the properties by which clients of librdkafka reach a cluster. NeedsChange if it is not granted.

    Without an entry they say who we are to nobody: plain text, and no credentials.
    """
    named = {"bootstrap.servers": ",".join(servers)}
    place = settings.place.name("kafka")
    entry = next((entry for entry in settings.kafka if not set(servers).isdisjoint(entry.bootstrap_servers)), None)
    if entry is None:
        return named
    if others := sorted(set(servers) - set(entry.bootstrap_servers)):
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"source.kafka.bootstrapServers: {', '.join(others)} is not among the bootstrap_servers of the entry ({place}) that "
            "has the others, and credentials go to no other servers; leave it out, or add it there",
        )
    tenant = settings.tenant
    if tenant is not None and not tenant.is_granted(entry.namespaces):
        raise NeedsChange(
            reasons.ACCESS_NOT_GRANTED,
            f"writes of the namespace {tenant.namespace} may not use the Kafka cluster {', '.join(servers)}; the "
            f"administrator of the operator can add {tenant.namespace} to the namespaces of its entry, in {place}",
        )
    options = {
        "security.protocol": entry.security_protocol,
        "sasl.mechanism": entry.sasl_mechanism,
        "sasl.username": entry.username,
        "sasl.password": None if entry.password is None else reveal(entry.password, place),
        "ssl.ca.location": entry.ca_file,
        "ssl.certificate.location": entry.certificate_file,
        "ssl.key.location": entry.key_file,
    }
    return named | {name: value for name, value in options.items() if value is not None}
