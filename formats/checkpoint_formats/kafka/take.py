"""What an epoch takes of topics: the offsets after those that were taken, and those that are tried again."""

from __future__ import annotations

from checkpoint_formats.kafka.partitions import find_partitions
from checkpoint_formats.port import Described
from checkpoint_formats.taking import Taking
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.records import PinnedKafka


def take(source: KafkaSource, of: Taking) -> tuple[Described, PinnedKafka]:
    """Return what the epoch takes of each partition, and the cluster that they are of."""
    columns, sets_apart = of.selection.columns_to_read, of.sets_apart
    return find_partitions(source, columns, of.storage, of.earlier, takes_new=of.takes_new, sets_apart=sets_apart)
