"""The client of a schema registry: schemas by id, and the newest one of a subject.

Of the libraries, confluent-kafka's own client needs seven more packages (`confluent-kafka[schemaregistry]`); what is asked here
are three GET requests.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import quote

import urllib3

from checkpoint_formats.kafka.cluster import entry_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable, one_line
from checkpoint_protocol.places.kafka_settings import SchemaRegistryEntry
from checkpoint_protocol.places.setting_values import reveal
from checkpoint_protocol.places.storage import StorageSettings

#: How long the registry may take to connect, and then between two parts of its answer.
_ANSWER_S: Final = 10.0
#: An answer that is larger is refused: a schema of that size is none that a person wrote.
_MOST_BYTES: Final = 1 << 20
#: How many schemas one schema may be made of, with those that it refers to.
_MOST_REFERENCES: Final = 200
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
#: The registry's own codes, beside 404: that it has no such subject, version or schema.
_NOT_FOUND: Final = {40401, 40402, 40403}
_BUSY: Final = {408, 425, 429}
#: A connection that was kept may have been closed at the other end meanwhile. Answers are not asked for again.
_ONCE_MORE: Final = urllib3.Retry(1, status=0)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as it is registered. `references`: the schemas that it refers to, by the names that it has for them."""

    schema_id: int
    kind: str
    text: str
    references: Mapping[str, RegisteredSchema]

    @property
    def referred(self) -> tuple[str, ...]:
        """The texts that it refers to, each once, and before those that refer to it."""
        found: dict[str, None] = {}
        for one in self.references.values():
            found |= dict.fromkeys((*one.referred, one.text))
        return tuple(found)

    @property
    def by_name(self) -> dict[str, str]:
        """The texts that it refers to, at all depths, by the names that are used for them."""
        found: dict[str, str] = {}
        for name, other in self.references.items():
            found |= {name: other.text, **other.by_name}
        return found


class UnknownSchema(ValueError):
    """The registry has answered, and has no such schema that can be used."""


Kind = Literal["AVRO", "JSON", "PROTOBUF"]
#: How a registry is asked to give schemas, where not as their texts.
_FORMATS: Final[Mapping[Kind, str]] = {"PROTOBUF": "serialized"}
#: Schemas that this process has fetched, by the registry's URL and their ids. What an id means never changes.
_FETCHED: Final[dict[tuple[str, int], RegisteredSchema]] = {}
_MOST_FETCHED: Final = 1_000
_LOCK: Final = threading.Lock()


