"""What an epoch takes of topics: from where the last one ended up to the last stable offset of each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from confluent_kafka import Message

from checkpoint_formats.kafka.cluster import ANSWER_S, Cluster, Log, Topic
from checkpoint_formats.kafka.columns import RAW, infer_fields, metadata_fields
from checkpoint_formats.kafka.encodings import encoding_of
from checkpoint_formats.kafka.failures import log_is_shorter, lost, made_again, name_of, other_cluster
from checkpoint_formats.kafka.json_values import columns_of_json
from checkpoint_formats.kafka.records import RecordReader
from checkpoint_formats.kafka.registered import columns_of_schemas, pin_schemas
from checkpoint_formats.kafka.registry import registry_of
from checkpoint_formats.port import Described
from checkpoint_formats.rows.type_names import parse_type
from checkpoint_formats.taking import EarlierOf, Taking
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, one_line
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import KafkaPartition, PinnedKafka, PinnedSchema, TakenPartition
from checkpoint_protocol.records.inputs import SourceFile


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


#: The first records of so many partitions tell how large records are, and which fields values have.
_SAMPLE_PARTITIONS: Final = 3
_SAMPLE_RECORDS: Final = 1_000
#: What an offset is taken to be where there is no record to see.
_UNSEEN_BYTES: Final = 100
_ELSE: Final = ", or give a field that the first values do not have a type by source.kafka.types"


def take(source: KafkaSource, of: Taking) -> tuple[Described, PinnedKafka]:
    """Return what the epoch takes of each partition, and the cluster that they are of."""
    columns, sets_apart = of.selection.columns_to_read, of.sets_apart
    return find_partitions(source, columns, of.storage, of.earlier, takes_new=of.takes_new, sets_apart=sets_apart)


def find_partitions(
    source: KafkaSource,
    columns: Sequence[str] | None,
    storage: StorageSettings,
    earlier: EarlierOf | None = None,
    *,
    takes_new: bool = True,
    sets_apart: bool = False,
) -> tuple[Described, PinnedKafka]:
    """Return the offsets that are taken of each partition now, with the columns of their rows, and the cluster that they are of.

    A partition of which rows are tried again is there twice: with these, and with its next offsets (`takes_new`).
    """
    earlier = earlier or EarlierOf()
    before = earlier.table if isinstance(earlier.table, PinnedKafka) else None
    cluster = Cluster(source, storage)
    cluster_id = cluster.cluster_id()
    if before is not None and before.cluster_id != cluster_id:
        raise other_cluster(cluster.servers, before.cluster_id, cluster_id)
    topics = cluster.topics(source)
    logs = cluster.logs([place for topic in topics for place in topic.places])
    taken = ranges(source, topics, logs, earlier.partitions, last_epoch=earlier.last_epoch, takes_new=takes_new)
    starts = {one.place: logs[one.place].start for one in taken}
    samples = _Samples(RecordReader(cluster, silence_s=ANSWER_S))
    files = tuple(_file(one, samples.bytes_each(taken)) for one in taken)
    files = (*_again(source, files, starts, earlier), *files)
    schemas: tuple[PinnedSchema, ...] = ()
    if source.has_registered_schemas:
        registry = registry_of(source.bootstrap_servers, storage)
        filled = {file.kafka.topic for file in files if file.kafka is not None and file.has_positions}
        schemas = pin_schemas(registry, [topic.name for topic in topics], filled)
        given = _given_types(source)

        def columns_of(one: PinnedSchema) -> tuple[pa.Schema, tuple[str, ...]]:
            if source.is_decoded:
                return encoding_of(source, registry).columns(one, columns)
            return columns_of_json(registry, one, given, columns)

        found, known = columns_of_schemas(schemas, columns_of)
        seen = _with_metadata(source, found, known)
    else:
        seen = _columns(source, [message.value() for message in samples.messages(taken)], sets_apart=sets_apart)
        known = ()
    names = [name for name in columns or seen.names if name in seen.names]
    schema = pa.schema([seen.field(name) for name in names])
    place = f"source topics of {cluster.servers}"
    described = Described(files, schema, place, tuple(dict.fromkeys((*known, *seen.names))), "" if schemas else _ELSE)
    return described, PinnedKafka(cluster_id=cluster_id, schemas=schemas)


class _Samples:
    """The first records of some of the partitions, read when they are first asked for."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        self._messages: list[Message] | None = None

    def messages(self, taken: Sequence[Taken]) -> list[Message]:
        if self._messages is None:
            filled = [one for one in taken if one.end > one.start]
            self._messages = [message for one in filled[:_SAMPLE_PARTITIONS] for message in self._first(one)]
        return self._messages

    def bytes_each(self, taken: Sequence[Taken]) -> float:
        messages = self.messages(taken)
        return sum(map(len, messages)) / len(messages) if messages else _UNSEEN_BYTES

    def _first(self, one: Taken) -> list[Message]:
        found = self._reader.read(_file(one, 0), one.start, one.end, lambda: _SAMPLE_RECORDS)
        try:
            return next((records.messages for records in found if records.messages), [])
        finally:
            found.close()


