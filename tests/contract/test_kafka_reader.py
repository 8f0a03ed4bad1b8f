"""The reader of Kafka on a real broker: chunks cover each offset once, in order, whatever is not there, and whoever restarts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from checkpoint_formats.kafka.reader import KafkaReader
from checkpoint_formats.kafka.take import find_partitions
from checkpoint_formats.port import Chunk
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.selecting import Selection
from checkpoint_formats.rows.uniting import unite
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.places.kafka_settings import KafkaEntry
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.rows.positions import Range
from devtools.kafka_broker import KafkaBroker
from devtools.ports import LOOPBACK, free_port
from tests.support.kafka import Topic
from tests.support.waiting import until

NO_SETTINGS = StorageSettings()


def raw(topic: Topic, servers: str | None = None) -> KafkaSource:
    return KafkaSource(bootstrap_servers=(servers or topic.broker.servers,), topics=(topic.name,), format="raw")


def chunks_of(source: KafkaSource, scale: float = 1.0) -> Iterator[Chunk]:
    """Read the only partition of a topic."""
    described, _ = find_partitions(source, None, NO_SETTINGS)
    (file,) = described.files
    reader = KafkaReader(source, None, NO_SETTINGS)
    yield from reader.read(
        file, Range(file=0, start=file.start, end=file.end), described.schema, BatchSizing(3600.0, scale=scale)
    )


def offsets_of(chunks: Iterator[Chunk]) -> list[int]:
    """Return the positions of the rows, as seals and quarantine take them; they are those that the records have."""
    found: list[int] = []
    at = 0
    for chunk in chunks:
        assert chunk.start == at
        assert chunk.end is not None
        at = chunk.end
        starts = [start for start, _ in chunk.bounds()]
        assert starts == chunk.batch.column("offset").to_pylist()
        found += starts
    return found


def test_what_was_compacted_away_is_covered_and_has_no_row(kafka_broker: KafkaBroker) -> None:
    compacted = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
    }
    topic = Topic(kafka_broker, settings=compacted)
    for value in range(20):
        topic.send_values([str(value).encode()], key=b"same")
        time.sleep(0.02)
    time.sleep(0.2)
    topic.send_values([b"last"], key=b"other")

    found: list[int] = []

    def is_compacted() -> bool:
        found[:] = offsets_of(chunks_of(raw(topic)))
        return len(found) < 21

    until(is_compacted)
    assert found[-1] == 20


@pytest.mark.parametrize("scale", [2**-16, 2**-13, 1.0])
def test_chunks_of_any_size_cover_each_offset_once_among_aborted_records(kafka_broker: KafkaBroker, scale: float) -> None:
    topic = Topic(kafka_broker)
    for number in range(3):
        transaction = topic.transaction()
        transaction.send(range(10 * number, 10 * number + 5))
        topic.send(range(10 * number + 5, 10 * number + 8))
        transaction.abort() if number == 1 else transaction.commit()
    topic.wait_until_stable(27)

    chunks = list(chunks_of(raw(topic), scale))

    offsets_of(iter(chunks))
    assert chunks[-1].end == 27
    values = [json.loads(value)["id"] for chunk in chunks for value in chunk.batch.column("value").to_pylist()]
    assert values == [*range(8), *range(15, 18), *range(20, 28)]


def test_a_broker_that_is_killed_and_comes_back_in_the_middle_of_a_read_costs_no_record(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path) as broker:
        topic = Topic(broker)
        topic.send_values([b"x" * 10_000] * 6_000)
        found: list[int] = []
        reading = chunks_of(raw(topic), 2**-9)
        for _ in range(3):
            found += [start for start, _ in next(reading).bounds()]
        broker.kill()
        starting = threading.Timer(0.5, broker.start)
        starting.start()
        for chunk in reading:
            found += [start for start, _ in chunk.bounds()]
        starting.join()

        assert found == list(range(6_000))


def test_a_cluster_that_does_not_answer_is_said_within_a_bounded_time() -> None:
    source = KafkaSource(bootstrap_servers=(f"{LOOPBACK}:{free_port()}",), topics=("orders",), format="raw")

    with pytest.raises(Retryable) as raised:
        find_partitions(source, None, NO_SETTINGS)

    assert raised.value.reason == reasons.SOURCE_UNAVAILABLE
    assert source.bootstrap_servers[0] in raised.value.message


def test_credentials_are_those_of_the_settings_and_refused_ones_are_said(kafka_broker: KafkaBroker) -> None:
    topic = Topic(kafka_broker)
    topic.send_values([b"x"])
    source = raw(topic, kafka_broker.servers_with_password)

    def settings(password: str) -> StorageSettings:
        entry = KafkaEntry(
            bootstrap_servers=(kafka_broker.servers_with_password,),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            username=kafka_broker.user,
            password=SecretStr(password),
        )
        return StorageSettings(kafka=(entry,))

    described, _ = find_partitions(source, None, settings(kafka_broker.password))
    assert [file.end for file in described.files] == [1]

    with pytest.raises(NeedsChange) as raised:
        find_partitions(source, None, settings("wrong-password"))
    assert raised.value.reason == reasons.CREDENTIALS_REFUSED
    assert "wrong-password" not in raised.value.message


def test_a_reader_gives_the_records_of_its_piece_only_also_where_the_next_one_lies_far_behind_it(
    kafka_broker: KafkaBroker,
) -> None:
    topic = Topic(kafka_broker)
    topic.send_values([b"x"] * 5)
    aborted = topic.transaction()
    aborted.send(range(5))
    aborted.abort()
    topic.send_values([b"x"] * 5)
    described, _ = find_partitions(raw(topic), None, NO_SETTINGS)
    reader = KafkaReader(raw(topic), None, NO_SETTINGS)
    piece = Range(file=0, start=3, end=8)

    chunks = list(reader.read(described.files[0], piece, described.schema, BatchSizing(3600.0, scale=1.0)))

    assert (chunks[0].start, chunks[-1].end) == (3, 8)
    assert [offset for chunk in chunks for offset in chunk.batch.column("offset").to_pylist()] == [3, 4]


def test_values_and_an_entry_that_are_corrected_as_the_message_says_are_read(kafka_broker: KafkaBroker) -> None:
    topic, broken = Topic(kafka_broker), Topic(kafka_broker)
    topic.send_values([f'{{"kafka_offset": {"9" * 39}}}'.encode(), b'{"kafka_offset": 1}'])
    broken.send_values([b'{"a": 1}', b"no json"])

    def source(of: Topic, **more: Any) -> KafkaSource:
        return KafkaSource(bootstrap_servers=(kafka_broker.servers,), topics=(of.name,), format="json", **more)

    types = {"kafka_offset": "double"}
    with pytest.raises(NeedsChange, match=r"no fields with common types: .*; name the types by source\.kafka\.types"):
        find_partitions(source(topic), None, NO_SETTINGS)
    with pytest.raises(NeedsChange, match="the values have a field kafka_offset themselves; leave it out of the metadata"):
        find_partitions(source(topic, types=types, metadata=("offset",)), None, NO_SETTINGS)
    described, _ = find_partitions(source(topic, types=types), None, NO_SETTINGS)
    assert described.schema.names == ["kafka_offset"]

    with pytest.raises(NeedsChange, match="or set onRowError: Quarantine to set apart values that are no JSON object"):
        find_partitions(source(broken), None, NO_SETTINGS)
    described, _ = find_partitions(source(broken), None, NO_SETTINGS, sets_apart=True)
    assert described.schema.names == ["a"]

    with pytest.raises(NeedsChange, match=r"or give a field that the first values do not have a type by source\.kafka\.types"):
        unite([find_partitions(source(broken), ("late",), NO_SETTINGS, sets_apart=True)[0]], Selection(("late",), None))
    late = source(broken, types={"late": "int64"})
    found, _ = find_partitions(late, ("late",), NO_SETTINGS, sets_apart=True)
    assert unite([found], Selection(("late",), None)).names == ["late"]

    def entry(**more: Any) -> StorageSettings:
        return StorageSettings(kafka=(KafkaEntry(bootstrap_servers=(kafka_broker.servers,), **more),))

    with pytest.raises(NeedsChange, match=r"can be made: .*; correct its entry \(kafka in the settings\)"):
        find_partitions(source(topic, types=types), None, entry(security_protocol="SSL", ca_file="/no/such/file"))
    find_partitions(source(topic, types=types), None, entry())
