"""The committed records of a range of offsets, in order. What is not there, as of compaction and transactions, is passed over.

Positions are given by the program, and no consumer group is joined. A range is at its end when a record at or behind its end
comes, or when the log ends there: the last offsets of a range may be no records.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from checkpoint_formats.kafka.cluster import CONNECTING, Cluster
from checkpoint_formats.kafka.failures import log_is_shorter, name_of, refused, unavailable
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line
from checkpoint_protocol.records import KafkaPartition
from checkpoint_protocol.records.inputs import SourceFile

#: So long nothing may come before we say so. A broker that is restarted, and recovers its logs, comes back in less.
SILENCE_S: Final = 60.0
#: What comes within this time is one batch, if it is not full before.
_GATHER_S: Final = 0.1
#: Kept ready in memory, of what brokers send ahead.
_AHEAD_KIB: Final = 16 << 10
_FETCH: Final[dict[str, Any]] = {
    # The library wants one. Nobody joins it, and nothing is stored in it.
    "group.id": "checkpointed-write",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "check.crcs": True,
    # Steps may take their time between two batches.
    "max.poll.interval.ms": 86_400_000,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    "queued.max.messages.kbytes": _AHEAD_KIB,
    **CONNECTING,
}
_MAY_BE_NEWS: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


@dataclass(frozen=True, slots=True)
class Records:
    """What is at the offsets from `start` to `end`: some records, and gaps. `is_lost`: the log does not reach so far back."""

    messages: list[Message]
    start: int
    end: int
    is_lost: bool = False


@dataclass(slots=True)
class RecordReader:
    """Reads partitions of one cluster, one after another, over one connection to each broker."""

    cluster: Cluster
    silence_s: float = SILENCE_S
    now: Callable[[], float] = time.monotonic
    _client: Consumer | None = None
    #: What the library met last while it connected. No method of ours, so that nothing refers to the client in a circle:
    #: it is closed when it is let go.
    _errors: deque[KafkaError] = field(default_factory=lambda: deque(maxlen=1))

    def read(self, file: SourceFile, start: int, end: int, most: Callable[[], int]) -> Generator[Records, None, None]:
        """Give what is at each of the offsets, in order and without holes; `most` is asked how many records come next.

        NeedsChange(SourceChanged) if the topic is gone or was made again; Retryable if nothing comes for too long.
        """
        assert file.kafka is not None
        place, client = file.kafka, self._consumer()
        try:
            yield from _Reading(self, client, file, place, start, end).records(most)
        except KafkaException as error:
            raise self.meant(error.args[0], place) from error
        finally:
            client.unassign()

    def _consumer(self) -> Consumer:
        if self._client is None:
            try:
                self._client = Consumer({**self.cluster.properties, **_FETCH, "error_cb": self._errors.append})
            except (KafkaException, ValueError) as error:
                raise NeedsChange(
                    reasons.MANIFEST_INVALID,
                    f"source: no client of the Kafka cluster {self.cluster.servers} can be made: {one_line(error)}; correct its "
                    "entry (kafka in the settings)",
                ) from error
        return self._client

    @property
    def _error(self) -> KafkaError | None:
        return self._errors[-1] if self._errors else None

    def meant(self, error: KafkaError | None, place: KafkaPartition) -> NeedsChange | Retryable:
        for one in (error, self._error):
            if one is not None and (no := refused(one, self.cluster.servers)) is not None:
                return no
        return unavailable(self._error or error, self.cluster.servers, f"reading {name_of(place)}")

    def refuse_if_told(self) -> None:
        """Raise what the library was told while it connected, where waiting does not help."""
        if self._error is not None and (no := refused(self._error, self.cluster.servers)) is not None:
            raise no


@dataclass(slots=True)
class _Reading:
    """One range while it is read. `at`: up to here everything was given."""

    reader: RecordReader
    client: Consumer
    file: SourceFile
    place: KafkaPartition
    at: int
    end: int
    _heard_s: float = field(init=False)
    _is_ended: bool = False
    _log_end: int | None = None
    _last_error: KafkaError | None = None

    def records(self, most: Callable[[], int]) -> Iterator[Records]:
        self._begin_at(self.at)
        while self.at < self.end:
            wanted = max(1, min(most(), self.end - self.at))
            messages = self.client.consume(wanted, timeout=_GATHER_S)
            yield from self._understood(messages)
            if messages:
                self._heard_s = self.reader.now()
            elif self.reader.now() - self._heard_s > self.reader.silence_s:
                raise self._silent()
            else:
                self.reader.refuse_if_told()

    def _begin_at(self, offset: int) -> None:
        self._heard_s = self.reader.now()
        self.client.assign([TopicPartition(self.place.topic, self.place.partition, offset)])

    def _understood(self, messages: list[Message]) -> Iterator[Records]:
        good: list[Message] = []
        lost_to: int | None = None
        for message in messages:
            error = message.error()
            if error is None:
                if offset_of(message) >= self.end:
                    self._is_ended = True
                    break
                good.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends_at(message.offset())
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                lost_to = self._find_begin(offset_of(good[-1]) + 1 if good else self.at)
            else:
                self._consider(error)
        if good or self._is_ended:
            end = self.end if self._is_ended else offset_of(good[-1]) + 1
            yield Records(good, self.at, end)
            self.at = end
        if lost_to is not None and lost_to > self.at:
            yield Records([], self.at, lost_to, is_lost=True)
            self.at = lost_to
            if self.at < self.end:
                self._begin_at(self.at)

    def _ends_at(self, offset: int | None) -> None:
        """The log ends: behind the range, or, where another broker has become the leader of late, for the moment before it."""
        if offset is not None and offset >= self.end:
            self._is_ended = True
        self._log_end = offset

    def _find_begin(self, at: int) -> int:
        """Return up to where the log has lost what is to be read. Of another topic of that name, offsets say nothing."""
        self.reader.cluster.check_unchanged(self.file)
        log = self.reader.cluster.logs([self.place])[self.place]
        if log.start <= at:
            raise log_is_shorter(self.place, log.stable_end, self.end)
        return min(log.start, self.end)

    def _consider(self, error: KafkaError) -> None:
        if error.code() in _MAY_BE_NEWS:
            self.reader.cluster.check_unchanged(self.file)
        if (no := refused(error, self.reader.cluster.servers)) is not None:
            raise no
        self._last_error = error

    def _silent(self) -> NeedsChange | Retryable:
        if self._log_end is not None and self._log_end < self.end:
            return log_is_shorter(self.place, self._log_end, self.end)
        return self.reader.meant(self._last_error, self.place)


def offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "of a record"
    return offset