def _file(one: Taken, bytes_each: float) -> SourceFile:
    return SourceFile(
        path=name_of(one.place),
        etag=one.topic_id,
        size_bytes=round((one.end - one.start) * bytes_each),
        unit="rows",
        start=one.start,
        end=one.end,
        kafka=one.place,
    )


def _again(
    source: KafkaSource, files: Sequence[SourceFile], starts: Mapping[KafkaPartition, int], earlier: EarlierOf
) -> list[SourceFile]:
    """Return the partitions of which rows are tried again. Those that are gone are lost; they were told when they failed."""
    now = {(file.path, file.etag): file for file in files}
    found = []
    for version, rows in earlier.again.items():
        file = now.get(version)
        begin = None if file is None or file.kafka is None else starts[file.kafka]
        left = tuple(row for row in rows if begin is not None and row[0] >= begin)
        if len(left) < len(rows) and source.on_lost == "Stall":
            raise _gone_rows(version[0], len(rows) - len(left))
        if file is not None and left:
            found.append(
                SourceFile(
                    path=file.path,
                    etag=file.etag,
                    size_bytes=sum(end - start for start, end in left) * _UNSEEN_BYTES,
                    unit="rows",
                    start=left[0][0],
                    end=left[-1][1],
                    only=left,
                    kafka=file.kafka,
                )
            )
    return found


def _gone_rows(path: str, count: int) -> NeedsChange:
    return NeedsChange(
        reasons.SOURCE_LOST,
        f"source: {count} quarantined rows of {path} are to be tried again (quarantine.retry), and the log does not have them "
        "any more; set quarantine.retry: Never, or source.kafka.onLost: Skip to pass them over",
    )


def _given_types(source: KafkaSource) -> dict[str, pa.DataType]:
    return {name: parse_type(name, text) for name, text in source.types.items()}


def _columns(source: KafkaSource, values: Sequence[bytes | None], *, sets_apart: bool) -> pa.Schema:
    """Return all columns: raw ones are always the same, those of JSON are as the first values show them, or as they are named."""
    if source.format == "raw":
        return RAW
    given = _given_types(source)
    try:
        found = infer_fields(values, given, sets_apart=sets_apart) if values else pa.schema([])
    except (pa.ArrowException, ValueError) as error:
        raise NeedsChange(
            reasons.SOURCE_UNREADABLE,
            f"source: the first values have no fields with common types: {one_line(error)}; name the types by "
            "source.kafka.types (string holds any value, as its JSON text), or set onRowError: Quarantine to set apart values "
            "that are no JSON object",
        ) from error
    for name, kind in given.items():
        index = found.get_field_index(name)
        found = found.append(pa.field(name, kind)) if index < 0 else found.set(index, pa.field(name, kind))
    return _with_metadata(source, found, found.names)


def _with_metadata(source: KafkaSource, found: pa.Schema, known: Sequence[str]) -> pa.Schema:
    """Return the columns with those that records have beside their values. `known`: the names of all fields of the values."""
    for field in metadata_fields(source):
        if field.name in known:
            raise NeedsChange(
                reasons.MANIFEST_INVALID,
                f"source.kafka.metadata: the values have a field {field.name} themselves; leave it out of the metadata",
            )
        found = found.append(field)
    return found
