"""The part of a manifest that names topics of Kafka. A row is identified by topic, partition and offset."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, model_validator

from checkpoint_protocol.manifest.quantities import Size
from checkpoint_protocol.manifest.rules import Rule, exactly_one_of, is_given, named_once
from checkpoint_protocol.manifest.sections import Section, is_absent
from checkpoint_protocol.places.kafka_settings import BrokerAddress

MAX_TOPICS: Final = 256
#: What may be edited while a write runs: neither which rows there are, nor under which positions.
EDITABLE_FIELDS: Final = ("bootstrapServers", "types", "onLost", "maxOffsets", "splitSize")
#: What of it says how values are read.
READING_FIELDS: Final = ("types",)
DEFAULT_SPLIT_SIZE: Final = 128 << 20

TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=249)]
MetadataColumn = Literal["key", "headers", "timestamp", "partition", "offset", "topic"]


class KafkaSource(Section):
    """Topics of a Kafka cluster. Each epoch takes the records that arrived since the last epoch, up to the last stable offset."""

    kind: ClassVar[str] = "kafka"

    bootstrap_servers: Annotated[tuple[BrokerAddress, ...], Field(min_length=1, max_length=64)] = Field(
        description="Some of the brokers, as host:port. Credentials belong in the settings, under kafka."
    )
    topics: Annotated[tuple[TopicName, ...], Field(min_length=1, max_length=MAX_TOPICS)] | None = Field(
        default=None, exclude_if=is_absent, description="The names of the topics."
    )
    pattern: Annotated[str, Field(min_length=1, max_length=249)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Instead of topics: a regular expression that matches whole topic names, e.g. orders-.*. Topics that are "
        "created later are included.",
    )
    starting_offsets: Literal["Earliest", "Latest"] = Field(
        default="Earliest",
        description="Where the first epoch begins. Partitions and topics that are added later are read from their beginning.",
    )
    format: Literal["raw", "json", "avro", "jsonSchema", "protobuf"] = Field(
        description="raw: the columns are key, value, headers, timestamp, partition, offset and topic. json: each value is "
        "one JSON object, whose fields are the columns. avro: each value is one Avro record with the id of its schema in a "
        "schema registry; the fields of the newest schema are the columns. jsonSchema and protobuf: the same of JSON objects "
        "and of messages of Protobuf."
    )
    types: dict[str, Annotated[str, Field(max_length=1024)]] = Field(
        default_factory=dict,
        max_length=2048,
        description="For json and jsonSchema: the type of a column if the type that follows from values or schema is not right, "
        "e.g. int64, string, timestamp[us].",
    )
    metadata: Annotated[tuple[MetadataColumn, ...], Field(max_length=6)] = Field(
        default=(),
        description="For all formats but raw: additional columns besides the fields of the value. They are named "
        "kafka_key, kafka_offset and so on.",
    )
    max_offsets: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="The most offsets that one epoch takes. They are divided among the partitions in proportion to what each "
        "has.",
    )
    on_lost: Literal["Stall", "Skip"] = Field(
        default="Stall",
        description="What happens if retention has removed records before they were read. Stall: the write stops. Skip: the "
        "lost offsets are set aside as failed rows, which needs onRowError: Quarantine.",
    )
    split_size: Size = Field(
        default=DEFAULT_SPLIT_SIZE, gt=0, description="The most bytes of input in one split, as an estimate."
    )

    rules: ClassVar = (
        exactly_one_of("topics", "pattern"),
        named_once(
            "self.topics",
            "the topic {} is named twice, so that its rows would come twice; name it once",
            "topics",
            unless=f"!{is_given('topics')}",
        ),
        Rule(
            "self.format.startsWith('json') || self.types.size() == 0",
            "types belong to format: json and jsonSchema; leave them out, or cast in a step",
            "types",
        ),
        Rule(
            "self.format != 'raw' || self.metadata.size() == 0",
            "metadata does not go with format: raw, which has these columns; leave it out",
            "metadata",
        ),
    )

    @model_validator(mode="after")
    def _has_a_pattern_that_python_reads(self) -> KafkaSource:
        # No rule: CEL has expressions of another kind, and cannot try one.
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise ValueError(f"pattern: it is no regular expression: {error}") from None
        return self

    @property
    def title(self) -> None:
        """No table."""
        return None

    @property
    def uris(self) -> Mapping[str, str]:
        return {}

    def with_uris(self, change: Callable[[str], str]) -> KafkaSource:
        return self

    @property
    def row_position(self) -> str:
        return "topic, partition and offset"

    @property
    def has_registered_schemas(self) -> bool:
        """Whether values have the ids of their schemas in a registry."""
        return self.format in ("avro", "jsonSchema", "protobuf")

    @property
    def is_decoded(self) -> bool:
        """Whether values are decoded by their schemas."""
        return self.format in ("avro", "protobuf")

    @property
    def is_text(self) -> bool:
        return self.format in ("json", "jsonSchema")
