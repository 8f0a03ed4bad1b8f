"""What is asked of a Kafka cluster besides records: which topics there are, and from where to where their logs go."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from checkpoint_formats.kafka.failures import made_again, no_topic, refused, unavailable
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, one_line
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.places.kafka_settings import KafkaEntry
from checkpoint_protocol.places.setting_values import reveal
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import KafkaPartition
from checkpoint_protocol.records.inputs import SourceFile

#: How long the cluster may take for an answer. A broker that restarts is back in less.
ANSWER_S: Final = 10.0
_POLL_S: Final = 0.05
#: What the library says of its connections it says to us, and we say it. A broker that comes back is met within a second.
CONNECTING: Final[Mapping[str, Any]] = {
    "log_level": 0,
    "allow.auto.create.topics": False,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1000,
}

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is: whoever makes it again gives it another id."""

    name: str
    topic_id: str
    partitions: int

    @property
    def places(self) -> list[KafkaPartition]:
        return [KafkaPartition(topic=self.name, partition=number) for number in range(self.partitions)]


@dataclass(frozen=True, slots=True)
class Log:
    """From where to where a partition has records: up to the last stable offset, behind which a transaction is open."""

    start: int
    stable_end: int


class Cluster:
    """Connects when it is asked something for the first time. Each answer is of this moment: nothing is kept."""

    def __init__(self, source: KafkaSource, storage: StorageSettings) -> None:
        self.servers = ",".join(source.bootstrap_servers)
        self.properties = client_properties(source.bootstrap_servers, storage)
        self._client: AdminClient | None = None
        #: What the library met last while it connected. No method of ours, so that nothing refers to the client in a circle:
        #: it is closed when it is let go.
        self._errors: deque[KafkaError] = deque(maxlen=1)

    @property
    def _admin(self) -> AdminClient:
        if self._client is None:
            configuration: dict[str, Any] = {**self.properties, **CONNECTING, "error_cb": self._errors.append}
            try:
                self._client = AdminClient(configuration)
            except (KafkaException, ValueError) as error:
                raise NeedsChange(
                    reasons.MANIFEST_INVALID,
                    f"source: no client of the Kafka cluster {self.servers} can be made: {one_line(error)}; correct its entry "
                    "(kafka in the settings)",
                ) from error
        return self._client

    @property
    def _last_error(self) -> KafkaError | None:
        return self._errors[-1] if self._errors else None

    def cluster_id(self) -> str:
        return str(self._answer("which cluster it is", self._admin.describe_cluster(request_timeout=ANSWER_S)).cluster_id)

    def topics(self, source: KafkaSource) -> list[Topic]:
        """Return the topics that a source means, by name. NeedsChange(SourceMissing) if one that it names is not there."""
        if source.topics is not None:
            return self._described(source.topics)
        assert source.pattern is not None
        pattern = re.compile(source.pattern)
        return self._described([name for name in self._all_names() if pattern.fullmatch(name)], may_vanish=True)

    def topic(self, name: str) -> Topic | None:
        return next(iter(self._described([name], may_vanish=True)), None)

    def logs(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, Log]:
        """Return from where to where each log goes."""
        partitions = {TopicPartition(place.topic, place.partition): place for place in places}
        if not partitions:
            return {}
        # The beginnings last: what retention removes meanwhile is missing then, and is told.
        ends = self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        starts = self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        return {place: Log(starts[place], max(starts[place], ends[place])) for place in places}

    def check_unchanged(self, file: SourceFile) -> None:
        """Raise NeedsChange(SourceChanged) if the topic of a partition is gone, or was made again."""
        assert file.kafka is not None
        topic = self.topic(file.kafka.topic)
        if topic is None or topic.topic_id != file.etag:
            raise made_again(file.kafka.topic, file.etag, None if topic is None else topic.topic_id)

    def _offsets(self, partitions: Mapping[TopicPartition, KafkaPartition], spec: OffsetSpec) -> dict[KafkaPartition, int]:
        futures = self._admin.list_offsets(
            dict.fromkeys(partitions, spec), isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_S
        )
        what = "from where to where its logs go"
        return {partitions[partition]: int(self._answer(what, future).offset) for partition, future in futures.items()}

    def _described(self, names: Iterable[str], *, may_vanish: bool = False) -> list[Topic]:
        wanted = sorted(names)
        if not wanted:
            return []
        futures = self._admin.describe_topics(TopicCollection(wanted), request_timeout=ANSWER_S)
        found = []
        for name in wanted:
            try:
                described = self._answer(f"what the topic {name} is", futures[name])
            except _UnknownTopic:
                if may_vanish:
                    continue
                raise no_topic(name, self.servers) from None
            if not described.is_internal:
                found.append(Topic(name, str(described.topic_id), len(described.partitions)))
        return found

    def _all_names(self) -> list[str]:
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                return sorted(self._admin.list_topics(timeout=1.0).topics)
            except KafkaException as error:
                self._refuse_or_wait(error.args[0], deadline, "which topics there are", error)

    def _answer(self, what: str, future: Future[_Answer]) -> _Answer:
        """Return an answer. What the library meets while it connects is told while we wait, and by no answer."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            self._admin.poll(_POLL_S)
            if future.done():
                break
            self._refuse_or_wait(None, deadline, what)
        try:
            return future.result()
        except KafkaException as error:
            raise self._translated(error.args[0], what) from error

    def _refuse_or_wait(self, error: KafkaError | None, deadline: float, what: str, cause: BaseException | None = None) -> None:
        self._admin.poll(0)
        for one in (error, self._last_error):
            if one is not None and (no := refused(one, self.servers)) is not None:
                raise no from cause
        if time.monotonic() >= deadline:
            raise unavailable(self._last_error or error, self.servers, what) from cause

    def _translated(self, error: KafkaError, what: str) -> CheckpointError:
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return _UnknownTopic(reasons.SOURCE_MISSING, f"source: {what}: there is no such topic any more")
        no = refused(error, self.servers)
        if no is None and self._last_error is not None:
            no = refused(self._last_error, self.servers)
        return no or unavailable(self._last_error or error, self.servers, what)


class _UnknownTopic(NeedsChange):
    pass


def entry_of(servers: Sequence[str], settings: StorageSettings) -> KafkaEntry | None:
    """Return the entry of a cluster; None if it has none. NeedsChange if it is not granted, or has not all of the servers."""
    place = settings.place.name("kafka")
    entry = next((entry for entry in settings.kafka if not set(servers).isdisjoint(entry.bootstrap_servers)), None)
    if entry is None:
        return None
    if others := sorted(set(servers) - set(entry.bootstrap_servers)):
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"source.kafka.bootstrapServers: {', '.join(others)} is not among the bootstrap_servers of the entry ({place}) that "
            "has the others, and credentials go to no other servers; leave it out, or add it there",
        )
    tenant = settings.tenant
    if tenant is not None and not tenant.is_granted(entry.namespaces):
        raise NeedsChange(
            reasons.ACCESS_NOT_GRANTED,
            f"writes of the namespace {tenant.namespace} may not use the Kafka cluster {', '.join(servers)}; the "
            f"administrator of the operator can add {tenant.namespace} to the namespaces of its entry, in {place}",
        )
    return entry


def client_properties(servers: Sequence[str], settings: StorageSettings) -> dict[str, str]:
    """Return the properties by which clients of librdkafka reach a cluster. NeedsChange if it is not granted.

    Without an entry they say who we are to nobody: plain text, and no credentials.
    """
    named = {"bootstrap.servers": ",".join(servers)}
    entry, place = entry_of(servers, settings), settings.place.name("kafka")
    if entry is None:
        return named
    options = {
        "security.protocol": entry.security_protocol,
        "sasl.mechanism": entry.sasl_mechanism,
        "sasl.username": entry.username,
        "sasl.password": None if entry.password is None else reveal(entry.password, place),
        "ssl.ca.location": entry.ca_file,
        "ssl.certificate.location": entry.certificate_file,
        "ssl.key.location": entry.key_file,
    }
    return named | {name: value for name, value in options.items() if value is not None}
