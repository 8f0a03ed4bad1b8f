"""What records say of Kafka: the cluster that an epoch reads, and which partition a file of its input is."""

from __future__ import annotations

from typing import Literal

from checkpoint_protocol.records.base import Count, Part, later


class KafkaPartition(Part):
    """A partition of a topic. Which topic of that name it is, the etag of its file says: the topic's id."""

    topic: str
    partition: Count


class PinnedSchema(Part):
    """The schema, by its id in the registry, that tells the columns of the values of a topic. What an id means never changes."""

    topic: str
    schema_id: Count


class PinnedKafka(Part):
    """A Kafka cluster. What is read of it, the files of the input say: a range of offsets of each partition.

    `schemas`: of topics whose values have schemas in a registry; a topic without a schema had nothing to read.
    """

    format: Literal["kafka"] = "kafka"
    cluster_id: str
    schemas: tuple[PinnedSchema, ...] = later(())

    @property
    def title(self) -> str:
        return f"the Kafka cluster {self.cluster_id}"
