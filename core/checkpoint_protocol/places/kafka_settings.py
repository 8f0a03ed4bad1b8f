"""How to reach Kafka clusters that ask for credentials: part of the settings, and of what drivers are handed of them.

Credentials go to no other servers than those that their entry names, whatever a manifest says.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_serializer, model_validator

from checkpoint_protocol.places.patterns import NamespacePattern
from checkpoint_protocol.places.setting_values import Secret, SecretRef, SettingsSection, in_full

#: host:port
BrokerAddress = Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$", max_length=300)]
#: No user information: credentials are fields of their own. No query, as paths are appended.
RegistryUrl = Annotated[
    str, Field(pattern=r"^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[^\s?#@]*)?$", max_length=300)
]


class SchemaRegistryEntry(SettingsSection):
    """The schema registry of a Kafka cluster. Its credentials are sent to its URL only."""

    url: RegistryUrl = Field(description="The address, e.g. https://registry.example.com:8081.")
    username: str | None = Field(default=None, description="HTTP basic authentication; at Confluent Cloud, the API key.")
    password: Secret | None = Field(default=None, description="HTTP basic authentication; at Confluent Cloud, the API secret.")
    ca_file: str | None = Field(default=None, description="TLS: certificates to trust, in PEM; the system's if absent.")

    @model_validator(mode="after")
    def _has_what_its_protocol_needs(self) -> SchemaRegistryEntry:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password go together")
        if self.ca_file is not None and not self.url.startswith("https:"):
            raise ValueError("ca_file goes with a url of https")
        return self

    @field_serializer("password")
    def _serialize_secret(self, secret: SecretRef | SecretStr | None) -> Any:
        return in_full(secret)


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
    schema_registry: SchemaRegistryEntry | None = Field(
        default=None,
        exclude_if=lambda entry: entry is None,
        description="The schema registry that has the schemas of values, for the formats that need one.",
    )
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
