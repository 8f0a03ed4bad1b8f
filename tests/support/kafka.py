"""Topics of a real broker, each test with names of its own, filled as producers do it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from devtools.kafka_broker import KafkaBroker
from tests.support.waiting import patience, until

WAIT_S = 20.0


def object_of(number: int) -> bytes:
    """The value of a record, whose row carries a unique number as those of all tests do."""
    return json.dumps({"id": number, "text": f"zeile {number}"}).encode()


@dataclass
class Topic:
    """A topic. `name` is new for each."""

    broker: KafkaBroker
    partitions: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"orders-{secrets.token_hex(4)}")

    def __post_init__(self) -> None:
        self.admin = AdminClient(dict(self.broker.client_properties()))
        self._producer = self._new_producer()
        self.make()

    def _new_producer(self) -> Producer:
        return Producer(dict(self.broker.client_properties(**{"linger.ms": "1"})))

    def make(self) -> None:
        until(self._is_made)

    def _is_made(self) -> bool:
        """A name is free only some time after its topic was deleted."""
        topic = NewTopic(self.name, self.partitions, 1, config=dict(self.settings))
        try:
            self.admin.create_topics([topic])[self.name].result(patience(WAIT_S))
        except KafkaException:
            return False
        return True

    def delete(self) -> None:
        self.admin.delete_topics([self.name])[self.name].result(patience(WAIT_S))

    def add_partitions(self, total: int) -> None:
        self.admin.create_partitions([NewPartitions(self.name, total)])[self.name].result(patience(WAIT_S))
        # A producer learns of new partitions minutes later.
        self._producer = self._new_producer()

    def section(self, **more: Any) -> dict[str, Any]:
        """The source section of a manifest."""
        kafka = {"bootstrapServers": [self.broker.servers], "topics": [self.name], "format": "json"}
        beside: dict[str, Any] = {name: more.pop(name) for name in ("columns", "where") if name in more}
        named = {name: value for name, value in {**kafka, **more}.items() if value is not None}
        return {"kafka": named, **beside}

    def send(self, numbers: Iterable[int], partition: int = 0) -> None:
        """Send a record for each number."""
        self.send_values([object_of(number) for number in numbers], partition)

    def send_values(self, values: Iterable[bytes | None], partition: int = 0, **more: Any) -> None:
        for value in values:
            self._producer.produce(self.name, value=value, partition=partition, **more)
        assert self._producer.flush(WAIT_S) == 0

    def transaction(self) -> Transaction:
        return Transaction(self)

    def delete_records_before(self, offset: int, partition: int = 0) -> None:
        """What retention does, at a time of our choice."""
        place = TopicPartition(self.name, partition, offset)
        self.admin.delete_records([place])[place].result(patience(WAIT_S))

    def wait_until_stable(self, end: int, partition: int = 0) -> None:
        """Wait until the last stable offset is this one at the least: markers of a transaction are put after its end is told."""
        place = TopicPartition(self.name, partition)

        def is_stable() -> bool:
            latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            found = self.admin.list_offsets({place: latest}, isolation_level=IsolationLevel.READ_COMMITTED)
            return bool(found[place].result(patience(WAIT_S)).offset >= end)

        until(is_stable)

    def topic_id(self) -> str:
        return str(self.admin.describe_topics(TopicCollection([self.name]))[self.name].result(patience(WAIT_S)).topic_id)


class Transaction:
    """An open transaction of one producer."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        named = {"transactional.id": f"producer-{secrets.token_hex(4)}"}
        self._producer = Producer(dict(topic.broker.client_properties(**named)))
        self._producer.init_transactions(WAIT_S)
        self._producer.begin_transaction()

    def send(self, numbers: Iterable[int], partition: int = 0) -> None:
        for number in numbers:
            self._producer.produce(self._topic.name, value=object_of(number), partition=partition)
        assert self._producer.flush(WAIT_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(WAIT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT_S)
