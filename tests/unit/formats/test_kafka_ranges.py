"""Which offsets an epoch takes, as a table of what the log has and what earlier epochs have taken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_formats.kafka.cluster import Log, Topic
from checkpoint_formats.kafka.take import Taken, _again, bounded, ranges
from checkpoint_formats.taking import EarlierOf
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger.epoch_index import EpochIndex
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.records import KafkaPartition
from checkpoint_protocol.records.inputs import SourceFile
from tests.support.records import KEY, end_epoch, input_of, ledger_over
from tests.support.stores import MemoryStore

ID, OTHER_ID = "id-of-orders", "another-id"


def place(partition: int = 0, topic: str = "orders") -> KafkaPartition:
    return KafkaPartition(topic=topic, partition=partition)


def source(**more: Any) -> KafkaSource:
    return KafkaSource(bootstrap_servers=("b:1",), topics=("orders",), format="raw", **more)


def epoch(end: int, start: int = 0, topic: str = "orders", topic_id: str = ID, **more: Any) -> SourceFile:
    where = place(topic=topic)
    return SourceFile(path="topic", etag=topic_id, size_bytes=1, unit="rows", start=start, end=end, kafka=where, **more)


def after(*epochs: list[SourceFile]) -> dict[str, Any]:
    """Return what the index says once these epochs are committed."""
    store = MemoryStore()
    for number, files in enumerate(epochs, 1):
        ledger = ledger_over(store, key=EpochKey(KEY.uid, number))
        ledger.inputs.put_input(input_of(*files))
        end_epoch(ledger)
    return {"earlier": EpochIndex(store, KEY.uid).up_to(len(epochs)).partitions, "last_epoch": len(epochs)}


def taken(log: Log, *epochs: list[SourceFile], topic_id: str = ID, **more: Any) -> list[tuple[int, int]]:
    found = ranges(source(**more), [Topic("orders", topic_id, 1)], {place(): log}, **after(*epochs))
    return [(one.start, one.end) for one in found]


def refused(log: Log, *epochs: list[SourceFile], topic_id: str = ID, **more: Any) -> CheckpointError:
    with pytest.raises(CheckpointError) as raised:
        taken(log, *epochs, topic_id=topic_id, **more)
    return raised.value


def test_the_first_epoch_begins_at_the_beginning_of_the_log_or_at_its_end() -> None:
    assert taken(Log(5, 20)) == [(5, 20)]
    assert taken(Log(5, 20), starting_offsets="Latest") == [(20, 20)]


def test_an_epoch_begins_where_the_last_one_ended_however_the_first_one_began() -> None:
    assert taken(Log(0, 30), [epoch(10)], [epoch(20, 10)], starting_offsets="Latest") == [(20, 30)]
    assert taken(Log(0, 20), [epoch(20)]) == [(20, 20)]


def test_topics_with_the_same_partition_numbers_each_go_on_where_they_ended() -> None:
    topics, logs = (
        [Topic("orders", ID, 1), Topic("bills", OTHER_ID, 1)],
        dict.fromkeys([place(), place(topic="bills")], Log(0, 30)),
    )
    ended = after([epoch(10), epoch(20, topic="bills", topic_id=OTHER_ID)], [])
    assert [(one.start, one.end) for one in ranges(source(), topics, logs, **ended)] == [(10, 30), (20, 30)]


def test_rows_that_an_epoch_took_again_do_not_say_where_it_ended() -> None:
    again = epoch(4, 3, only=((3, 4),))
    assert taken(Log(0, 30), [epoch(10)], [epoch(20, 10), again]) == [(20, 30)]


def test_offsets_below_the_beginning_of_the_log_are_lost_or_left_for_the_reader_to_find() -> None:
    error = refused(Log(15, 30), [epoch(10)])
    assert isinstance(error, NeedsChange)
    assert error.reason == reasons.SOURCE_LOST
    assert "5 offsets, from 10 to 14" in error.message
    assert taken(Log(15, 30), [epoch(10)], on_lost="Skip") == [(10, 30)]


def test_all_is_lost_where_retention_has_passed_the_end_of_an_idle_log() -> None:
    assert "20 offsets, from 10 to 29" in refused(Log(30, 30), [epoch(10)]).message


def test_another_topic_of_the_name_is_refused_also_where_lost_offsets_are_passed_over() -> None:
    for on_lost in ("Stall", "Skip"):
        assert refused(Log(0, 30), [epoch(10)], topic_id=OTHER_ID, on_lost=on_lost).reason == reasons.SOURCE_CHANGED


def test_a_log_that_is_shorter_than_it_was_is_asked_again() -> None:
    error = refused(Log(0, 8), [epoch(10)])
    assert isinstance(error, Retryable)
    assert "ends at offset 8" in error.message


def test_a_partition_of_a_known_topic_that_is_new_is_read_from_its_first_offset_or_is_lost() -> None:
    def found(log: Log) -> list[tuple[int, int]]:
        logs = {place(0): Log(0, 10), place(1): log}
        both = ranges(source(starting_offsets="Latest"), [Topic("orders", ID, 2)], logs, **after([epoch(10)]))
        return [(one.start, one.end) for one in both]

    assert found(Log(0, 7)) == [(10, 10), (0, 7)]
    with pytest.raises(NeedsChange, match="partition 1: 3 offsets, from 0 to 2"):
        found(Log(3, 7))


def test_a_topic_that_is_gone_stops_the_write_or_is_passed_over_and_goes_on_where_it_ended_if_it_comes_back() -> None:
    gone = source(on_lost="Skip")
    with pytest.raises(NeedsChange, match="orders was deleted"):
        ranges(source(), [], {}, **after([epoch(10)]))
    assert ranges(gone, [], {}, **after([epoch(10)])) == ()
    for topic_id, start in ((ID, 10), (OTHER_ID, 0)):
        back = ranges(gone, [Topic("orders", topic_id, 1)], {place(): Log(0, 30)}, **after([epoch(10)], []))
        assert [(one.start, one.end) for one in back] == [(start, 30)]


def test_where_only_failed_rows_are_tried_again_nothing_new_is_taken_and_nothing_is_lost() -> None:
    found = ranges(source(), [Topic("orders", ID, 1)], {place(): Log(15, 30)}, **after([epoch(10)]), takes_new=False)
    assert [(one.start, one.end) for one in found] == [(10, 10)]


@pytest.mark.parametrize(("topic_id", "left"), [(ID, [((5, 6), (8, 9))]), (OTHER_ID, [])])
def test_of_rows_that_failed_those_are_tried_again_that_the_log_of_the_same_topic_still_has(topic_id: str, left: object) -> None:
    earlier = EarlierOf(again={("topic", ID): ((3, 4), (5, 6), (8, 9))})
    found = _again(source(on_lost="Skip"), [epoch(30, 10, topic_id=topic_id)], {place(): 5}, earlier)
    assert [file.only for file in found] == left


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(1, 120))
def test_a_bound_is_met_exactly_and_no_partition_gives_more_than_it_has(lengths: list[int], most: int) -> None:
    offered = [Taken(place(number), ID, 7, 7 + length) for number, length in enumerate(lengths)]

    found = bounded(offered, most)

    assert sum(one.end - one.start for one in found) == min(most, sum(lengths))
    for before, after in zip(offered, found, strict=True):
        assert before.start == after.start <= after.end <= before.end