class SchemaRegistry:
    """Connects when it is asked something for the first time.

    Each method raises Retryable(SourceUnavailable) if the registry does not answer, and NeedsChange if it refuses us.
    """

    def __init__(self, entry: SchemaRegistryEntry, storage: StorageSettings) -> None:
        self.url = entry.url.rstrip("/")
        self._entry = entry
        self._place = storage.place.name("kafka")
        self._pool: urllib3.PoolManager | None = None
        self._headers = {"Accept": _ACCEPT}
        if entry.username is not None and entry.password is not None:
            credentials = f"{entry.username}:{reveal(entry.password, self._place)}"
            self._headers |= urllib3.make_headers(basic_auth=credentials)

    def by_id(self, schema_id: int, kind: Kind) -> RegisteredSchema:
        """Return a schema of a kind. UnknownSchema if there is none with this id. Those of Protobuf are files in base64."""
        with _LOCK:
            known = _FETCHED.get((self.url, schema_id))
        if known is not None and known.kind == kind:
            return known
        found = self._fetched(schema_id, kind)
        if found.kind != kind:  # not kept: the text is one in which schemas of the other kind are given
            raise UnknownSchema(f"it is a schema of type {found.kind}, and {kind} is expected")
        with _LOCK:
            if len(_FETCHED) >= _MOST_FETCHED:
                _FETCHED.clear()
            _FETCHED[self.url, schema_id] = found
        return found

    def _fetched(self, schema_id: int, kind: Kind) -> RegisteredSchema:
        answer = self._get(f"/schemas/ids/{schema_id}", _FORMATS.get(kind))
        if answer is None:
            raise UnknownSchema(f"the schema registry {self.url} has no schema with the id {schema_id}")
        return self._with_references(schema_id, answer, _FORMATS.get(kind), [_MOST_REFERENCES])

    def newest_id(self, subject: str) -> int | None:
        """Return the id of the newest schema of a subject; None if the registry does not have the subject."""
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if answer is None:
            return None
        if not isinstance(found := answer.get("id"), int):
            raise self._no_registry("the newest version of a subject has no id")
        return found

    def _with_references(self, schema_id: int, answer: Mapping[str, Any], form: str | None, room: list[int]) -> RegisteredSchema:
        """`room`: how many more references there may be. One that leads back to where it came from ends by that, too."""
        text, kind = answer.get("schema"), answer.get("schemaType", "AVRO")
        if not isinstance(text, str) or not isinstance(kind, str):
            raise self._no_registry("a schema has no text")
        found = {}
        for reference in answer.get("references") or ():
            match reference:
                case {"name": str(name), "subject": str(subject), "version": int(version)}:
                    pass
                case _:
                    raise self._no_registry("a reference of a schema has no name, subject and version")
            room[0] -= 1
            if room[0] < 0:
                raise UnknownSchema(f"it refers to more than {_MOST_REFERENCES} schemas, or to itself")
            other = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true", form)
            if other is None:
                raise UnknownSchema(f"it refers to version {version} of {subject}, which the registry {self.url} does not have")
            found[name] = self._with_references(schema_id, other, form, room)
        return RegisteredSchema(schema_id, kind, text, found)

    def _get(self, path: str, form: str | None = None) -> dict[str, Any] | None:
        """Return an answer; None if the registry says, in its own words, that it has no such thing. `form`: of its schemas."""
        if form is not None:
            path = f"{path}{'&' if '?' in path else '?'}format={form}"
        status, body = self._request(path)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if status == 200 and isinstance(answer, dict):
            return answer
        if status == 404 and isinstance(answer, dict) and answer.get("error_code") in _NOT_FOUND:
            return None
        raise self._meaning(status, answer)

    def _request(self, path: str) -> tuple[int, bytes]:
        try:
            # No redirects: credentials go to no other place.
            response = self._connections().request(
                "GET", self.url + path, headers=self._headers, retries=_ONCE_MORE, redirect=False, preload_content=False
            )
            try:
                body = response.read(_MOST_BYTES + 1, decode_content=False)
            finally:
                response.close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unavailable(one_line(error)) from error
        if len(body) > _MOST_BYTES:
            raise UnknownSchema(f"the answer of {self.url} for {path} has more than {_MOST_BYTES >> 20} MiB")
        return response.status, body

    def _connections(self) -> urllib3.PoolManager:
        if self._pool is None:
            try:
                context = ssl.create_default_context(cafile=self._entry.ca_file)
            except OSError as error:
                raise NeedsChange(
                    reasons.MANIFEST_INVALID,
                    f"source: the certificates {self._entry.ca_file} of the schema registry {self.url} cannot be read: "
                    f"{one_line(error)}; correct ca_file in schema_registry of the cluster's entry ({self._place})",
                ) from error
            self._pool = urllib3.PoolManager(timeout=urllib3.Timeout(connect=_ANSWER_S, read=_ANSWER_S), ssl_context=context)
        return self._pool

    def _meaning(self, status: int, answer: object) -> CheckpointError:
        said = one_line(answer["message"]) if isinstance(answer, dict) and "message" in answer else ""
        why = f"HTTP {status}" + (f": {said}" if said else "")
        if status in (401, 403):
            return NeedsChange(
                reasons.CREDENTIALS_REFUSED,
                f"source: the schema registry {self.url} refused us: {why}; put username and password in schema_registry of the "
                f"cluster's entry right ({self._place}), or have the user be granted to read its subjects",
            )
        if status >= 500 or status in _BUSY:
            return self._unavailable(why)
        return self._no_registry(why)

    def _unavailable(self, why: str) -> Retryable:
        return Retryable(
            reasons.SOURCE_UNAVAILABLE,
            f"source: the schema registry {self.url} does not answer: {why}; check its url in schema_registry of the cluster's "
            f"entry ({self._place}), and the network between it and drivers and executors",
        )

    def _no_registry(self, why: str) -> NeedsChange:
        return NeedsChange(
            reasons.SOURCE_UNREADABLE,
            f"source: {self.url} does not answer as a schema registry does: {why}; correct url in schema_registry of the "
            f"cluster's entry ({self._place})",
        )


def registry_of(servers: Sequence[str], storage: StorageSettings) -> SchemaRegistry:
    """Return the registry of a cluster. NeedsChange(ManifestInvalid) if its entry has none."""
    entry = entry_of(servers, storage)
    if entry is None or entry.schema_registry is None:
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"source.kafka.format: the values need a schema registry, and none is declared for {', '.join(servers)}; add "
            f"schema_registry with its url to the entry of the cluster ({storage.place.name('kafka')})",
        )
    return SchemaRegistry(entry.schema_registry, storage)
