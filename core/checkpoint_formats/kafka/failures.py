"""What went wrong with Kafka, said so that a person can act."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable, one_line
from checkpoint_protocol.records import KafkaPartition

_REFUSED: Final = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)


def name_of(place: KafkaPartition) -> str:
    return f"topic {place.topic} partition {place.partition}"


def refused(error: KafkaError, servers: str) -> NeedsChange | None:
    """Return what an error means that says no to us, whom waiting does not help; None for any other."""
    if error.code() not in _REFUSED:
        return None
    return NeedsChange(
        reasons.CREDENTIALS_REFUSED,
        f"source: the Kafka cluster {servers} refused us: {one_line(error.str())}; put the credentials of its entry right (kafka "
        "in the settings), or have the user be granted Read and Describe of the topics",
    )


def unavailable(error: KafkaError | None, servers: str, what: str) -> Retryable:
    """Say that nobody has answered, within a bounded time."""
    why = f": {one_line(error.str())}" if error is not None else ""
    return Retryable(
        reasons.SOURCE_UNAVAILABLE,
        f"source: the Kafka cluster {servers} does not answer ({what}){why}; check source.kafka.bootstrapServers, the addresses "
        "that its brokers advertise, and the network between them and drivers and executors",
    )


def no_topic(topic: str, servers: str) -> NeedsChange:
    return NeedsChange(
        reasons.SOURCE_MISSING,
        f"source: the Kafka cluster {servers} has no topic {topic}; correct source.kafka.topics, or make the topic",
    )


def made_again(topic: str, before: str, now: str | None) -> NeedsChange:
    """The offsets of a topic are positions in that topic only, and not in one of the same name."""
    found = f"has the id {now} now" if now is not None else "is gone"
    return NeedsChange(
        reasons.SOURCE_CHANGED,
        f"source: the topic {topic} was deleted, or made again: it had the id {before} when its offsets were taken, and {found}; "
        "start a new write for it",
    )


def other_cluster(servers: str, before: str, now: str) -> NeedsChange:
    return NeedsChange(
        reasons.SOURCE_CHANGED,
        f"source: {servers} is the Kafka cluster {now}, and earlier epochs have read {before}, which has other offsets; correct "
        "source.kafka.bootstrapServers, or start a new write",
    )


def lost(places: list[tuple[KafkaPartition, int, int]]) -> NeedsChange:
    """Say which offsets, from and to, are below the beginning of the log while they are still to be read."""
    shown = "; ".join(
        f"{name_of(place)}: {end - start:,} offsets, from {start} to {end - 1}, are below the beginning of the log"
        for place, start, end in places[:10]
    )
    more = f"; and {len(places) - 10} more partitions" if len(places) > 10 else ""
    return NeedsChange(
        reasons.SOURCE_LOST,
        f"source: {shown}{more}: retention, or a delete, has removed them before they were read; raise the retention of the "
        "topic so that it cannot overtake the write, and set source.kafka.onLost: Skip (with onRowError: Quarantine) to go on "
        "without them",
    )


def log_is_shorter(place: KafkaPartition, end: int, expected: int) -> Retryable:
    """A leader that was elected just now may know less of the log for a moment; one that never knew the rest has lost it."""
    return Retryable(
        reasons.SOURCE_LOST,
        f"source: {name_of(place)}: the log ends at offset {end}, and at {expected} it had ended before: where that does not "
        "change, an unclean election of a leader has lost records; start a new write then",
    )


def unreadable(place: KafkaPartition, offset: int, problem: str, remedy: str) -> CheckpointError:
    return NeedsChange(reasons.SOURCE_UNREADABLE, f"source: {name_of(place)}: the value at offset {offset}: {problem}; {remedy}")
