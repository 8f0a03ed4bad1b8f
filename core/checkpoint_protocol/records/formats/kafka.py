"""What records say of Kafka: the cluster that an epoch reads, and which partition a file of its input is."""

from __future__ import annotations

from typing import Literal

from checkpoint_protocol.records.base import Count, Part


class KafkaPartition(Part):
    """A partition of a topic. Which topic of that name it is, the etag of its file says: the topic's id."""

    topic: str
    partition: Count


class PinnedKafka(Part):
    """A Kafka cluster. What is read of it, the files of the input say: a range of offsets of each partition."""

    format: Literal["kafka"] = "kafka"
    cluster_id: str

    @property
    def title(self) -> str:
        return f"the Kafka cluster {self.cluster_id}"
