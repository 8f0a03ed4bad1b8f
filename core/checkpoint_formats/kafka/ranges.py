"""Which offsets an epoch takes: from where the last one ended up to the last stable offset. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from checkpoint_formats.kafka.cluster import Log, Topic
from checkpoint_formats.kafka.failures import log_is_shorter, lost, made_again
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.records import KafkaPartition, TakenPartition


@dataclass(frozen=True, slots=True)
class Taken:
    """Offsets of a partition, from and to."""

    place: KafkaPartition
    topic_id: str
    start: int
    end: int


def ranges(
    source: KafkaSource,
    topics: Sequence[Topic],
    logs: Mapping[KafkaPartition, Log],
    earlier: Sequence[TakenPartition],
    *,
    last_epoch: int,
    takes_new: bool = True,
) -> tuple[Taken, ...]:
    """Return the next offsets of each partition; a partition that has no new ones is there too, so that the next epoch knows it.

    `earlier` are the partitions that the epochs before have taken; of which
    the last has this number, 0 if there were none. `takes_new`: no new offsets otherwise.
    NeedsChange(SourceChanged) for a topic that was made again, NeedsChange(SourceLost) for offsets that the log has no more;
    with `onLost: Skip`, they are taken with the others, and whoever reads them finds that they are not there.
    """
    ended = {(one.topic_id, one.partition.partition): one.end for one in earlier}
    last = {one.partition.topic: one.topic_id for one in earlier if one.epoch == last_epoch}
    known = {one.topic_id for one in earlier}
    _refuse_other_topics(source, last, topics)
    found: list[Taken] = []
    missing: list[tuple[KafkaPartition, int, int]] = []
    for topic in topics:
        for place in topic.places:
            log, end = logs[place], ended.get((topic.topic_id, place.partition))
            start = _start(source, log, end, is_first=not last_epoch, is_new_topic=topic.topic_id not in known)
            if log.stable_end < start:
                raise log_is_shorter(place, log.stable_end, start)
            if log.start > start:
                missing.append((place, start, log.start))
            found.append(Taken(place, topic.topic_id, start, log.stable_end if takes_new else start))
    if missing and takes_new and source.on_lost == "Stall":
        raise lost(missing)
    return tuple(found if source.max_offsets is None else bounded(found, source.max_offsets))


def _start(source: KafkaSource, log: Log, end: int | None, *, is_first: bool, is_new_topic: bool) -> int:
    if end is not None:
        return end
    if is_first and source.starting_offsets == "Latest":
        return log.stable_end
    # Of a topic that earlier epochs have read, a partition came after them, and all of it is new. A topic that joins may be old.
    return log.start if is_first or is_new_topic else 0


def _refuse_other_topics(source: KafkaSource, last: Mapping[str, str], topics: Sequence[Topic]) -> None:
    """Refuse another topic under the name of one of the last epoch; and that it is gone, unless that is passed over."""
    now = {topic.name: topic.topic_id for topic in topics}
    for name, topic_id in last.items():
        if now.get(name) == topic_id or (name not in now and source.on_lost == "Skip"):
            continue
        raise made_again(name, topic_id, now.get(name))


def bounded(found: Sequence[Taken], most: int) -> list[Taken]:
    """Return no more offsets than so many: of each partition as large a part as of all, rounded so that they add up."""
    total = sum(taken.end - taken.start for taken in found)
    if total <= most:
        return list(found)
    shares, before, given = [], 0, 0
    for taken in found:
        before += taken.end - taken.start
        share = before * most // total - given
        given += share
        shares.append(Taken(taken.place, taken.topic_id, taken.start, taken.start + share))
    return shares
