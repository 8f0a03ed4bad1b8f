"""Topics of Kafka as sources, on a real broker: each committed record is in the table once, whatever happens meanwhile."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_protocol import reasons
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import QuarantinedRow, RowPosition
from checkpoint_protocol.store.object_store import open_store
from checkpoint_work.tasks.rows_by_position import ranges_of
from devtools.kafka_broker import KafkaBroker
from devtools.ports import LOOPBACK, free_port
from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.kafka import Topic
from tests.support.places import Place
from tests.support.slow import slow_except_on
from tests.support.waiting import patience
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for

QUARANTINE = {"onRowError": "Quarantine"}


def run(place: Place, section: dict[str, Any], **spec: Any) -> Any:
    """Run to the end with drivers that live."""
    return drive(reconciler_for(manifest_for(place, section, **spec), place))


def finished(place: Place, section: dict[str, Any], **spec: Any) -> Any:
    ended = run(place, section, **spec)
    assert isinstance(ended.outcome, Finish), ended.outcome
    return ended


def assert_stalled(ended: Any, reason: str, *words: str) -> None:
    assert isinstance(ended.outcome, Stall), ended.outcome
    assert ended.outcome.reason == reason, ended.outcome
    for word in words:
        assert word in ended.outcome.message


def interrupt(place: Place, section: dict[str, Any], after_tasks: int, **spec: Any) -> DirectDrivers:
    """Run a write whose driver dies after some tasks, and whose runner dies with it."""

    def die(number: int) -> None:
        if number == after_tasks:
            raise Killed

    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings, between_tasks=die)
    reconciler = reconciler_for(manifest_for(place, section, **spec), place, drivers, store)
    while not drivers.started:
        reconciler.step()
    drivers.finish()
    return drivers


def ledger_of(place: Place, ended: Any) -> Ledger:
    return Ledger(open_store(place.checkpoint_uri, place.settings), ended.key)


def input_of(place: Place, ended: Any) -> list[tuple[int, int, int | None]]:
    """The partitions that an epoch has taken, with their offsets, from and to."""
    record = ledger_of(place, ended).inputs.read_committed_input()
    assert record is not None
    return [(file.kafka.partition, file.start, file.end) for file in record.files if file.kafka is not None]


def quarantined(place: Place, ended: Any) -> list[QuarantinedRow]:
    ledger = ledger_of(place, ended)
    commit = ledger.commits.read_commit()
    assert commit is not None
    return [
        row
        for seal in ledger.chains.counted_seals(range(1, commit.attempts + 1))
        for row in ledger.quarantine.quarantined_rows(seal)
    ]


def offsets_of(row: QuarantinedRow) -> tuple[int, int | None]:
    assert isinstance(row.row, RowPosition)
    return row.row.range.start, row.row.range.end


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_each_record_is_in_the_table_once_and_the_next_epoch_begins_where_the_last_ended(
    disk_place: Place, kafka_broker: KafkaBroker
) -> None:
    disk_place.create(SCHEMA)
    topic = Topic(kafka_broker, partitions=2)
    topic.send(range(100), partition=0)
    topic.send(range(100, 150), partition=1)

    first = finished(disk_place, topic.section())
    topic.send(range(150, 180), partition=1)
    second = finished(disk_place, topic.section(), runNonce="2")

    assert_exactly_once(disk_place, range(180))
    assert input_of(disk_place, first) == [(0, 0, 100), (1, 0, 50)]
    assert input_of(disk_place, second) == [(0, 100, 100), (1, 50, 80)]


def test_raw_records_have_key_value_headers_timestamp_partition_offset_and_topic(
    iceberg_place: Place, kafka_broker: KafkaBroker
) -> None:
    topic = Topic(kafka_broker, settings={"retention.ms": "-1"})
    topic.send_values([b"a"], key=b"k", timestamp=1_700_000_000_123, headers=[("h", b"1"), ("h", b"2")])
    topic.send_values([None], timestamp=1_700_000_000_124)

    finished(iceberg_place, topic.section(format="raw"), sink={"create": True})

    first, second = sorted(iceberg_place.rows(), key=lambda row: int(row["offset"]))
    assert (first["key"], first["value"], first["partition"], first["topic"]) == (b"k", b"a", 0, topic.name)
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": b"2"}]
    assert first["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert (second["key"], second["value"], second["headers"], second["offset"]) == (None, None, [], 1)


def test_values_that_are_json_have_their_fields_as_columns_and_the_metadata_that_is_named(
    iceberg_place: Place, kafka_broker: KafkaBroker
) -> None:
    topic = Topic(kafka_broker)
    topic.send_values([b'{"id": 1,\n "at": "2026-01-02T03:04:05"}', None, b'{"at": "2026-01-02T03:04:06", "id": 3}'])
    section = topic.section(metadata=["offset", "topic"], types={"at": "timestamp[us]"})

    finished(iceberg_place, section, sink={"create": True})

    rows = sorted(iceberg_place.rows(), key=lambda row: int(row["kafka_offset"]))
    assert [(row["id"], row["kafka_offset"], row["kafka_topic"]) for row in rows] == [
        (1, 0, topic.name),
        (None, 1, topic.name),
        (3, 2, topic.name),
    ]
    assert [None if row["at"] is None else row["at"].second for row in rows] == [5, None, 6]


@slow_except_on("disk_place", "lance-disk")
def test_an_aborted_transaction_leaves_no_row_and_an_open_one_waits_for_the_next_epoch(
    disk_place: Place, kafka_broker: KafkaBroker
) -> None:
    disk_place.create(SCHEMA)
    topic = Topic(kafka_broker)
    committed, aborted, still_open = topic.transaction(), topic.transaction(), topic.transaction()
    committed.send(range(10))
    aborted.send(range(1000, 1010))
    committed.commit()
    aborted.abort()
    topic.send(range(10, 20))
    still_open.send(range(20, 30))
    topic.send(range(30, 40))
    topic.wait_until_stable(30)

    first = finished(disk_place, topic.section())
    assert_exactly_once(disk_place, range(20))
    still_open.commit()
    # Fifty records, and a marker for each of the transactions.
    topic.wait_until_stable(53)
    second = finished(disk_place, topic.section(), runNonce="2")

    assert_exactly_once(disk_place, range(40))
    ((_, begin, stable_end),) = input_of(disk_place, first)
    assert begin == 0
    assert input_of(disk_place, second) == [(0, stable_end, 53)]


def test_a_range_that_is_only_aborted_records_is_covered_and_not_read_again(
    iceberg_place: Place, kafka_broker: KafkaBroker
) -> None:
    iceberg_place.create(SCHEMA)
    topic = Topic(kafka_broker)
    topic.send([1])
    aborted = topic.transaction()
    aborted.send(range(100))
    aborted.abort()
    topic.send([2])
    topic.wait_until_stable(103)

    first = finished(iceberg_place, topic.section(maxOffsets=50))
    second = finished(iceberg_place, topic.section(maxOffsets=50), runNonce="2")
    third = finished(iceberg_place, topic.section(maxOffsets=50), runNonce="3")

    assert_exactly_once(iceberg_place, [1, 2])
    assert [input_of(iceberg_place, ended) for ended in (first, second, third)] == [[(0, 0, 50)], [(0, 50, 100)], [(0, 100, 103)]]


def test_an_epoch_takes_no_more_offsets_than_it_may_of_each_partition_its_share(
    iceberg_place: Place, kafka_broker: KafkaBroker
) -> None:
    iceberg_place.create(SCHEMA)
    topic = Topic(kafka_broker, partitions=2)
    topic.send(range(90), partition=0)
    topic.send(range(90, 120), partition=1)

    taken = [input_of(iceberg_place, finished(iceberg_place, topic.section(maxOffsets=80), runNonce=str(n))) for n in range(2)]

    assert taken == [[(0, 0, 60), (1, 0, 20)], [(0, 60, 90), (1, 20, 30)]]
    assert_exactly_once(iceberg_place, range(120))


def test_partitions_and_topics_that_come_later_join_from_their_beginning(iceberg_place: Place, kafka_broker: KafkaBroker) -> None:
    iceberg_place.create(SCHEMA)
    topic = Topic(kafka_broker)
    topic.send([1, 2])
    section = topic.section(topics=None, pattern=f"{topic.name}(-.*)?", startingOffsets="Latest")

    first = finished(iceberg_place, section)
    topic.add_partitions(2)
    topic.send([3], partition=1)
    Topic(kafka_broker, name=f"{topic.name}-more").send([4])
    finished(iceberg_place, section, runNonce="2")

    assert input_of(iceberg_place, first) == [(0, 2, 2)]
    assert_exactly_once(iceberg_place, [3, 4])


def test_of_two_topics_each_goes_on_where_its_own_records_ended(iceberg_place: Place, kafka_broker: KafkaBroker) -> None:
    first, second = Topic(kafka_broker, partitions=2), Topic(kafka_broker, partitions=2)
    topics = {topic.name: topic for topic in (first, second)}
    iceberg_place.create(SCHEMA)
    section = first.section(topics=[*topics])
    sent: list[int] = []
    taken: list[list[tuple[str, int, int, int | None]]] = []
    # In none of the epochs do the topics have as many new records, nor the partitions of one.
    for epoch, counts in enumerate([(3, 5, 20, 1), (4, 0, 0, 30), (1, 1, 2, 2)]):
        for place, count in enumerate(counts):
            numbers = range(1_000 * epoch + 100 * place, 1_000 * epoch + 100 * place + count)
            (first, second)[place // 2].send(numbers, place % 2)
            sent += numbers
        ended = finished(iceberg_place, section, runNonce=str(epoch))
        record = ledger_of(iceberg_place, ended).inputs.read_committed_input()
        assert record is not None
        places = [
            (file.kafka.topic, file.kafka.partition, file.start, file.end) for file in record.files if file.kafka is not None
        ]
        taken.append(sorted(places, key=lambda one: (one[0] != first.name, one[1])))

    assert sorted(row["id"] for row in iceberg_place.rows()) == sorted(sent)
    assert taken == [
        [(first.name, 0, 0, 3), (first.name, 1, 0, 5), (second.name, 0, 0, 20), (second.name, 1, 0, 1)],
        [(first.name, 0, 3, 7), (first.name, 1, 5, 5), (second.name, 0, 20, 20), (second.name, 1, 1, 31)],
        [(first.name, 0, 7, 8), (first.name, 1, 5, 6), (second.name, 0, 20, 22), (second.name, 1, 31, 33)],
    ]


def test_a_topic_that_was_made_again_stops_the_next_epoch(iceberg_place: Place, kafka_broker: KafkaBroker) -> None:
    iceberg_place.create(SCHEMA)
    topic = Topic(kafka_broker)
    topic.send(range(5))
    finished(iceberg_place, topic.section())
    topic.delete()
    topic.make()
    topic.send(range(5, 20))

    ended = run(iceberg_place, topic.section(), runNonce="2")

    assert_stalled(ended, reasons.SOURCE_CHANGED, topic.name, topic.topic_id(), "start a new write")
    assert_exactly_once(iceberg_place, range(5))

    finished(iceberg_place, topic.section(), name="again")
    assert_exactly_once(iceberg_place, range(20))


def test_a_topic_that_was_made_again_while_its_rows_are_missing_stops_the_attempt(
    iceberg_place: Place, kafka_broker: KafkaBroker
) -> None:
    iceberg_place.create(SCHEMA)
    topic = Topic(kafka_broker)
    topic.send(range(500))
    interrupt(iceberg_place, topic.section(), after_tasks=2)
    topic.delete()
    topic.make()
    topic.send(range(500))

    ended = run(iceberg_place, topic.section())

    assert_stalled(ended, reasons.SOURCE_CHANGED, topic.name, topic.topic_id())
    assert iceberg_place.rows() == []


def test_offsets_that_retention_has_overtaken_between_two_epochs_stop_the_write_until_they_are_passed_over(
    iceberg_place: Place, kafka_broker: KafkaBroker
) -> None:
    iceberg_place.create(SCHEMA)
    topic = Topic(kafka_broker)
    topic.send(range(10))
    finished(iceberg_place, topic.section())
    topic.send(range(10, 30))
    topic.delete_records_before(17)

    stopped = run(iceberg_place, topic.section(), runNonce="2")
    assert_stalled(stopped, reasons.SOURCE_LOST, "partition 0", "7 offsets, from 10 to 16", "onLost: Skip")
    ended = finished(iceberg_place, topic.section(onLost="Skip"), runNonce="2", **QUARANTINE)

    assert_exactly_once(iceberg_place, [*range(10), *range(17, 30)])
    lost = quarantined(iceberg_place, ended)
    assert [offsets_of(row) for row in lost] == [(10, 17)]
    assert "7 offsets, from 10 to 16" in lost[0].message


@pytest.mark.parametrize("on_lost", ["Stall", "Skip"])
def test_offsets_that_retention_overtakes_in_the_middle_of_an_epoch_are_never_passed_over_in_silence(
    iceberg_place: Place, kafka_broker: KafkaBroker, on_lost: str
) -> None:
    iceberg_place.create(SCHEMA)
    topic = Topic(kafka_broker)
    topic.send(range(600))
    section = topic.section(onLost=on_lost)
    interrupt(iceberg_place, section, after_tasks=2, **QUARANTINE)
    topic.delete_records_before(550)

    ended = run(iceberg_place, section, **QUARANTINE)

    if on_lost == "Stall":
        assert_stalled(ended, reasons.SOURCE_LOST, topic.name, "are below the beginning of the log")
        assert iceberg_place.rows() == []
        return
    assert isinstance(ended.outcome, Finish), ended.outcome
    spans = [offsets_of(row) for row in quarantined(iceberg_place, ended)]
    lost = {offset for start, end in spans for offset in range(start, end or 0)}
    assert lost
    assert max(lost) == 549
    assert_exactly_once(iceberg_place, set(range(600)) - lost)


@slow_except_on("disk_place", "lance-disk")
def test_a_driver_that_is_killed_leaves_its_seals_and_nothing_sealed_is_read_again(
    disk_place: Place, kafka_broker: KafkaBroker
) -> None:
    disk_place.create(SCHEMA)
    topic = Topic(kafka_broker, partitions=2)
    topic.send(range(300), partition=0)
    topic.send(range(300, 600), partition=1)
    interrupt(disk_place, topic.section(), after_tasks=3)
    topic.send(range(1000, 1100), partition=0)

    ended = finished(disk_place, topic.section())

    assert_exactly_once(disk_place, range(600))
    ledger = ledger_of(disk_place, ended)
    plan = ledger.plans.read_plan(2)
    assert plan is not None
    planned = {(piece.file, offset) for task in plan.tasks for piece in task for offset in range(piece.start, piece.end or 0)}
    pieces = [piece for seal in ledger.chains.counted_seals([1]) for piece in ranges_of(seal)]
    sealed = {(piece.file, offset) for piece in pieces for offset in range(piece.start, piece.end or 0)}
    assert sealed
    assert not planned & sealed


def test_a_value_that_is_no_json_object_is_set_apart_by_its_offset_or_stops_the_write(
    iceberg_place: Place, kafka_broker: KafkaBroker
) -> None:
    iceberg_place.create(SCHEMA)
    topic = Topic(kafka_broker)
    topic.send(range(2000))
    topic.send_values([b"no json", b"", b'{"id": 1}{"id": 2}', b'{"id": "x", "text": "y"}', b'{"id": 7, "late": 1}'])
    topic.send([2000])

    stopped = run(iceberg_place, topic.section())
    assert_stalled(stopped, reasons.SOURCE_UNREADABLE, f"{topic.name} partition 0", "at offset 2000", "onRowError: Quarantine")
    ended = finished(iceberg_place, topic.section(), **QUARANTINE)

    assert_exactly_once(iceberg_place, range(2001))
    rows = quarantined(iceberg_place, ended)
    assert [offsets_of(row) for row in rows] == [(offset, offset + 1) for offset in range(2000, 2005)]
    assert "unexpected field 'late'" in rows[-1].message


def test_records_that_failed_are_tried_again_beside_those_that_came_since(
    iceberg_place: Place, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg_place.create(SCHEMA)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kafka_poison.py").write_text("def work(row):\n    if row['id'] in {3, 4}: raise ValueError\n    return row\n")
    (tmp_path / "kafka_mended.py").write_text("def work(row):\n    return row\n")
    topic = Topic(kafka_broker)
    topic.send(range(100))
    spec = {**QUARANTINE, "quarantine": {"retry": "Also"}}

    finished(iceberg_place, topic.section(), steps=[{"call": "kafka_poison:work", "input": "row"}], **spec)
    topic.send(range(100, 105))
    mended = [{"call": "kafka_mended:work", "input": "row"}]
    second = finished(iceberg_place, topic.section(), steps=mended, runNonce="2", **spec)
    third = finished(iceberg_place, topic.section(), steps=mended, runNonce="3", **spec)

    assert_exactly_once(iceberg_place, range(105))
    record = ledger_of(iceberg_place, second).inputs.read_committed_input()
    assert record is not None
    assert [(file.only, file.start, file.end) for file in record.files] == [(((3, 4), (4, 5)), 3, 5), (None, 100, 105)]
    assert input_of(iceberg_place, third) == [(0, 105, 105)]


def test_where_takes_some_records_and_the_others_are_covered(iceberg_place: Place, kafka_broker: KafkaBroker) -> None:
    iceberg_place.create(SCHEMA)
    topic = Topic(kafka_broker)
    topic.send(range(100))

    finished(iceberg_place, topic.section(where="id >= 90 or id = 7"))

    assert_exactly_once(iceberg_place, [7, *range(90, 100)])


def test_what_is_wrong_with_the_source_is_said_with_the_way_out(iceberg_place: Place, kafka_broker: KafkaBroker) -> None:
    iceberg_place.create(SCHEMA)
    topic = Topic(kafka_broker)
    topic.send_values([json.dumps({"kafka_offset": 1}).encode()])

    unknown = run(iceberg_place, topic.section(topics=["no-such-topic"]), name="a")
    doubled = run(iceberg_place, topic.section(metadata=["offset"]), name="b")

    assert_stalled(unknown, reasons.SOURCE_MISSING, "no topic no-such-topic", "source.kafka.topics")
    assert_stalled(doubled, reasons.MANIFEST_INVALID, "kafka_offset")


def validated(place: Place, folder: Path, topic: Topic, settings: dict[str, Any] | None = None, **section: Any) -> str:
    """Return what `validate` says of a write from a topic to a new table."""
    manifest = manifest_for(place, topic.section(**section), sink={"create": True})
    command = CommandLine(folder / secrets.token_hex(4), place, manifest)
    if settings is not None:
        whole = yaml.safe_load(command.settings_file.read_text())
        command.settings_file.write_text(yaml.safe_dump({**whole, **settings}))
    program = [sys.executable, "-m", "checkpoint_local.cli.main", "validate", str(command.file)]
    said = subprocess.run(
        [*program, "--settings", str(command.settings_file)],
        env=command.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        timeout=patience(120),
    )
    return " ".join(said.stdout.split())


@pytest.mark.slow
def test_validate_says_what_a_run_would_read_and_what_is_wrong_with_the_source(
    iceberg_place: Place, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = Topic(kafka_broker)
    topic.send(range(10))
    entry = {
        "bootstrap_servers": [kafka_broker.servers_with_password],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "username": kafka_broker.user,
    }

    def with_password(password: str) -> str:
        settings = {"kafka": [{**entry, "password": password}]}
        servers = [kafka_broker.servers_with_password]
        return validated(iceberg_place, tmp_path, topic, settings, bootstrapServers=servers)

    assert "topic, partition and offset" in validated(iceberg_place, tmp_path, topic)
    assert "topic, partition and offset" in with_password(kafka_broker.password)
    unknown = validated(iceberg_place, tmp_path, topic, topics=["no-such-topic"])
    assert "spec.source.kafka" in unknown
    assert "has no topic no-such-topic; correct source.kafka.topics" in unknown
    refused = with_password("wrong-password")
    assert "refused us" in refused
    assert "wrong-password" not in refused
    nobody = f"{LOOPBACK}:{free_port()}"
    assert f"the Kafka cluster {nobody} does not answer" in validated(iceberg_place, tmp_path, topic, bootstrapServers=[nobody])
